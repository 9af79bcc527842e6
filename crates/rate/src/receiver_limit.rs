//! Limits the pace to the receiver's own speed (P5.5).

use crate::Feedback;
use crate::math::mul_div;

/// Lowest pace after drops at the receiver, in bits a second. It keeps reports coming.
const FLOOR_BPS: u64 = 1_000_000;

/// One report raises the ceiling by at most one part in this number of the full recovery, because a
/// long break proves nothing.
const MAX_REPORT_SHARE: u64 = 50;

/// A ceiling on the pace. It falls to the receiver's drain rate when the receiver drops packets,
/// and grows back while it drops none.
#[derive(Clone, Debug)]
pub(crate) struct ReceiverLimit {
    max_bps: u64,
    ceiling_bps: u64,
    /// Time in which the ceiling would grow from 0 to `max_bps`.
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

    /// Changes the maximum (0 counts as 1). What drops have taken below the old maximum stays taken.
    pub(crate) fn set_max(&mut self, max_bps: u64) {
        let max_bps = max_bps.max(1);
        let is_free = self.ceiling_bps == self.max_bps;
        self.max_bps = max_bps;
        self.ceiling_bps = match is_free {
            true => max_bps,
            false => self.ceiling_bps.min(max_bps),
        };
    }

    /// Highest pace in bits a second.
    pub(crate) fn ceiling_bps(&self) -> u64 {
        self.ceiling_bps
    }

    /// Processes a report. `pace_bps` is the current pace. Returns whether the receiver dropped
    /// packets since the previous report.
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

    /// Processes a report after the receiver was suspended. Its drops do not measure the rate that
    /// it can process.
    pub(crate) fn excuse(&mut self, feedback: &Feedback) {
        self.dropped_packets = self.dropped_packets.max(feedback.dropped_packets);
        self.reported_ns = self.reported_ns.max(feedback.now_ns);
    }

    /// Nine tenths of the drain rate, but at least half of the current pace: a drain rate measured
    /// while little was sent does not measure the receiver's capacity.
    fn below(&self, drain_bps: u64, pace_bps: u64) -> u64 {
        let target_bps = (drain_bps - drain_bps / 10).max(pace_bps / 2);
        let floor_bps = FLOOR_BPS.min(self.max_bps);
        target_bps.clamp(floor_bps, pace_bps.max(floor_bps))
    }
}
