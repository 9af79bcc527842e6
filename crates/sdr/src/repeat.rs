//! When to say something again (P3.8).

use farwrite_wire::timing::Timing;

/// How long to wait before the same thing is said again.
#[derive(Clone, Copy)]
pub(crate) struct Waits {
    /// Before the second time: a quarter of the round trip, so that a loss costs a fraction of it.
    pub(crate) first_ns: u64,
    /// At most, for a thing that waits for an answer.
    pub(crate) longest_ns: u64,
}

impl Waits {
    pub(crate) fn new(timing: &Timing, rtt_ns: u64) -> Self {
        Self {
            first_ns: (rtt_ns / 4).max(timing.min_repeat_ns),
            longest_ns: timing.max_repeat_ns,
        }
    }

    /// How long to wait the next time, after a wait of `last_ns`.
    pub(crate) fn next_ns(&self, last_ns: u64) -> u64 {
        last_ns.saturating_mul(2).min(self.longest_ns.max(last_ns))
    }
}
