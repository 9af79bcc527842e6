//! What was measured beside what the model says.

use farwrite_model::CompletionTime;

use crate::Failure;
use crate::cell::{Cell, Waits};
use crate::expected::Expected;

/// Largest deviation of the mean, relative.
const MEAN_GOAL: f64 = 0.02;
/// Largest deviation of a quantile, relative.
const TAIL_GOAL: f64 = 0.05;
/// A mean of many samples is within this number of standard errors of the true mean with a
/// probability of 99%.
const CHANCE: f64 = 2.58;
/// Quantiles from which the model's standard deviation is estimated.
const QUANTILES: u16 = 512;

/// How a measured number compares with the model's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Within the goal.
    Within,
    /// Beyond the goal, but by no more than the spread of this number of samples explains.
    Chance,
    /// Beyond the goal by more than that.
    Beyond,
}

/// A number, measured and from the model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) measured_s: f64,
    pub(crate) model_s: f64,
    /// The model's number with the paper's waits.
    pub(crate) paper_s: f64,
    /// The relative deviation that the spread of this number of samples explains.
    pub(crate) chance: f64,
    pub(crate) verdict: Verdict,
}

impl Pair {
    pub(crate) fn deviation(&self) -> f64 {
        self.measured_s / self.model_s - 1.0
    }

    pub(crate) fn paper_deviation(&self) -> f64 {
        self.measured_s / self.paper_s - 1.0
    }
}

/// The numbers of a cell, measured and from the model.
#[derive(Clone, Debug)]
pub(crate) struct Comparison {
    /// Seconds that each message took, ascending.
    pub(crate) times_s: Vec<f64>,
    pub(crate) mean: Pair,
    /// The quantile, 0.99 or 0.999, and its numbers; `None` with fewer than 1000 samples.
    pub(crate) tail: Option<(f64, Pair)>,
}

impl Comparison {
    /// Compares times, in seconds, with the model.
    pub(crate) fn new(cell: &Cell, mut times_s: Vec<f64>) -> Result<Self, Failure> {
        times_s.sort_by(f64::total_cmp);
        let ours = Expected::new(cell)?;
        let paper = cell.model(Waits::Paper)?.completion_time()?;
        let tail = match times_s.len() {
            10_000.. => Some(0.999),
            1_000.. => Some(0.99),
            _ => None,
        };
        let tail = tail.map(|q| Ok::<_, Failure>((q, quantile(q, &times_s, &ours, &paper)?)));
        Ok(Self {
            mean: mean(&times_s, &ours, &paper)?,
            tail: tail.transpose()?,
            times_s,
        })
    }

    pub(crate) fn pairs(&self) -> impl Iterator<Item = &Pair> {
        [Some(&self.mean), self.tail.as_ref().map(|(_, pair)| pair)]
            .into_iter()
            .flatten()
    }

    pub(crate) fn is_good(&self) -> bool {
        self.pairs().all(|pair| pair.verdict != Verdict::Beyond)
    }
}

#[expect(clippy::cast_precision_loss, reason = "few samples")]
fn mean(times_s: &[f64], ours: &Expected, paper: &CompletionTime) -> Result<Pair, Failure> {
    let model_s = ours.mean();
    // A few samples may contain none of the rare long times that decide the mean, so their spread
    // is too small. Equally spaced quantiles of the model leave out only the rarest times. The
    // larger of both spreads is used.
    let quantiles =
        (0..QUANTILES).map(|i| ours.quantile((f64::from(i) + 0.5) / f64::from(QUANTILES)));
    let quantiles = quantiles.collect::<Result<Vec<_>, _>>()?;
    let spread_s = spread(times_s).max(spread(&quantiles));
    let measured_s = average(times_s);
    let chance = CHANCE * spread_s / (times_s.len() as f64).sqrt() / model_s;
    Ok(Pair {
        measured_s,
        model_s,
        paper_s: paper.mean(),
        chance,
        verdict: judge((measured_s / model_s - 1.0).abs(), MEAN_GOAL, chance),
    })
}

#[expect(clippy::cast_precision_loss, reason = "few samples")]
fn average(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The standard deviation.
fn spread(values: &[f64]) -> f64 {
    let mean = average(values);
    let squares: Vec<_> = values.iter().map(|value| (value - mean).powi(2)).collect();
    average(&squares).sqrt()
}

/// Compares the smallest time that a share `q` of all samples does not exceed with the model's
/// quantile. The share of samples below the model's quantile varies by chance. The model's
/// quantiles at both ends of that variation are the range that chance explains.
#[expect(clippy::cast_precision_loss, reason = "few samples")]
fn quantile(
    q: f64,
    times_s: &[f64],
    ours: &Expected,
    paper: &CompletionTime,
) -> Result<Pair, Failure> {
    let count = times_s.len() as f64;
    let measured_s = sample_quantile(q, times_s);
    let model_s = ours.quantile(q)?;
    let width = CHANCE * (q * (1.0 - q) / count).sqrt();
    let lowest_s = ours.quantile(q - width)?;
    let highest_s = ours.quantile((q + width).min(1.0 - 1e-9))?;
    let chance = match measured_s < model_s {
        true => 1.0 - lowest_s / model_s,
        false => highest_s / model_s - 1.0,
    };
    Ok(Pair {
        measured_s,
        model_s,
        paper_s: paper.quantile(q)?,
        chance,
        verdict: judge((measured_s / model_s - 1.0).abs(), TAIL_GOAL, chance),
    })
}

/// The smallest of some times, which ascend, that a share `q` of them does not exceed.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "few samples"
)]
pub(crate) fn sample_quantile(q: f64, times_s: &[f64]) -> f64 {
    let rank = (q * times_s.len() as f64).ceil() as usize;
    times_s[rank.clamp(1, times_s.len()) - 1]
}

fn judge(deviation: f64, goal: f64, chance: f64) -> Verdict {
    if deviation <= goal {
        Verdict::Within
    } else if deviation <= goal + chance {
        Verdict::Chance
    } else {
        Verdict::Beyond
    }
}
