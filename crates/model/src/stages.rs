//! Sums of stage times, by convolution on a grid.

use rustfft::FftPlanner;
use rustfft::num_complex::Complex;

use crate::completion::CompletionTime;
use crate::error::{ModelError, Wanted, within};
use crate::excess::float;

/// Number of points of the grid, and of a first grid that finds the necessary range.
const POINTS: usize = 1 << 17;
const SCOUTS: usize = 1 << 13;
/// Probability that a single stage exceeds the first grid, and that the sum exceeds the second.
const BEYOND: f64 = 1e-12;
const BEYOND_SUM: f64 = 1e-10;

/// The sum of the times of consecutive stages. Each stage is as long as the longest of several
/// transfers.
///
/// Times are rounded up to a grid, so the sum is too high by less than a grid step per stage
/// (`docs/model.md` section 7).
#[derive(Clone, Debug)]
pub struct StageSum {
    /// The lowest possible sum in seconds.
    least_s: f64,
    step_s: f64,
    stages: f64,
    /// Probability that the rounded sum is at most this number of steps.
    cdf: Vec<f64>,
    mean_s: f64,
}

impl StageSum {
    /// A sum of stages of `transfer`. Each entry has a number of parallel transfers, and the number
    /// of such stages.
    pub(crate) fn new(
        transfer: &CompletionTime,
        sizes: &[(usize, usize)],
    ) -> Result<Self, ModelError> {
        let stages: usize = sizes.iter().map(|size| size.1).sum();
        let widest = sizes.iter().map(|size| size.0).max().unwrap_or(1);
        let least_s = transfer.quantile(0.0)?;
        let longest_s = transfer.quantile(1.0 - BEYOND / float(widest))?;
        let scout_s = (longest_s - least_s) * float(stages) / float(SCOUTS - 2 * stages);
        if scout_s <= 0.0 {
            let least_s = least_s * float(stages);
            return Ok(Self {
                least_s,
                step_s: 0.0,
                stages: float(stages),
                cdf: vec![1.0],
                mean_s: least_s,
            });
        }
        let scouted = cumulated(&convolved(transfer, sizes, least_s, scout_s, SCOUTS)?);
        let reach = scouted.partition_point(|&p| p < 1.0 - BEYOND_SUM) + 2 * stages;
        let step_s = scout_s * float(reach.min(SCOUTS)) / float(POINTS);
        let weights = convolved(transfer, sizes, least_s, step_s, POINTS)?;
        let cdf = cumulated(&weights);
        // With single transfers, the mean does not need the grid.
        let mean_s = if widest == 1 {
            transfer.mean() * float(stages)
        } else {
            // On average, a stage is rounded up by half a step, unless it has the lowest possible
            // time.
            let steps: f64 = weights.iter().enumerate().map(|(n, w)| w * float(n)).sum();
            let moved = float(stages) * (1.0 - cdf[0].powf(1.0 / float(stages)));
            least_s * float(stages) + (steps - moved / 2.0) * step_s
        };
        Ok(Self {
            least_s: least_s * float(stages),
            step_s,
            stages: float(stages),
            cdf,
            mean_s,
        })
    }

    /// The mean in seconds; exact for a chain of single transfers, otherwise within
    /// [`Self::resolution_s`].
    pub fn mean(&self) -> f64 {
        self.mean_s
    }

    /// The quantile in seconds, within [`Self::resolution_s`].
    ///
    /// # Errors
    ///
    /// `q` must be 0 to 1 - 1e-9.
    pub fn quantile(&self, q: f64) -> Result<f64, ModelError> {
        let (low, high) = self.quantile_bounds(q)?;
        Ok(low + (high - low) / 2.0)
    }

    /// Bounds of the quantile in seconds.
    ///
    /// # Errors
    ///
    /// As [`Self::quantile`].
    pub fn quantile_bounds(&self, q: f64) -> Result<(f64, f64), ModelError> {
        within(
            "q",
            "as a probability",
            q,
            0.0,
            1.0 - 1e-9,
            Wanted::StageQuantile,
        )?;
        let steps = float(self.cdf.partition_point(|&p| p < q));
        let high = self.least_s + steps * self.step_s;
        let low = (high - self.resolution_s()).max(self.least_s);
        Ok((low, high))
    }

    /// Highest error in seconds from rounding to the grid.
    pub fn resolution_s(&self) -> f64 {
        self.step_s * self.stages
    }
}

fn cumulated(weights: &[f64]) -> Vec<f64> {
    let mut sum = 0.0;
    let add = |weight: &f64| {
        sum += weight;
        f64::clamp(sum, 0.0, 1.0)
    };
    weights.iter().map(add).collect()
}

/// Weights of the sum on a grid of `points` steps, each stage's time rounded up.
fn convolved(
    transfer: &CompletionTime,
    sizes: &[(usize, usize)],
    least_s: f64,
    step_s: f64,
    points: usize,
) -> Result<Vec<f64>, ModelError> {
    let mut survival = Vec::with_capacity(points);
    for cell in 0..points {
        let beyond = transfer.survival(least_s + float(cell) * step_s)?;
        survival.push(beyond);
        if beyond < BEYOND {
            break;
        }
    }
    let mut planner = FftPlanner::new();
    let mut product = vec![Complex::ONE; points];
    for &(size, repeat) in sizes {
        let mut spectrum = vec![Complex::ZERO; points];
        longest(&survival, size, &mut spectrum);
        planner.plan_fft_forward(points).process(&mut spectrum);
        let power = i32::try_from(repeat).unwrap_or(i32::MAX);
        for (value, factor) in product.iter_mut().zip(&spectrum) {
            *value *= factor.powi(power);
        }
    }
    planner.plan_fft_inverse(points).process(&mut product);
    Ok(product
        .iter()
        .map(|value| value.re / float(points))
        .collect())
}

/// Weights of the longest of `size` transfers.
fn longest(survival: &[f64], size: usize, weights: &mut [Complex<f64>]) {
    let mut before = 0.0;
    for (value, &p) in weights.iter_mut().zip(survival) {
        let now = (float(size) * (-p).ln_1p()).exp();
        value.re = now - before;
        before = now;
    }
    // Times beyond the grid count at its end.
    weights[survival.len() - 1].re += 1.0 - before;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::Setting;

    #[test]
    fn sums_are_those_of_samples() {
        let setting = Setting::new("sr-rto".parse().unwrap(), 1e6, 400e9, 1e-3, 1e-2);
        let transfer = setting.completion_time().unwrap();
        let draws = transfer.sample(240_000, 3);
        for (size, stages) in [(1, 6), (4, 3)] {
            let sum = StageSum::new(&transfer, &[(size, stages)]).unwrap();
            let mut sample: Vec<f64> = draws
                .chunks_exact(size * stages)
                .map(|stages| {
                    let longest = |stage: &[f64]| stage.iter().copied().fold(0.0, f64::max);
                    stages.chunks_exact(size).map(longest).sum()
                })
                .collect();
            sample.sort_unstable_by(f64::total_cmp);
            let n = float(sample.len());
            let mean = sample.iter().sum::<f64>() / n;
            assert!(
                (sum.mean() / mean - 1.0).abs() < 0.01,
                "{} {mean}",
                sum.mean()
            );
            assert!(sum.resolution_s() < 1e-3 * mean);
            for q in [0.1, 0.5, 0.99] {
                let bounds = sum.quantile_bounds(q).unwrap();
                let below = |t: f64| float(sample.partition_point(|&s| s <= t)) / n;
                let slack = 4.0 * (q * (1.0 - q) / n).sqrt();
                let (low, high) = (
                    below(bounds.0 * (1.0 - 1e-12)),
                    below(bounds.1 * (1.0 + 1e-12)),
                );
                assert!(low <= q + slack && q - slack <= high, "{q}: {low} {high}");
                assert!(high - low < 0.1, "{q}: {low} {high}");
            }
            assert!(sum.quantile(1.0).is_err());
        }
    }

    #[test]
    fn without_losses_a_sum_is_a_product() {
        let setting = Setting::new("ec-mds:4,1".parse().unwrap(), 1e6, 1e9, 1e-2, 0.0);
        let transfer = setting.completion_time().unwrap();
        let sum = StageSum::new(&transfer, &[(3, 5)]).unwrap();
        assert_eq!(sum.quantile(0.999).unwrap(), 5.0 * transfer.mean());
        assert_eq!(sum.resolution_s(), 0.0);
    }
}
