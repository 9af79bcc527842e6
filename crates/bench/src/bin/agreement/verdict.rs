//! What was measured beside what the model says.

use farwrite_model::CompletionTime;

use crate::Failure;
use crate::cell::{Cell, Waits};
use crate::expected::Expected;

/// Largest deviation of the mean, relative.
const MEAN_GOAL: f64 = 0.02;
/// Largest deviation of a quantile, relative.
const TAIL_GOAL: f64 = 0.05;
/// Standard errors that chance explains: 99 times of 100.
const CHANCE: f64 = 2.58;
/// Quantiles from which the model's standard deviation is estimated.
const QUANTILES: u16 = 512;

/// How a measured number stands to the model's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Within the goal.
    Within,
    /// Beyond the goal by no more than the number of samples explains.
    Chance,
    /// Beyond.
    Beyond,
}

/// A number, measured and from the model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) measured_s: f64,
    pub(crate) model_s: f64,
    /// What the model says with the paper's waits.
    pub(crate) paper_s: f64,
    /// Relative deviation from the model that the number of samples explains.
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

/// A cell that has run.
#[derive(Clone, Debug)]
pub(crate) struct Comparison {
    pub(crate) mean: Pair,
    /// The quantile that the number of samples allows, and its numbers.
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
    // Few samples may lack the rare times that a mean consists of, and these quantiles rarer ones.
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

/// The smallest time that a share `q` of all do not exceed. The share that lies below the model's
/// quantile varies by chance, so the model's quantiles at both ends of that share are compared too.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "few samples"
)]
fn quantile(
    q: f64,
    times_s: &[f64],
    ours: &Expected,
    paper: &CompletionTime,
) -> Result<Pair, Failure> {
    let count = times_s.len() as f64;
    let rank = (q * count).ceil() as usize;
    let measured_s = times_s[rank.clamp(1, times_s.len()) - 1];
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

fn judge(deviation: f64, goal: f64, chance: f64) -> Verdict {
    if deviation <= goal {
        Verdict::Within
    } else if deviation <= goal + chance {
        Verdict::Chance
    } else {
        Verdict::Beyond
    }
}
