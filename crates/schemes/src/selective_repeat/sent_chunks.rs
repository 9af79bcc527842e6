//! When each chunk left: the timers of selective repeat.

use core::ops::Range;

use alloc::collections::VecDeque;

/// Chunks of one message that left together.
#[derive(Debug)]
pub(super) struct SentRun {
    pub(super) at_ns: u64,
    pub(super) message: u64,
    pub(super) range: Range<u32>,
}

/// Identifies a departure. A chunk keeps the stamp of its latest departure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp(u32);

/// Departures in time order. All chunks have the same timeout, so the first departure is the first
/// to expire, and one queue replaces a timer per chunk.
///
/// Stamps count modulo 2^32. A stamp outlives its departure only in chunks that are acknowledged or
/// queued again, and the stamps of those chunks are not read.
#[derive(Debug, Default)]
pub(super) struct SentChunks {
    queue: VecDeque<SentRun>,
    /// Stamp of the front departure.
    front: u32,
}

impl SentChunks {
    pub(super) fn push(&mut self, departure: SentRun) -> Stamp {
        let index = u32::try_from(self.queue.len()).unwrap_or(u32::MAX);
        self.queue.push_back(departure);
        Stamp(self.front.wrapping_add(index))
    }

    pub(super) fn front(&self) -> Option<&SentRun> {
        self.queue.front()
    }

    pub(super) fn pop(&mut self) -> Option<(Stamp, SentRun)> {
        let departure = self.queue.pop_front()?;
        let stamp = Stamp(self.front);
        self.front = self.front.wrapping_add(1);
        Some((stamp, departure))
    }

    /// A stamp without a departure, for chunks that were handed out and have not left.
    pub(super) fn not_departed(&self) -> Stamp {
        Stamp(self.front.wrapping_sub(1))
    }

    /// When the departure with this stamp took place. `None` if there is no such departure.
    pub(super) fn at_ns(&self, stamp: Stamp) -> Option<u64> {
        let index = stamp.0.wrapping_sub(self.front);
        self.queue.get(index as usize).map(|d| d.at_ns)
    }
}
