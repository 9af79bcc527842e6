//! Kernels that transform, convert and move blocks of floats.
//!
//! [`scalar`] defines what all kernels compute. The others are [`vector`], compiled for one
//! instruction set each. All kernels do the same additions, level by level, so all results are the
//! same bits. (The payload of a NaN is not defined.)

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

/// Floats of a cache line. Vector kernels process whole lines.
pub(super) const LINE: usize = 16;

/// A matrix in row-major order. `pitch` is the number of elements from one row to the next.
#[derive(Debug)]
pub(super) struct Matrix<S> {
    pub(super) values: S,
    pub(super) pitch: usize,
}

impl Kernel {
    /// Converts blocks to floats, multiplies them by `scale`, and transforms them. Both slices have
    /// the same length, which is a multiple of `block`.
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

    /// Like [`Self::transform`], but in place, for blocks that are already floats.
    pub(super) fn transform_in_place(self, values: &mut [f32], block: usize, scale: f32) {
        debug_assert!(values.len().is_multiple_of(block));
        let (values, rest) = values.split_at_mut(self.lines(values.len()));
        scalar::transform(rest, block, scale);
        self.work(vector::Transform::in_place(values, block, scale));
    }

    /// Converts to floats. Both slices have the same length.
    pub(super) fn widen<T: Element>(self, source: &[T], target: &mut [f32]) {
        let lines = self.lines(source.len());
        let (source, source_rest) = source.split_at(lines);
        let (target, target_rest) = target.split_at_mut(lines);
        scalar::convert(source_rest, target_rest);
        self.work(vector::Widen::new(source, target));
    }

    /// Rounds floats to the format. Both slices have the same length.
    pub(super) fn round<T: Element>(self, source: &[f32], target: &mut [T], stores: Stores) {
        // The vector kernel handles an incomplete last vector by overlapping the one before it, so
        // only slices of less than a line need the scalar kernel.
        if self.lines(source.len()) == 0 {
            return scalar::round(source, target);
        }
        self.work(vector::Round::new(source, target, stores));
    }

    /// Orders streaming stores before all later stores, such as the release of a lock. Without this
    /// fence they are not ordered.
    pub(super) fn end_stream(self, stores: Stores) {
        if stores == Stores::Streamed {
            self.work(vector::EndStream);
        }
    }

    /// Copies element `(row, column)` of the source to `(column, row)` of the target.
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

    /// Returns how many of `elements` elements the vector kernel processes. The scalar kernel
    /// processes the rest.
    fn lines(self, elements: usize) -> usize {
        match self {
            Self::SCALAR => 0,
            _ => elements - elements % LINE,
        }
    }

    #[allow(unsafe_code)]
    fn work(self, work: impl vector::Work) {
        match self.0 {
            // SAFETY: a value of this variant exists only on machines with the instructions.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => unsafe { avx512::run(work) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => unsafe { avx2::run(work) },
            // SAFETY: every 64-bit Arm has NEON.
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => unsafe { neon::run(work) },
            // The scalar functions have already done all the work.
            Isa::Scalar => {}
        }
    }
}
