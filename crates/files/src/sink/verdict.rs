//! How files ended.

use farwrite_keys::Text;

use crate::{FileCause, Message};

/// How a file ended.
#[derive(Debug)]
pub struct Verdict {
    /// Number of the file in the manifest.
    pub index: u32,
    /// Why it was discarded; `None`: it has its final name.
    pub failure: Option<FileFailure>,
    /// It was there already, and stays.
    pub is_kept: bool,
    /// BLAKE3 of the bytes that were written for it.
    pub hash: Option<[u8; 32]>,
}

impl Verdict {
    /// The message for the sender.
    #[must_use]
    pub fn message(&self) -> Message {
        match &self.failure {
            None if self.is_kept => Message::FileKept { index: self.index },
            None => Message::FileVerified { index: self.index },
            Some(failure) => Message::FileFailed {
                index: self.index,
                cause: failure.cause(),
                reason: Text::new(failure),
            },
        }
    }
}

/// Why a file was discarded. The transfer of the other files continues.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileFailure {
    /// The received bytes differ from the sent bytes.
    #[error("its hash is {came}, but that of the sender is {want}")]
    Hash {
        /// Hash of the received bytes.
        came: blake3::Hash,
        /// The sender's hash.
        want: blake3::Hash,
    },
    /// The sender could not read it.
    #[error("the sender could not read it: {reason}")]
    Abandoned {
        /// The sender's text.
        reason: Text,
    },
    /// The receiver could not write it.
    #[error("the receiver could not {tried}: {source}")]
    Io {
        /// The operation.
        tried: FileStep,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// It was there already, and has changed since.
    #[error("it was there already, and was changed during the transfer")]
    Changed,
    /// It is another name of a file that has no name at the receiver.
    #[error("the file that it is another name of did not arrive")]
    NoFirst,
    /// Another file has its name, as with `A` and `a` where case is ignored.
    #[error("another file of this transfer has this name on this file system")]
    SameName,
    /// A directory has its name, and the sender does not want it to be removed, or may not.
    #[error("a directory has this name; with --delete, the file replaces it")]
    InTheWay,
}

/// A step of receiving a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileStep {
    /// To create the file, under a temporary name.
    #[error("create it")]
    Create,
    /// To write its bytes.
    #[error("write it")]
    Write,
    /// To make its bytes durable.
    #[error("make its bytes durable")]
    Sync,
    /// To rename it to its final name.
    #[error("give it its final name")]
    Name,
    /// To look at the file that was there already.
    #[error("look at it again")]
    Keep,
    /// To make another name of a file.
    #[error("make this hard link")]
    Link,
    /// To make its final name durable. The file has the name, and keeps it.
    #[error("make its name durable, so it may be lost if the power fails")]
    SyncName,
}

impl FileFailure {
    /// What kind of failure it is, for programs.
    #[must_use]
    pub fn cause(&self) -> FileCause {
        match self {
            Self::Hash { .. } => FileCause::Corrupt,
            Self::Abandoned { .. } => FileCause::Unreadable,
            Self::Io { .. } | Self::SameName | Self::InTheWay | Self::NoFirst | Self::Changed => {
                FileCause::Unwritable
            }
        }
    }
}

/// The result of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Files that have their final names.
    pub verified_files: u32,
    /// Bytes of these files.
    pub verified_bytes: u64,
    /// Files that were there already, and stay.
    pub kept_files: u32,
    /// Files and directories that were only here, and were removed.
    pub deleted_files: u32,
    /// Files that were discarded.
    pub failed_files: u32,
}
