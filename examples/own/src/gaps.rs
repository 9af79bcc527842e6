//! A repair of losses.

use std::ops::Range;

use farwrite_experiment::extensions::{PathProfile, Repair, Unacknowledged};

/// Repeats each gap once, and everything after a timeout of four round trips.
pub(crate) struct Gaps {
    timeout_ns: u64,
    /// The packets before it were looked at.
    seen: u64,
}

impl Gaps {
    pub(crate) fn new(path: &PathProfile) -> Self {
        Self {
            timeout_ns: 4 * path.rtt_ns,
            seen: 0,
        }
    }
}

impl Repair for Gaps {
    fn on_arrived(&mut self, packet: u64, _sent: &Unacknowledged) -> Range<u64> {
        let from = self.seen;
        self.seen = self.seen.max(packet + 1);
        from..packet
    }

    fn on_timeout(&mut self, sent: &Unacknowledged) -> Range<u64> {
        sent.oldest..sent.sent_end
    }

    fn timeout_ns(&self, _sent: &Unacknowledged) -> u64 {
        self.timeout_ns
    }
}
