//! What a user sees of a receive: the chunk bitmap.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::table::SlotTable;

/// The chunk bitmap of one receive (paper section 3.1.1): a cheap handle, live while chunks arrive.
///
/// It stays readable after the receive is completed; once its slot has a new message it reads as
/// empty.
#[derive(Clone, Debug)]
pub struct ChunkBitmap {
    table: Arc<SlotTable>,
    message: u64,
}

impl ChunkBitmap {
    pub(crate) fn new(table: Arc<SlotTable>, message: u64) -> Self {
        Self { table, message }
    }

    /// Number of the message on its queue pair.
    #[must_use]
    pub fn message(&self) -> u64 {
        self.message
    }

    /// Bits, that is chunks: those of the posted buffer until the message's length is known, then
    /// those of the message.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.table.chunks(self.message)
    }

    /// Whether the slot has moved on, so that there is nothing to see.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.table.holds(self.message)
    }

    /// Whether chunk `chunk` has arrived whole.
    #[must_use]
    pub fn get(&self, chunk: u32) -> bool {
        self.word(chunk / 64) >> (chunk % 64) & 1 == 1
    }

    /// Chunks `64 * word ..` in one word, the first in the least significant bit.
    #[must_use]
    pub fn word(&self, word: u32) -> u64 {
        self.table.word(self.message, word)
    }

    /// How many chunks have arrived whole.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.table.count(self.message)
    }

    /// Payload bytes that have arrived, duplicates left out.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.table.bytes(self.message)
    }

    /// Whether the length is known and every chunk has arrived.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.table.is_complete(self.message)
    }

    /// The packets of one chunk, the first in the least significant bit; of a chunk of more than
    /// 64 packets, the first 64.
    #[must_use]
    pub fn packets(&self, chunk: u32) -> u64 {
        self.table.packets_of(self.message, chunk)
    }

    /// A copy of the bits, eight chunks a byte, the first in the least significant bit.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let bytes = self.len().div_ceil(8) as usize;
        let words = bytes.div_ceil(8);
        let mut copy = Vec::with_capacity(words * 8);
        for word in (0..).take(words) {
            copy.extend_from_slice(&self.word(word).to_le_bytes());
        }
        copy.truncate(bytes);
        copy
    }

    /// Where the live bits lie, in the layout of [`ChunkBitmap::to_bytes`], for readers outside
    /// Rust. Valid as long as this handle or a clone lives; the bytes change while chunks arrive,
    /// and belong to the slot's next message once that is posted.
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        self.table.chunk_bitmap_of(self.message).as_ptr().cast()
    }
}

// The bytes behind `as_ptr` are those of little-endian words, whatever the machine.
const _: () = assert!(size_of::<core::sync::atomic::AtomicU64>() == 8);
