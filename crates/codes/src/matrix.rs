//! Matrices over GF(2^8): the Cauchy matrix that computes parity, and the inversion that rebuilds
//! data.

use alloc::vec;
use alloc::vec::Vec;

use crate::gf256::{inv, mul};

/// A matrix over GF(2^8), stored row by row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Matrix {
    columns: usize,
    values: Vec<u8>,
}

/// Returns the factor of data chunk `data` in parity chunk `parity` of an MDS code with `k` data
/// chunks: `1 / ((k + parity) ^ data)`, as in ISA-L's `gf_gen_cauchy1_matrix`. Every square
/// submatrix of a Cauchy matrix is invertible. This makes the code MDS.
pub(crate) fn cauchy(k: usize, parity: usize, data: usize) -> u8 {
    #[expect(clippy::cast_possible_truncation, reason = "k + m is at most 255")]
    inv(((k + parity) ^ data) as u8)
}

impl Matrix {
    pub(crate) fn from_fn(rows: usize, columns: usize, value: impl Fn(usize, usize) -> u8) -> Self {
        let values = (0..rows)
            .flat_map(|row| (0..columns).map(move |column| (row, column)))
            .map(|(row, column)| value(row, column))
            .collect();
        Self { columns, values }
    }

    pub(crate) fn at(&self, row: usize, column: usize) -> u8 {
        self.values[row * self.columns + column]
    }

    /// Returns the inverse of a square matrix, by Gauss-Jordan elimination without row exchanges.
    /// No pivot may be 0; otherwise the result is meaningless. Square submatrices of a Cauchy
    /// matrix meet this: each leading square part is a Cauchy matrix too, so it is invertible, and
    /// no pivot becomes 0.
    pub(crate) fn inverted(mut self) -> Self {
        let size = self.columns;
        let mut inverse = Self::from_fn(size, size, |row, column| u8::from(row == column));
        for pivot in 0..size {
            let scale = inv(self.at(pivot, pivot));
            for matrix in [&mut self, &mut inverse] {
                for value in matrix.row_mut(pivot) {
                    *value = mul(*value, scale);
                }
            }
            for row in (0..size).filter(|&row| row != pivot) {
                let factor = self.at(row, pivot);
                for matrix in [&mut self, &mut inverse] {
                    matrix.add_row(row, pivot, factor);
                }
            }
        }
        inverse
    }

    /// Returns the product with another matrix of `columns` columns, which `other` gives by row and
    /// column.
    pub(crate) fn times(&self, columns: usize, other: impl Fn(usize, usize) -> u8) -> Self {
        let mut product = Self {
            columns,
            values: vec![0; self.values.len() / self.columns * columns],
        };
        for (row, out) in product.values.chunks_exact_mut(columns.max(1)).enumerate() {
            for (column, value) in out.iter_mut().enumerate() {
                for inner in 0..self.columns {
                    *value ^= mul(self.at(row, inner), other(inner, column));
                }
            }
        }
        product
    }

    fn row_mut(&mut self, row: usize) -> &mut [u8] {
        &mut self.values[row * self.columns..][..self.columns]
    }

    /// Adds `factor` times row `from` to row `to`.
    fn add_row(&mut self, to: usize, from: usize, factor: u8) {
        for column in 0..self.columns {
            let value = mul(factor, self.at(from, column));
            self.values[to * self.columns + column] ^= value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_square_part_of_a_cauchy_matrix_has_an_inverse() {
        let (k, m) = (6, 5);
        for rows in 1..1_usize << m {
            for columns in 1..1_usize << k {
                if rows.count_ones() != columns.count_ones() {
                    continue;
                }
                let pick = |set: usize| (0..8).filter(move |bit| set >> bit & 1 == 1);
                let (rows, columns): (Vec<_>, Vec<_>) =
                    (pick(rows).collect(), pick(columns).collect());
                let size = rows.len();
                let part = Matrix::from_fn(size, size, |r, c| cauchy(k, rows[r], columns[c]));
                let product = part.clone().inverted().times(size, |r, c| part.at(r, c));
                let identity = Matrix::from_fn(size, size, |r, c| u8::from(r == c));
                assert_eq!(product, identity, "{rows:?} {columns:?}");
            }
        }
    }

    #[test]
    fn the_largest_inverse_is_right() {
        let part = Matrix::from_fn(127, 127, |r, c| cauchy(128, r, c));
        let product = part.clone().inverted().times(127, |r, c| part.at(r, c));
        assert_eq!(product, Matrix::from_fn(127, 127, |r, c| u8::from(r == c)));
    }
}
