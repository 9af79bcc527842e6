//! One message at the sender of selective repeat.

use core::ops::Range;

use alloc::vec::Vec;
use farwrite_wire::control::Ack;

use super::sent_chunks::Stamp;
use crate::chunk_set::{ChunkSet, word_mask, words_of};

/// Each chunk is new, queued to be sent again, in flight, or acknowledged.
#[derive(Debug)]
pub(super) struct SelectiveSend {
    chunks: u32,
    /// Chunks `0..handed_out` have been handed out at least once.
    handed_out: u32,
    /// The highest cumulative point in an ACK of the receiver.
    cumulative: u32,
    acked: ChunkSet,
    queued: ChunkSet,
    /// Latest departure of each chunk in `0..handed_out`.
    stamps: Vec<Stamp>,
}

impl SelectiveSend {
    pub(super) fn new(chunks: u32) -> Self {
        Self {
            chunks,
            handed_out: 0,
            cumulative: 0,
            acked: ChunkSet::new(chunks),
            queued: ChunkSet::new(chunks),
            stamps: Vec::new(),
        }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.acked.is_full()
    }

    pub(super) fn has_new(&self) -> bool {
        self.handed_out < self.chunks
    }

    pub(super) fn has_queued(&self) -> bool {
        !self.queued.is_empty()
    }

    /// Removes all chunks that are queued to be sent again.
    pub(super) fn drop_queued(&mut self) {
        self.queued.clear();
    }

    pub(super) fn has_acked(&self, range: Range<u32>) -> bool {
        self.acked.contains_all(range)
    }

    pub(super) fn take_queued(&mut self, max_chunks: u32, stamp: Stamp) -> Option<Range<u32>> {
        let run = self.queued.take_run(max_chunks)?;
        self.stamp(run.clone(), stamp);
        Some(run)
    }

    pub(super) fn take_new(&mut self, max_chunks: u32, stamp: Stamp) -> Option<Range<u32>> {
        let end = self.handed_out.saturating_add(max_chunks).min(self.chunks);
        let run = self.handed_out..end;
        self.handed_out = end;
        self.stamps.resize(end as usize, stamp);
        debug_assert!(self.cumulative <= self.handed_out && self.handed_out <= self.chunks);
        (!run.is_empty()).then_some(run)
    }

    pub(super) fn stamp(&mut self, range: Range<u32>, stamp: Stamp) {
        let end = range.end.min(self.handed_out) as usize;
        if let Some(stamps) = self.stamps.get_mut(range.start as usize..end) {
            stamps.fill(stamp);
        }
    }

    /// Takes an ACK in. Claims about chunks that were never handed out are not believed.
    pub(super) fn acknowledge(&mut self, ack: &Ack) {
        let cumulative = ack.cumulative.min(self.handed_out);
        if cumulative > self.cumulative {
            for (word, mask) in words_of(self.cumulative..cumulative) {
                self.acknowledge_word(word, mask);
            }
            self.cumulative = cumulative;
        }
        if !ack.window_start.is_multiple_of(8) {
            return;
        }
        // Combine the bytes of one word, because the first group may begin inside a word.
        let mut first = ack.window_start;
        let mut bytes = ack.bits.as_slice();
        while !bytes.is_empty() && first < self.handed_out {
            let in_word = ((64 - first % 64) / 8) as usize;
            let (group, rest) = bytes.split_at(in_word.min(bytes.len()));
            let mut bits = 0;
            for (i, byte) in group.iter().enumerate() {
                bits |= u64::from(*byte) << (first as usize % 64 + 8 * i);
            }
            self.acknowledge_word(first / 64, bits);
            first = (first / 64).saturating_add(1).saturating_mul(64);
            bytes = rest;
        }
    }

    fn acknowledge_word(&mut self, word: u32, bits: u64) {
        let sent = word_mask(word, &(0..self.handed_out));
        let new = self.acked.insert_word(word, bits & sent);
        self.queued.remove_word(word, new);
        debug_assert_eq!(
            self.acked.word(word) & self.queued.word(word),
            0,
            "word {word}"
        );
    }

    /// Queues the chunks of a range that are in flight and for whose latest departure `lost`
    /// returns true. Returns whether there were any.
    pub(super) fn queue_if(&mut self, range: Range<u32>, lost: impl Fn(Stamp) -> bool) -> bool {
        let before = self.queued.count();
        for (word, mask) in words_of(range.start..range.end.min(self.handed_out)) {
            let mut on_their_way = mask & !self.acked.word(word) & !self.queued.word(word);
            while on_their_way != 0 {
                let bit = on_their_way.trailing_zeros();
                let stamp = self.stamps.get((word * 64 + bit) as usize);
                if stamp.is_some_and(|stamp| lost(*stamp)) {
                    self.queued.insert_word(word, 1 << bit);
                }
                on_their_way &= on_their_way - 1;
            }
        }
        self.queued.count() > before
    }
}
