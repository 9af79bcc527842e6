//! Compares measured values with the model.

use farwrite_units::stats::{self, deviation};

use crate::Failure;
use crate::cell::{Cell, ModelWaits};
use crate::expected::Expected;

/// Highest relative deviation of the mean.
const MEAN_GOAL: f64 = 0.02;
/// Highest relative deviation of a quantile.
const TAIL_GOAL: f64 = 0.05;
/// A mean of many samples is within this number of standard errors of the true mean with a
/// probability of 99%.
const CHANCE: f64 = 2.58;
/// Quantiles from which the model's standard deviation is estimated.
const QUANTILES: u16 = 512;

/// The result of comparing a measured value with the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deviation {
    /// The deviation is within the goal.
    Within,
    /// The deviation is beyond the goal, but the spread of this number of samples explains it.
    Chance,
    /// The deviation is beyond the goal, and the spread does not explain it.
    Beyond,
}

/// A value, measured and predicted by the model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ComparedValue {
    pub(crate) measured_s: f64,
    pub(crate) model_s: f64,
    /// The model's value with the paper's waits.
    pub(crate) paper_s: f64,
    /// The relative deviation that the spread of this number of samples explains.
    pub(crate) chance: f64,
    pub(crate) verdict: Deviation,
}

impl ComparedValue {
    pub(crate) fn deviation(&self) -> f64 {
        self.measured_s / self.model_s - 1.0
    }

    pub(crate) fn paper_deviation(&self) -> f64 {
        self.measured_s / self.paper_s - 1.0
    }
}

/// The values of a cell, measured and predicted by the model.
#[derive(Clone, Debug)]
pub(crate) struct Comparison {
    /// The times of the messages or rings in seconds, ascending.
    pub(crate) times_s: Vec<f64>,
    pub(crate) mean: ComparedValue,
    /// The quantile, 0.99 or 0.999, and its values; `None` with fewer than 1000 samples.
    pub(crate) tail: Option<(f64, ComparedValue)>,
}

impl Comparison {
    /// Compares times, in seconds, with the model.
    pub(crate) fn new(cell: &Cell, mut times_s: Vec<f64>) -> Result<Self, Failure> {
        times_s.sort_by(f64::total_cmp);
        let ours = Expected::new(cell, ModelWaits::Protocol)?;
        let paper = Expected::new(cell, ModelWaits::Paper)?;
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

    pub(crate) fn pairs(&self) -> impl Iterator<Item = &ComparedValue> {
        [Some(&self.mean), self.tail.as_ref().map(|(_, pair)| pair)]
            .into_iter()
            .flatten()
    }

    pub(crate) fn is_good(&self) -> bool {
        self.pairs().all(|pair| pair.verdict != Deviation::Beyond)
    }
}

#[expect(clippy::cast_precision_loss, reason = "few samples")]
fn mean(times_s: &[f64], ours: &Expected, paper: &Expected) -> Result<ComparedValue, Failure> {
    let model_s = ours.mean();
    // A small sample may contain none of the rare long times that dominate the mean, so its spread
    // is too small. Equally spaced quantiles of the model miss only the rarest times. Use the
    // larger of the two spreads.
    let quantiles =
        (0..QUANTILES).map(|i| ours.quantile((f64::from(i) + 0.5) / f64::from(QUANTILES)));
    let quantiles = quantiles.collect::<Result<Vec<_>, _>>()?;
    let spread_s = deviation(times_s).max(deviation(&quantiles));
    let measured_s = stats::mean(times_s);
    let chance = CHANCE * spread_s / (times_s.len() as f64).sqrt() / model_s;
    Ok(ComparedValue {
        measured_s,
        model_s,
        paper_s: paper.mean(),
        chance,
        verdict: judge((measured_s / model_s - 1.0).abs(), MEAN_GOAL, chance),
    })
}

/// Compares the empirical quantile `q` with the model's quantile. The share of samples below the
/// model's quantile varies by chance. The model's quantiles at both ends of this variation are the
/// range that chance explains.
#[expect(clippy::cast_precision_loss, reason = "few samples")]
fn quantile(
    q: f64,
    times_s: &[f64],
    ours: &Expected,
    paper: &Expected,
) -> Result<ComparedValue, Failure> {
    let count = times_s.len() as f64;
    let measured_s = stats::quantile(times_s, q).unwrap_or(f64::NAN);
    let model_s = ours.quantile(q)?;
    let width = CHANCE * (q * (1.0 - q) / count).sqrt();
    let lowest_s = ours.quantile(q - width)?;
    let highest_s = ours.quantile((q + width).min(1.0 - 1e-9))?;
    let chance = match measured_s < model_s {
        true => 1.0 - lowest_s / model_s,
        false => highest_s / model_s - 1.0,
    };
    Ok(ComparedValue {
        measured_s,
        model_s,
        paper_s: paper.quantile(q)?,
        chance,
        verdict: judge((measured_s / model_s - 1.0).abs(), TAIL_GOAL, chance),
    })
}

fn judge(deviation: f64, goal: f64, chance: f64) -> Deviation {
    if deviation <= goal {
        Deviation::Within
    } else if deviation <= goal + chance {
        Deviation::Chance
    } else {
        Deviation::Beyond
    }
}
