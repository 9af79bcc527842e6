//! How a product is cut into passes of a vector kernel: blocks of rows, and columns that stay near
//! while blocks change.

use alloc::vec;
use alloc::vec::Vec;

use super::blocks::Block;
use super::{LINE, Product, Start, Stores};

/// How far ahead of their use inputs are asked for, in bytes. From 512 to 2048 it makes little
/// difference.
const AHEAD: usize = 1024;
/// Columns of a tile: the inputs of one stay in the core's cache while blocks of rows change, the
/// sums of one block in its nearest.
const TILE: usize = 2048;

/// What one block of rows does in one tile.
///
/// Made by [`each`] alone, which sees to this: from where they point, sources can be read and
/// targets be written for `bytes` bytes, and sources up to and with the line `last`; no target
/// overlaps anything else; `bytes` are whole [`LINE`]s.
pub(super) struct Pass<'a, F> {
    /// Where the tile of each input begins.
    pub(super) sources: &'a [*const u8],
    /// Where the sums of each row go.
    pub(super) targets: &'a [*mut u8],
    /// What the kernel made of the factors of the block.
    pub(super) factors: &'a [F],
    /// Columns of the tile.
    pub(super) bytes: usize,
    pub(super) start: Start,
    last: usize,
}

impl<F> Pass<'_, F> {
    /// The line that is to be asked for when the line `at` of an input is read.
    #[inline]
    pub(super) fn ahead(&self, at: usize) -> usize {
        self.last.min(at + AHEAD)
    }
}

/// Runs every pass of a product. `run` does one. `stream` writes lines past the caches; sums that
/// go that way do so row by row, from a place in the nearest cache: written straight from registers,
/// they would make memory hop between the rows.
///
/// # Panics
/// If inputs, outputs or the span are not as a [`Product`] says.
pub(super) fn each<F>(
    product: &mut Product<'_, '_, '_>,
    blocks: &[Block],
    factors: impl Fn(Block) -> Vec<F>,
    run: impl Fn(Block, &Pass<'_, F>),
    stream: impl Fn(&[u8], &mut [u8]),
) {
    let span = product.span.clone();
    assert!(
        product
            .outputs
            .iter()
            .all(|output| output.len() >= span.end)
    );
    assert!(product.inputs.iter().all(|input| input.len() >= span.end));
    assert!(span.len().is_multiple_of(LINE));
    let blocks: Vec<_> = blocks
        .iter()
        .map(|&block| (block, factors(block)))
        .collect();
    let mut place = match product.stores {
        Stores::Cached => Vec::new(),
        Stores::Streamed => {
            let rows = blocks.iter().map(|(block, _)| block.rows().len()).max();
            vec![0; rows.unwrap_or(0) * TILE + LINE]
        }
    };
    let skip = place.as_ptr().align_offset(LINE).min(place.len());
    for from in span.clone().step_by(TILE) {
        let bytes = TILE.min(span.end - from);
        let inputs = product.inputs.iter();
        let sources: Vec<_> = inputs.map(|input| input[from..].as_ptr()).collect();
        for (block, factors) in &blocks {
            let outputs = &mut product.outputs[block.rows()];
            let mut sums: Vec<&mut [u8]> = match product.stores {
                Stores::Cached => outputs
                    .iter_mut()
                    .map(|output| &mut output[from..][..bytes])
                    .collect(),
                Stores::Streamed => place[skip..]
                    .chunks_exact_mut(TILE)
                    .take(outputs.len())
                    .collect(),
            };
            let targets: Vec<_> = sums.iter_mut().map(|sums| sums.as_mut_ptr()).collect();
            run(
                *block,
                &Pass {
                    sources: &sources,
                    targets: &targets,
                    factors,
                    bytes,
                    start: product.start,
                    last: span.end - from - LINE,
                },
            );
            if product.stores == Stores::Streamed {
                for (output, sums) in outputs.iter_mut().zip(place[skip..].chunks_exact(TILE)) {
                    stream(&sums[..bytes], &mut output[from..][..bytes]);
                }
            }
        }
    }
}
