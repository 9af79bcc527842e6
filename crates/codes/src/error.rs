//! Errors in the arguments of a codec.

use crate::code::Code;

/// An error of a codec. A codec that returns an error has written nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The chunk length is 0.
    #[error("chunks of 0 bytes: a chunk has at least 1")]
    EmptyChunks,
    /// There is no data, or more than a group holds.
    #[error("{given} bytes of data: a group here holds 1 to {most}")]
    DataBytes {
        /// Number of bytes given.
        given: usize,
        /// Bytes of `k` chunks.
        most: usize,
    },
    /// The data has another length than the decoder was begun with.
    #[error("{given} bytes of data: the group was begun with {expected}")]
    OtherDataBytes {
        /// Number of bytes given.
        given: usize,
        /// Number of bytes expected.
        expected: usize,
    },
    /// The length of the parity does not match the data.
    #[error("{given} bytes of parity: these data have {expected}")]
    ParityBytes {
        /// Number of bytes given.
        given: usize,
        /// Number of parity chunks times bytes of a chunk.
        expected: usize,
    },
    /// There is no data chunk, or more than a group holds.
    #[error("{given} data chunks: a group of {code} holds 1 to {}", code.k())]
    DataChunks {
        /// Number of chunks given.
        given: usize,
        /// The code.
        code: Code,
    },
    /// The number of parity chunks does not match the data.
    #[error("{given} parity chunks: these data have {expected}")]
    ParityChunks {
        /// Number of chunks given.
        given: usize,
        /// Number of parity chunks of the group.
        expected: usize,
    },
    /// A data chunk has the wrong length.
    #[error(
        "data chunk {chunk} has {given} bytes: {expected} would do, or fewer (not 0) in the last chunk"
    )]
    DataChunkBytes {
        /// Index of the chunk in the group.
        chunk: usize,
        /// Number of bytes given.
        given: usize,
        /// Bytes of a chunk.
        expected: usize,
    },
    /// A parity chunk has the wrong length.
    #[error("parity chunk {chunk} has {given} bytes: {expected} would do")]
    ParityChunkBytes {
        /// Index of the chunk in the group.
        chunk: usize,
        /// Number of bytes given.
        given: usize,
        /// Bytes of a chunk.
        expected: usize,
    },
    /// The bytes are not whole chunks, or reach beyond the end of the group.
    #[error(
        "{given} bytes from chunk {first} on: whole chunks of {chunk_bytes} bytes up to byte {end} \
         of the group would do"
    )]
    Run {
        /// Index of the first chunk.
        first: usize,
        /// Number of bytes given.
        given: usize,
        /// Bytes of a chunk.
        chunk_bytes: usize,
        /// Bytes of the group's data or parity.
        end: usize,
    },
    /// The chunk was already added. Adding it again would cancel it from the sum.
    #[error("chunk {chunk} has been added already")]
    Again {
        /// Index of the chunk in the group.
        chunk: usize,
    },
    /// Some data chunks have not been added yet.
    #[error("{missing} data chunks have not been added: parity needs all")]
    Unfinished {
        /// Number of data chunks that have not been added.
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
        /// Number of missing data chunks.
        missing: usize,
        /// Number of present parity chunks.
        parity: usize,
    },
    /// The number of [`Present`](crate::Present) entries differs from the number of groups.
    #[error("what is present is said of {given} groups: the data have {expected}")]
    Groups {
        /// Number of entries given.
        given: usize,
        /// Number of groups of the message.
        expected: usize,
    },
}
