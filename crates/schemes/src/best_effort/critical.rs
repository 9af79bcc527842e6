//! The order of a message whose critical chunks leave first (P5.9.6).

use core::iter::once;
use core::ops::Range;

use farwrite_wire::control::CriticalChunks;

use crate::order::WireOrder;
use crate::scheme::{Arrivals, Message, MessageId};

/// The chunks of a message in the order in which they are first sent: the critical ones, then the
/// others, each in sequence. The place of a chunk in this order is its *position*.
#[derive(Clone, Copy, Debug)]
pub(super) struct CriticalOrder {
    chunks: u32,
    critical: CriticalChunks,
    critical_count: u32,
}

impl CriticalOrder {
    pub(super) fn of(message: &Message) -> Self {
        let chunks = message.chunks.max(1);
        let critical = match message.critical.end() <= chunks {
            true => message.critical,
            false => CriticalChunks::NONE,
        };
        Self {
            chunks,
            critical,
            critical_count: critical.count(),
        }
    }

    /// Number of chunks, critical or not.
    pub(super) fn chunks(&self) -> u32 {
        self.chunks
    }

    /// Number of critical chunks. These have the positions below it.
    pub(super) fn critical_count(&self) -> u32 {
        self.critical_count
    }

    /// The runs of successive chunks, in the order in which they leave.
    fn segments(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        let starts = once(0).chain(self.critical.ranges().map(|range| range.end));
        let ends = self.critical.ranges().map(|range| range.start);
        let others = starts.zip(ends.chain(once(self.chunks)));
        self.critical
            .ranges()
            .chain(others.map(|(start, end)| start..end))
            .filter(|run| !run.is_empty())
    }

    /// The successive chunks that the first of these positions have. Empty past the end.
    pub(super) fn run(&self, positions: Range<u32>) -> Range<u32> {
        let wanted = positions.end.saturating_sub(positions.start);
        let mut before = 0;
        for run in self.segments() {
            let skipped = positions.start - before;
            let count = run.end - run.start;
            if skipped < count {
                let start = run.start + skipped;
                return start..run.end.min(start.saturating_add(wanted));
            }
            before += count;
        }
        self.chunks..self.chunks
    }

    /// The chunk at the last position.
    pub(super) fn last(&self) -> u32 {
        self.run(self.chunks - 1..self.chunks).start
    }

    /// The position of a chunk. `None` past the end.
    pub(super) fn position(&self, chunk: u32) -> Option<u32> {
        let mut before = 0;
        for run in self.segments() {
            if run.contains(&chunk) {
                return Some(before + chunk - run.start);
            }
            before += run.end - run.start;
        }
        None
    }

    pub(super) fn critical_arrived(&self, arrivals: &dyn Arrivals, message: MessageId) -> bool {
        let words = 0..self.critical_count.div_ceil(64);
        let bits = words.map(|word| self.critical_word(arrivals, message, word).count_ones());
        bits.sum::<u32>() >= self.critical_count
    }

    /// The arrival bits of 64 critical positions from `64 * word` on.
    pub(super) fn critical_word(
        &self,
        arrivals: &dyn Arrivals,
        message: MessageId,
        word: u32,
    ) -> u64 {
        let first = word.saturating_mul(64);
        let end = first.saturating_add(64).min(self.critical_count);
        let (mut bits, mut position) = (0, first);
        while position < end {
            let run = self.run(position..end);
            bits |= chunk_bits(arrivals, message, &run) << (position - first);
            position += run.end - run.start;
        }
        bits
    }
}

/// The arrival bits of at most 64 chunks.
fn chunk_bits(arrivals: &dyn Arrivals, message: MessageId, run: &Range<u32>) -> u64 {
    let (word, shift) = (run.start / 64, run.start % 64);
    let count = run.end - run.start;
    let mut bits = arrivals.word(message, word) >> shift;
    if shift + count > 64 {
        bits |= arrivals.word(message, word + 1) << (64 - shift);
    }
    bits & u64::MAX >> (64 - count.clamp(1, 64))
}

/// The order as the loss meter reads it.
pub(super) struct CriticalFirst {
    message: MessageId,
    order: CriticalOrder,
}

impl CriticalFirst {
    pub(super) fn of(message: &Message) -> Self {
        Self {
            message: MessageId::new(message.number),
            order: CriticalOrder::of(message),
        }
    }
}

impl WireOrder for CriticalFirst {
    fn len(&self) -> u32 {
        self.order.chunks
    }

    fn at(&self, position: u32) -> Option<(MessageId, u32)> {
        let is_chunk = position < self.order.chunks;
        is_chunk.then(|| (self.message, self.order.run(position..position + 1).start))
    }

    fn is_sequence(&self) -> bool {
        let mut chunks = 0;
        self.order.segments().all(|run| {
            let follows = run.start == chunks;
            chunks = run.end;
            follows
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    struct Set(BTreeSet<u32>);

    impl Arrivals for Set {
        fn word(&self, _: MessageId, word: u32) -> u64 {
            let bits = (0..64).filter(|bit| self.0.contains(&(word * 64 + bit)));
            bits.fold(0, |all, bit| all | 1 << bit)
        }

        fn count(&self, _: MessageId) -> u32 {
            u32::try_from(self.0.len()).unwrap()
        }

        fn seen(&self, _: MessageId) -> u32 {
            self.0.last().map_or(0, |chunk| chunk + 1)
        }
    }

    proptest! {
        #[test]
        fn each_chunk_has_one_position_and_critical_chunks_have_the_first(
            steps in prop::collection::vec((0..90_u32, 1..90_u32), 0..=8),
            tail in 0..90_u32,
            arrived in prop::collection::btree_set(0..1600_u32, 0..800),
        ) {
            let mut after = 0;
            let ranges: Vec<_> = steps
                .into_iter()
                .map(|(gap, length)| {
                    let start = after + gap + u32::from(after > 0 && gap == 0);
                    after = start + length;
                    start..after
                })
                .collect();
            let critical = CriticalChunks::new(ranges.clone()).unwrap();
            let message = Message {
                number: 0,
                bytes: 0,
                chunks: (after + tail).max(1),
                chunk_bytes: 1,
                critical,
            };
            let (wire, order) = (CriticalFirst::of(&message), CriticalOrder::of(&message));
            let is_critical = |chunk: u32| ranges.iter().any(|range| range.contains(&chunk));
            let mut expected: Vec<u32> = (0..message.chunks).filter(|c| is_critical(*c)).collect();
            expected.extend((0..message.chunks).filter(|chunk| !is_critical(*chunk)));
            let actual: Vec<u32> = (0..).map_while(|p| Some(wire.at(p)?.1)).collect();
            prop_assert_eq!(&actual, &expected);
            prop_assert_eq!(wire.is_sequence(), expected.is_sorted());
            prop_assert_eq!(order.last(), *expected.last().unwrap());
            let arrivals = Set(arrived);
            for (position, chunk) in (0..).zip(&expected) {
                prop_assert_eq!(order.position(*chunk), Some(position));
                let bit = order.critical_word(&arrivals, MessageId::new(0), position / 64)
                    >> (position % 64) & 1;
                let is_set = is_critical(*chunk) && arrivals.0.contains(chunk);
                prop_assert_eq!(bit == 1, is_set, "position {}", position);
            }
            prop_assert_eq!(order.position(message.chunks), None);
            let all = (0..message.chunks).filter(|c| is_critical(*c)).all(|c| arrivals.0.contains(&c));
            prop_assert_eq!(order.critical_arrived(&arrivals, MessageId::new(0)), all);
        }
    }
}
