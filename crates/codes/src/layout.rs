//! How a message is cut into groups.

use core::ops::Range;

use crate::code::Code;
use crate::error::CodecError;

/// Bytes of a message, cut into chunks and these into groups. The parity chunks of a message lie in
/// the order of the groups, those of a group in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    code: Code,
    data_bytes: usize,
    chunk_bytes: usize,
    parity_bytes: usize,
}

/// One group of a message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    /// Where its data lie in the message, in bytes.
    pub data: Range<usize>,
    /// Where its parity lies in the parity of the message, in bytes.
    pub parity: Range<usize>,
    /// Number of data chunks; the last can be short.
    pub data_chunks: usize,
    /// Number of parity chunks, all of them whole.
    pub parity_chunks: usize,
}

impl Layout {
    /// Cuts a message of `data_bytes` bytes.
    ///
    /// # Errors
    /// Chunks or data of 0 bytes; more data or parity than can be addressed.
    pub fn new(code: Code, data_bytes: usize, chunk_bytes: usize) -> Result<Self, CodecError> {
        if chunk_bytes == 0 {
            return Err(CodecError::EmptyChunks);
        }
        let too_large = CodecError::DataBytes {
            given: data_bytes,
            most: usize::MAX / code.m(),
        };
        let chunks = data_bytes.div_ceil(chunk_bytes);
        let (full, rest) = (chunks / code.k(), chunks % code.k());
        let parity_bytes = full
            .checked_mul(code.m())
            .and_then(|parity_chunks| parity_chunks.checked_add(code.parity_chunks(rest)))
            .and_then(|parity_chunks| parity_chunks.checked_mul(chunk_bytes));
        match parity_bytes {
            Some(parity_bytes) if parity_bytes > 0 => Ok(Self {
                code,
                data_bytes,
                chunk_bytes,
                parity_bytes,
            }),
            _ => Err(too_large),
        }
    }

    /// The code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// Bytes of the message.
    pub fn data_bytes(&self) -> usize {
        self.data_bytes
    }

    /// Bytes of a chunk.
    pub fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    /// Data chunks of the message; the last can be short.
    pub fn data_chunks(&self) -> usize {
        self.data_bytes.div_ceil(self.chunk_bytes)
    }

    /// Bytes of the message's parity.
    pub fn parity_bytes(&self) -> usize {
        self.parity_bytes
    }

    /// Parity chunks of the message, all of them whole.
    pub fn parity_chunks(&self) -> usize {
        self.parity_bytes / self.chunk_bytes
    }

    /// Number of groups.
    pub fn groups(&self) -> usize {
        self.data_chunks().div_ceil(self.code.k())
    }

    /// Returns a group; `None` from [`Self::groups`] on.
    pub fn group(&self, group: usize) -> Option<Group> {
        if group >= self.groups() {
            return None;
        }
        let first = group * self.code.k();
        let data_chunks = self.code.k().min(self.data_chunks() - first);
        let parity_chunks = self.code.parity_chunks(data_chunks);
        let data_start = first * self.chunk_bytes;
        let parity_start = group * self.code.m() * self.chunk_bytes;
        let data_end = match group + 1 == self.groups() {
            true => self.data_bytes,
            false => data_start + data_chunks * self.chunk_bytes,
        };
        Some(Group {
            data: data_start..data_end,
            parity: parity_start..parity_start + parity_chunks * self.chunk_bytes,
            data_chunks,
            parity_chunks,
        })
    }
}
