//! The AVX-512 kernel, which uses GFNI. One instruction multiplies 64 bytes by a factor.
//!
//! Multiplication by a fixed factor is linear over GF(2), so it is a product of an 8 by 8 bit
//! matrix and the bits of the byte. `vgf2p8affineqb` computes this product for each byte of a
//! vector. (GFNI's own multiplication, `vgf2p8mulb`, uses the polynomial 0x11B and does not fit.)
#![allow(unsafe_code)]

use alloc::vec::Vec;
use core::arch::x86_64::{
    __m512i, _MM_HINT_T1, _mm_prefetch, _mm512_gf2p8affine_epi64_epi8, _mm512_loadu_si512,
    _mm512_set1_epi64, _mm512_setzero_si512, _mm512_storeu_si512, _mm512_xor_si512,
};

use super::blocks::{Block, FACTOR_OF, PRODUCTS, SIDE, SUMS, blocks, factors};
use super::pass::{self, Pass};
use super::{LINE, Product, Start, avx2};
use crate::gf256::MUL;
use crate::matrix::Matrix;

/// Rows of a plain block: one vector of sums each. Eight rows leave enough registers for inputs and
/// factors.
const ROWS: usize = 8;
/// Squares of a block. They need 18 registers for the sums of products and 9 for the sums of
/// inputs.
const SQUARES: usize = 2;

/// Bit matrices: `AFFINE[factor]` multiplies a byte by `factor`. Byte `7 - i` of a matrix is the
/// row that computes output bit `i`, as `vgf2p8affineqb` expects.
static AFFINE: [u64; 256] = affine();

const fn affine() -> [u64; 256] {
    let mut table = [0; 256];
    let mut factor = 0;
    while factor < 256 {
        let mut bit = 0;
        while bit < 64 {
            // Bit `bit` of the matrix adds input bit `bit % 8` to output bit `7 - bit / 8`.
            let product = MUL[factor][1 << (bit % 8)];
            table[factor] |= ((product >> (7 - bit / 8) & 1) as u64) << bit;
            bit += 1;
        }
        factor += 1;
    }
    table
}

pub(super) fn supported() -> bool {
    #[cfg(feature = "std")]
    return std::is_x86_feature_detected!("avx2")
        && std::is_x86_feature_detected!("avx512f")
        && std::is_x86_feature_detected!("gfni");
    #[cfg(not(feature = "std"))]
    return cfg!(all(
        target_feature = "avx2",
        target_feature = "avx512f",
        target_feature = "gfni"
    ));
}

#[target_feature(enable = "avx2,avx512f,gfni")]
pub(super) fn multiply(product: &mut Product<'_, '_, '_>) {
    let (matrix, columns) = (product.matrix, product.inputs.len());
    let blocks = blocks(matrix, product.outputs.len(), columns, ROWS, SQUARES);
    let factors = |block| affines(matrix, columns, block);
    // SAFETY: `affines` makes the factors of this block, and the machine has the instructions.
    let run = |block, pass: &Pass<'_, u64>| unsafe { run(block, pass) };
    pass::each(product, &blocks, factors, run, |sums, output| {
        avx2::stream(sums, output);
    });
    avx2::end_stream(product.stores);
}

/// Returns the bit matrices of a block, in the order in which its pass uses them.
fn affines(matrix: &Matrix, columns: usize, block: Block) -> Vec<u64> {
    let affine = |factor: u8| AFFINE[usize::from(factor)];
    match block {
        Block::Plain { row, rows } => (0..columns)
            .flat_map(|column| (row..row + rows).map(move |row| (row, column)))
            .map(|(row, column)| affine(matrix.at(row, column)))
            .collect(),
        Block::Squares { row, squares } => (0..columns)
            .step_by(SIDE)
            .flat_map(|column| (0..squares).map(move |below| (row + below * SIDE, column)))
            .flat_map(|(row, column)| factors(matrix, row, column).map(affine))
            .collect(),
    }
}

/// # Safety
/// The factors are the [`affines`] of this block. The machine has the instructions.
#[target_feature(enable = "avx512f,gfni")]
unsafe fn run(block: Block, pass: &Pass<'_, u64>) {
    // SAFETY: as the caller guarantees.
    unsafe {
        match block {
            Block::Squares { squares: 1, .. } => by_squares::<1>(pass),
            Block::Squares { .. } => by_squares::<SQUARES>(pass),
            Block::Plain { rows: 1, .. } => plain::<1>(pass),
            Block::Plain { rows: 2, .. } => plain::<2>(pass),
            Block::Plain { rows: 3, .. } => plain::<3>(pass),
            Block::Plain { rows: 4, .. } => plain::<4>(pass),
            Block::Plain { rows: 5, .. } => plain::<5>(pass),
            Block::Plain { rows: 6, .. } => plain::<6>(pass),
            Block::Plain { rows: 7, .. } => plain::<7>(pass),
            Block::Plain { .. } => plain::<ROWS>(pass),
        }
    }
}

/// Computes `R` rows, with one multiplication for each factor.
///
/// # Safety
/// The factors are the [`affines`] of a plain block of `R` rows. The machine has the instructions.
#[target_feature(enable = "avx512f,gfni")]
unsafe fn plain<const R: usize>(pass: &Pass<'_, u64>) {
    let (factors, _) = pass.factors.as_chunks::<R>();
    for at in (0..pass.bytes).step_by(LINE) {
        let mut sums = [_mm512_setzero_si512(); R];
        for (&source, factors) in pass.sources.iter().zip(factors) {
            // SAFETY: the line is in the tile.
            let input = unsafe { load(pass, source, at) };
            for (sum, &factor) in sums.iter_mut().zip(factors) {
                *sum = _mm512_xor_si512(*sum, times(input, factor));
            }
        }
        for (&target, sum) in pass.targets.iter().zip(sums) {
            // SAFETY: the line is in the tile.
            unsafe { store(pass, target, at, sum) };
        }
    }
}

/// Computes the rows of `S` squares, with nine multiplications for the sixteen factors of each
/// square (see [`super::blocks`]).
///
/// # Safety
/// The factors are the [`affines`] of a block of `S` squares. The machine has the instructions.
#[target_feature(enable = "avx512f,gfni")]
unsafe fn by_squares<const S: usize>(pass: &Pass<'_, u64>) {
    let (factors, _) = pass.factors.as_chunks::<4>();
    let (factors, _) = factors.as_chunks::<S>();
    let (sources, _) = pass.sources.as_chunks::<SIDE>();
    for at in (0..pass.bytes).step_by(LINE) {
        let mut products = [[_mm512_setzero_si512(); PRODUCTS]; S];
        for (sources, factors) in sources.iter().zip(factors) {
            // SAFETY: the line is in the tile.
            let [a, b, c, d] = sources.map(|source| unsafe { load(pass, source, at) });
            let [ac, bd] = [_mm512_xor_si512(a, c), _mm512_xor_si512(b, d)];
            let [ab, cd] = [_mm512_xor_si512(a, b), _mm512_xor_si512(c, d)];
            let inputs = [a, b, ab, c, d, cd, ac, bd, _mm512_xor_si512(ac, bd)];
            for (products, factors) in products.iter_mut().zip(factors) {
                for ((sum, input), of) in products.iter_mut().zip(inputs).zip(FACTOR_OF) {
                    *sum = _mm512_xor_si512(*sum, times(input, factors[of]));
                }
            }
        }
        // Each product has been summed over all columns. The rows are sums of these products.
        let (targets, _) = pass.targets.as_chunks::<SIDE>();
        for (targets, products) in targets.iter().zip(products) {
            for (&target, [a, b, c, d]) in targets.iter().zip(SUMS) {
                let ab = _mm512_xor_si512(products[a], products[b]);
                let cd = _mm512_xor_si512(products[c], products[d]);
                // SAFETY: the line is in the tile.
                unsafe { store(pass, target, at, _mm512_xor_si512(ab, cd)) };
            }
        }
    }
}

/// Multiplies each byte by the factor of the bit matrix `factor`.
#[inline]
#[target_feature(enable = "avx512f,gfni")]
fn times(input: __m512i, factor: u64) -> __m512i {
    _mm512_gf2p8affine_epi64_epi8::<0>(input, _mm512_set1_epi64(factor.cast_signed()))
}

/// Loads a line of an input and prefetches a later line.
///
/// # Safety
/// `source` is a source of the pass, and the line at `at` is in its tile.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn load(pass: &Pass<'_, u64>, source: *const u8, at: usize) -> __m512i {
    // SAFETY: the pass guarantees that both lines are in the input.
    unsafe {
        _mm_prefetch::<_MM_HINT_T1>(source.add(pass.ahead(at)).cast());
        _mm512_loadu_si512(source.add(at).cast())
    }
}

/// # Safety
/// `target` is a target of the pass, and the line at `at` is in its tile.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn store(pass: &Pass<'_, u64>, target: *mut u8, at: usize, sum: __m512i) {
    // SAFETY: the pass guarantees that the line can be written.
    unsafe {
        let target = target.add(at).cast();
        match pass.start {
            Start::Zero => _mm512_storeu_si512(target, sum),
            Start::Output => {
                let before = _mm512_loadu_si512(target.cast_const());
                _mm512_storeu_si512(target, _mm512_xor_si512(before, sum));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_of_bits_multiplies() {
        for (factor, &matrix) in AFFINE.iter().enumerate() {
            for byte in 0..=255 {
                // Output bit `i` is the parity of the input bits that byte `7 - i` of the matrix
                // selects.
                let product = (0..8).fold(0, |sum, bit| {
                    let row = matrix.to_le_bytes()[7 - bit];
                    sum | (u8::from((row & byte).count_ones() % 2 == 1) << bit)
                });
                assert_eq!(product, MUL[factor][usize::from(byte)]);
            }
        }
    }
}
