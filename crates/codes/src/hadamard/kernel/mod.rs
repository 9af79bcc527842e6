//! The instructions that transform, convert and move blocks.
//!
//! [`scalar`] says what is computed. The others are [`vector`] for one instruction set each. All do
//! the same additions level by level, so all give the same bits. (Which payload a NaN has is not
//! defined.)

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
#[cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    allow(dead_code)
)]
mod vector;

use super::element::Element;
use crate::kernel::{Isa, Kernel, Stores};

/// Floats of a cache line. Vector kernels take whole lines.
pub(super) const LINE: usize = 16;

/// A matrix in row-major order, whose rows begin `pitch` elements apart.
#[derive(Debug)]
pub(super) struct Matrix<S> {
    pub(super) values: S,
    pub(super) pitch: usize,
}

impl Kernel {
    /// Transforms blocks: converts them, multiplies by `scale`, and adds and subtracts. Both slices
    /// have one length, which is whole blocks.
    pub(super) fn transform<T: Element>(
        self,
        source: &[T],
        target: &mut [f32],
        block: usize,
        scale: f32,
    ) {
        debug_assert!(source.len() == target.len() && source.len().is_multiple_of(block));
        let lines = self.lines(source.len());
        let (source, source_rest) = source.split_at(lines);
        let (target, target_rest) = target.split_at_mut(lines);
        scalar::convert(source_rest, target_rest);
        scalar::transform(target_rest, block, scale);
        self.work(vector::Transform::new(source, target, block, scale));
    }

    /// Like [`Self::transform`], but in place for blocks that are already floats.
    pub(super) fn transform_in_place(self, values: &mut [f32], block: usize, scale: f32) {
        debug_assert!(values.len().is_multiple_of(block));
        let (values, rest) = values.split_at_mut(self.lines(values.len()));
        scalar::transform(rest, block, scale);
        self.work(vector::Transform::in_place(values, block, scale));
    }

    /// Converts to floats. Both slices have one length.
    pub(super) fn widen<T: Element>(self, source: &[T], target: &mut [f32]) {
        let lines = self.lines(source.len());
        let (source, source_rest) = source.split_at(lines);
        let (target, target_rest) = target.split_at_mut(lines);
        scalar::convert(source_rest, target_rest);
        self.work(vector::Widen::new(source, target));
    }

    /// Rounds floats to the format. Both slices have one length.
    pub(super) fn round<T: Element>(self, source: &[f32], target: &mut [T], stores: Stores) {
        // The last line may overlap the one before, so only short slices need anything else.
        if self.lines(source.len()) == 0 {
            return scalar::round(source, target);
        }
        self.work(vector::Round::new(source, target, stores));
    }

    /// Orders streamed stores before all later ones, such as a lock's. They are otherwise
    /// unordered.
    pub(super) fn end_stream(self, stores: Stores) {
        if stores == Stores::Streamed {
            self.work(vector::EndStream);
        }
    }

    /// Puts element `(row, column)` of the source at `(column, row)` of the target, for `rows`
    /// rows and `columns` columns of the source.
    pub(super) fn transpose(
        self,
        source: &Matrix<&[f32]>,
        target: &mut Matrix<&mut [f32]>,
        rows: usize,
        columns: usize,
    ) {
        if rows.is_multiple_of(LINE) && columns.is_multiple_of(LINE) && self != Self::SCALAR {
            self.work(vector::Transpose::new(source, target, rows, columns));
        } else {
            scalar::transpose(source, target, rows, columns);
        }
    }

    /// How many of `elements` elements vectors take.
    fn lines(self, elements: usize) -> usize {
        match self {
            Self::SCALAR => 0,
            _ => elements - elements % LINE,
        }
    }

    #[allow(unsafe_code)]
    fn work(self, work: impl vector::Work) {
        match self.0 {
            // SAFETY: a value of this kind is only made where the machine has the instructions.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => unsafe { avx512::run(work) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => unsafe { avx2::run(work) },
            // SAFETY: every 64-bit Arm has NEON.
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => unsafe { neon::run(work) },
            // Nothing was left to vectors.
            Isa::Scalar => {}
        }
    }
}
