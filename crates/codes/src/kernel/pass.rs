//! How a product is cut into passes of a vector kernel: blocks of rows, and columns that stay near
//! while blocks change.

use alloc::vec::Vec;
use core::ops::Range;

use super::blocks::Block;
use super::{LINE, Product, Start, Stores};

/// How far ahead of their use inputs are asked for. From 512 to 2048 bytes it makes little
/// difference.
const AHEAD: usize = 1024;
/// Columns between which blocks of rows change, so that the inputs are still near for the next.
const TILE: usize = 2048;

/// What one block of rows does in a range of columns.
///
/// Made by [`each`] alone, which sees to this: sources can be read and targets be written from where
/// they point up to the end of the span; no target overlaps anything else; the span is whole
/// [`LINE`]s; in it, streamed targets lie at multiples of a line.
pub(super) struct Pass<'a, F> {
    /// Where the inputs begin.
    pub(super) sources: &'a [*const u8],
    /// Where the outputs of the block begin.
    pub(super) targets: &'a [*mut u8],
    /// What the kernel made of the factors of the block.
    pub(super) factors: &'a [F],
    /// The columns.
    pub(super) span: Range<usize>,
    pub(super) start: Start,
    pub(super) stores: Stores,
    /// The last line of the inputs, in this tile or another.
    last: usize,
}

impl<F> Pass<'_, F> {
    /// The line that is to be asked for when the line `at` of an input is read.
    #[inline]
    pub(super) fn ahead(&self, at: usize) -> usize {
        self.last.min(at + AHEAD)
    }
}

/// Runs every pass of a product.
///
/// # Panics
/// If inputs, outputs or the span are not as a [`Product`] says.
pub(super) fn each<F>(
    product: &mut Product<'_, '_, '_>,
    blocks: &[Block],
    factors: impl Fn(Block) -> Vec<F>,
    run: impl Fn(Block, &Pass<'_, F>),
) {
    let span = product.span.clone();
    assert!(product.inputs.iter().all(|input| input.len() >= span.end));
    assert!(
        product
            .outputs
            .iter()
            .all(|output| output.len() >= span.end)
    );
    assert!(span.len().is_multiple_of(LINE));
    let sources: Vec<_> = product.inputs.iter().map(|input| input.as_ptr()).collect();
    let outputs = product.outputs.iter_mut();
    let targets: Vec<_> = outputs.map(|output| output.as_mut_ptr()).collect();
    let aligned = |target: &*mut u8| target.addr().wrapping_add(span.start).is_multiple_of(LINE);
    assert!(product.stores == Stores::Cached || targets.iter().all(aligned));

    let blocks: Vec<_> = blocks
        .iter()
        .map(|&block| (block, factors(block)))
        .collect();
    for from in span.clone().step_by(TILE) {
        for (block, factors) in &blocks {
            let pass = Pass {
                sources: &sources,
                targets: &targets[block.rows()],
                factors,
                span: from..span.end.min(from + TILE),
                start: product.start,
                stores: product.stores,
                last: span.end.saturating_sub(LINE),
            };
            run(*block, &pass);
        }
    }
}
