//! Writes into the windows of streams: when each has left, and what is dropped of it (P3.14).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::SendState;
use super::queue::Departed;
use crate::error::{Error, StreamError};
use crate::memory::MrSlice;
use crate::pair::Pair;
use crate::pair::deadlines::Deadlines;
use crate::writes::{WriteHandle, WriteOutcome, WriteShared};

/// Maximum number of open writes of a queue pair. Each one costs memory and time in every look for
/// the next packets.
const MAX_WRITES: usize = 1024;

/// A write whose packets have not all left.
struct OpenWrite {
    message: u64,
    /// One past its last byte in the message.
    end_bytes: u64,
    /// Number of its chunks that have neither departed nor been dropped.
    in_hand: u32,
    deadline_ns: Option<u64>,
    /// How the write ends when `in_hand` is 0.
    outcome: WriteOutcome,
    shared: Arc<WriteShared>,
}

/// The open writes of a queue pair, by number.
#[derive(Default)]
pub(super) struct Writes {
    open: BTreeMap<u64, OpenWrite>,
    /// Number of the next write.
    next: u64,
    deadlines: Deadlines,
}

impl Writes {
    /// Returns the earliest deadline of an open write.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.deadlines.next_ns()
    }

    /// Frees the memory of empty collections.
    pub(super) fn shrink(&mut self) {
        self.open = BTreeMap::new();
        self.deadlines = Deadlines::default();
    }

    /// Returns the number of the write.
    fn add(&mut self, write: OpenWrite) -> u64 {
        let number = self.next;
        self.next += 1;
        self.deadlines.insert(number, write.deadline_ns);
        self.open.insert(number, write);
        number
    }

    /// Returns the numbers of the open writes of a message.
    fn of(&self, message: u64) -> Vec<u64> {
        let open = self.open.iter();
        let of_message = open.filter(|(_, write)| write.message == message);
        of_message.map(|(&number, _)| number).collect()
    }

    pub(super) fn note_departed(&mut self, departed: &Departed) {
        if let Some(number) = departed.write
            && let Some(write) = self.open.get_mut(&number)
        {
            write.shared.note_sent(departed.bytes);
            self.settle(
                number,
                departed.chunks.range.end - departed.chunks.range.start,
            );
        }
    }

    /// Counts chunks that have departed or were dropped, and ends the write after the last of them.
    fn settle(&mut self, number: u64, chunks: u32) {
        let Some(write) = self.open.get_mut(&number) else {
            return;
        };
        debug_assert!(chunks <= write.in_hand, "{chunks} of {}", write.in_hand);
        write.in_hand = write.in_hand.saturating_sub(chunks);
        if write.in_hand == 0
            && let Some(write) = self.open.remove(&number)
        {
            self.deadlines.remove(number, write.deadline_ns);
            write.shared.finish(write.outcome);
        }
    }

    /// Ends all writes of a queue pair that no longer exists.
    pub(super) fn close_all(&mut self) {
        for write in std::mem::take(&mut self.open).into_values() {
            let outcome = match write.outcome {
                WriteOutcome::Sent => WriteOutcome::Closed,
                decided => decided,
            };
            write.shared.finish(outcome);
        }
    }
}

impl SendState {
    /// Drops all of a write that the fabric has not taken. The write ends with `outcome` once the
    /// fabric has sent the rest, or as sent if the fabric has taken all of it.
    fn cut_write(&mut self, number: u64, outcome: WriteOutcome) {
        let write = self.writes.open.get(&number);
        let waiting = write.map_or(0, |write| self.streams.drop_write(write.message, number));
        let dropped = self.queue.drop_write(number);
        let Some(write) = self.writes.open.get_mut(&number) else {
            return;
        };
        if waiting > 0 || dropped.packets > 0 {
            write.outcome = outcome;
        }
        write.shared.note_sent(dropped.left_bytes);
        let chunks = waiting + dropped.chunks;
        if let Some(send) = self.open.get_mut(&write.message) {
            send.chunks_dropped(chunks);
        }
        self.writes.settle(number, chunks);
    }

    /// Drops what the fabric has not taken of the writes of a message that has ended.
    pub(super) fn close_writes(&mut self, message: u64) {
        for number in self.writes.of(message) {
            self.cut_write(number, WriteOutcome::Closed);
        }
    }
}

impl Pair {
    /// Writes `source` into the window of a stream, from `first_chunk` on.
    pub(crate) fn write(
        &mut self,
        now_ns: u64,
        message: u64,
        source: MrSlice,
        first_chunk: u32,
        deadline_ns: Option<u64>,
    ) -> Result<WriteHandle, Error> {
        if let Some(deadline_ns) = deadline_ns.filter(|&at_ns| at_ns <= now_ns) {
            return Err(StreamError::DeadlinePassed {
                deadline_ns,
                now_ns,
            }
            .into());
        }
        let run = self.check_run(message, source, first_chunk)?;
        let end_bytes = run.end_bytes();
        if let Some(window_bytes) = self.sdr.window_bytes(message).filter(|&w| w < end_bytes) {
            return Err(StreamError::OutsideWindow {
                end_bytes,
                window_bytes,
            }
            .into());
        }
        if self.send.writes.open.len() >= MAX_WRITES {
            return Err(StreamError::TooManyWrites { limit: MAX_WRITES }.into());
        }
        let shared = Arc::new(WriteShared::default());
        let write = self.send.writes.add(OpenWrite {
            message,
            end_bytes,
            in_hand: run.chunks(),
            deadline_ns,
            outcome: WriteOutcome::Sent,
            shared: Arc::clone(&shared),
        });
        self.add_run(message, run, Some(write));
        Ok(WriteHandle { shared })
    }

    pub(in crate::pair) fn expire_writes(&mut self, now_ns: u64) {
        while let Some(number) = self.send.writes.deadlines.pop_due(now_ns) {
            self.send.cut_write(number, WriteOutcome::Expired);
        }
    }

    /// Ends the writes that do not fit into the window of a stream, which is known now.
    pub(super) fn refuse_writes_outside(&mut self, message: u64) {
        let Some(window_bytes) = self.sdr.window_bytes(message) else {
            return;
        };
        let writes = self.send.writes.of(message).into_iter();
        let is_outside = |number: &u64| {
            let write = self.send.writes.open.get(number);
            write.is_some_and(|write| write.end_bytes > window_bytes)
        };
        let outside: Vec<u64> = writes.filter(is_outside).collect();
        for number in outside {
            self.send.cut_write(number, WriteOutcome::OutsideWindow);
        }
    }
}
