//! EQDS with a pace that drops at the receiver reduce.

use super::{Eqds, EqdsOptions};
use crate::{Feedback, Fixed, Limits, Loss, RateControl, Sent};

/// EQDS, at a pace that drops at the receiver reduce (P5.5.2).
#[derive(Clone, Debug)]
pub struct PacedEqds {
    eqds: Eqds,
    pace: Fixed,
}

impl PacedEqds {
    /// A flow that has sent nothing. The pace recovers in `recovery_ns` nanoseconds.
    #[must_use]
    pub fn new(options: EqdsOptions, recovery_ns: u64) -> Self {
        Self {
            eqds: Eqds::new(options),
            pace: Fixed::new(options.line_rate_bps, recovery_ns),
        }
    }

    /// Returns the credit used so far, and the bytes that may leave without credit.
    #[must_use]
    pub fn credit_state(&self) -> (u64, u64) {
        (self.eqds.used_bytes(), self.eqds.unasked_bytes())
    }
}

impl RateControl for PacedEqds {
    fn on_sent(&mut self, sent: &Sent) {
        self.eqds.on_sent(sent);
    }

    fn on_feedback(&mut self, feedback: &Feedback) {
        self.eqds.on_feedback(feedback);
        self.pace.on_feedback(feedback);
    }

    fn on_timeout(&mut self, _now_ns: u64) -> bool {
        false
    }

    fn next_timeout(&self) -> Option<u64> {
        None
    }

    fn limits(&self) -> Limits {
        self.pace.limits()
    }

    fn on_grant(&mut self, now_ns: u64, granted_bytes: u64) {
        self.eqds.on_grant(now_ns, granted_bytes);
    }

    fn on_loss(&mut self, now_ns: u64, loss: Loss) {
        self.eqds.on_loss(now_ns, loss);
    }

    fn credit_bytes(&self) -> u64 {
        self.eqds.credit_bytes()
    }
}
