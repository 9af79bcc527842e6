//! The model's prediction for a shipped protocol.

use farwrite::SchemeName;
use farwrite_model::{Collective, CompletionTime, Variant};

use crate::Failure;
use crate::cell::{Cell, Waits};

/// Delay in round trips in two cases: a lost end packet is repeated after this time (P4.7), and a
/// receiver that gets no further packets detects a loss this much later (P5.2.4).
const LATE_RTTS: f64 = 0.25;
/// Relative precision of quantiles.
const RESOLUTION: f64 = 1e-9;
/// Number of all-reduces drawn from the model.
const DRAWS: usize = 100_000;
const DRAWS_SEED: u64 = 1;

/// The model's completion time.
///
/// For losses in bursts, two effects are added that only the variant `protocol` of the model has.
/// First, the packet that ends a message may be lost. Second, under `sr-nack`, no later packet
/// reveals the loss of the last chunk. Each effect delays a message by a quarter of a round trip. The
/// case that both happen, or one happens twice, is neglected. For rings, both effects are neglected.
pub(crate) struct Expected {
    time: Time,
    /// Share of messages that are late.
    late: f64,
    /// Their delay in seconds.
    delay_s: f64,
}

enum Time {
    /// The exact distribution of a message.
    Exact(Box<CompletionTime>),
    /// Samples of rings, in seconds, ascending.
    Drawn(Vec<f64>),
}

impl Expected {
    pub(crate) fn new(cell: &Cell, waits: Waits) -> Result<Self, Failure> {
        let setting = cell.model(waits)?;
        let ways = match (waits, cell.sites, cell.scheme) {
            _ if setting.variant == Variant::Protocol => 0.0,
            (Waits::Paper, ..) | (_, Some(_), _) => 0.0,
            (.., SchemeName::SrNack | SchemeName::Gbn) => 2.0,
            _ => 1.0,
        };
        let time = match cell.sites {
            None => Time::Exact(Box::new(setting.completion_time()?)),
            Some(sites) => {
                let ring = Collective::Ring.completion_time(sites, &setting)?;
                let mut times_s = ring.sample(DRAWS, DRAWS_SEED);
                times_s.sort_by(f64::total_cmp);
                Time::Drawn(times_s)
            }
        };
        Ok(Self {
            time,
            late: ways * cell.loss_packet,
            delay_s: LATE_RTTS * cell.rtt_s,
        })
    }

    pub(crate) fn mean(&self) -> f64 {
        let at_once = match &self.time {
            Time::Exact(time) => time.mean(),
            Time::Drawn(times_s) => average(times_s),
        };
        at_once + self.late * self.delay_s
    }

    /// The shortest time within which a share `q` of all messages or rings ends.
    pub(crate) fn quantile(&self, q: f64) -> Result<f64, Failure> {
        match &self.time {
            Time::Exact(time) if self.late == 0.0 => Ok(time.quantile(q)?),
            Time::Exact(time) => self.late_quantile(time, q),
            Time::Drawn(times_s) => Ok(sample_quantile(q, times_s)),
        }
    }

    fn late_quantile(&self, time: &CompletionTime, q: f64) -> Result<f64, Failure> {
        let cdf = |time_s: f64| -> Result<f64, Failure> {
            let at_once = time.cdf(time_s)?;
            let delayed = time.cdf((time_s - self.delay_s).max(0.0))?;
            Ok((1.0 - self.late) * at_once + self.late * delayed)
        };
        let mut low_s = time.quantile(q)?;
        if cdf(low_s)? >= q {
            return Ok(low_s);
        }
        let mut high_s = low_s + self.delay_s;
        while high_s - low_s > RESOLUTION * high_s {
            let middle_s = f64::midpoint(low_s, high_s);
            match cdf(middle_s)? < q {
                true => low_s = middle_s,
                false => high_s = middle_s,
            }
        }
        Ok(high_s)
    }
}

#[expect(clippy::cast_precision_loss, reason = "few samples")]
pub(crate) fn average(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The smallest of ascending times that a share `q` of them does not exceed.
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
