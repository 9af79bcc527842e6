//! The NEON kernel. It looks up nibbles in tables of 16 products, as the AVX2 kernel does, with
//! `tbl`. Every 64-bit Arm processor has NEON.
#![allow(unsafe_code)]

use alloc::vec::Vec;
use core::arch::aarch64::{
    uint8x16_t, vandq_u8, vdupq_n_u8, veorq_u8, vld1q_u8, vqtbl1q_u8, vshrq_n_u8, vst1q_u8,
};
use core::ops::Range;

use super::blocks::{Block, blocks};
use super::pass::{self, Pass};
use super::{LINE, Product, Start, Stores};
use crate::gf256::{NIBBLES, Nibbles};

/// Rows of a block. The sums take four vectors per row, and four rows leave enough registers for
/// inputs and tables.
const ROWS: usize = 4;
/// Bytes of a vector.
const VECTOR: usize = 16;
/// A line of 64 bytes.
type Line = [uint8x16_t; LINE / VECTOR];

pub(super) fn multiply(product: &mut Product<'_, '_, '_>) {
    let (matrix, columns) = (product.matrix, product.inputs.len());
    let blocks = blocks(matrix, product.outputs.len(), columns, ROWS, 0);
    let tables = |block: Block| -> Vec<Nibbles> {
        (0..columns)
            .flat_map(|column| block.rows().map(move |row| (row, column)))
            .map(|(row, column)| NIBBLES[usize::from(matrix.at(row, column))])
            .collect()
    };
    // SAFETY: `tables` makes the tables of this block.
    let run = |block: Block, pass: &Pass<'_, Nibbles>| unsafe {
        match block.rows().len() {
            1 => plain::<1>(pass),
            2 => plain::<2>(pass),
            3 => plain::<3>(pass),
            _ => plain::<ROWS>(pass),
        }
    };
    // `Lines` selects streaming stores only on x86.
    pass::each(product, &blocks, tables, run, |sums, output| {
        output.copy_from_slice(sums)
    });
}

/// Computes `R` rows, one line at a time.
///
/// # Safety
/// The factors are the tables of `R` rows, grouped by input.
unsafe fn plain<const R: usize>(pass: &Pass<'_, Nibbles>) {
    let (factors, _) = pass.factors.as_chunks::<R>();
    // SAFETY: every 64-bit Arm has NEON, and the pass guarantees that the lines of the tile are in
    // all inputs and outputs.
    unsafe {
        let low = vdupq_n_u8(0x0F);
        for at in (0..pass.bytes).step_by(LINE) {
            let mut sums = [[vdupq_n_u8(0); LINE / VECTOR]; R];
            for (&source, factors) in pass.sources.iter().zip(factors) {
                let input = load(source.add(at));
                let halves = input.map(|input| [vandq_u8(input, low), vshrq_n_u8::<4>(input)]);
                for (sums, factor) in sums.iter_mut().zip(factors) {
                    let tables = [&factor.low, &factor.high].map(|table| vld1q_u8(table.as_ptr()));
                    for (sum, [low, high]) in sums.iter_mut().zip(halves) {
                        let low = vqtbl1q_u8(tables[0], low);
                        let high = vqtbl1q_u8(tables[1], high);
                        *sum = veorq_u8(*sum, veorq_u8(low, high));
                    }
                }
            }
            for (&target, sum) in pass.targets.iter().zip(sums) {
                store(target.add(at), sum, pass.start);
            }
        }
    }
}

/// Adds the inputs in the whole lines of `span`.
///
/// # Panics
/// If an input or the output ends before `span`, if `span` is not whole lines, or if `stores` is
/// not [`Stores::Cached`].
pub(super) fn add(
    inputs: &[&[u8]],
    output: &mut [u8],
    span: Range<usize>,
    start: Start,
    stores: Stores,
) {
    assert_eq!(stores, Stores::Cached, "nothing is streamed here");
    assert!(inputs.iter().all(|input| input.len() >= span.end));
    assert!(output.len() >= span.end && span.len().is_multiple_of(LINE));
    for at in span.step_by(LINE) {
        // SAFETY: every 64-bit Arm has NEON, and the line is in all inputs and in the output.
        unsafe {
            let mut sum = [vdupq_n_u8(0); LINE / VECTOR];
            for input in inputs {
                let input = load(input.as_ptr().add(at));
                sum = core::array::from_fn(|i| veorq_u8(sum[i], input[i]));
            }
            store(output.as_mut_ptr().add(at), sum, start);
        }
    }
}

/// # Safety
/// A line can be read at `source`.
#[inline]
unsafe fn load(source: *const u8) -> Line {
    // SAFETY: as the caller guarantees.
    core::array::from_fn(|i| unsafe { vld1q_u8(source.add(i * VECTOR)) })
}

/// # Safety
/// A line can be written at `target`.
#[inline]
unsafe fn store(target: *mut u8, sum: Line, start: Start) {
    for (i, sum) in sum.into_iter().enumerate() {
        // SAFETY: as the caller guarantees.
        unsafe {
            let target = target.add(i * VECTOR);
            match start {
                Start::Zero => vst1q_u8(target, sum),
                Start::Output => vst1q_u8(target, veorq_u8(vld1q_u8(target), sum)),
            }
        }
    }
}
