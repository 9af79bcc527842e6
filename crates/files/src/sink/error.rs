//! Why a whole transfer into files ends.

use std::io;
use std::path::PathBuf;

use crate::{NameError, PathError};

/// Returns whether an error means that the file system, or the user's quota on it, is full. That
/// ends the whole transfer. Other errors concern one file.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// Why files could not be received. After any of these errors the sink cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// The operating system refuses to open the directory that receives.
    #[error("cannot open {0}")]
    Open(#[source] PathError),
    /// The operating system refuses an operation that prepares a directory of the transfer.
    #[error("cannot prepare {0}")]
    Prepare(#[source] PathError),
    /// The name of a stored stream cannot be one of a file.
    #[error("the name of the file: {0}")]
    Name(NameError),
    /// A stored stream cannot be written, or cannot get its name.
    #[error("cannot write {0}")]
    Write(#[source] PathError),
    /// The file system or the user's quota on it is full.
    #[error("no room for {path:?} (make room, or receive into another directory): {source}")]
    Full {
        /// The file or directory that does not fit.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The files do not fit into the free bytes of the file system. Nothing was written.
    #[error(
        "no room in {path:?}: the files need {needed_bytes} bytes, {reserve_bytes} are kept in \
         reserve, and {free_bytes} are free; make room, or receive into another directory"
    )]
    NoRoom {
        /// The directory that receives.
        path: PathBuf,
        /// What the files need beyond those that they replace.
        needed_bytes: u64,
        /// [`Policy::reserve_bytes`](crate::Policy::reserve_bytes).
        reserve_bytes: u64,
        /// Free bytes of the file system.
        free_bytes: u64,
    },
    /// The files do not fit into the quota. Nothing was written.
    #[error(
        "the files need {needed_bytes} bytes, but the quota at the receiver leaves {left_bytes}"
    )]
    Quota {
        /// What the files need beyond those that they replace.
        needed_bytes: u64,
        /// The quota ([`Policy::quota_bytes`](crate::Policy::quota_bytes)) less the bytes of the files
        /// that are in the directory.
        left_bytes: u64,
    },
    /// The entries do not fit into the quota. Nothing was written.
    #[error(
        "the transfer adds {needed} files, directories and links, but the quota at the receiver leaves {left}"
    )]
    QuotaEntries {
        /// Names that the receiver does not have yet.
        needed: u64,
        /// The quota ([`Policy::quota_entries`](crate::Policy::quota_entries)) less what is in the directory.
        left: u64,
    },
    /// The file system has too few inodes for the files, directories and links of the transfer.
    #[error(
        "no room in {path:?}: {needed} more inodes are needed, {reserve} are kept in reserve, and {free} are free; \
         remove files, or receive into another directory"
    )]
    NoInodes {
        /// The directory that receives.
        path: PathBuf,
        /// For names that the receiver does not have yet; 0 if the transfer has begun.
        needed: u64,
        /// The share of [`Policy::reserve_bytes`](crate::Policy::reserve_bytes) in all bytes, of all inodes.
        reserve: u64,
        /// Free inodes of the file system.
        free: u64,
    },
    /// The transfer, or another program, has filled the file system up to the reserve.
    #[error(
        "no room in {path:?}: {free_bytes} bytes are free, and {reserve_bytes} are kept in reserve"
    )]
    Reserve {
        /// The directory that receives.
        path: PathBuf,
        /// [`Policy::reserve_bytes`](crate::Policy::reserve_bytes).
        reserve_bytes: u64,
        /// Free bytes of the file system.
        free_bytes: u64,
    },
    /// Two directories of the transfer are the same directory on this file system.
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
    /// Bytes arrived after the end of the last file.
    #[error("the sender sent more than the {file_bytes} bytes of its files")]
    Excess {
        /// How many bytes of the files were in the stream.
        file_bytes: u64,
    },
    /// The sender reported a file before its turn, or twice, or reported an entry that is not a
    /// file.
    #[error(
        "the sender reported file {came}, but {} is due",
        due.map_or("none".into(), |due| due.to_string())
    )]
    OutOfTurn {
        /// The number that came.
        came: u32,
        /// The number that was expected.
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
    /// Bytes of the next file were mistaken for bytes of an abandoned file.
    #[error(
        "the sender abandoned file {index} after {sent_bytes} bytes, but said so after \
         {taken_bytes} were taken"
    )]
    AbandonedLate {
        /// Number of the file.
        index: u32,
        /// How many of its bytes the sender says are in the stream.
        sent_bytes: u64,
        /// How many bytes of the stream were counted as bytes of the file.
        taken_bytes: u64,
    },
    /// The sender says that a file is the same which this end does not have.
    #[error("the sender says that file {index} is there already, but it is not")]
    NotPresent {
        /// Number of the file.
        index: u32,
    },
    /// The sender reports blocks that this end does not have, or has not compared.
    #[error(
        "the sender reports blocks of file {index} that the receiver does not have, or has not compared"
    )]
    BadBlocks {
        /// Number of the file.
        index: u32,
    },
    /// The sender is silent, and a later transfer of the same peer goes on with a file of this one.
    #[error(
        "the sender is silent, and a later transfer of the same peer has taken over a file of this transfer"
    )]
    TakenOver,
    /// What is only at the receiver cannot be removed, or not all of it.
    #[error(
        "cannot remove what is only at the receiver: {path:?}: {source}; all files have arrived, and the receiver \
         has removed {}", things(*removed)
    )]
    Delete {
        /// The first that cannot be removed, or a directory that cannot be read.
        path: PathBuf,
        /// How many files and directories were removed, before or after it.
        removed: u64,
        /// The error of the operating system.
        source: io::Error,
    },
    /// In a dry run, what is only at the receiver cannot be listed.
    #[error("cannot list what is only at the receiver: {0}")]
    Extra(#[source] PathError),
    /// More would be removed than is allowed. Nothing was.
    #[error(
        "{} only at the receiver, at most {most} may be removed (--max-delete); all files have arrived, and \
         nothing was removed", things(*count)
    )]
    TooMuchToDelete {
        /// How many there are.
        count: u64,
        /// How many may be removed.
        most: u32,
    },
    /// More would be removed than is allowed, and some of it before the files arrive. Nothing was.
    #[error(
        "{} only at the receiver or in the way of what is sent, at most {most} may be removed (--max-delete); nothing \
         was sent or removed", things(*count)
    )]
    TooMuchToReplace {
        /// How many there are.
        count: u64,
        /// How many may be removed.
        most: u64,
    },
    /// Files are missing.
    #[error("the transfer ended with {files} files neither verified nor given up")]
    Unfinished {
        /// How many files have no verdict.
        files: u32,
    },
}

fn things(count: u64) -> String {
    match count {
        1 => "1 file or directory".into(),
        count => format!("{count} files and directories"),
    }
}
