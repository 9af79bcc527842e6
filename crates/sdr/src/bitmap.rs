//! What a user sees of a receive: the chunk bitmap.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::memory::SlotMemory;

/// The chunk bitmap of one receive (paper section 3.1.1): a cheap handle, live while chunks arrive.
///
/// It stays readable for as long as it lives, whatever becomes of the receive, its slot and its
/// queue pair.
#[derive(Clone)]
pub struct ChunkBitmap(Arc<SlotMemory>);

impl ChunkBitmap {
    pub(crate) fn new(memory: Arc<SlotMemory>) -> Self {
        Self(memory)
    }

    /// Number of the message on its queue pair.
    #[must_use]
    pub fn message(&self) -> u64 {
        self.0.message()
    }

    /// Bits, that is chunks: those of the posted buffer until the message's length is known, then
    /// those of the message. At least one.
    #[must_use]
    #[expect(
        clippy::len_without_is_empty,
        reason = "every message has a chunk, so none is empty"
    )]
    pub fn len(&self) -> u32 {
        self.0.chunks()
    }

    /// Whether chunk `chunk` has arrived whole.
    #[must_use]
    pub fn get(&self, chunk: u32) -> bool {
        self.word(chunk / 64) >> (chunk % 64) & 1 == 1
    }

    /// Chunks `64 * word ..` in one word, the first in the least significant bit; 0 past the end.
    #[must_use]
    pub fn word(&self, word: u32) -> u64 {
        self.0.word(word)
    }

    /// How many chunks have arrived whole.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.count()
    }

    /// Payload bytes that have arrived, duplicates left out. While packets arrive, it can be wrong
    /// by a packet for each worker; it is exact once they have arrived.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// Whether the length is known and every chunk has arrived.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.0.is_complete()
    }

    /// The packets of one chunk, the first in the least significant bit; of a chunk of more than
    /// 64 packets, the first 64.
    #[must_use]
    pub fn packets(&self, chunk: u32) -> u64 {
        self.0.packets_of(chunk)
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
    /// Rust: as many whole 64-bit words as the chunks of the posted buffer need. The pointer is
    /// valid for as long as this handle or a clone lives. The bytes change while chunks arrive.
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        self.0.as_ptr()
    }
}

impl core::fmt::Debug for ChunkBitmap {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ChunkBitmap")
            .field("message", &self.message())
            .field("count", &self.count())
            .field("len", &self.len())
            .finish()
    }
}
