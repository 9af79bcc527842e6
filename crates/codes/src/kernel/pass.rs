//! How a product is cut into passes of a vector kernel: blocks of rows, and columns that stay near
//! while blocks change.
// Inputs are asked for on x86 alone: Rust has no stable way to do so elsewhere.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]

use alloc::vec;
use alloc::vec::Vec;

use super::blocks::Block;
use super::{LINE, Product, Start, Stores};

/// How far ahead of their use inputs are asked for, in bytes. Half of it does as well, twice
/// of it a little worse.
const AHEAD: usize = 1024;
/// Bytes of the sums of a tile: they, and the inputs, stay near while blocks of rows change and rows
/// are streamed. With four times as much the (32,8) code is a tenth slower.
const SUMS: usize = 4096;

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
    let rows = blocks.iter().map(|(block, _)| block.rows().len());
    let tile = SUMS / rows.max().unwrap_or(1) / LINE * LINE;
    let mut place = match product.stores {
        Stores::Cached => Vec::new(),
        Stores::Streamed => vec![0; SUMS + LINE],
    };
    let skip = place.as_ptr().align_offset(LINE).min(place.len());
    let (mut sources, mut targets) = (Vec::new(), Vec::new());
    for from in span.clone().step_by(tile) {
        let bytes = tile.min(span.end - from);
        sources.clear();
        sources.extend(product.inputs.iter().map(|input| input[from..].as_ptr()));
        for (block, factors) in &blocks {
            let outputs = &mut product.outputs[block.rows()];
            targets.clear();
            match product.stores {
                Stores::Cached => {
                    let sums = outputs
                        .iter_mut()
                        .map(|output| &mut output[from..][..bytes]);
                    targets.extend(sums.map(<[u8]>::as_mut_ptr));
                }
                Stores::Streamed => {
                    let sums = place[skip..].chunks_exact_mut(tile).take(outputs.len());
                    targets.extend(sums.map(<[u8]>::as_mut_ptr));
                }
            }
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
                for (output, sums) in outputs.iter_mut().zip(place[skip..].chunks_exact(tile)) {
                    stream(&sums[..bytes], &mut output[from..][..bytes]);
                }
            }
        }
    }
}
