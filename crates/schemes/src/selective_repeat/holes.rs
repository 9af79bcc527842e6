//! Chunks of one message that a receiver considers lost, without a record for each chunk (P5.2.1 to
//! 3).
//!
//! A hole's age is the time since chunks after it were first seen. So a few marks "at this time,
//! chunks up to here had been passed" determine the age of all holes, and the bitmap itself shows
//! where the holes are. For requested chunks, only the range and the time are kept. When that time
//! has come, the chunks of the range that are still missing are requested again.

use core::ops::Range;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::arrived::Missing;
use crate::marks::{Marks, advance};
use crate::scheme::{Arrivals, Message, PeerView};
use crate::timing::repair_ns;

/// Most ranges of requested chunks that are kept apart. Further ranges are merged, which only
/// reduces precision.
const MAX_ASKED: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Holes {
    /// Chunks `0..examined` that had not arrived in time have been requested.
    examined: u32,
    marks: Marks,
    asked: VecDeque<Asked>,
    /// Ranges to search for missing chunks now.
    to_ask: VecDeque<Range<u32>>,
    /// Whether to request all missing chunks from `examined` on.
    ask_tail: bool,
}

/// At `due_ns`, the missing chunks of `range` must be requested again.
#[derive(Debug)]
struct Asked {
    due_ns: u64,
    range: Range<u32>,
}

impl Holes {
    /// The sender has now passed chunks `0..passed`. Each of them that is still missing is a hole.
    pub(super) fn note(&mut self, view: &PeerView, passed: u32) {
        if passed > self.examined {
            self.marks.note(view, passed);
        }
    }

    /// Chunks `0..cumulative` have arrived.
    pub(super) fn skip(&mut self, cumulative: u32) {
        self.examined = self.examined.max(cumulative);
    }

    /// Requests all missing chunks, whether the sender has passed them or not.
    pub(super) fn ask_tail(&mut self) {
        self.ask_tail = true;
    }

    /// Returns whether there are ranges to search.
    pub(super) fn handle_timeout(&mut self, now_ns: u64) -> bool {
        while let Some(passed) = self.marks.pop_due(now_ns) {
            if passed > self.examined {
                self.to_ask.push_back(self.examined..passed);
                self.examined = passed;
            }
        }
        while let Some(asked) = self.asked.front()
            && asked.due_ns <= now_ns
        {
            self.to_ask.push_back(asked.range.clone());
            self.asked.pop_front();
        }
        self.ask_tail || !self.to_ask.is_empty()
    }

    pub(super) fn next_timeout(&self) -> Option<u64> {
        let mark = self.marks.next_timeout();
        let asked = self.asked.front().map(|a| a.due_ns);
        mark.into_iter().chain(asked).min()
    }

    /// The next lost chunks to report to the sender, at most `max_ranges` runs. `None` if there are
    /// no more.
    pub(super) fn poll(
        &mut self,
        view: &PeerView,
        arrivals: &dyn Arrivals,
        message: &Message,
        max_ranges: usize,
    ) -> Option<Vec<Range<u32>>> {
        let look = |range| -> Vec<Range<u32>> {
            let missing = Missing::new(arrivals, message.number, range);
            missing.take(max_ranges).collect()
        };
        while let Some(stretch) = self.to_ask.pop_front() {
            let lost = look(stretch.clone());
            let (Some(first), Some(last)) = (lost.first(), lost.last()) else {
                continue;
            };
            if lost.len() == max_ranges && last.end < stretch.end {
                self.to_ask.push_front(last.end..stretch.end);
            }
            self.remember(view, first.start..last.end);
            return Some(lost);
        }
        let tail = core::mem::take(&mut self.ask_tail).then(|| look(self.examined..message.chunks));
        tail.filter(|lost| !lost.is_empty())
    }

    fn remember(&mut self, view: &PeerView, range: Range<u32>) {
        let again_ns = repair_ns(view);
        let due_ns = view.now_ns.saturating_add(again_ns);
        let later = self.asked.iter_mut().map(|a| &mut a.due_ns);
        advance(later.rev(), due_ns);
        let full = self.asked.len() >= MAX_ASKED;
        match self.asked.back_mut() {
            Some(last)
                if full
                    || (last.range.end == range.start && due_ns - last.due_ns <= again_ns / 16) =>
            {
                last.range.start = last.range.start.min(range.start);
                last.range.end = last.range.end.max(range.end);
            }
            _ => self.asked.push_back(Asked { due_ns, range }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::CriticalChunks;
    use crate::scheme::{MessageId, Timing};
    use std::collections::BTreeMap;

    const MS: u64 = 1_000_000;

    /// Every other chunk has arrived, and no other chunk ever arrives.
    struct EveryOther;

    impl Arrivals for EveryOther {
        fn word(&self, _message: MessageId, _word: u32) -> u64 {
            0x5555_5555_5555_5555
        }
        fn count(&self, _message: MessageId) -> u32 {
            unreachable!("the bitmap says it all")
        }
        fn seen(&self, _message: MessageId) -> u32 {
            unreachable!("the caller says it")
        }
    }

    /// Records chunks one by one, 10 us apart, and collects when each is reported.
    fn tell(window_ns: u64, chunks: u32, max_ranges: usize) -> (BTreeMap<u32, Vec<u64>>, Holes) {
        let (bytes, number) = (0, 0);
        let message = Message {
            number,
            bytes,
            chunks,
            chunk_bytes: 4096,
            critical: CriticalChunks::NONE,
        };
        let mut holes = Holes::default();
        let mut told: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for step in 0..3 * chunks {
            let view = PeerView {
                now_ns: u64::from(step) * 10_000,
                rtt_ns: 8 * MS,
                reordering_window_ns: window_ns,
                timing: Timing::wide_area(),
            };
            holes.note(&view, step.min(chunks));
            holes.handle_timeout(view.now_ns);
            while let Some(lost) = holes.poll(&view, &EveryOther, &message, max_ranges) {
                assert!(lost.len() <= max_ranges);
                for chunk in lost.into_iter().flatten() {
                    told.entry(chunk).or_default().push(view.now_ns);
                }
            }
            assert!(holes.marks.len() <= 10 && holes.asked.len() <= MAX_ASKED);
        }
        (told, holes)
    }

    #[test]
    fn a_flood_of_holes_takes_little_memory_and_none_is_forgotten() {
        for window_ns in [0, MS] {
            for max_ranges in [1, 8, 200] {
                let (told, _) = tell(window_ns, 2_000, max_ranges);
                let again_ns = 8 * MS + window_ns + MS;
                assert_eq!(told.len(), 1_000);
                for (chunk, times) in told {
                    assert_eq!(chunk % 2, 1);
                    let passed_ns = u64::from(chunk + 1) * 10_000;
                    let first_ns = times[0] - passed_ns;
                    assert!(first_ns >= window_ns && first_ns <= window_ns * 9 / 8 + 10_000);
                    for pair in times.windows(2) {
                        let again = pair[1] - pair[0];
                        assert!(again <= again_ns + 20_000, "{chunk} {again} {max_ranges}");
                    }
                    assert!(times.len() >= 3, "{chunk} {times:?}");
                }
            }
        }
    }

    #[test]
    fn without_coarseness_nothing_is_told_again_too_early() {
        let (told, _) = tell(MS, 2_000, 200);
        let again_ns = 10 * MS;
        for (chunk, times) in told {
            for pair in times.windows(2) {
                let again = pair[1] - pair[0];
                assert!(again >= again_ns - again_ns / 16, "{chunk} {again}");
            }
        }
    }
}
