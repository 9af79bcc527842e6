//! The scalar kernel: plain loops. It defines what the other kernels compute.

use super::super::element::Element;
use super::Matrix;

/// The fast Walsh-Hadamard transform. Multiplies the values by `scale`, then multiplies each block
/// by the Hadamard matrix of ones and minus ones.
///
/// There is one level for each bit of the index, from the lowest to the highest. A level replaces
/// each pair of elements whose indices differ only in that bit by their sum and their difference.
/// This step is called a butterfly. `log2(block)` levels of additions replace the `block * block`
/// multiplications of a matrix product.
pub(super) fn transform(values: &mut [f32], block: usize, scale: f32) {
    for value in &mut *values {
        *value *= scale;
    }
    let mut half = 1;
    while half < block {
        for pair in values.chunks_exact_mut(2 * half) {
            let (low, high) = pair.split_at_mut(half);
            for (low, high) in low.iter_mut().zip(high) {
                (*low, *high) = (*low + *high, *low - *high);
            }
        }
        half *= 2;
    }
}

/// Converts to floats. The conversion is exact.
pub(super) fn convert<T: Element>(source: &[T], target: &mut [f32]) {
    for (target, source) in target.iter_mut().zip(source) {
        *target = source.to_f32();
    }
}

/// Rounds to the nearest value of the format, with ties to even.
pub(super) fn round<T: Element>(source: &[f32], target: &mut [T]) {
    for (target, &source) in target.iter_mut().zip(source) {
        *target = T::from_f32(source);
    }
}

/// Sets `target(column, row) = source(row, column)`.
pub(super) fn transpose(
    source: &Matrix<&[f32]>,
    target: &mut Matrix<&mut [f32]>,
    rows: usize,
    columns: usize,
) {
    for row in 0..rows {
        for column in 0..columns {
            target.values[column * target.pitch + row] = source.values[row * source.pitch + column];
        }
    }
}
