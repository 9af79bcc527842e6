//! Errors in the arguments of a codec.

use crate::code::Code;

/// Why a codec did nothing. When it returns an error, it has written nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// Chunks of no bytes.
    #[error("chunks of 0 bytes: a chunk has at least 1")]
    EmptyChunks,
    /// No data, or more than a group holds.
    #[error("{given} bytes of data: a group here holds 1 to {most}")]
    DataBytes {
        /// Bytes given.
        given: usize,
        /// `k` chunks.
        most: usize,
    },
    /// The length of the parity does not match the data.
    #[error("{given} bytes of parity: these data have {expected}")]
    ParityBytes {
        /// Bytes given.
        given: usize,
        /// Parity chunks times chunk bytes.
        expected: usize,
    },
    /// No data chunk, or more than a group holds.
    #[error("{given} data chunks: a group of {code} holds 1 to {}", code.k())]
    DataChunks {
        /// Chunks given.
        given: usize,
        /// The code.
        code: Code,
    },
    /// The number of parity chunks does not match the data.
    #[error("{given} parity chunks: these data have {expected}")]
    ParityChunks {
        /// Chunks given.
        given: usize,
        /// Chunks that the group has.
        expected: usize,
    },
    /// A data chunk of another length than the rest.
    #[error(
        "data chunk {chunk} has {given} bytes: {expected} would do, or fewer (not 0) in the last chunk"
    )]
    DataChunkBytes {
        /// Its index in the group.
        chunk: usize,
        /// Bytes given.
        given: usize,
        /// Bytes of a chunk.
        expected: usize,
    },
    /// A parity chunk of another length than the rest.
    #[error("parity chunk {chunk} has {given} bytes: {expected} would do")]
    ParityChunkBytes {
        /// Its index in the group.
        chunk: usize,
        /// Bytes given.
        given: usize,
        /// Bytes of a chunk.
        expected: usize,
    },
    /// Chunks that the group does not have, or part of a chunk.
    #[error(
        "{given} bytes from chunk {first} on: whole chunks of {chunk_bytes} bytes up to byte {end} \
         of the group would do"
    )]
    Run {
        /// Index of the first chunk.
        first: usize,
        /// Bytes given.
        given: usize,
        /// Bytes of a chunk.
        chunk_bytes: usize,
        /// Bytes of the group, data or parity.
        end: usize,
    },
    /// The chunk was already added. Adding it again would remove it from the sum.
    #[error("chunk {chunk} has been added already")]
    Again {
        /// Its index in the group.
        chunk: usize,
    },
    /// Some chunks have not been added yet.
    #[error("{missing} data chunks have not been added: parity needs all")]
    Unfinished {
        /// Number of data chunks that are missing.
        missing: usize,
    },
    /// More chunks are lost than the code can repair.
    #[error(
        "{missing} data chunks are missing and {parity} parity chunks are there, which {code} does \
         not repair: wait for more chunks, or have data sent again"
    )]
    NotRecoverable {
        /// The code.
        code: Code,
        /// Data chunks that are missing.
        missing: usize,
        /// Parity chunks that are there.
        parity: usize,
    },
    /// The number of groups does not match the data.
    #[error("what is present is said of {given} groups: the data have {expected}")]
    Groups {
        /// Number of groups given.
        given: usize,
        /// Groups of the message.
        expected: usize,
    },
}
