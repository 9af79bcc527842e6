//! How many buffers a receiver uses.

use std::time::{Duration, Instant};

/// Buffers beyond those that two round trips fill: the disk works with these.
const SPARE: u64 = 4;
/// Number of buffers at the start, whatever the plan.
const FIRST: u64 = 8;

/// The number of buffers that a receiver needs, so that its sender does not wait for one.
///
/// The plan of a transfer has room for a path that is faster than expected. But the kernel has to
/// provide and clear each page of a buffer when it is first written. So a receiver starts with a
/// quarter of the planned buffers and adds more as the rate grows, until it has twice the buffers
/// that were filled within one round trip.
pub(super) struct BufferDemand {
    rtt: Duration,
    planned: u64,
    pub(super) wanted: u64,
    /// Start of the current round trip, and the segments taken until then.
    since: Instant,
    taken_segments: u64,
}

impl BufferDemand {
    /// For a plan of `planned` buffers.
    pub(super) fn new(planned: u64, rtt: Duration, now: Instant) -> Self {
        Self {
            rtt,
            planned,
            wanted: (planned / 4).max(FIRST).min(planned),
            since: now,
            taken_segments: 0,
        }
    }

    /// Records how many segments of the stream were taken until now.
    pub(super) fn note(&mut self, now: Instant, taken_segments: u64) {
        if now.saturating_duration_since(self.since) < self.rtt {
            return;
        }
        let filled = taken_segments.saturating_sub(self.taken_segments);
        self.wanted = self.wanted.max(2 * filled + SPARE).min(self.planned);
        self.since = now;
        self.taken_segments = taken_segments;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(25);

    /// The buffers after `rounds` round trips, in each of which a sender that always has data fills
    /// `fills` buffers, if there are enough.
    fn after(rounds: u32, planned: u64, fills: u64) -> u64 {
        let start = Instant::now();
        let mut demand = BufferDemand::new(planned, RTT, start);
        let mut taken = 0;
        for round in 1..=rounds {
            taken += fills.min(demand.wanted);
            demand.note(start + round * RTT, taken);
        }
        demand.wanted
    }

    #[test]
    fn a_fast_sender_gets_all_planned_buffers() {
        assert_eq!(after(0, 128, 128), 32);
        assert_eq!(after(1, 128, 128), 68);
        assert_eq!(after(2, 128, 128), 128);
    }

    #[test]
    fn a_sender_at_the_expected_rate_gets_no_more_than_it_needs() {
        assert_eq!(after(100, 128, 15), 34);
    }

    #[test]
    fn short_plans_are_met_at_once() {
        for planned in [1, 2, 8] {
            assert_eq!(after(0, planned, 1), planned);
        }
    }

    #[test]
    fn notes_within_a_round_trip_count_together() {
        let start = Instant::now();
        let mut demand = BufferDemand::new(128, RTT, start);
        for ms in 1..=24 {
            demand.note(start + Duration::from_millis(ms), ms);
            assert_eq!(demand.wanted, 32);
        }
        demand.note(start + RTT, 30);
        assert_eq!(demand.wanted, 64);
    }
}
