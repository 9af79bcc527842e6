//! Measurements of the path by a queue pair.

use std::collections::VecDeque;
use std::time::Duration;

use farwrite_model::Loss;
use farwrite_units::show::real;

/// The assumed loss of chunks until enough were judged, unless the user expects another.
pub(crate) const PRIOR_LOSS: f64 = 1e-5;
/// The number of judged chunks that is enough.
const ENOUGH_CHUNKS: u64 = 256;
/// The loss is measured over about this many of the last judged chunks.
const RECENT_CHUNKS: u64 = 16_384;
/// The planner runs again when a measurement has moved by this factor.
const MOVED: f64 = 1.25;
/// The same for the length of bursts, which few bursts show less precisely.
const MOVED_BURST: f64 = 2.0;
/// Runs of losses this much longer than those of independent losses are bursts.
const BURST: f64 = 1.2;
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
    /// The mean number of chunks in a run of losses; `None` while too few were judged, and where none
    /// was lost.
    pub burst_chunks: Option<f64>,
    /// The round trip in seconds.
    pub rtt_s: f64,
    /// Bits a second on the wire.
    pub pace_bps: f64,
}

impl Measured {
    pub(crate) fn new(
        losses: Option<Losses>,
        prior_loss: f64,
        rtt: Duration,
        pace_bps: u64,
    ) -> Self {
        Self {
            loss_chunk: losses.map(|of| of.loss_chunk),
            prior_loss,
            burst_chunks: losses.and_then(|of| of.burst_chunks),
            rtt_s: rtt.as_secs_f64().max(MIN_RTT_S),
            pace_bps: real(pace_bps.max(1)),
        }
    }

    pub(crate) fn loss(&self) -> f64 {
        self.loss_chunk.unwrap_or(self.prior_loss).min(MAX_LOSS)
    }

    /// The mean length of bursts; 1: losses are independent.
    fn burst(&self) -> f64 {
        let independent = 1.0 / (1.0 - self.loss());
        let burst = self.burst_chunks.unwrap_or(1.0);
        if burst > BURST * independent {
            burst
        } else {
            1.0
        }
    }

    /// The losses for the plan, with this number of packets in a chunk: a burst loses all its chunks.
    pub(crate) fn losses(&self, packets_per_chunk: u32) -> Loss {
        let (loss_chunk, burst) = (self.loss(), self.burst());
        if burst == 1.0 {
            return Loss::Iid {
                loss_chunk,
                packets_per_chunk,
            };
        }
        Loss::Markov {
            p_good_to_bad: loss_chunk / (burst * (1.0 - loss_chunk)),
            p_bad_to_good: 1.0 / burst,
            loss_good: 0.0,
            loss_bad: 1.0,
            packets_per_chunk: 1,
        }
    }

    /// Returns whether a plan for `other` is outdated.
    pub(crate) fn moved_from(&self, other: &Self) -> bool {
        let moved =
            |one: f64, other: f64, factor: f64| one > other * factor || other > one * factor;
        moved(self.loss(), other.loss(), MOVED)
            || moved(self.burst(), other.burst(), MOVED_BURST)
            || moved(self.rtt_s, other.rtt_s, MOVED)
            || moved(self.pace_bps, other.pace_bps, MOVED)
    }
}

/// What was lost of the chunks that were judged last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Losses {
    /// Their share.
    pub loss_chunk: f64,
    /// The mean number of them in a run; `None` if none was lost.
    pub burst_chunks: Option<f64>,
}

impl Losses {
    /// Losses that are independent.
    #[must_use]
    pub fn independent(loss_chunk: f64) -> Self {
        Self {
            loss_chunk,
            burst_chunks: None,
        }
    }
}

/// The recent losses, from counts since the beginning.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    /// Judged chunks, lost chunks and runs of lost chunks at earlier samples, the oldest first.
    marks: VecDeque<[u64; 3]>,
}

impl Recent {
    /// The losses among the chunks that were judged last.
    pub(crate) fn losses(&mut self, counts: [u64; 3]) -> Option<Losses> {
        let [judged, ..] = counts;
        let last = self.marks.back().map_or(0, |mark| mark[0]);
        if judged >= last + ENOUGH_CHUNKS {
            self.marks.push_back(counts);
        }
        // The oldest sample is useful while the next is too recent.
        while self
            .marks
            .get(1)
            .is_some_and(|mark| mark[0] + RECENT_CHUNKS <= judged)
        {
            self.marks.pop_front();
        }
        let then = match self.marks.front() {
            Some(mark) if mark[0] + RECENT_CHUNKS <= judged => *mark,
            _ => [0; 3],
        };
        let [judged, lost, bursts] = [0, 1, 2].map(|at| counts[at].saturating_sub(then[at]));
        (judged >= ENOUGH_CHUNKS).then(|| Losses {
            loss_chunk: real(lost) / real(judged),
            // A run that began before the oldest sample has no begin here.
            burst_chunks: (lost > 0).then(|| real(lost) / real(bursts.max(1))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loss_is_that_of_recent_chunks() {
        let mut recent = Recent::default();
        assert_eq!(recent.losses([0; 3]), None);
        assert_eq!(recent.losses([255, 255, 1]), None);
        let some = recent.losses([1000, 100, 20]).expect("enough");
        assert_eq!((some.loss_chunk, some.burst_chunks), (0.1, Some(5.0)));
        // From here on nothing is lost.
        let mut last = 1.0;
        for judged in (2000..60_000).step_by(1000) {
            let losses = recent.losses([judged, 100, 20]).expect("enough");
            assert!(losses.loss_chunk <= last, "{losses:?} after {last}");
            last = losses.loss_chunk;
        }
        assert_eq!(last, 0.0);
        assert!(recent.marks.len() < 100);
        // A peer that decreases its counts must not cause a panic.
        assert_eq!(recent.losses([10, 5, 5]), None);
    }
}
