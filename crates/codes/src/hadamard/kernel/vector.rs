//! The transform for vectors of any width.
//!
//! The levels are computed in the order of the reference, lowest bit first. The lowest levels
//! combine lanes within a vector. The next levels combine different vectors; several of these
//! levels are computed in one pass, while the vectors are in registers. A block of more than
//! [`TILE`] floats is first transformed tile by tile. The remaining levels combine different tiles.
//! They are computed strip by strip: a strip is the same few columns of several tiles, copied to a
//! small buffer. The copy is needed because lines at a distance of a power of two map to the same
//! cache sets and evict each other.
//!
//! The compiler must inline all of this into the one function per instruction set that enables the
//! instructions. So every function is `inline(always)`, and there are no closures, which do not
//! inherit the enabled instructions.
#![allow(unsafe_code)]

use core::mem::size_of;

use super::super::element::{Element, Format};
use super::{LINE, Matrix};
use crate::kernel::{LINE as LINE_BYTES, Stores};

/// Floats of a tile. They fill half of a small first-level cache.
pub(in super::super) const TILE: usize = 1 << TILE_LEVELS;
const TILE_LEVELS: u32 = 12;
/// Number of levels among tiles that one pass over memory computes.
const STRIP_LEVELS: u32 = 7;
/// Floats of a strip in each tile: four consecutive lines, which memory delivers together.
const STRIP: usize = 4 * LINE;
/// Prefetch distance in bytes. With half or twice as much, floats take a tenth longer.
const AHEAD: usize = 2048;

/// Work for a vector kernel.
pub(super) trait Work {
    /// # Safety
    /// The machine has the instructions of `V`.
    unsafe fn run<V: Vector>(self);
}

/// A vector of floats and its instructions.
///
/// # Safety (of all methods)
/// The machine has the instructions, and each pointer is valid for the elements that the method
/// reads or writes.
pub(super) trait Vector: Copy {
    /// Number of floats in a vector.
    const LANES: usize;
    /// Maximum number of levels among vectors that one pass computes in registers.
    const LEVELS: u32;

    unsafe fn load(source: *const f32) -> Self;
    /// Loads values and converts them to floats.
    unsafe fn load_f16(source: *const u16) -> Self;
    unsafe fn load_bf16(source: *const u16) -> Self;
    unsafe fn store(self, target: *mut f32);
    /// Rounds floats and stores them.
    unsafe fn store_f16(self, target: *mut u16);
    unsafe fn store_bf16(self, target: *mut u16);
    /// Rounds a line's worth of floats to `format` and writes the line with a streaming store.
    /// `target` is aligned to a line.
    unsafe fn stream(source: *const f32, target: *mut u8, format: Format);
    /// Orders streaming stores before all later stores.
    unsafe fn end_stream();
    /// Prefetches the line at `at`. The address need not be valid.
    unsafe fn prefetch(at: *const u8);

    unsafe fn splat(value: f32) -> Self;
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn sub(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    /// Computes one level within the vector: replaces each two lanes whose indices differ only in
    /// bit `level` by their sum and their difference.
    unsafe fn within(self, level: u32) -> Self;
    /// Transposes a square of [`Self::LANES`] rows and columns. A pitch is the number of floats
    /// from one row to the next.
    unsafe fn transpose(
        source: *const f32,
        source_pitch: usize,
        target: *mut f32,
        target_pitch: usize,
    );
}

/// Converts blocks to floats and transforms them.
pub(super) struct Transform<T> {
    source: *const T,
    target: *mut f32,
    elements: usize,
    block: usize,
    scale: f32,
}

impl<T: Element> Transform<T> {
    /// The length of the slices is a multiple of a line and of a block.
    pub(super) fn new(source: &[T], target: &mut [f32], block: usize, scale: f32) -> Self {
        assert_eq!(source.len(), target.len());
        assert!(source.len().is_multiple_of(block.max(LINE)) && block.is_power_of_two());
        Self {
            source: source.as_ptr(),
            target: target.as_mut_ptr(),
            elements: target.len(),
            block,
            scale,
        }
    }
}

impl Transform<f32> {
    /// Like [`Self::new`], with the same slice as source and target.
    pub(super) fn in_place(values: &mut [f32], block: usize, scale: f32) -> Self {
        assert!(values.len().is_multiple_of(block.max(LINE)) && block.is_power_of_two());
        let target = values.as_mut_ptr();
        Self {
            source: target,
            target,
            elements: values.len(),
            block,
            scale,
        }
    }
}

impl<T: Element> Work for Transform<T> {
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let levels = self.block.ilog2();
        // SAFETY: all tiles are within both slices, whose lengths are multiples of a line and of
        // the block, as `new` asserted. The caller guarantees the instructions.
        unsafe {
            for at in (0..self.elements).step_by(TILE) {
                let elements = TILE.min(self.elements - at);
                let (source, target) = (self.source.add(at), self.target.add(at));
                tile::<V, T>(
                    source,
                    target,
                    elements,
                    levels.min(TILE_LEVELS),
                    self.scale,
                );
            }
            if levels > TILE_LEVELS {
                let mut place = Strip([0.0; STRIP << STRIP_LEVELS]);
                for at in (0..self.elements).step_by(self.block) {
                    strips::<V>(self.target.add(at), levels, &mut place);
                }
            }
        }
    }
}

/// Computes the first `levels` levels of the elements of a tile: all levels of a block that fits in
/// a tile, or the lowest ones of a larger block.
///
/// # Safety
/// `elements` elements can be read at `source` and written at `target`. Their number is a multiple
/// of a line and of `2^levels`. The machine has the instructions of `V`.
#[inline(always)]
unsafe fn tile<V: Vector, T: Element>(
    source: *const T,
    target: *mut f32,
    elements: usize,
    levels: u32,
    scale: f32,
) {
    let within = V::LANES.ilog2();
    let among = levels.saturating_sub(within).min(V::LEVELS);
    // SAFETY: as the caller guarantees. A pass of `first` takes `2^among` vectors, and `levels` is
    // large enough for them.
    unsafe {
        match among {
            0 => first::<V, T, 1>(source, target, elements, levels.min(within), scale),
            1 => first::<V, T, 2>(source, target, elements, within, scale),
            2 => first::<V, T, 4>(source, target, elements, within, scale),
            3 => first::<V, T, 8>(source, target, elements, within, scale),
            _ => first::<V, T, 16>(source, target, elements, within, scale),
        }
        if levels > within + among {
            columns::<V>(target, elements, within + among, levels);
        }
    }
}

/// Computes the lowest `within` levels, which are within vectors, and then the levels among each
/// `R` consecutive vectors.
///
/// # Safety
/// As for [`tile`]. The number of elements is a multiple of `R` vectors.
#[inline(always)]
unsafe fn first<V: Vector, T: Element, const R: usize>(
    source: *const T,
    target: *mut f32,
    elements: usize,
    within: u32,
    scale: f32,
) {
    // SAFETY: as the caller guarantees.
    unsafe {
        let scale = V::splat(scale);
        for at in (0..elements).step_by(R * V::LANES) {
            let mut vectors = [scale; R];
            for (i, vector) in vectors.iter_mut().enumerate() {
                let source = source.add(at + i * V::LANES);
                V::prefetch(source.cast::<u8>().wrapping_add(AHEAD));
                *vector = load::<V, T>(source).mul(scale);
                // In the usual case the number of levels is constant, so the compiler unrolls the
                // loop.
                if within == V::LANES.ilog2() {
                    for level in 0..V::LANES.ilog2() {
                        *vector = vector.within(level);
                    }
                } else {
                    for level in 0..within {
                        *vector = vector.within(level);
                    }
                }
            }
            butterflies(&mut vectors);
            for (i, vector) in vectors.into_iter().enumerate() {
                vector.store(target.add(at + i * V::LANES));
            }
        }
    }
}

/// Computes the levels `from..to`, all of which are among vectors.
///
/// # Safety
/// `elements` elements can be read and written at `values`. Their number is a multiple of `2^to`.
/// The machine has the instructions of `V`.
#[inline(always)]
unsafe fn columns<V: Vector>(values: *mut f32, elements: usize, from: u32, to: u32) {
    let mut level = from;
    while level < to {
        // Passes have about equal numbers of levels.
        let left = to - level;
        let depth = left.div_ceil(left.div_ceil(V::LEVELS));
        // SAFETY: as the caller guarantees. The levels of the pass are in `from..to`.
        unsafe {
            match depth {
                1 => column::<V, 2>(values, elements, 1 << level),
                2 => column::<V, 4>(values, elements, 1 << level),
                3 => column::<V, 8>(values, elements, 1 << level),
                _ => column::<V, 16>(values, elements, 1 << level),
            }
        }
        level += depth;
    }
}

/// Computes `log2(R)` levels among `R` vectors that are `half` elements apart, for all such
/// vectors.
///
/// # Safety
/// `elements` elements can be read and written at `values`. Their number is a multiple of
/// `R * half`, and `half` is a multiple of a vector. The machine has the instructions of `V`.
#[inline(always)]
unsafe fn column<V: Vector, const R: usize>(values: *mut f32, elements: usize, half: usize) {
    for start in (0..elements).step_by(R * half) {
        for at in (start..start + half).step_by(V::LANES) {
            // SAFETY: as the caller guarantees.
            unsafe {
                let mut vectors = [V::splat(0.0); R];
                for (i, vector) in vectors.iter_mut().enumerate() {
                    *vector = V::load(values.add(at + i * half));
                }
                butterflies(&mut vectors);
                for (i, vector) in vectors.into_iter().enumerate() {
                    vector.store(values.add(at + i * half));
                }
            }
        }
    }
}

/// Computes `log2(R)` levels of butterflies among `R` vectors in registers.
///
/// # Safety
/// The machine has the instructions of `V`.
#[inline(always)]
unsafe fn butterflies<V: Vector, const R: usize>(vectors: &mut [V; R]) {
    let mut half = 1;
    while half < R {
        for i in 0..R {
            if i & half == 0 {
                let (low, high) = (vectors[i], vectors[i + half]);
                // SAFETY: as the caller guarantees.
                (vectors[i], vectors[i + half]) = unsafe { (low.add(high), low.sub(high)) };
            }
        }
        half *= 2;
    }
}

/// A buffer for a strip. It stays in the nearest cache.
#[repr(align(64))]
struct Strip([f32; STRIP << STRIP_LEVELS]);

/// Computes the levels of a large block that are among its tiles.
///
/// # Safety
/// `2^levels` elements can be read and written at `block`. The machine has the instructions of `V`.
#[inline(always)]
unsafe fn strips<V: Vector>(block: *mut f32, levels: u32, place: &mut Strip) {
    let place = place.0.as_mut_ptr();
    let mut level = TILE_LEVELS;
    while level < levels {
        let left = levels - level;
        let depth = left.div_ceil(left.div_ceil(STRIP_LEVELS));
        let (half, rows) = (1 << level, 1 << depth);
        for start in (0..1 << levels).step_by(rows * half) {
            for at in (start..start + half).step_by(STRIP) {
                // SAFETY: the strip is in the block, and the buffer has room for its rows.
                unsafe {
                    for row in 0..rows {
                        copy::<V>(block.add(at + row * half), place.add(row * STRIP));
                    }
                    let within = STRIP.ilog2();
                    columns::<V>(place, rows * STRIP, within, within + depth);
                    for row in 0..rows {
                        copy::<V>(place.add(row * STRIP), block.add(at + row * half));
                    }
                }
            }
        }
        level += depth;
    }
}

/// # Safety
/// [`STRIP`] floats can be read at `source` and written at `target`.
#[inline(always)]
unsafe fn copy<V: Vector>(source: *const f32, target: *mut f32) {
    for at in (0..STRIP).step_by(V::LANES) {
        // SAFETY: as the caller guarantees.
        unsafe { V::load(source.add(at)).store(target.add(at)) };
    }
}

pub(super) struct Widen<T> {
    source: *const T,
    target: *mut f32,
    elements: usize,
}

impl<T: Element> Widen<T> {
    /// The slices have the same length, which is a multiple of a line.
    pub(super) fn new(source: &[T], target: &mut [f32]) -> Self {
        assert!(source.len() == target.len() && source.len().is_multiple_of(LINE));
        Self {
            source: source.as_ptr(),
            target: target.as_mut_ptr(),
            elements: target.len(),
        }
    }
}

impl<T: Element> Work for Widen<T> {
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        for at in (0..self.elements).step_by(V::LANES) {
            // SAFETY: the vector is within both slices, as `new` asserted.
            unsafe { load::<V, T>(self.source.add(at)).store(self.target.add(at)) };
        }
    }
}

pub(super) struct Round<T> {
    source: *const f32,
    target: *mut T,
    elements: usize,
    stores: Stores,
}

impl<T: Element> Round<T> {
    /// The slices have the same length, which is at least a line.
    pub(super) fn new(source: &[f32], target: &mut [T], stores: Stores) -> Self {
        assert!(source.len() == target.len() && source.len() >= LINE);
        Self {
            source: source.as_ptr(),
            target: target.as_mut_ptr(),
            elements: target.len(),
            stores,
        }
    }
}

impl<T: Element> Work for Round<T> {
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let line = LINE_BYTES / size_of::<T>();
        let skip = self.target.align_offset(LINE_BYTES);
        let (mut begin, mut end) = (0, 0);
        if self.stores == Stores::Streamed && skip <= self.elements {
            begin = skip;
            end = skip + (self.elements - skip) / line * line;
        }
        // SAFETY: every access is within both slices.
        unsafe {
            self.cached::<V>(0, begin);
            for at in (begin..end).step_by(line) {
                V::stream(self.source.add(at), self.target.add(at).cast(), T::FORMAT);
            }
            self.cached::<V>(end, self.elements);
        }
    }
}

impl<T: Element> Round<T> {
    /// Writes the elements `begin..end` with normal stores. It works in whole vectors, so it can
    /// write some elements from `end` on; an incomplete last vector begins before `begin` if it
    /// would end after the slice.
    ///
    /// # Safety
    /// The machine has the instructions of `V`.
    #[inline(always)]
    unsafe fn cached<V: Vector>(&self, begin: usize, end: usize) {
        for at in (begin..end).step_by(V::LANES) {
            let at = at.min(self.elements - V::LANES);
            // SAFETY: both slices have at least a line, as `new` asserted, so the vector at `at` is
            // within both.
            unsafe { store::<V, T>(V::load(self.source.add(at)), self.target.add(at)) };
        }
    }
}

pub(super) struct EndStream;

impl Work for EndStream {
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        // SAFETY: as the caller guarantees.
        unsafe { V::end_stream() };
    }
}

pub(super) struct Transpose {
    source: Matrix<*const f32>,
    target: Matrix<*mut f32>,
    rows: usize,
    columns: usize,
}

impl Transpose {
    /// The numbers of rows and columns of the source are multiples of a line.
    pub(super) fn new(
        source: &Matrix<&[f32]>,
        target: &mut Matrix<&mut [f32]>,
        rows: usize,
        columns: usize,
    ) -> Self {
        assert!(rows.is_multiple_of(LINE) && columns.is_multiple_of(LINE));
        let fits = |elements: usize, pitch: usize, rows: usize, columns: usize| {
            rows == 0 || columns == 0 || (rows - 1) * pitch + columns <= elements
        };
        assert!(fits(source.values.len(), source.pitch, rows, columns));
        assert!(fits(target.values.len(), target.pitch, columns, rows));
        Self {
            source: Matrix {
                values: source.values.as_ptr(),
                pitch: source.pitch,
            },
            target: Matrix {
                values: target.values.as_mut_ptr(),
                pitch: target.pitch,
            },
            rows,
            columns,
        }
    }
}

impl Work for Transpose {
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let (source, target) = (self.source, self.target);
        for row in (0..self.rows).step_by(V::LANES) {
            for column in (0..self.columns).step_by(V::LANES) {
                // SAFETY: the square is in both matrices, as `new` asserted.
                unsafe {
                    let from = source.values.add(row * source.pitch + column);
                    let to = target.values.add(column * target.pitch + row);
                    V::transpose(from, source.pitch, to, target.pitch);
                }
            }
        }
    }
}

/// # Safety
/// The elements of a vector can be read at `source`.
#[inline(always)]
unsafe fn load<V: Vector, T: Element>(source: *const T) -> V {
    // SAFETY: as the caller guarantees. `FORMAT` is the format of `T`.
    unsafe {
        match T::FORMAT {
            Format::F32 => V::load(source.cast()),
            Format::F16 => V::load_f16(source.cast()),
            Format::Bf16 => V::load_bf16(source.cast()),
        }
    }
}

/// # Safety
/// The elements of a vector can be written at `target`.
#[inline(always)]
unsafe fn store<V: Vector, T: Element>(vector: V, target: *mut T) {
    // SAFETY: as the caller guarantees. `FORMAT` is the format of `T`.
    unsafe {
        match T::FORMAT {
            Format::F32 => vector.store(target.cast()),
            Format::F16 => vector.store_f16(target.cast()),
            Format::Bf16 => vector.store_bf16(target.cast()),
        }
    }
}
