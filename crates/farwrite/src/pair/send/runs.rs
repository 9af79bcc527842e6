//! The chunks that users of streams want sent, by message.

use std::collections::{BTreeMap, VecDeque};

use farwrite_schemes::scheme::Chunks;

use super::queue::Source;

/// Chunks that the user of a stream wants sent.
pub(in crate::pair) struct StreamRun {
    /// The chunks that remain to be sent.
    pub(super) chunks: Chunks,
    pub(super) source: Source,
    /// Number of the write that the run belongs to, if it is one.
    pub(super) write: Option<u64>,
}

impl StreamRun {
    /// Returns the number of chunks that remain to be sent.
    pub(super) fn chunk_count(&self) -> u32 {
        self.chunks.range.end - self.chunks.range.start
    }
}

/// The runs of all streams. A stream whose receiver is not ready keeps any number of runs, and they
/// cost the others nothing.
#[derive(Default)]
pub(in crate::pair) struct StreamRuns {
    /// The runs of each message, the oldest first, each with the number of runs pushed before it.
    /// No list is empty.
    runs: BTreeMap<u64, VecDeque<(u64, StreamRun)>>,
    pushed: u64,
}

impl StreamRuns {
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub(super) fn push(&mut self, run: StreamRun) {
        let runs = self.runs.entry(run.chunks.message.data()).or_default();
        runs.push_back((self.pushed, run));
        self.pushed += 1;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &StreamRun> {
        self.runs.values().flatten().map(|(_, run)| run)
    }

    /// Takes up to `max_chunks` chunks of the oldest run of a message that `is_clear`.
    pub(super) fn take(
        &mut self,
        max_chunks: u32,
        mut is_clear: impl FnMut(u64) -> bool,
    ) -> Option<StreamRun> {
        let clear = self.runs.iter().filter(|(message, _)| is_clear(**message));
        let oldest = clear.min_by_key(|(_, runs)| runs.front().map(|(number, _)| *number));
        let message = *oldest?.0;
        let runs = self.runs.get_mut(&message)?;
        let (_, run) = runs.front_mut()?;
        let start = run.chunks.range.start;
        let end = run.chunks.range.end.min(start.saturating_add(max_chunks));
        run.chunks.range.start = end;
        let taken = StreamRun {
            chunks: Chunks {
                message: run.chunks.message,
                range: start..end,
            },
            source: run.source,
            write: run.write,
        };
        if run.chunks.range.is_empty() {
            runs.pop_front();
        }
        if runs.is_empty() {
            self.runs.remove(&message);
        }
        Some(taken)
    }

    pub(super) fn forget(&mut self, message: u64) {
        self.runs.remove(&message);
    }

    /// Drops the run of a write of a message. Returns how many of its chunks remained.
    pub(super) fn drop_write(&mut self, message: u64, write: u64) -> u32 {
        let Some(runs) = self.runs.get_mut(&message) else {
            return 0;
        };
        let is_of_write = |run: &StreamRun| run.write == Some(write);
        let of_write = runs.iter().filter(|(_, run)| is_of_write(run));
        let chunks = of_write.map(|(_, run)| run.chunk_count()).sum();
        runs.retain(|(_, run)| !is_of_write(run));
        if runs.is_empty() {
            self.runs.remove(&message);
        }
        chunks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MrSlice;

    fn run(message: u64, chunks: std::ops::Range<u32>, write: Option<u64>) -> StreamRun {
        StreamRun {
            chunks: Chunks {
                message: message.into(),
                range: chunks,
            },
            source: Source {
                slice: MrSlice::EMPTY,
                first_byte: 0,
            },
            write,
        }
    }

    #[test]
    fn runs_of_a_message_that_waits_cost_the_others_nothing() {
        let mut runs = StreamRuns::default();
        for chunk in 0..1000 {
            runs.push(run(1, chunk..chunk + 1, None));
        }
        runs.push(run(2, 5..15, None));
        let mut asked = 0;
        let taken = runs.take(8, |message| {
            asked += 1;
            message == 2
        });
        assert_eq!(taken.expect("chunks").chunks.range, 5..13);
        assert_eq!(asked, 2);
        runs.push(run(3, 0..1, None));
        // In the order in which they were pushed.
        let mut next = |clear: &[u64]| {
            let taken = runs.take(8, |message| clear.contains(&message));
            taken.map(|run| (run.chunks.message.data(), run.chunks.range))
        };
        assert_eq!(next(&[2, 3]), Some((2, 13..15)));
        assert_eq!(next(&[2, 3]), Some((3, 0..1)));
        assert_eq!(next(&[2, 3]), None);
        assert_eq!(next(&[1]), Some((1, 0..1)));
        runs.forget(1);
        assert!(runs.is_empty());
    }

    #[test]
    fn a_write_is_dropped_with_what_remains_of_it() {
        let mut runs = StreamRuns::default();
        runs.push(run(1, 0..4, Some(7)));
        runs.push(run(1, 0..2, Some(8)));
        let _ = runs.take(3, |_| true);
        assert_eq!(runs.drop_write(1, 7), 1);
        assert_eq!(runs.drop_write(1, 7), 0);
        assert_eq!(runs.iter().count(), 1);
        assert_eq!(runs.drop_write(1, 8), 2);
        assert!(runs.is_empty());
    }
}
