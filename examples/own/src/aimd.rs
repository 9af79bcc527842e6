//! A congestion controller.

use farwrite_experiment::extensions::{Feedback, Limits, PathProfile, RateControl, Sent};

/// Halves the rate at a congestion notification, at most once in a round trip, and adds a fiftieth of the line rate in
/// each round trip without one.
pub(crate) struct Aimd {
    line_bps: u64,
    rtt_ns: u64,
    rate_bps: u64,
    /// When the next round trip ends.
    next_ns: u64,
}

impl Aimd {
    pub(crate) fn new(path: &PathProfile) -> Self {
        Self {
            line_bps: path.rate_bps,
            rtt_ns: path.rtt_ns,
            rate_bps: path.rate_bps,
            next_ns: 0,
        }
    }
}

impl RateControl for Aimd {
    fn on_sent(&mut self, _sent: &Sent) {}

    fn on_feedback(&mut self, _feedback: &Feedback) {}

    fn on_notification(&mut self, now_ns: u64) {
        if now_ns >= self.next_ns || self.rate_bps == self.line_bps {
            self.rate_bps = (self.rate_bps / 2).max(self.line_bps / 1000);
            self.next_ns = now_ns + self.rtt_ns;
        }
    }

    fn next_timeout(&self) -> Option<u64> {
        (self.rate_bps < self.line_bps).then_some(self.next_ns)
    }

    fn on_timeout(&mut self, now_ns: u64) -> bool {
        if self.next_timeout().is_some_and(|at_ns| at_ns <= now_ns) {
            self.rate_bps = (self.rate_bps + self.line_bps / 50).min(self.line_bps);
            self.next_ns = now_ns + self.rtt_ns;
        }
        // Packets in flight are not lost.
        false
    }

    fn limits(&self) -> Limits {
        Limits {
            pace_bps: self.rate_bps,
            window_bytes: u64::MAX,
        }
    }
}
