//! Why a transfer into files ends as a whole.

use std::io;
use std::path::PathBuf;

/// Whether an answer of the operating system is that the file system, or the user's share of it, is
/// full. That ends the whole transfer; other errors concern one file.
pub(in crate::files) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// Why files could not be received. After any of these the sink is of no use.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// The operating system does not let the directories be prepared.
    #[error("cannot {tried} {path:?}: {source}")]
    Io {
        /// What was tried.
        tried: &'static str,
        /// On what.
        path: PathBuf,
        /// Its answer.
        source: io::Error,
    },
    /// The file system or the user's share of it is full.
    #[error("no room for {path:?} (make room, or receive into another directory): {source}")]
    Full {
        /// The file or directory that does not fit.
        path: PathBuf,
        /// The answer of the operating system.
        source: io::Error,
    },
    /// A directory has the name of a file.
    #[error(
        "a directory is in the way of the file {path:?}; move it, or receive into another directory"
    )]
    InTheWay {
        /// The name.
        path: PathBuf,
    },
    /// Two directories of the transfer are one on this file system.
    #[error(
        "{first:?} and {second:?} are one directory on this file system; \
         receive into one that distinguishes upper and lower case"
    )]
    SameDirectory {
        /// One.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// The [`CommitGate`](super::CommitGate) was closed.
    #[error("the transfer was stopped")]
    Stopped,
    /// Bytes came after the end of the last file.
    #[error("the sender sent more than the {taken_bytes} bytes of its files")]
    Excess {
        /// Bytes that belong to files.
        taken_bytes: u64,
    },
    /// The sender spoke of a file before its turn, twice, or of one that is none.
    #[error(
        "the sender spoke of file {came}, but {} is due",
        due.map_or("none".into(), |due| due.to_string())
    )]
    OutOfTurn {
        /// The number that came.
        came: u32,
        /// The number that was due.
        due: Option<u32>,
    },
    /// The sender abandoned a file after more bytes than the file has.
    #[error("the sender abandoned file {index} after {sent_bytes} bytes, but it has {bytes}")]
    AbandonedBeyondEnd {
        /// Number of the file.
        index: u32,
        /// How many of its bytes the sender says are in the stream.
        sent_bytes: u64,
        /// Its length.
        bytes: u64,
    },
    /// Bytes of the next file were taken for those of an abandoned one.
    #[error(
        "the sender abandoned file {index} after {sent_bytes} bytes, but said so after \
         {taken_bytes} were taken"
    )]
    AbandonedLate {
        /// Number of the file.
        index: u32,
        /// How many of its bytes the sender says are in the stream.
        sent_bytes: u64,
        /// How many bytes of the stream were taken for the file.
        taken_bytes: u64,
    },
    /// Files are missing.
    #[error("the transfer ended with {missing_files} files neither verified nor given up")]
    Unfinished {
        /// How many.
        missing_files: u32,
    },
}
