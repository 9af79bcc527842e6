//! The distribution of a completion time, with its mean, quantiles and cdf.

use crate::error::{ModelError, Wanted, within};
use crate::excess::{Mean, Parts};
use crate::recovery::Recovery;
use crate::rounds::Rounds;
use crate::sample::Sampler;
use crate::setting::{Checked, Setting};
use crate::terms::{self, Position, Term};

/// The distribution of the completion time of one setting.
///
/// It is a finite mixture: each term is a shift plus the excess of selective repeat over some
/// number of chunks (`docs/model.md` section 2). If there are too many terms, neighbours are
/// merged. The functions that end in `bounds` give the resulting error bounds. Without merging,
/// both bounds are equal.
#[derive(Clone, Debug)]
pub struct CompletionTime {
    setting: Checked,
    recovery: Recovery,
    terms: Vec<Term>,
    /// In place of the terms, for protocols that repair in rounds.
    rounds: Option<Rounds>,
}

/// Relative precision of quantiles.
const RESOLUTION: f64 = 1e-13;
/// Relative rounding error of times that `cdf` tolerates.
const ROUNDING: f64 = 4.0 * f64::EPSILON;

impl Setting {
    /// The distribution of the completion time.
    ///
    /// # Errors
    ///
    /// An argument is out of range, or the combination is too large for the exact evaluation under
    /// Markov loss.
    pub fn completion_time(&self) -> Result<CompletionTime, ModelError> {
        CompletionTime::new(&Checked::new(self)?)
    }
}

impl CompletionTime {
    pub(crate) fn new(setting: &Checked) -> Result<Self, ModelError> {
        // Rounds come first: they may refuse the setting, and a recovery takes long to compute.
        let rounds = Rounds::of(setting)?;
        let recovery = Recovery::new(setting)?;
        let terms = match &rounds {
            Some(rounds) => terms::fixed(rounds.least),
            None => terms::of(setting)?,
        };
        Ok(Self {
            setting: setting.clone(),
            recovery,
            terms,
            rounds,
        })
    }

    /// The completion time without loss and without parity, in seconds: `M T_inj + RTT`.
    pub fn lossless_s(&self) -> f64 {
        (self.setting.chunks + self.setting.rtt) * self.setting.slot_s
    }

    /// The mean in seconds.
    pub fn mean(&self) -> f64 {
        let means = self.excess(|term| term.middle);
        let parts = self.terms.iter().zip(means);
        let slots: f64 = parts
            .map(|(term, mean)| term.weight * (term.middle.start + mean.middle))
            .sum();
        (slots + self.later_mean()) * self.setting.slot_s
    }

    /// Bounds of the mean in seconds.
    pub fn mean_bounds(&self) -> (f64, f64) {
        let lows = self.excess(|term| term.low);
        let highs = self.excess(|term| term.high);
        let (mut low, mut high) = (0.0, 0.0);
        for ((term, from), to) in self.terms.iter().zip(lows).zip(highs) {
            low += term.weight * (term.middle.start + from.low);
            high += term.weight * (term.middle.start + to.high);
        }
        let later = self.later_mean();
        let seconds = |slots: f64| (slots + later) * self.setting.slot_s;
        (seconds(low), seconds(high))
    }

    /// The mean of what rounds of repair and late ends add, in slots.
    fn later_mean(&self) -> f64 {
        let late = self.setting.late.delays.iter();
        let late: f64 = late.map(|(share, slots)| share * slots).sum();
        late + self.rounds.as_ref().map_or(0.0, Rounds::mean_excess)
    }

    fn excess(&self, place: impl Fn(&Term) -> Position) -> Vec<Mean> {
        let chunks = |term: &Term| (place(term).chunks, term.weight);
        let chunks: Vec<(f64, f64)> = self.terms.iter().map(chunks).collect();
        let means = self.recovery.means(&chunks);
        let weighted = |(term, mean): (&Term, Parts)| mean.weighted(term.state_ratios);
        self.terms.iter().zip(means).map(weighted).collect()
    }

    /// Probability that the message completes within `t_s` seconds.
    ///
    /// # Errors
    ///
    /// `t_s` is not a number.
    pub fn cdf(&self, t_s: f64) -> Result<f64, ModelError> {
        Ok(1.0 - self.survival(t_s)?)
    }

    /// Probability that the message takes longer than `t_s` seconds. Precise for small
    /// probabilities too.
    ///
    /// # Errors
    ///
    /// `t_s` is not a number.
    pub fn survival(&self, t_s: f64) -> Result<f64, ModelError> {
        Ok(self.survival_at(self.slots(t_s)?, |term| term.middle))
    }

    /// Bounds of [`Self::cdf`].
    ///
    /// # Errors
    ///
    /// `t_s` is not a number.
    pub fn cdf_bounds(&self, t_s: f64) -> Result<(f64, f64), ModelError> {
        let slots = self.slots(t_s)?;
        Ok((
            1.0 - self.survival_at(slots, |term| term.high),
            1.0 - self.survival_at(slots, |term| term.low),
        ))
    }

    /// The quantile: the shortest time in seconds within which the message completes with
    /// probability `q`.
    ///
    /// # Errors
    ///
    /// `q` must be 0 or more and below 1. Above 1 - 1e-12, the rounding of `q` itself affects the
    /// result.
    pub fn quantile(&self, q: f64) -> Result<f64, ModelError> {
        self.quantile_at(q, |term| term.middle)
    }

    /// Bounds of the quantile in seconds.
    ///
    /// # Errors
    ///
    /// As [`Self::quantile`].
    pub fn quantile_bounds(&self, q: f64) -> Result<(f64, f64), ModelError> {
        Ok((
            self.quantile_at(q, |term| term.low)?,
            self.quantile_at(q, |term| term.high)?,
        ))
    }

    /// `n` completion times in seconds, from simulations of the protocol with losses drawn from
    /// `seed`. They do not use the formulas of the other functions.
    pub fn sample(&self, n: usize, seed: u64) -> Vec<f64> {
        let mut sampler = self.sampler(seed);
        (0..n).map(|_| sampler.draw_s()).collect()
    }

    pub(crate) fn sampler(&self, seed: u64) -> Sampler {
        Sampler::of_exact(&self.setting, seed)
    }

    fn slots(&self, t_s: f64) -> Result<f64, ModelError> {
        let any = Wanted::Number;
        let t_s = within("t_s", "s", t_s, f64::NEG_INFINITY, f64::INFINITY, any)?;
        Ok(t_s / self.setting.slot_s * (1.0 + ROUNDING))
    }

    fn survival_at(&self, slots: f64, place: impl Fn(&Term) -> Position) -> f64 {
        let on_time = self.survival_on_time(slots, &place);
        let delays = self.setting.late.delays.iter();
        let delays = delays.filter(|(share, delay)| *share > 0.0 && *delay > 0.0);
        let late = delays.map(|(share, delay)| {
            let delayed = self.survival_on_time(slots - delay, &place);
            share * (delayed - on_time)
        });
        on_time + late.sum::<f64>()
    }

    /// The survival function of messages whose end is not late.
    fn survival_on_time(&self, slots: f64, place: impl Fn(&Term) -> Position) -> f64 {
        if let Some(rounds) = &self.rounds {
            return rounds.survival(slots);
        }
        let mut sum = 0.0;
        let mut begun = false;
        for term in &self.terms {
            let at = place(term);
            let left = slots - at.start;
            begun |= left >= 0.0;
            sum += if left < 0.0 {
                term.weight
            } else if at.chunks > 0.0 {
                term.weight * self.recovery.survival(at.chunks, left, term.state_ratios)
            } else {
                0.0
            };
        }
        // The weights sum to one, except for rounding errors.
        if begun { sum.clamp(0.0, 1.0) } else { 1.0 }
    }

    fn quantile_at(&self, q: f64, place: impl Fn(&Term) -> Position) -> Result<f64, ModelError> {
        let below_one = 1.0 - f64::EPSILON / 2.0;
        within("q", "as a probability", q, 0.0, below_one, Wanted::BelowOne)?;
        let starts = self.terms.iter().map(|term| place(term).start);
        let (least, most) = starts.fold((f64::INFINITY, 0.0f64), |(least, most), start| {
            (least.min(start), most.max(start))
        });
        let reached = |slots| self.survival_at(slots, &place) <= 1.0 - q;
        if reached(least) {
            return Ok(least * self.setting.slot_s);
        }
        let mut low = least;
        let mut high = most;
        let mut wait = self.setting.period;
        while !reached(high) {
            low = low.max(high);
            high = most + wait;
            wait *= 2.0;
        }
        while high - low > RESOLUTION * high {
            let middle = low + (high - low) / 2.0;
            if reached(middle) {
                high = middle;
            } else {
                low = middle;
            }
        }
        Ok(high * self.setting.slot_s)
    }
}
