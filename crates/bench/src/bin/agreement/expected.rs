//! What the model says of a shipped protocol.

use farwrite::SchemeName;
use farwrite_model::CompletionTime;

use crate::Failure;
use crate::cell::{Cell, Waits};

/// Round trips after which a lost end is repeated (P4.7), and by which a receiver that no packet
/// reaches any more waits longer for a loss (P5.2.4).
const LATE_RTTS: f64 = 0.25;
/// Relative width to which quantiles are found.
const RESOLUTION: f64 = 1e-9;

/// The model's completion time with the waits of the protocol, and with two things that the model
/// leaves out. The packet that ends a message may be lost like any other. Under `sr-nack`, no later
/// packet shows the receiver that the last chunk is lost. Each makes a message late by a quarter of
/// a round trip. (That both happen, or one happens twice, is neglected.)
pub(crate) struct Expected {
    time: CompletionTime,
    /// Share of messages that are late.
    late: f64,
    /// By how many seconds.
    delay_s: f64,
}

impl Expected {
    pub(crate) fn new(cell: &Cell) -> Result<Self, Failure> {
        let ways = if cell.scheme == SchemeName::SrNack {
            2.0
        } else {
            1.0
        };
        Ok(Self {
            time: cell.model(Waits::Protocol)?.completion_time()?,
            late: ways * cell.loss_packet,
            delay_s: LATE_RTTS * cell.rtt_s,
        })
    }

    pub(crate) fn mean(&self) -> f64 {
        self.time.mean() + self.late * self.delay_s
    }

    fn cdf(&self, time_s: f64) -> Result<f64, Failure> {
        let at_once = self.time.cdf(time_s)?;
        let delayed = self.time.cdf((time_s - self.delay_s).max(0.0))?;
        Ok((1.0 - self.late) * at_once + self.late * delayed)
    }

    /// The least time by which a share `q` of all messages is over.
    pub(crate) fn quantile(&self, q: f64) -> Result<f64, Failure> {
        let mut low_s = self.time.quantile(q)?;
        if self.cdf(low_s)? >= q {
            return Ok(low_s);
        }
        let mut high_s = low_s + self.delay_s;
        while high_s - low_s > RESOLUTION * high_s {
            let middle_s = f64::midpoint(low_s, high_s);
            match self.cdf(middle_s)? < q {
                true => low_s = middle_s,
                false => high_s = middle_s,
            }
        }
        Ok(high_s)
    }
}
