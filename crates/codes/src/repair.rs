//! Rebuilds the missing data chunks of a group.

use alloc::vec::Vec;

use crate::code::{Code, Kind};
use crate::codec::Codec;
use crate::kernel::Start;
use crate::mask::{ChunkMask, Present};
use crate::matrix::{Matrix, cauchy};

/// Rebuilds the missing chunks of `data`, which has all chunks of a group, from the present chunks
/// and from `parity`. The caller has checked that the lengths are right and that the group is
/// recoverable.
pub(crate) fn repair(codec: &Codec, data: Vec<&mut [u8]>, parity: &[&[u8]], present: &Present) {
    match codec.code().kind() {
        Kind::Mds => repair_mds(codec, data, parity, present),
        Kind::Xor => repair_xor(codec, data, parity, present),
    }
}

/// Returns the parity chunks from which an MDS code rebuilds `missing`: the first present ones, as
/// many as chunks are missing.
pub(crate) fn chosen(parity: &ChunkMask, missing: &ChunkMask) -> Vec<usize> {
    parity.iter().take(missing.len()).collect()
}

/// Returns the matrix that computes the `missing` data chunks from their contributions to the
/// parity chunks `chosen`: the inverse of the Cauchy submatrix of these rows and columns.
pub(crate) fn inverse(code: Code, chosen: &[usize], missing: &ChunkMask) -> Matrix {
    let missing: Vec<_> = missing.iter().collect();
    Matrix::from_fn(chosen.len(), chosen.len(), |row, column| {
        cauchy(code.k(), chosen[row], missing[column])
    })
    .inverted()
}

/// Rebuilds the missing chunks with one matrix product.
///
/// Let P be the chosen parity, X the missing data and Y the present data. Let A and B be the
/// columns of the matrix that belong to X and Y. Then P = A X + B Y, so X = A' P + A' B Y, where A'
/// is the inverse of A. (Subtraction is addition in GF(2^8).) The matrix `[A' | A' B]` times the
/// chosen parity and the present data is X.
fn repair_mds(codec: &Codec, data: Vec<&mut [u8]>, parity: &[&[u8]], present: &Present) {
    let code = codec.code();
    let missing = present.data.missing(data.len());
    if missing.is_empty() {
        return;
    }
    let chosen = chosen(&present.parity, &missing);
    let inverse = inverse(code, &chosen, &missing);
    let there: Vec<_> = (0..data.len())
        .filter(|&chunk| !missing.contains(chunk))
        .collect();
    let of_data = inverse.times(there.len(), |row, column| {
        cauchy(code.k(), chosen[row], there[column])
    });
    let matrix =
        Matrix::from_fn(
            chosen.len(),
            chosen.len() + there.len(),
            |row, column| match column.checked_sub(chosen.len()) {
                None => inverse.at(row, column),
                Some(column) => of_data.at(row, column),
            },
        );
    // `multiply` allows only the last input or output to be short. A short last data chunk is the
    // last input if it is present, and the last output if it is missing.
    let mut inputs: Vec<&[u8]> = chosen.iter().map(|&chunk| parity[chunk]).collect();
    let mut outputs = Vec::with_capacity(missing.len());
    for (chunk, bytes) in data.into_iter().enumerate() {
        match missing.contains(chunk) {
            true => outputs.push(bytes),
            false => inputs.push(bytes),
        }
    }
    codec
        .kernel()
        .multiply(&matrix, &inputs, &mut outputs, Start::Zero);
}

/// Rebuilds each missing chunk as the sum of its parity chunk and of the other data chunks that
/// this parity chunk covers.
fn repair_xor(codec: &Codec, mut data: Vec<&mut [u8]>, parity: &[&[u8]], present: &Present) {
    let m = codec.code().m();
    for lost in &present.data.missing(data.len()).iter().collect::<Vec<_>>() {
        let class = lost % m;
        let mut inputs = Vec::from([parity[class]]);
        let mut output = None;
        for (chunk, bytes) in data.iter_mut().enumerate().skip(class).step_by(m) {
            match chunk == *lost {
                true => output = Some(&mut **bytes),
                false => inputs.push(bytes),
            }
        }
        if let Some(output) = output {
            codec.kernel().add(&inputs, output, Start::Zero);
        }
    }
}
