//! Rebuilds the missing data chunks of a group.

use alloc::vec;
use alloc::vec::Vec;

use crate::code::{Code, Kind};
use crate::codec::Codec;
use crate::kernel::{Kernel, Start};
use crate::mask::{ChunkMask, Present};
use crate::matrix::{Matrix, cauchy};

/// A chunk of a group, by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// A data chunk.
    Data(usize),
    /// A parity chunk.
    Parity(usize),
}

/// How the missing data chunks of a group follow from chunks that are present.
#[derive(Debug)]
pub(crate) struct Recipe {
    /// The chunks that it needs. If the last data chunk is needed, it is the last one.
    pub(crate) inputs: Vec<Chunk>,
    /// The data chunks that it rebuilds, in ascending order.
    pub(crate) outputs: Vec<usize>,
    arithmetic: Arithmetic,
}

#[derive(Debug)]
enum Arithmetic {
    /// The outputs are this matrix times the inputs.
    Product(Matrix),
    /// Each output is the sum of some inputs, by their place in the list of inputs.
    Sums(Vec<Vec<usize>>),
}

impl Recipe {
    /// The caller has checked that the group is recoverable.
    pub(crate) fn new(code: Code, data_chunks: usize, present: &Present) -> Self {
        let missing = present.data.missing(data_chunks);
        match code.kind() {
            Kind::Mds => Self::mds(code, data_chunks, present, &missing),
            Kind::Xor => Self::xor(code, data_chunks, &missing),
        }
    }

    /// One matrix product.
    ///
    /// Let P be the chosen parity, X the missing data and Y the present data. Let A and B be the
    /// columns of the matrix that belong to X and Y. Then P = A X + B Y, so X = A' P + A' B Y, where
    /// A' is the inverse of A. (Subtraction is addition in GF(2^8).) The matrix `[A' | A' B]` times
    /// the chosen parity and the present data is X.
    fn mds(code: Code, data_chunks: usize, present: &Present, missing: &ChunkMask) -> Self {
        let chosen = chosen(&present.parity, missing);
        let there: Vec<_> = (0..data_chunks)
            .filter(|&chunk| !missing.contains(chunk))
            .collect();
        let matrix =
            match missing.is_empty() {
                true => Matrix::from_fn(0, there.len(), |_, _| 0),
                false => {
                    let inverse = inverse(code, &chosen, missing);
                    let of_data = inverse.times(there.len(), |row, column| {
                        cauchy(code.k(), chosen[row], there[column])
                    });
                    Matrix::from_fn(chosen.len(), chosen.len() + there.len(), |row, column| {
                        match column.checked_sub(chosen.len()) {
                            None => inverse.at(row, column),
                            Some(column) => of_data.at(row, column),
                        }
                    })
                }
            };
        let parity = chosen.into_iter().map(Chunk::Parity);
        Self {
            inputs: parity.chain(there.into_iter().map(Chunk::Data)).collect(),
            outputs: missing.iter().collect(),
            arithmetic: Arithmetic::Product(matrix),
        }
    }

    /// Each missing chunk is the sum of its parity chunk and of the other data chunks that this
    /// parity chunk covers.
    fn xor(code: Code, data_chunks: usize, missing: &ChunkMask) -> Self {
        let outputs: Vec<usize> = missing.iter().collect();
        let class = |chunk: usize| chunk % code.m();
        let mut inputs: Vec<Chunk> = outputs
            .iter()
            .map(|&lost| Chunk::Parity(class(lost)))
            .collect();
        let mut sums: Vec<Vec<usize>> = (0..outputs.len()).map(|row| vec![row]).collect();
        for chunk in (0..data_chunks).filter(|&chunk| !missing.contains(chunk)) {
            let row = outputs.iter().position(|&lost| class(lost) == class(chunk));
            if let Some(row) = row {
                sums[row].push(inputs.len());
                inputs.push(Chunk::Data(chunk));
            }
        }
        Self {
            inputs,
            outputs,
            arithmetic: Arithmetic::Sums(sums),
        }
    }

    /// Computes the outputs. All slices have the same length, except that the slice of the last data
    /// chunk can be shorter.
    pub(crate) fn apply(&self, kernel: Kernel, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        match &self.arithmetic {
            Arithmetic::Product(matrix) => kernel.multiply(matrix, inputs, outputs, Start::Zero),
            Arithmetic::Sums(sums) => {
                for (sum, output) in sums.iter().zip(outputs) {
                    let inputs: Vec<&[u8]> = sum.iter().map(|&input| inputs[input]).collect();
                    kernel.add(&inputs, output, Start::Zero);
                }
            }
        }
    }
}

/// Rebuilds the missing chunks of `data`, which has all chunks of a group, from the present chunks
/// and from `parity`. The caller has checked that the lengths are right and that the group is
/// recoverable.
pub(crate) fn repair(codec: &Codec, data: Vec<&mut [u8]>, parity: &[&[u8]], present: &Present) {
    let recipe = Recipe::new(codec.code(), data.len(), present);
    // A short last data chunk is the last input if it is present, and the last output if it is
    // missing, as the kernel allows.
    let mut there: Vec<&[u8]> = Vec::with_capacity(data.len());
    let mut outputs = Vec::with_capacity(recipe.outputs.len());
    for (chunk, bytes) in data.into_iter().enumerate() {
        match recipe.outputs.contains(&chunk) {
            true => {
                there.push(&[]);
                outputs.push(bytes);
            }
            false => there.push(bytes),
        }
    }
    let inputs = recipe.inputs.iter().map(|input| match *input {
        Chunk::Data(chunk) => there[chunk],
        Chunk::Parity(chunk) => parity[chunk],
    });
    recipe.apply(codec.kernel(), &inputs.collect::<Vec<_>>(), &mut outputs);
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
