//! The excess of selective repeat for all loss models.

use crate::bursts::BurstExcess;
use crate::error::{ModelError, Unsupported};
use crate::excess::{IidExcess, Mean, Parts, float};
use crate::scheme::Scheme;
use crate::setting::{Checked, Variant};

/// Correlation of the chain over a timeout up to which its effect on the mean is negligible: below
/// this share of a timeout.
const MOST_MEMORY: f64 = 1e-3;

/// The excess of selective repeat over messages of any length.
#[derive(Clone, Debug)]
pub(crate) enum Recovery {
    Iid(IidExcess),
    Bursts(BurstExcess),
}

impl Recovery {
    pub(crate) fn new(setting: &Checked) -> Result<Self, ModelError> {
        let most = match setting.scheme {
            Scheme::GoBackN => 0.0,
            Scheme::Ec { k, .. } => setting.chunks + f64::from(k),
            Scheme::SrRto | Scheme::SrNack => setting.chunks,
        };
        let most = match setting.variant {
            Variant::Paper => most,
            Variant::Serial | Variant::Protocol => most.min(setting.period),
        };
        Ok(match setting.loss.chain()? {
            Some(chain) => {
                // The excess takes the losses of a chunk and of its repeat as independent.
                let memory = chain.memory(setting.period);
                if most > 0.0 && memory > MOST_MEMORY {
                    let unsupported = Unsupported::LongMemory(memory);
                    return Err(ModelError::Unsupported(unsupported));
                }
                Self::Bursts(BurstExcess::new(&chain, setting.period, most)?)
            }
            None => {
                // At the end of a message longer than the period, some slots have repetitions
                // (docs/model.md section 5.3).
                let missing = match most < setting.chunks {
                    true => setting.attempts.all_missing_from_any(most),
                    false => setting.attempts.all_missing(most),
                };
                Self::Iid(IidExcess::new(missing, setting.period))
            }
        })
    }

    /// Probability that the excess over `chunks` chunks is more than `slots`. `state_ratios` multiplies the
    /// long-run probabilities of the states before the first chunk.
    pub(crate) fn survival(&self, chunks: f64, slots: f64, state_ratios: [f64; 2]) -> f64 {
        match self {
            Self::Iid(excess) => -excess.log_cdf(chunks, slots).exp_m1(),
            Self::Bursts(excess) => {
                let [good, bad] = excess.survival(chunks, slots);
                state_ratios[0] * good + state_ratios[1] * bad
            }
        }
    }

    /// The mean excess for each number of chunks in `weighted`, which also has their probabilities.
    ///
    /// The mean grows with the number of chunks, because an additional chunk can only add delay. So
    /// a value that is not computed lies between its neighbours, and is interpolated linearly.
    pub(crate) fn means(&self, weighted: &[(f64, f64)]) -> Vec<Parts> {
        let known: Vec<(f64, Parts)> = nodes(weighted, self.nodes())
            .into_iter()
            .map(|chunks| (chunks, self.mean(chunks)))
            .collect();
        let between = |count: f64| {
            let at = known.partition_point(|&(chunks, _)| chunks < count);
            let (right, after) = known[at];
            if right <= count {
                return after;
            }
            let (left, before) = known[at - 1];
            let share = (count - left) / (right - left);
            let part = |before: Mean, after: Mean| Mean {
                low: before.low,
                middle: before.middle + (after.middle - before.middle) * share,
                high: after.high,
            };
            Parts([0, 1].map(|state| part(before.0[state], after.0[state])))
        };
        weighted.iter().map(|&(count, _)| between(count)).collect()
    }

    /// Highest number of message lengths for which the mean is computed.
    fn nodes(&self) -> usize {
        match self {
            Self::Iid(_) => 128,
            Self::Bursts(_) => 128,
        }
    }

    fn mean(&self, chunks: f64) -> Parts {
        match self {
            Self::Iid(excess) => {
                let exactly = |mean| Mean {
                    low: mean,
                    middle: mean,
                    high: mean,
                };
                Parts([exactly(excess.mean(chunks)), exactly(0.0)])
            }
            Self::Bursts(excess) => excess.mean(chunks),
        }
    }
}

/// Selects about `most` of the counts in ascending order, with both ends: half of them evenly by
/// rank, half by probability.
fn nodes(weighted: &[(f64, f64)], most: usize) -> Vec<f64> {
    let mut sorted = weighted.to_vec();
    sorted.sort_unstable_by(|x, y| x.0.total_cmp(&y.0));
    let mut distinct: Vec<(f64, f64)> = Vec::new();
    for (count, weight) in sorted {
        match distinct.last_mut() {
            Some(last) if last.0 == count => last.1 += weight,
            _ => distinct.push((count, weight)),
        }
    }
    let all = float(distinct.len());
    let mut nodes = Vec::new();
    let mut passed = 0.0;
    for (rank, &(count, weight)) in distinct.iter().enumerate() {
        // Add a node at every count at which the measure passes a whole number.
        let before = passed;
        passed += float(most) / 2.0 * (weight + 1.0 / all);
        let end = rank == 0 || rank + 1 == distinct.len();
        if end || distinct.len() <= most || before.floor() < passed.floor() {
            nodes.push(count);
        }
    }
    nodes
}
