//! Transforms groups of interleaved blocks.
//!
//! A group is processed in bands of blocks that fit in a near cache. Encoding transforms the blocks
//! of a band there and then copies the runs of coefficients to the packets. Decoding copies the
//! runs of the band from the packets and then transforms the blocks.
//!
//! A copy of single short runs between the band and far memory would be slow. So if runs are
//! shorter than a cache line, one line of columns of the band is first arranged in a buffer in
//! packet order. Far memory then sees long contiguous pieces.

use super::element::Element;
use super::interleave::Part;
use super::kernel::{LINE, Matrix};
use super::{Scratch, Transform, scale};
use crate::kernel::{Kernel, Stores};

/// Floats of a band: 1 MiB, which fits in a second-level cache.
const BAND: usize = 1 << 18;
/// Maximum number of blocks of a band. With runs of one coefficient, a band contributes 16 lines of
/// floats to each packet. Writing them with streaming stores takes 1.5 times as long.
const ROWS: usize = 16 * LINE;

/// Blocks `first..first + rows` of a group, converted to floats, one block per row.
struct Band<'a> {
    kernel: Kernel,
    floats: &'a mut [f32],
    /// Floats from one row to the next: a line more than a block. Rows at a distance of a power of
    /// two would map to the same cache sets and evict each other.
    pitch: usize,
    /// A buffer for some columns in packet order.
    columns: &'a mut [f32],
    first: usize,
    rows: usize,
    blocks: usize,
    block: usize,
    run: usize,
}

impl Transform {
    /// Transforms the blocks of a group and interleaves their coefficients.
    pub(super) fn encode_group<T: Element>(
        &self,
        values: &[T],
        encoded: &mut [T],
        part: &Part,
        place: &mut Scratch,
    ) {
        self.bands(part, place, |band| {
            let values = &values[band.first * band.block..];
            for (row, values) in values.chunks(band.block).take(band.rows).enumerate() {
                let scale = scale(band.block);
                let (kernel, block) = (band.kernel, band.block);
                kernel.transform(values, band.row(row), block, scale);
            }
            band.interleave(encoded);
        });
    }

    /// Inverts [`Self::encode_group`]. `factor` multiplies the coefficients.
    pub(super) fn decode_group<T: Element>(
        &self,
        encoded: &[T],
        values: &mut [T],
        part: &Part,
        factor: f32,
        place: &mut Scratch,
    ) {
        let stores = place.stores;
        self.bands(part, place, |band| {
            band.deinterleave(encoded);
            let values = &mut values[band.first * band.block..];
            for (row, values) in values.chunks_mut(band.block).take(band.rows).enumerate() {
                let scale = scale(band.block) * factor;
                let (kernel, block) = (band.kernel, band.block);
                kernel.transform_in_place(band.row(row), block, scale);
                kernel.round(band.row(row), values, stores);
            }
        });
    }

    fn bands(&self, part: &Part, place: &mut Scratch, mut each: impl FnMut(&mut Band<'_>)) {
        let (block, blocks) = (part.block, part.range.len() / part.block);
        let rows = (BAND / block).clamp(1, ROWS).min(blocks);
        let pitch = block + LINE;
        let floats = place.floats(rows * (pitch + LINE));
        let (floats, columns) = floats.split_at_mut(rows * pitch);
        for first in (0..blocks).step_by(rows) {
            each(&mut Band {
                kernel: self.kernel,
                floats,
                pitch,
                columns,
                first,
                rows: rows.min(blocks - first),
                blocks,
                block,
                run: part.run,
            });
        }
    }
}

impl Band<'_> {
    fn row(&mut self, row: usize) -> &mut [f32] {
        &mut self.floats[row * self.pitch..][..self.block]
    }

    /// Returns the position in the group at which the runs of columns `column..column + run` of
    /// this band begin. The runs of consecutive blocks are contiguous there.
    fn place_of(&self, column: usize) -> usize {
        (column / self.run * self.blocks + self.first) * self.run
    }

    /// Returns the number of columns that are arranged at a time.
    fn width(&self) -> usize {
        self.block.min(LINE)
    }

    fn interleave<T: Element>(&mut self, encoded: &mut [T]) {
        let (run, block, length) = (self.run, self.block, self.rows * self.run);
        if run >= LINE {
            for column in (0..block).step_by(run) {
                let runs = &mut encoded[self.place_of(column)..][..length];
                for (row, target) in runs.chunks_mut(run).enumerate() {
                    let source = &self.floats[row * self.pitch + column..][..run];
                    self.kernel.round(source, target, Stores::Cached);
                }
            }
            return;
        }
        for column in (0..block).step_by(self.width()) {
            self.arrange(column);
            for (i, source) in self.columns[..self.width() * self.rows]
                .chunks(length)
                .enumerate()
            {
                let target = &mut encoded[self.place_of(column + i * run)..][..length];
                self.kernel.round(source, target, Stores::Cached);
            }
        }
    }

    fn deinterleave<T: Element>(&mut self, encoded: &[T]) {
        let (run, block, length) = (self.run, self.block, self.rows * self.run);
        if run >= LINE {
            for column in (0..block).step_by(run) {
                let runs = &encoded[self.place_of(column)..][..length];
                for (row, source) in runs.chunks(run).enumerate() {
                    let target = &mut self.floats[row * self.pitch + column..][..run];
                    self.kernel.widen(source, target);
                }
            }
            return;
        }
        for column in (0..block).step_by(self.width()) {
            for i in 0..self.width() / run {
                let source = &encoded[self.place_of(column + i * run)..][..length];
                let target = &mut self.columns[i * length..][..length];
                self.kernel.widen(source, target);
            }
            self.disarrange(column);
        }
    }

    /// Copies the columns from `column` on to the buffer, in packet order. With runs of one
    /// coefficient this is a transposition.
    fn arrange(&mut self, column: usize) {
        let (run, rows, width) = (self.run, self.rows, self.width());
        if run == 1 {
            let source = Matrix {
                values: &self.floats[column..],
                pitch: self.pitch,
            };
            let mut target = Matrix {
                values: &mut *self.columns,
                pitch: rows,
            };
            return self.kernel.transpose(&source, &mut target, rows, width);
        }
        // Run `i` of the buffer belongs to row `i % rows`: runs are ordered by column first.
        for (i, target) in self.columns[..width * rows].chunks_mut(run).enumerate() {
            let at = i % rows * self.pitch + column + i / rows * run;
            target.copy_from_slice(&self.floats[at..][..run]);
        }
    }

    /// Copies the buffer to the columns from `column` on. Inverts [`Self::arrange`].
    fn disarrange(&mut self, column: usize) {
        let (run, rows, width) = (self.run, self.rows, self.width());
        if run == 1 {
            let source = Matrix {
                values: &*self.columns,
                pitch: rows,
            };
            let mut target = Matrix {
                values: &mut self.floats[column..],
                pitch: self.pitch,
            };
            return self.kernel.transpose(&source, &mut target, width, rows);
        }
        for (i, source) in self.columns[..width * rows].chunks(run).enumerate() {
            let at = i % rows * self.pitch + column + i / rows * run;
            self.floats[at..][..run].copy_from_slice(source);
        }
    }
}
