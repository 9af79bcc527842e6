//! Rebuilding what is missing of a group.

use alloc::vec::Vec;

use crate::code::{Code, Kind};
use crate::codec::Codec;
use crate::kernel::Start;
use crate::mask::{ChunkMask, Present};
use crate::matrix::{Matrix, cauchy};

/// Rebuilds the missing of `data`, which are all chunks of a group, from the present ones and from
/// `parity`. The group is recoverable, lengths are right.
pub(crate) fn repair(codec: &Codec, data: Vec<&mut [u8]>, parity: &[&[u8]], present: &Present) {
    match codec.code().kind() {
        Kind::Mds => repair_mds(codec, data, parity, present),
        Kind::Xor => repair_xor(codec, data, parity, present),
    }
}

/// The parity chunks by which an MDS code rebuilds `missing`: the first ones there, as many as are
/// missing.
pub(crate) fn chosen(parity: &ChunkMask, missing: &ChunkMask) -> Vec<usize> {
    parity.iter().take(missing.len()).collect()
}

/// Takes the sums that the `missing` data chunks make in the parity chunks `chosen` to these data
/// chunks: the inverse of that part of the matrix.
pub(crate) fn inverse(code: Code, chosen: &[usize], missing: &ChunkMask) -> Matrix {
    let missing: Vec<_> = missing.iter().collect();
    Matrix::from_fn(chosen.len(), chosen.len(), |row, column| {
        cauchy(code.k(), chosen[row], missing[column])
    })
    .inverted()
}

/// With P the chosen parity, A and B the parts of the matrix that belong to the missing data X and
/// to the present data Y: P = A X + B Y, so X = A' P + A' B Y where A' is the inverse of A (minus is
/// plus here). That is one product, over the parity and the present data.
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
    // A short last chunk comes last, be it input or output.
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

/// The missing chunk of a parity chunk's class is the sum of the others and of the parity chunk.
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
