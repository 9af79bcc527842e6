//! The completion time of a candidate: exact, or drawn where the model has no exact form.

use super::{Drawn, Interval, Objective};
use crate::completion::CompletionTime;
use crate::error::{ModelError, Unsupported};
use crate::excess::{float, index};
use crate::loss::Loss;
use crate::sample::Sampler;
use crate::setting::{Checked, Setting};

/// Seed of all draws, so that a question always has the same answer.
const SEED: u64 = 1;
/// Half the width of an interval of 95 %, in standard errors.
const DEVIATIONS: f64 = 1.96;
/// Limit of the random numbers and losses of one draw.
const MOST_WORK: f64 = (1u64 << 22) as f64;
/// What a draw costs in addition, in the same unit.
const DRAW_WORK: u64 = 16;

/// How long a message takes with a candidate.
pub(super) enum Time {
    Exact(Box<CompletionTime>),
    Drawn(Box<Draws>),
}

/// Drawn completion times.
pub(super) struct Draws {
    sampler: Sampler,
    /// In ascending order.
    times_s: Vec<f64>,
    /// What a message that no draw has met may take longer: two round trips.
    unseen_s: f64,
    lossless_s: f64,
}

/// A value and an interval that holds it with a probability of 95 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    pub(super) value: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Time {
    pub(super) fn new(setting: &Setting) -> Result<Self, ModelError> {
        let refused = match setting.completion_time() {
            Ok(time) => return Ok(Self::Exact(Box::new(time))),
            Err(refused) => refused,
        };
        let is_refused_for_good = matches!(
            refused,
            ModelError::Unsupported(Unsupported::ProtocolGroup(_))
        );
        match (&refused, setting.loss) {
            (ModelError::Unsupported(_), Loss::Markov { .. }) if !is_refused_for_good => {}
            _ => return Err(refused),
        }
        let checked = Checked::new(setting)?;
        let sampler = Sampler::new(&checked, SEED)?;
        // A message so long that one draw takes too much time has no answer.
        if sampler.expected_work() > MOST_WORK {
            return Err(refused);
        }
        Ok(Self::Drawn(Box::new(Draws {
            sampler,
            times_s: Vec::new(),
            unseen_s: 2.0 * setting.rtt_s,
            lossless_s: (checked.chunks + checked.rtt) * checked.slot_s,
        })))
    }

    /// Draws until there are this many draws, or this much work is done. Returns the work.
    pub(super) fn draw(&mut self, draws: usize, most_work: u64) -> u64 {
        match self {
            Self::Exact(_) => 0,
            Self::Drawn(of) => of.draw(draws, most_work),
        }
    }

    pub(super) fn lossless_s(&self) -> f64 {
        match self {
            Self::Exact(time) => time.lossless_s(),
            Self::Drawn(of) => of.lossless_s,
        }
    }

    pub(super) fn estimate(&self, objective: Objective) -> Result<Estimate, ModelError> {
        match (self, objective) {
            (Self::Exact(time), Objective::Mean) => Ok(Estimate::exact(time.mean())),
            (Self::Exact(time), Objective::Quantile(q)) => Ok(Estimate::exact(time.quantile(q)?)),
            (Self::Drawn(of), Objective::Mean) => Ok(of.mean()),
            (Self::Drawn(of), Objective::Quantile(q)) => {
                // The exact evaluation checks its argument.
                Objective::check(q)?;
                Ok(quantile_of(&of.times_s, q))
            }
        }
    }

    /// How many draws the values are from, and how sure they are; `None`: they are exact.
    pub(super) fn drawn(&self, objective: Objective) -> Result<Option<Drawn>, ModelError> {
        let Self::Drawn(of) = self else {
            return Ok(None);
        };
        Ok(Some(Drawn {
            draws: of.times_s.len(),
            objective: self.estimate(objective)?.interval(),
            mean: of.mean().interval(),
            p99: quantile_of(&of.times_s, 0.99).interval(),
            p999: quantile_of(&of.times_s, 0.999).interval(),
        }))
    }
}

impl Draws {
    fn draw(&mut self, draws: usize, most_work: u64) -> u64 {
        let before = self.sampler.work();
        let mut done = 0;
        // Two draws have a spread.
        while self.times_s.len() < draws && (done < most_work || self.times_s.len() < 2) {
            self.times_s.push(self.sampler.draw_s());
            done = self.sampler.work() - before + DRAW_WORK;
        }
        self.times_s.sort_unstable_by(f64::total_cmp);
        done
    }

    fn mean(&self) -> Estimate {
        let mean = mean_of(&self.times_s);
        // With 95 %, what none of n draws has met has a probability of at most 3 / n.
        let unseen = 3.0 / float(self.times_s.len()) * self.unseen_s;
        Estimate {
            high: mean.high + unseen,
            ..mean
        }
    }

    pub(super) fn times_s(&self) -> &[f64] {
        &self.times_s
    }
}

/// The mean of draws.
pub(super) fn mean_of(times_s: &[f64]) -> Estimate {
    let count = float(times_s.len());
    let value = times_s.iter().sum::<f64>() / count;
    let squares: f64 = times_s.iter().map(|t| (t - value).powi(2)).sum();
    let half = DEVIATIONS * (squares / (count - 1.0).max(1.0) / count).sqrt();
    Estimate {
        value,
        low: value - half,
        high: value + half,
    }
}

/// A quantile of draws in ascending order. The number of draws below it is binomial.
pub(super) fn quantile_of(times_s: &[f64], q: f64) -> Estimate {
    let count = float(times_s.len());
    let half = DEVIATIONS * (count * q * (1.0 - q)).sqrt();
    let at = |rank: f64| {
        let place = index(rank.ceil().max(1.0)) - 1;
        times_s.get(place).copied().unwrap_or(f64::INFINITY)
    };
    Estimate {
        value: at(count * q),
        low: at(count * q - half),
        high: at(count * q + half + 1.0),
    }
}

impl Estimate {
    fn exact(value: f64) -> Self {
        Self {
            value,
            low: value,
            high: value,
        }
    }

    pub(super) fn interval(self) -> Interval {
        Interval {
            low_s: self.low,
            high_s: Some(self.high).filter(|high| high.is_finite()),
        }
    }

    /// Half the width of the interval, as a share of the value.
    fn doubt(&self) -> f64 {
        (self.high - self.low) / (2.0 * self.value)
    }
}

const MOST_DRAWS: usize = 1 << 16;

/// Draws for those candidates whose time is drawn, until it is clear which of them is best within
/// the share `close`, or the work is done. Candidates that are clearly worse are drawn no more.
pub(super) fn race(
    times: &mut [Time],
    objective: Objective,
    close: f64,
    most_work: u64,
) -> Result<(), ModelError> {
    let mut racing: Vec<usize> = (0..times.len()).collect();
    racing.retain(|at| matches!(times[*at], Time::Drawn(_)));
    let mut draws = objective.least_draws();
    let mut left = most_work;
    while !racing.is_empty() {
        let share = left / number(racing.len());
        for at in &racing {
            left = left.saturating_sub(times[*at].draw(draws, share));
        }
        let estimates = times.iter().map(|time| match time {
            Time::Drawn(of) if of.times_s.is_empty() => Ok(None),
            _ => time.estimate(objective).map(Some),
        });
        let estimates = estimates.collect::<Result<Vec<_>, _>>()?;
        let highs = estimates.iter().flatten().map(|of| of.high);
        let good = highs.fold(f64::INFINITY, f64::min) * (1.0 + close);
        racing.retain(|at| estimates[*at].is_some_and(|of| of.low <= good));
        // A candidate without a rival needs no precision beyond what is shown.
        let wanted = if racing.len() > 1 { close / 2.0 } else { close };
        racing.retain(|at| estimates[*at].is_some_and(|of| of.doubt() > wanted));
        if left == 0 || draws >= MOST_DRAWS {
            break;
        }
        draws *= 2;
    }
    Ok(())
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
