//! Cuts a message into groups.

use core::ops::Range;

use crate::code::Code;
use crate::error::CodecError;

/// The division of a message into chunks, and of the chunks into groups. The parity of a message
/// holds the parity chunks of each group in a row, in the order of the groups.
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
    /// Byte range of the group's data in the message.
    pub data: Range<usize>,
    /// Byte range of the group's parity in the parity of the message.
    pub parity: Range<usize>,
    /// Number of data chunks. The last chunk can be short.
    pub data_chunks: usize,
    /// Number of parity chunks. All of them are whole.
    pub parity_chunks: usize,
}

impl Layout {
    /// Cuts a message of `data_bytes` bytes.
    ///
    /// # Errors
    /// If chunks or the data have 0 bytes, or if the parity has more bytes than `usize` can count.
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

    /// Returns the code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// Returns the number of bytes of the message.
    pub fn data_bytes(&self) -> usize {
        self.data_bytes
    }

    /// Returns the number of bytes of a chunk.
    pub fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    /// Returns the number of data chunks of the message. The last chunk can be short.
    pub fn data_chunks(&self) -> usize {
        self.data_bytes.div_ceil(self.chunk_bytes)
    }

    /// Returns the number of bytes of the message's parity.
    pub fn parity_bytes(&self) -> usize {
        self.parity_bytes
    }

    /// Returns the number of parity chunks of the message. All of them are whole.
    pub fn parity_chunks(&self) -> usize {
        self.parity_bytes / self.chunk_bytes
    }

    /// Returns the number of groups.
    pub fn groups(&self) -> usize {
        self.data_chunks().div_ceil(self.code.k())
    }

    /// Returns the group with this index, or `None` if the index is [`Self::groups`] or more.
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
