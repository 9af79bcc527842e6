//! Reading the slot table, at any time, from any thread.

use super::SlotTable;
use crate::slot::{Phase, Slot};
use crate::sync::{AtomicU64, Ordering};

impl SlotTable {
    /// 64 chunks of a message from `64 * word` on, the first in the least significant bit; set:
    /// arrived whole. 0 where the message has no slot, or `word` is past the end.
    #[must_use]
    pub fn word(&self, message: u64, word: u32) -> u64 {
        let value = |index| {
            let words = self.chunk_bitmap(index);
            Some(u64::from_le(
                words.get(word as usize)?.load(Ordering::Acquire),
            ))
        };
        self.read(message, |index, _| value(index)).unwrap_or(0)
    }

    /// How many chunks of a message have arrived whole.
    #[must_use]
    pub fn count(&self, message: u64) -> u32 {
        self.read(message, |_, slot| Some(slot.chunks.load(Ordering::Acquire)))
            .unwrap_or(0)
    }

    /// One past the highest chunk of a message of which a packet has arrived, 0 if none.
    #[must_use]
    pub fn seen(&self, message: u64) -> u32 {
        let packets = self.read(message, |_, slot| {
            Some(slot.seen_packets.load(Ordering::Acquire))
        });
        packets
            .unwrap_or(0)
            .div_ceil(self.geometry.config().packets_per_chunk)
    }

    /// Packets of a message that have arrived, duplicates left out.
    #[must_use]
    pub fn packets(&self, message: u64) -> u32 {
        self.read(message, |_, slot| {
            Some(slot.packets.load(Ordering::Acquire))
        })
        .unwrap_or(0)
    }

    /// Payload bytes of a message that have arrived, duplicates left out.
    #[must_use]
    pub fn bytes(&self, message: u64) -> u64 {
        self.read(message, |_, slot| Some(slot.bytes.load(Ordering::Acquire)))
            .unwrap_or(0)
    }

    /// Chunks that a message has: until its length is known, those of the posted buffer. 0 where
    /// the message has no slot.
    #[must_use]
    pub fn chunks(&self, message: u64) -> u32 {
        let packets = self.read(message, |_, slot| {
            Some(self.total_packets(slot, slot.extent()))
        });
        packets
            .unwrap_or(0)
            .div_ceil(self.geometry.config().packets_per_chunk)
    }

    /// Whether a message's length is known, and all its chunks have arrived whole.
    #[must_use]
    pub fn is_complete(&self, message: u64) -> bool {
        self.read(message, |_, slot| {
            let total = self.total_packets(slot, Some(slot.extent()?));
            let chunks = total.div_ceil(self.geometry.config().packets_per_chunk);
            Some(slot.chunks.load(Ordering::Acquire) == chunks)
        })
        .unwrap_or(false)
    }

    /// The packets of one chunk, up to 64 of them, the first in the least significant bit.
    #[must_use]
    pub fn packets_of(&self, message: u64, chunk: u32) -> u64 {
        let per_chunk = self.geometry.config().packets_per_chunk;
        let bits = self.read(message, |index, _| {
            let first = chunk.checked_mul(per_chunk)?;
            let words = self.packet_bitmap(index);
            let word = |i: usize| {
                words
                    .get(i)
                    .map_or(0, |word| u64::from_le(word.load(Ordering::Acquire)))
            };
            let low = word((first / 64) as usize) >> (first % 64);
            // Two shifts: a shift by 64 would be none.
            let high = (word((first / 64) as usize + 1) << (63 - first % 64)) << 1;
            Some(low | high)
        });
        let unused = 64 - per_chunk.min(64);
        bits.unwrap_or(0) & (u64::MAX >> unused)
    }

    /// Whether a message, whose length must be known, carries no user immediate or has all of it.
    #[must_use]
    pub fn immediate_is_whole(&self, message: u64) -> bool {
        let has_immediate = self.read(message, |_, slot| Some(slot.extent()?.has_immediate));
        has_immediate.is_some_and(|has| !has || self.immediate(message).is_some())
    }

    /// The user immediate of a message, once all its fragments have arrived.
    pub(crate) fn immediate(&self, message: u64) -> Option<u32> {
        self.read(message, |_, slot| slot.immediate(self.geometry.fragments()))
    }

    /// The words of the chunk bitmap of the slot that `message` uses or would use.
    pub(crate) fn chunk_bitmap_of(&self, message: u64) -> &[AtomicU64] {
        self.chunk_bitmap(self.geometry.slot(message) as usize)
    }

    /// Whether `message` has its slot, open or closed.
    pub(crate) fn holds(&self, message: u64) -> bool {
        self.read(message, |_, _| Some(())).is_some()
    }

    /// Runs `read` on a message's slot; `None` if the slot is not, or is no longer, the message's.
    fn read<T>(&self, message: u64, read: impl FnOnce(usize, &Slot) -> Option<T>) -> Option<T> {
        let index = self.geometry.slot(message) as usize;
        let slot = self.slots.get(index)?;
        let is_its = || {
            slot.occupant()
                .is_some_and(|o| o.message == message && o.phase != Phase::Opening)
        };
        let value = if is_its() { read(index, slot) } else { None };
        value.filter(|_| is_its())
    }
}
