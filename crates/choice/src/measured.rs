//! Measurements of the path by a queue pair.

use std::collections::VecDeque;
use std::time::Duration;

use farwrite_units::show::real;

/// The assumed loss of chunks until enough were judged, unless the user expects another.
pub(crate) const PRIOR_LOSS: f64 = 1e-5;
/// The number of judged chunks that is enough.
const ENOUGH_CHUNKS: u64 = 256;
/// The loss is measured over about this many of the last judged chunks.
const RECENT_CHUNKS: u64 = 16_384;
/// The planner runs again when a measurement has moved by this factor.
const MOVED: f64 = 1.25;
/// No plan helps against more loss than this. The model accepts up to 0.99.
const MAX_LOSS: f64 = 0.9;
/// Round trips shorter than this, in seconds, are not measured precisely enough to plan with.
const MIN_RTT_S: f64 = 1e-6;

/// What is known of the path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Share of the chunks that were lost; `None` while too few were judged.
    pub loss_chunk: Option<f64>,
    /// The loss that is assumed until then.
    pub prior_loss: f64,
    /// The round trip in seconds.
    pub rtt_s: f64,
    /// Bits a second on the wire.
    pub pace_bps: f64,
}

impl Measured {
    pub(crate) fn new(
        loss_chunk: Option<f64>,
        prior_loss: f64,
        rtt: Duration,
        pace_bps: u64,
    ) -> Self {
        Self {
            loss_chunk,
            prior_loss,
            rtt_s: rtt.as_secs_f64().max(MIN_RTT_S),
            pace_bps: real(pace_bps.max(1)),
        }
    }

    /// The loss for the plan.
    pub(crate) fn loss(&self) -> f64 {
        self.loss_chunk.unwrap_or(self.prior_loss).min(MAX_LOSS)
    }

    /// Returns whether a plan for `other` is outdated.
    pub(crate) fn moved_from(&self, other: &Self) -> bool {
        let moved = |one: f64, other: f64| one > other * MOVED || other > one * MOVED;
        moved(self.loss(), other.loss())
            || moved(self.rtt_s, other.rtt_s)
            || moved(self.pace_bps, other.pace_bps)
    }
}

/// The recent loss, from counts since the beginning.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    /// Judged and lost chunks at earlier samples, the oldest first.
    marks: VecDeque<[u64; 2]>,
}

impl Recent {
    /// The share of lost chunks among those judged last.
    pub(crate) fn loss_chunk(&mut self, judged: u64, lost: u64) -> Option<f64> {
        let last = self.marks.back().map_or(0, |mark| mark[0]);
        if judged >= last + ENOUGH_CHUNKS {
            self.marks.push_back([judged, lost]);
        }
        // The oldest sample is useful while the next is too recent.
        while self
            .marks
            .get(1)
            .is_some_and(|mark| mark[0] + RECENT_CHUNKS <= judged)
        {
            self.marks.pop_front();
        }
        let [judged_then, lost_then] = match self.marks.front() {
            Some(mark) if mark[0] + RECENT_CHUNKS <= judged => *mark,
            _ => [0, 0],
        };
        let judged = judged.saturating_sub(judged_then);
        let lost = lost.saturating_sub(lost_then);
        (judged >= ENOUGH_CHUNKS).then(|| real(lost) / real(judged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loss_is_that_of_recent_chunks() {
        let mut recent = Recent::default();
        assert_eq!(recent.loss_chunk(0, 0), None);
        assert_eq!(recent.loss_chunk(255, 255), None);
        assert_eq!(recent.loss_chunk(1000, 100), Some(0.1));
        // From here on nothing is lost.
        let mut last = 1.0;
        for judged in (2000..60_000).step_by(1000) {
            let loss = recent.loss_chunk(judged, 100).expect("enough");
            assert!(loss <= last, "{loss} after {last}");
            last = loss;
        }
        assert_eq!(last, 0.0);
        assert!(recent.marks.len() < 100);
        // A peer that decreases its counts must not cause a panic.
        assert_eq!(recent.loss_chunk(10, 5), None);
    }
}
