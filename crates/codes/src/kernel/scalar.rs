//! The scalar kernel: plain loops over tables. It defines what the other kernels compute.

use core::ops::Range;

use super::Start;
use crate::gf256::MUL;
use crate::matrix::Matrix;

/// Computes `outputs[row][at] = start + sum over i of matrix(row, i) * inputs[i][at]` for each `at`
/// in `span`.
pub(super) fn multiply(
    matrix: &Matrix,
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
    span: &Range<usize>,
    start: Start,
) {
    for (row, output) in outputs.iter_mut().enumerate() {
        let output = &mut output[span.clone()];
        if start == Start::Zero {
            output.fill(0);
        }
        for (column, input) in inputs.iter().enumerate() {
            let products = &MUL[usize::from(matrix.at(row, column))];
            for (sum, &byte) in output.iter_mut().zip(&input[span.clone()]) {
                *sum ^= products[usize::from(byte)];
            }
        }
    }
}

/// Computes `output[at] = start + sum over i of inputs[i][at]` for each `at` in `span`.
pub(super) fn add(inputs: &[&[u8]], output: &mut [u8], span: &Range<usize>, start: Start) {
    let output = &mut output[span.clone()];
    if start == Start::Zero {
        output.fill(0);
    }
    for input in inputs {
        for (sum, &byte) in output.iter_mut().zip(&input[span.clone()]) {
            *sum ^= byte;
        }
    }
}
