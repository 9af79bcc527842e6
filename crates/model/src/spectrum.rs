//! Distributions of counts along a two-state chain, by Fourier inversion of their generating
//! functions.

use rustfft::FftPlanner;
use rustfft::num_complex::Complex;

use crate::error::{ModelError, Unsupported};
use crate::excess::{float, index};
use crate::lattice::{Lattice, from_weights};
use crate::loss::{Chain, States, add, multiply};

type Number = Complex<f64>;
type Matrix = [[Number; 2]; 2];

/// Approximate rounding error of each weight. Smaller weights are neglected.
const NOISE: f64 = 1e-16;
/// If the mass at the edges of a window exceeds this, the window is too narrow.
const EDGE: f64 = 1e-12;
/// Highest number of counts in a window.
const MAX_WINDOW: usize = 1 << 20;

/// The distribution of the number of counted steps among `repeats` steps. A step is either not
/// counted, with the transition `idle`, or counted, with the transition `counted`. The walk must
/// end in `ending`.
///
/// The weights sum to the probability of that ending.
pub(crate) fn count_steps(
    share: [f64; 2],
    idle: &States,
    counted: &States,
    repeats: f64,
    ending: &States,
    max_blocks: f64,
) -> Result<Lattice, ModelError> {
    let whole = add(idle, counted);
    let function = |turn: Number| {
        let part = scale(counted, turn);
        total(share, &times(&power(&whole, &part, repeats), ending))
    };
    invert(function, repeats, max_blocks)
}

/// The distribution of the number of lost transmissions before `successes` are delivered. Between a
/// loss and the next transmission, the chain makes the transition `pause`. The walk must end in
/// `ending`.
pub(crate) fn count_losses(
    chain: &Chain,
    pause: &States,
    successes: f64,
    ending: &States,
    max_blocks: f64,
) -> Result<Lattice, ModelError> {
    let lost = multiply(&chain.lost, pause);
    let settled = inverse(&subtract(&IDENTITY, &lift(&lost)));
    let whole = real(&product(&settled, &lift(&chain.delivered)));
    let function = |turn: Number| {
        // (I - z lost)^-1 delivered, minus its value at z = 1.
        let now = inverse(&subtract(&IDENTITY, &scale(&lost, turn + 1.0)));
        let part = product(&product(&now, &scale(&lost, turn)), &lift(&whole));
        total(
            chain.share,
            &times(&power(&whole, &part, successes), ending),
        )
    };
    invert(function, 1e3 * successes, max_blocks)
}

/// Weights from a generating function, given as a function of `z - 1`. Counts above `most` have a
/// probability of zero or almost zero.
fn invert(
    function: impl Fn(Number) -> Number,
    most: f64,
    max_blocks: f64,
) -> Result<Lattice, ModelError> {
    let mass = function(Number::ZERO).re;
    let at = |angle: f64| {
        let half = (angle / 2.0).sin();
        function(Number::new(-2.0 * half * half, angle.sin()))
    };
    let small = 1e-3 / most.max(1.0);
    let mean = (at(small) / mass).arg() / small;
    // Estimate the spread from the angle at which the function starts to fall.
    let mut angle = 1.0;
    while (at(angle) / mass).norm() < 0.9 && angle > small {
        angle /= 2.0;
    }
    let variance = -2.0 * (at(angle) / mass).norm().ln() / (angle * angle);
    let mut window = index((20.0 * variance.max(0.0).sqrt()).max(64.0)).next_power_of_two();
    while window <= MAX_WINDOW {
        let first = (mean - float(window) / 2.0).floor().max(0.0);
        let weights = weights(&at, first, window);
        let margin = window / 16;
        let below: f64 = weights[..margin].iter().sum();
        let above: f64 = weights[window - margin..].iter().sum();
        // If the first count is zero, no mass is missing below.
        if above.abs() < EDGE && (first == 0.0 || below.abs() < EDGE) {
            return Ok(from_weights(first, &weights, NOISE, max_blocks));
        }
        window *= 4;
    }
    Err(ModelError::Unsupported(Unsupported::LossSpread(
        variance.sqrt(),
    )))
}

/// Weights of the counts `first .. first + window`. Other counts alias into the window.
fn weights(at: &impl Fn(f64) -> Number, first: f64, window: usize) -> Vec<f64> {
    let unit = core::f64::consts::TAU / float(window);
    let mut values = vec![Number::ZERO; window];
    for step in 0..=window / 2 {
        let angle = float(step) * unit;
        let value = at(angle) * Number::cis(-angle * first);
        values[step] = value;
        values[(window - step) % window] = value.conj();
    }
    FftPlanner::new()
        .plan_fft_forward(window)
        .process(&mut values);
    values
        .iter()
        .map(|value| value.re / float(window))
        .collect()
}

/// `(whole + part)^exponent`, where the rows of `whole` sum to one. `part` may be tiny and the
/// exponent large, so the eigenvalue near one is represented by its distance from one.
fn power(whole: &States, part: &Matrix, exponent: f64) -> Matrix {
    let (out, back) = (whole[0][1], whole[1][0]);
    let trace = part[0][0] + part[1][1] - (out + back);
    let determinant = part[0][0] * part[1][1]
        - part[0][1] * part[1][0]
        - (part[1][0] + part[1][1]) * out
        - (part[0][0] + part[0][1]) * back;
    let root = (trace * trace - determinant * 4.0).sqrt();
    let with = if (trace.conj() * root).re > 0.0 {
        root
    } else {
        -root
    };
    let far = (trace + with) / 2.0;
    let near = if far == Number::ZERO {
        Number::ZERO
    } else {
        determinant / far
    };
    let matrix = sum(&lift(whole), part);
    let gap = near - far;
    if gap.norm() < 1e-7 {
        return by_squaring(matrix, exponent);
    }
    // Sylvester's formula.
    let one = to_power(near, exponent) / gap;
    let other = to_power(far, exponent) / gap;
    let mut result = matrix;
    for (row, cells) in result.iter_mut().enumerate() {
        for (column, cell) in cells.iter_mut().enumerate() {
            let diagonal = if row == column { 1.0 } else { 0.0 };
            *cell =
                one * (*cell - (far + 1.0) * diagonal) - other * (*cell - (near + 1.0) * diagonal);
        }
    }
    result
}

/// `(1 + x)^exponent`.
fn to_power(x: Number, exponent: f64) -> Number {
    let base = x + 1.0;
    if exponent == 0.0 {
        return Number::ONE;
    }
    if base == Number::ZERO {
        return Number::ZERO;
    }
    let log = (2.0 * x.re + x.norm_sqr()).ln_1p() / 2.0;
    Number::from_polar((log * exponent).exp(), base.arg() * exponent)
}

fn by_squaring(mut base: Matrix, exponent: f64) -> Matrix {
    let mut result = IDENTITY;
    let mut left = exponent;
    while left >= 1.0 {
        if left % 2.0 == 1.0 {
            result = product(&result, &base);
        }
        base = product(&base, &base);
        left = (left / 2.0).floor();
    }
    result
}

const IDENTITY: Matrix = [[Number::ONE, Number::ZERO], [Number::ZERO, Number::ONE]];

fn lift(a: &States) -> Matrix {
    a.map(|row| row.map(|x| Number::new(x, 0.0)))
}

fn real(a: &Matrix) -> States {
    a.map(|row| row.map(|x| x.re))
}

fn scale(a: &States, by: Number) -> Matrix {
    a.map(|row| row.map(|x| by * x))
}

fn sum(a: &Matrix, b: &Matrix) -> Matrix {
    let cell = |i: usize, j: usize| a[i][j] + b[i][j];
    [[cell(0, 0), cell(0, 1)], [cell(1, 0), cell(1, 1)]]
}

fn subtract(a: &Matrix, b: &Matrix) -> Matrix {
    let cell = |i: usize, j: usize| a[i][j] - b[i][j];
    [[cell(0, 0), cell(0, 1)], [cell(1, 0), cell(1, 1)]]
}

fn product(a: &Matrix, b: &Matrix) -> Matrix {
    let cell = |i: usize, j: usize| a[i][0] * b[0][j] + a[i][1] * b[1][j];
    [[cell(0, 0), cell(0, 1)], [cell(1, 0), cell(1, 1)]]
}

fn times(a: &Matrix, b: &States) -> Matrix {
    product(a, &lift(b))
}

fn inverse(a: &Matrix) -> Matrix {
    let determinant = a[0][0] * a[1][1] - a[0][1] * a[1][0];
    [
        [a[1][1] / determinant, -a[0][1] / determinant],
        [-a[1][0] / determinant, a[0][0] / determinant],
    ]
}

fn total(share: [f64; 2], a: &Matrix) -> Number {
    (a[0][0] + a[0][1]) * share[0] + (a[1][0] + a[1][1]) * share[1]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lattice::{Odds, binomial, negative_binomial};
    use crate::loss::Loss;

    fn chain(loss_good: f64, loss_bad: f64) -> Chain {
        let loss = Loss::Markov {
            p_good_to_bad: 0.02,
            p_bad_to_good: 0.2,
            loss_good,
            loss_bad,
            packets_per_chunk: 1,
        };
        loss.chain().unwrap().unwrap()
    }

    fn weight(lattice: &Lattice, count: f64) -> f64 {
        let found = lattice.iter().find(|block| block.low == count);
        found.map_or(0.0, |block| block.weight)
    }

    #[test]
    fn states_alike_give_the_textbook_distributions() {
        let chain = chain(0.1, 0.1);
        let one = [[1.0, 0.0], [0.0, 1.0]];
        for repeats in [3.0, 1000.0] {
            let got = count_steps(
                chain.share,
                &chain.delivered,
                &chain.lost,
                repeats,
                &one,
                1e9,
            );
            let want = binomial(repeats, Odds { fail: 0.1, ok: 0.9 }, 1e9);
            let losses = count_losses(&chain, &one, repeats, &one, 1e9).unwrap();
            let textbook = negative_binomial(repeats, 0.1, 1e9);
            for count in 0..200 {
                let count = f64::from(count);
                let off = weight(got.as_ref().unwrap(), count) - weight(&want, count);
                assert!(off.abs() < 1e-13, "{repeats} {count} {off}");
                let off = weight(&losses, count) - weight(&textbook, count);
                assert!(off.abs() < 1e-13, "{repeats} {count} {off}");
            }
        }
    }

    #[test]
    fn counts_are_those_of_going_step_by_step() {
        let chain = chain(0.01, 0.7);
        let mut counts = vec![[0.0; 2]; 61];
        counts[0] = chain.share;
        for _ in 0..60 {
            let mut next = vec![[0.0; 2]; 61];
            for (count, from) in counts.iter().enumerate() {
                for (matrix, more) in [(&chain.delivered, 0), (&chain.lost, 1)] {
                    for (state, p) in from.iter().enumerate() {
                        for (to, step) in matrix[state].iter().enumerate() {
                            if count + more <= 60 {
                                next[count + more][to] += p * step;
                            }
                        }
                    }
                }
            }
            counts = next;
        }
        let one = [[1.0, 0.0], [0.0, 1.0]];
        let got = count_steps(chain.share, &chain.delivered, &chain.lost, 60.0, &one, 1e9).unwrap();
        for (count, want) in counts.iter().enumerate() {
            let off = weight(&got, float(count)) - (want[0] + want[1]);
            assert!(off.abs() < 1e-13, "{count} {off}");
        }
    }

    #[test]
    fn long_messages_keep_mass_and_mean() {
        let chain = chain(1e-5, 0.5);
        let one = [[1.0, 0.0], [0.0, 1.0]];
        let repeats = 2e7;
        let got = count_steps(
            chain.share,
            &chain.delivered,
            &chain.lost,
            repeats,
            &one,
            1e9,
        )
        .unwrap();
        let mass: f64 = got.iter().map(|b| b.weight).sum();
        let mean: f64 = got.iter().map(|b| b.weight * b.mean).sum();
        assert!((mass - 1.0).abs() < 1e-9, "{mass}");
        assert!(
            (mean / (repeats * chain.loss_chunk()) - 1.0).abs() < 1e-9,
            "{mean}"
        );
    }
}
