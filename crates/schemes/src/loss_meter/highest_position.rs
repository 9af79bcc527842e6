//! When the front moved, and its pace.

use crate::scheme::PeerView;

/// Approximate number of positions over which the pace is averaged.
const PACE_POSITIONS: u64 = 1024;

/// For this number of round trips, repeats can come in another order than the chunks at first. It is
/// more than the usual timeout of a chunk (P5.0.7).
const REPEAT_ROUND_TRIPS: u64 = 4;

/// Tracks when the highest position seen so far was reached.
#[derive(Debug, Default)]
pub(super) struct HighestPosition {
    moved_ns: u64,
    /// The front moved by `positions` between this time and `moved_ns`.
    since_ns: u64,
    positions: u64,
    /// Until then, repeats may move the front.
    unclear_until_ns: u64,
}

impl HighestPosition {
    /// Returns whether the chunks that the front passes now were sent for the first time, as far as is
    /// known. `is_unfinished`: chunks of earlier turns are missing, so a long pause may end with their
    /// repeats.
    pub(super) fn is_clear(&mut self, view: &PeerView, is_unfinished: bool) -> bool {
        let still_ns = view.now_ns.saturating_sub(self.moved_ns);
        if is_unfinished && still_ns >= view.rtt_ns.saturating_add(view.rtt_ns / 2) {
            self.expect_repeats(view);
        }
        view.now_ns >= self.unclear_until_ns
    }

    /// Chunks that the front has not passed may be repeated soon, and timeouts may repeat others of
    /// them in between.
    pub(super) fn expect_repeats(&mut self, view: &PeerView) {
        let repeats_ns = view.rtt_ns.saturating_mul(REPEAT_ROUND_TRIPS);
        self.unclear_until_ns = view.now_ns.saturating_add(repeats_ns);
    }

    /// Records that the front moves now. Returns whether it stood still so long that a repair may
    /// have moved it: longer than a repair takes to arrive and longer than this many positions take
    /// at its pace.
    pub(super) fn moves(&mut self, view: &PeerView, by: u64) -> bool {
        let now_ns = view.now_ns;
        let still_ns = now_ns.saturating_sub(self.moved_ns);
        let elapsed_ns = self.moved_ns.saturating_sub(self.since_ns);
        let short_ns = view.rtt_ns - view.rtt_ns / 8;
        let stood = still_ns > short_ns && {
            let pace_ns =
                u128::from(elapsed_ns) * u128::from(by) / u128::from(self.positions.max(1));
            u128::from(still_ns - short_ns) > pace_ns
        };
        if stood {
            // The pace may have become slower than the average.
            (self.since_ns, self.positions) = (self.moved_ns, 0);
        } else if self.positions > PACE_POSITIONS {
            self.since_ns += elapsed_ns / 2;
            self.positions /= 2;
        }
        self.moved_ns = now_ns;
        self.positions = self.positions.saturating_add(by);
        stood
    }

    /// Begins a message: the time before it says nothing about the pace.
    pub(super) fn restart(&mut self, now_ns: u64) {
        (self.moved_ns, self.since_ns, self.positions) = (now_ns, now_ns, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::Timing;

    const MS: u64 = 1_000_000;

    fn view(now_ns: u64) -> PeerView {
        PeerView {
            now_ns,
            rtt_ns: 8 * MS,
            reordering_window_ns: MS,
            timing: Timing::wide_area(),
        }
    }

    #[test]
    fn a_slow_pace_is_no_standstill_and_neither_is_a_burst_of_losses() {
        let mut front = HighestPosition::default();
        front.restart(MS);
        assert!(
            front.moves(&view(11 * MS), 1),
            "nothing is known of the pace yet"
        );
        for i in 2..2_000 {
            assert!(!front.moves(&view((10 * i + 1) * MS), 1), "{i}");
        }
        // Twenty chunks are lost, so the front moves that many positions later.
        assert!(!front.moves(&view(20_191 * MS), 20));
        // In the same time, the front moves by only one position: it stood still.
        assert!(front.moves(&view(20_391 * MS), 1));
    }

    #[test]
    fn a_repair_of_the_last_chunk_is_told_from_the_one_after_it() {
        for (still_ns, stood) in [(7 * MS, false), (8 * MS, true)] {
            let mut front = HighestPosition::default();
            front.restart(0);
            for i in 1..=100 {
                assert!(!front.moves(&view(i * 10_000), 1));
            }
            assert_eq!(front.moves(&view(MS + still_ns), 1), stood);
        }
    }
}
