//! Splits a matrix product into passes of a vector kernel.
//!
//! A pass computes one [`Block`] of rows in one tile of columns. All blocks run over a tile before
//! the next tile begins, so the input bytes of the tile are still in the cache when the next block
//! reads them.
// Only the x86 kernels prefetch: stable Rust has no prefetch for other architectures.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]

use alloc::vec;
use alloc::vec::Vec;

use super::blocks::Block;
use super::{LINE, Product, Start, Stores};

/// Prefetch distance in bytes. Half of it is equally fast; twice of it is slightly slower.
const AHEAD: usize = 1024;
/// Bytes of the sums of one tile. They stay in the nearest cache, together with the inputs of the
/// tile, until all blocks of rows are computed and written out. With four times as many bytes the
/// (32,8) code is a tenth slower.
const SUMS: usize = 4096;

/// The work of one block of rows in one tile.
///
/// Only [`each`] makes a pass, and it guarantees this: `bytes` is a multiple of [`LINE`]; `bytes`
/// bytes can be read at each source and written at each target; each source can be read up to the
/// end of the line at `last`; no target overlaps another target or a source.
pub(super) struct Pass<'a, F> {
    /// Address of the tile in each input.
    pub(super) sources: &'a [*const u8],
    /// Address for the sums of each row.
    pub(super) targets: &'a [*mut u8],
    /// The factors of the block, in the form that the kernel uses.
    pub(super) factors: &'a [F],
    /// Bytes of the tile in each row.
    pub(super) bytes: usize,
    pub(super) start: Start,
    last: usize,
}

impl<F> Pass<'_, F> {
    /// Returns the offset of the line to prefetch when the kernel reads the line at `at`.
    #[inline]
    pub(super) fn ahead(&self, at: usize) -> usize {
        self.last.min(at + AHEAD)
    }
}

/// Runs every pass of a product. `factors` prepares the factors of a block, `run` computes one
/// pass, and `stream` writes lines with streaming stores.
///
/// With [`Stores::Streamed`], `run` writes its sums to a buffer in the nearest cache, and `stream`
/// then writes the buffer to the outputs row by row. Streaming stores directly from `run` would
/// write one line of each row in turn, so the memory accesses would jump between the rows.
///
/// # Panics
/// If the inputs, the outputs or the span violate the requirements of [`Product`].
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
