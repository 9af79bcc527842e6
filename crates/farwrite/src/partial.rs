//! What arrived of a message that ended as partial.

use farwrite_sdr::ChunkBitmap;

/// What arrived of a message that ended as partial. It does not change any more, also when the
/// slot of the message is used again.
///
/// A chunk of several packets can have arrived in part: then its bit is not set, while bytes of it
/// count and lie in the buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partial {
    bytes: u64,
    chunks: u32,
    bits: Vec<u8>,
}

impl Partial {
    /// What a bitmap says. The receive must be over.
    pub(crate) fn of(bitmap: &ChunkBitmap) -> Self {
        Self {
            bytes: bitmap.bytes(),
            chunks: bitmap.len(),
            bits: bitmap.to_bytes(),
        }
    }

    /// Bytes that arrived, or were computed from others; each counts once.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Chunks of the message; where its length never became known, of the buffer.
    #[must_use]
    pub fn chunks(&self) -> u32 {
        self.chunks
    }

    /// Whether all of a chunk is in the buffer.
    #[must_use]
    pub fn has_chunk(&self, chunk: u32) -> bool {
        let byte = self.bits.get((chunk / 8) as usize);
        byte.is_some_and(|byte| byte >> (chunk % 8) & 1 == 1)
    }

    /// One bit a chunk, the first in the least significant bit of the first byte; set: all of the
    /// chunk is in the buffer.
    #[must_use]
    pub fn bits(&self) -> &[u8] {
        &self.bits
    }
}
