//! The AVX2 kernel. Each multiplication by a factor takes two table look-ups: `vpshufb` looks up
//! the low nibble of 32 bytes in a table of 16 products, and then the high nibbles in a second
//! table. The XOR of the two results is the product (see [`Nibbles`]).
#![allow(unsafe_code)]

use alloc::vec::Vec;
use core::arch::x86_64::{
    __m256i, _MM_HINT_T1, _mm_loadu_si128, _mm_prefetch, _mm_sfence, _mm256_and_si256,
    _mm256_broadcastsi128_si256, _mm256_loadu_si256, _mm256_set1_epi8, _mm256_setzero_si256,
    _mm256_shuffle_epi8, _mm256_srli_epi64, _mm256_storeu_si256, _mm256_stream_si256,
    _mm256_xor_si256,
};
use core::ops::Range;

use super::blocks::{Block, blocks};
use super::pass::{self, Pass};
use super::{LINE, Product, Start, Stores};
use crate::gf256::{NIBBLES, Nibbles};

/// Rows of a block. The sums take two vectors per row, and four rows leave enough registers for
/// inputs and tables.
const ROWS: usize = 4;
/// Bytes of a vector.
const VECTOR: usize = 32;

/// Returns whether the machine has the instructions. The Hadamard transform also needs F16C, to
/// convert half-precision floats. Every processor with AVX2 has F16C.
pub(super) fn supported() -> bool {
    #[cfg(feature = "std")]
    return std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("f16c");
    #[cfg(not(feature = "std"))]
    return cfg!(all(target_feature = "avx2", target_feature = "f16c"));
}

#[target_feature(enable = "avx2")]
pub(super) fn multiply(product: &mut Product<'_, '_, '_>) {
    let (matrix, columns) = (product.matrix, product.inputs.len());
    // The limit of 0 squares disables squares: nine sums of two vectors each need more than the 16
    // registers of AVX2.
    let blocks = blocks(matrix, product.outputs.len(), columns, ROWS, 0);
    let tables = |block: Block| -> Vec<Nibbles> {
        (0..columns)
            .flat_map(|column| block.rows().map(move |row| (row, column)))
            .map(|(row, column)| NIBBLES[usize::from(matrix.at(row, column))])
            .collect()
    };
    // SAFETY: `tables` makes the tables of this block, and the machine has AVX2.
    let run = |block: Block, pass: &Pass<'_, Nibbles>| unsafe {
        match block.rows().len() {
            1 => plain::<1>(pass),
            2 => plain::<2>(pass),
            3 => plain::<3>(pass),
            _ => plain::<ROWS>(pass),
        }
    };
    pass::each(product, &blocks, tables, run, |sums, output| {
        stream(sums, output);
    });
    end_stream(product.stores);
}

/// Computes `R` rows, one line at a time: loads two vectors of each input and keeps two vectors of
/// sums for each row.
///
/// # Safety
/// The factors are the tables of `R` rows, grouped by input. The machine has AVX2.
#[target_feature(enable = "avx2")]
unsafe fn plain<const R: usize>(pass: &Pass<'_, Nibbles>) {
    let (factors, _) = pass.factors.as_chunks::<R>();
    let low = _mm256_set1_epi8(0x0F);
    for at in (0..pass.bytes).step_by(LINE) {
        let mut sums = [[_mm256_setzero_si256(); 2]; R];
        for (&source, factors) in pass.sources.iter().zip(factors) {
            // SAFETY: the pass guarantees that both lines are in the input.
            let input = unsafe {
                _mm_prefetch::<_MM_HINT_T1>(source.add(pass.ahead(at)).cast());
                load(source.add(at))
            };
            let halves = input.map(|input| {
                let high = _mm256_srli_epi64::<4>(input);
                [_mm256_and_si256(input, low), _mm256_and_si256(high, low)]
            });
            for (sums, factor) in sums.iter_mut().zip(factors) {
                let tables = [&factor.low, &factor.high].map(|table| {
                    // SAFETY: a table has 16 bytes.
                    let table = unsafe { _mm_loadu_si128(table.as_ptr().cast()) };
                    _mm256_broadcastsi128_si256(table)
                });
                for (sum, [low, high]) in sums.iter_mut().zip(halves) {
                    let low = _mm256_shuffle_epi8(tables[0], low);
                    let high = _mm256_shuffle_epi8(tables[1], high);
                    *sum = _mm256_xor_si256(*sum, _mm256_xor_si256(low, high));
                }
            }
        }
        for (&target, sum) in pass.targets.iter().zip(sums) {
            // SAFETY: the pass guarantees that the line can be written.
            unsafe { store(target.add(at), sum, pass.start) };
        }
    }
}

/// Adds the inputs in the whole lines of `span`. With [`Stores::Streamed`], `start` is
/// [`Start::Zero`] and `span` begins at a multiple of [`LINE`] in the output.
///
/// # Panics
/// If an input or the output ends before `span`, or if a line to be streamed is not aligned.
#[target_feature(enable = "avx2")]
pub(super) fn add(
    inputs: &[&[u8]],
    output: &mut [u8],
    span: Range<usize>,
    start: Start,
    stores: Stores,
) {
    assert!(inputs.iter().all(|input| input.len() >= span.end));
    let (lines, _) = output[span.clone()].as_chunks_mut::<LINE>();
    for (line, at) in lines.iter_mut().zip(span.step_by(LINE)) {
        let mut sum = [_mm256_setzero_si256(); 2];
        for input in inputs {
            // SAFETY: the line is in the input, as asserted.
            let [a, b] = unsafe { load(input.as_ptr().add(at)) };
            sum = [_mm256_xor_si256(sum[0], a), _mm256_xor_si256(sum[1], b)];
        }
        match stores {
            // SAFETY: `line` has the bytes of a line.
            Stores::Cached => unsafe { store(line.as_mut_ptr(), sum, start) },
            Stores::Streamed => stream_line(line, sum),
        }
    }
    end_stream(stores);
}

/// Copies lines to `output` with streaming stores.
///
/// # Panics
/// If `output` does not begin at a multiple of [`LINE`], or if the lengths differ.
#[target_feature(enable = "avx2")]
pub(super) fn stream(lines: &[u8], output: &mut [u8]) {
    assert_eq!(lines.len(), output.len());
    let (lines, _) = lines.as_chunks::<LINE>();
    let (output, _) = output.as_chunks_mut::<LINE>();
    for (line, output) in lines.iter().zip(output) {
        // SAFETY: `line` has the bytes of a line.
        stream_line(output, unsafe { load(line.as_ptr()) });
    }
}

/// Orders streaming stores before all later stores, such as the release of a lock. Without this
/// fence they are not ordered.
#[target_feature(enable = "avx2")]
pub(super) fn end_stream(stores: Stores) {
    if stores == Stores::Streamed {
        _mm_sfence();
    }
}

/// # Panics
/// If the line does not begin at a multiple of [`LINE`].
#[inline]
#[target_feature(enable = "avx2")]
fn stream_line(line: &mut [u8; LINE], sum: [__m256i; 2]) {
    let target: *mut __m256i = line.as_mut_ptr().cast();
    assert!(target.addr().is_multiple_of(LINE));
    // SAFETY: the line has room for two vectors, and it is aligned, as asserted.
    unsafe {
        _mm256_stream_si256(target, sum[0]);
        _mm256_stream_si256(target.add(1), sum[1]);
    }
}

/// # Safety
/// A line can be read at `source`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load(source: *const u8) -> [__m256i; 2] {
    // SAFETY: as the caller guarantees.
    unsafe { [0, VECTOR].map(|at| _mm256_loadu_si256(source.add(at).cast())) }
}

/// # Safety
/// A line can be written at `target`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store(target: *mut u8, sum: [__m256i; 2], start: Start) {
    for (at, sum) in [0, VECTOR].into_iter().zip(sum) {
        // SAFETY: as the caller guarantees.
        unsafe {
            let target: *mut __m256i = target.add(at).cast();
            match start {
                Start::Zero => _mm256_storeu_si256(target, sum),
                Start::Output => {
                    let before = _mm256_loadu_si256(target);
                    _mm256_storeu_si256(target, _mm256_xor_si256(before, sum));
                }
            }
        }
    }
}
