//! What a user sees of a receive: the chunk bitmap.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::memory::SlotMemory;

/// The chunk bitmap of one receive (paper section 3.1.1). The handle is cheap to clone. The bitmap
/// changes while chunks arrive.
///
/// It stays readable for as long as the handle lives, even after the receive, its slot and its
/// queue pair have ended.
#[derive(Clone)]
pub struct ChunkBitmap(Arc<SlotMemory>);

impl ChunkBitmap {
    pub(crate) fn new(memory: Arc<SlotMemory>) -> Self {
        Self(memory)
    }

    pub(crate) fn into_memory(self) -> Arc<SlotMemory> {
        self.0
    }

    /// Number of the message on its queue pair.
    #[must_use]
    pub fn message(&self) -> u64 {
        self.0.message().data()
    }

    /// Number of bits, which is the number of chunks. Until the message's length is known, these
    /// are the chunks of the posted buffer; after that, the chunks of the message. At least one.
    #[must_use]
    #[expect(
        clippy::len_without_is_empty,
        reason = "every message has a chunk, so none is empty"
    )]
    pub fn len(&self) -> u32 {
        self.0.chunks()
    }

    /// Returns whether all packets of chunk `chunk` have arrived.
    #[must_use]
    pub fn get(&self, chunk: u32) -> bool {
        self.word(chunk / 64) >> (chunk % 64) & 1 == 1
    }

    /// Returns the bits of chunks `64 * word ..` in one word. The first chunk is the least
    /// significant bit. Returns 0 past the end.
    #[must_use]
    pub fn word(&self, word: u32) -> u64 {
        self.0.word(word)
    }

    /// Number of chunks that have arrived completely.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.count()
    }

    /// Payload bytes that have arrived, without duplicates. While packets arrive, the value can be
    /// wrong by one packet for each worker. When no packet is being processed, it is exact.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// Returns whether the length is known and every chunk has arrived.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.0.is_complete()
    }

    /// The packet bits of one chunk. The first packet is the least significant bit. If a chunk has
    /// more than 64 packets, these are the first 64; [`ChunkBitmap::packet_word`] returns the others.
    #[must_use]
    pub fn packets(&self, chunk: u32) -> u64 {
        self.0.packet_word(chunk, 0)
    }

    /// Packet bits of one chunk from its packet `64 * word` on, in one word. The first of them is the
    /// least significant bit. Returns 0 past the end of the chunk.
    #[must_use]
    pub fn packet_word(&self, chunk: u32, word: u32) -> u64 {
        self.0.packet_word(chunk, word)
    }

    /// Returns a copy of the bits, eight chunks per byte. The first chunk is the least significant
    /// bit.
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

    /// Returns the address of the live bits, for readers outside Rust. The layout is that of
    /// [`ChunkBitmap::to_bytes`], in as many whole 64-bit words as the chunks of the posted buffer
    /// need. The pointer is valid for as long as this handle or a clone lives. The bytes change
    /// while chunks arrive.
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
