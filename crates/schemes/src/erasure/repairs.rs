//! The data chunks of one message that are sent again because the receiver requested them.

use core::ops::Range;

use alloc::vec;
use alloc::vec::Vec;

use crate::chunk_set::ChunkSet;

/// Value for a chunk that was never sent again.
const NEVER: u64 = 0;
/// Value for a chunk that was handed out again and has not left.
const IN_HAND: u64 = u64::MAX;

#[derive(Debug)]
pub(super) struct Repairs {
    queued: ChunkSet,
    /// When each chunk last left as a repeat.
    left_ns: Vec<u64>,
}

impl Repairs {
    /// Takes 8 bytes per chunk.
    pub(super) fn new(chunks: u32) -> Self {
        Self {
            queued: ChunkSet::new(chunks),
            left_ns: vec![NEVER; chunks as usize],
        }
    }

    pub(super) fn drop_queued(&mut self) {
        while self.queued.take_run(u32::MAX).is_some() {}
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queued.is_empty()
    }

    /// Queues a chunk, unless it left again within `crossing_ns` or is about to leave.
    pub(super) fn queue(&mut self, chunk: u32, now_ns: u64, crossing_ns: u64) {
        let arrived = |left_ns: u64| left_ns.saturating_add(crossing_ns) <= now_ns;
        let left_ns = self.left_ns.get(chunk as usize);
        if left_ns.is_some_and(|&left_ns| left_ns == NEVER || arrived(left_ns)) {
            self.queued.insert_word(chunk / 64, 1 << (chunk % 64));
        }
    }

    pub(super) fn take(&mut self, max_chunks: u32) -> Option<Range<u32>> {
        let run = self.queued.take_run(max_chunks)?;
        self.set(&run, IN_HAND);
        Some(run)
    }

    /// Returns whether these chunks left as repeats.
    pub(super) fn departed(&mut self, now_ns: u64, run: &Range<u32>) -> bool {
        let first = self.left_ns.get(run.start as usize);
        let in_hand = first == Some(&IN_HAND);
        if in_hand {
            self.set(run, now_ns.max(1));
        }
        in_hand
    }

    fn set(&mut self, run: &Range<u32>, left_ns: u64) {
        if let Some(run) = self.left_ns.get_mut(run.start as usize..run.end as usize) {
            run.fill(left_ns);
        }
    }
}
