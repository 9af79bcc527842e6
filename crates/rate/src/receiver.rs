//! What the receiver itself can take in (P5.5).

use crate::Feedback;
use crate::math::mul_div;

/// Lowest pace to which drops at the receiver bring a sender, in bits a second: enough to hear from
/// the receiver.
const FLOOR_BPS: u64 = 1_000_000;

/// Share of the time of recovery that one report may make good for, at most: a long break proves
/// nothing.
const MAX_REPORT_SHARE: u64 = 50;

/// A ceiling on the pace that follows the receiver's drain rate when the receiver drops packets,
/// and that grows back while it drops none.
#[derive(Clone, Debug)]
pub(crate) struct ReceiverLimit {
    max_bps: u64,
    ceiling_bps: u64,
    /// Time in which the ceiling would grow from nothing to `max_bps`.
    recovery_ns: u64,
    dropped_packets: u64,
    reported_ns: u64,
}

impl ReceiverLimit {
    /// No limit below `max_bps` (0 counts as 1) until drops are reported.
    pub(crate) fn new(max_bps: u64, recovery_ns: u64) -> Self {
        Self {
            max_bps: max_bps.max(1),
            ceiling_bps: max_bps.max(1),
            recovery_ns: recovery_ns.max(1),
            dropped_packets: 0,
            reported_ns: 0,
        }
    }

    /// Highest pace in bits a second.
    pub(crate) fn ceiling_bps(&self) -> u64 {
        self.ceiling_bps
    }

    /// Takes in a report, where the pace in use is `pace_bps`. Answers whether the receiver dropped
    /// packets since the report before.
    pub(crate) fn on_feedback(&mut self, feedback: &Feedback, pace_bps: u64) -> bool {
        let dropped = feedback.dropped_packets > self.dropped_packets;
        if dropped {
            self.ceiling_bps = self.below(feedback.drain_bps, pace_bps.min(self.ceiling_bps));
            self.dropped_packets = feedback.dropped_packets;
        } else {
            let most_ns = self.recovery_ns / MAX_REPORT_SHARE;
            let gap_ns = feedback.now_ns.saturating_sub(self.reported_ns);
            let growth = mul_div(self.max_bps, gap_ns.min(most_ns), self.recovery_ns);
            self.ceiling_bps = self.ceiling_bps.saturating_add(growth).min(self.max_bps);
        }
        self.reported_ns = self.reported_ns.max(feedback.now_ns);
        dropped
    }

    /// Takes in a report of a receiver that stood still: its drops are no measure of the rate that it
    /// can take.
    pub(crate) fn excuse(&mut self, feedback: &Feedback) {
        self.dropped_packets = self.dropped_packets.max(feedback.dropped_packets);
        self.reported_ns = self.reported_ns.max(feedback.now_ns);
    }

    /// Nine tenths of the drain rate, but at least half of the present pace: a rate measured over a
    /// moment when little was sent is no measure of what the receiver can take.
    fn below(&self, drain_bps: u64, pace_bps: u64) -> u64 {
        let target_bps = (drain_bps - drain_bps / 10).max(pace_bps / 2);
        let floor_bps = FLOOR_BPS.min(self.max_bps);
        target_bps.clamp(floor_bps, pace_bps.max(floor_bps))
    }
}
