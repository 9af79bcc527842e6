//! Assigns the rows of a matrix to passes of a vector kernel, and uses the structure of a Cauchy
//! matrix to save almost half of the multiplications.
//!
//! The factor of data chunk `j` in parity chunk `i` depends only on `(k + i) ^ j` (see
//! [`cauchy`](crate::matrix::cauchy)). Where `k + i` and `j` are multiples of 4, a square of 4 by 4
//! factors therefore has only four different values, because the factor in row `a` and column `b`
//! of the square depends only on `a ^ b`:
//!
//! ```text
//!   p q r s      A B      with  A = p q   B = r s
//!   q p s r  =   B A            q p       s r
//!   r s p q
//!   s r q p
//! ```
//!
//! The 2 by 2 blocks `A` and `B` form the same pattern again. Let `x` be the first two inputs and
//! `y` the last two. Addition is XOR, so equal terms cancel:
//!
//! - `A x + B y = A (x + y) + (A + B) y`
//! - `B x + A y = A (x + y) + (A + B) x`
//!
//! So three products with 2 by 2 blocks replace four, and each of these blocks has the pattern of
//! the square. The same step inside each block replaces its four multiplications by three. A square
//! takes 3 * 3 = 9 multiplications instead of 16. This is a variant of Karatsuba's method.

// The NEON kernel does not use squares.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]

use alloc::vec::Vec;
use core::ops::Range;

use crate::matrix::Matrix;

/// Rows and columns of a square.
pub(super) const SIDE: usize = 4;
/// Products that replace the sixteen multiplications of a square.
pub(super) const PRODUCTS: usize = 9;

/// Index into [`factors`] for each of the nine products. The inputs of the products are, in this
/// order, `0, 1, 0+1, 2, 3, 2+3, 0+2, 1+3, 0+1+2+3`, where a number is a column of the square.
pub(super) const FACTOR_OF: [usize; PRODUCTS] = [0, 0, 1, 0, 0, 1, 2, 2, 3];

/// The products whose sum is row `i` of the square.
pub(super) const SUMS: [[usize; 4]; SIDE] =
    [[4, 5, 7, 8], [3, 5, 6, 8], [1, 2, 7, 8], [0, 2, 6, 8]];

/// The rows that one pass computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Block {
    /// Rows that are computed factor by factor.
    Plain {
        /// The first row.
        row: usize,
        rows: usize,
    },
    /// Rows that consist of squares in all columns.
    Squares {
        /// The first row.
        row: usize,
        /// Number of squares below each other.
        squares: usize,
    },
}

impl Block {
    pub(super) fn rows(self) -> Range<usize> {
        match self {
            Self::Plain { row, rows } => row..row + rows,
            Self::Squares { row, squares } => row..row + squares * SIDE,
        }
    }
}

/// Divides the first `rows` rows of a matrix into blocks. Only the first `columns` columns are
/// used. A plain block has at most `most` rows; a block of squares has at most `squares` squares.
/// Squares are used only if `columns` is a multiple of [`SIDE`].
pub(super) fn blocks(
    matrix: &Matrix,
    rows: usize,
    columns: usize,
    most: usize,
    squares: usize,
) -> Vec<Block> {
    let whole = columns > 0 && columns.is_multiple_of(SIDE);
    let square = |row: usize| {
        let mut at = (0..columns).step_by(SIDE);
        whole && row + SIDE <= rows && at.all(|column| is_square(matrix, row, column))
    };
    let mut blocks = Vec::new();
    let mut row = 0;
    while row < rows {
        let below = (0..squares)
            .take_while(|below| square(row + below * SIDE))
            .count();
        if below > 0 {
            blocks.push(Block::Squares {
                row,
                squares: below,
            });
            row += below * SIDE;
        } else {
            let end = rows.min(row + most);
            let end = (row + 1..end).find(|&row| square(row)).unwrap_or(end);
            blocks.push(Block::Plain {
                row,
                rows: end - row,
            });
            row = end;
        }
    }
    blocks
}

fn is_square(matrix: &Matrix, row: usize, column: usize) -> bool {
    (0..SIDE * SIDE).all(|at| {
        let (a, b) = (at / SIDE, at % SIDE);
        matrix.at(row + a, column + b) == matrix.at(row, column + (a ^ b))
    })
}

/// Returns the four different factors of the nine products of the square at `(row, column)`.
pub(super) fn factors(matrix: &Matrix, row: usize, column: usize) -> [u8; 4] {
    let [p, q, r, s] = core::array::from_fn(|at| matrix.at(row, column + at));
    [p ^ q ^ r ^ s, p ^ r, p ^ q, p]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gf256::mul;
    use crate::matrix::cauchy;

    fn of_code(k: usize, m: usize) -> Matrix {
        Matrix::from_fn(m, k, |row, column| cauchy(k, row, column))
    }

    #[test]
    fn nine_products_are_as_good_as_sixteen() {
        let matrix = of_code(8, 4);
        for column in [0, 4] {
            let [a, b, c, d] = [3_u8, 99, 201, 255];
            let inputs = [a, b, a ^ b, c, d, c ^ d, a ^ c, b ^ d, a ^ b ^ c ^ d];
            let factors = factors(&matrix, 0, column);
            let products: [u8; PRODUCTS] =
                core::array::from_fn(|i| mul(factors[FACTOR_OF[i]], inputs[i]));
            for (row, sum) in SUMS.iter().enumerate() {
                let expected = [a, b, c, d]
                    .iter()
                    .enumerate()
                    .fold(0, |sum, (i, &x)| sum ^ mul(matrix.at(row, column + i), x));
                assert_eq!(sum.iter().fold(0, |sum, &i| sum ^ products[i]), expected);
            }
        }
    }

    #[test]
    fn squares_are_found_where_they_are() {
        use Block::{Plain, Squares};
        let rows = |k: usize, m: usize, columns| blocks(&of_code(k, m), m, columns, 8, 2);
        let squares = |row, squares| Squares { row, squares };
        let plain = |row, rows| Plain { row, rows };
        assert_eq!(rows(32, 8, 32), [squares(0, 2)]);
        assert_eq!(rows(32, 8, 31), [plain(0, 8)]);
        assert_eq!(rows(32, 8, 4), [squares(0, 2)]);
        assert_eq!(
            rows(32, 17, 32),
            [squares(0, 2), squares(8, 2), plain(16, 1)]
        );
        assert_eq!(rows(10, 8, 8), [plain(0, 2), squares(2, 1), plain(6, 2)]);
        assert_eq!(rows(30, 12, 28), [plain(0, 2), squares(2, 2), plain(10, 2)]);
        assert_eq!(rows(4, 3, 4), [plain(0, 3)]);
    }
}
