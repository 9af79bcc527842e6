//! Why a manifest is refused.

use std::path::PathBuf;

use super::{MAX_DEPTH, MAX_ENTRIES, MAX_NAMES_BYTES, MAX_PATH_BYTES, MAX_STREAM_BYTES};
use crate::entry::{MAX_TARGET_BYTES, NANOS};
use crate::{DetailError, NameError};

/// Why a manifest is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// An entry breaks a rule.
    #[error("manifest entry {index} ({path:?}): {why}")]
    Entry {
        /// Its number.
        index: u32,
        /// Its path, as far as it can be shown.
        path: PathBuf,
        /// Which rule.
        why: EntryError,
    },
    /// A detail breaks a rule.
    #[error("manifest entry {index}: {why}")]
    Detail {
        /// Number of the entry.
        index: u32,
        /// Which rule.
        why: DetailError,
    },
    /// Two entries have the same path.
    #[error(
        "two files or directories have the same path {path:?} at the receiver: rename one of them, or send them into different directories"
    )]
    Twice {
        /// Number of one.
        first: u32,
        /// Number of the other.
        second: u32,
        /// Their path.
        path: PathBuf,
    },
    /// More than [`MAX_ENTRIES`].
    #[error("more than {MAX_ENTRIES} files and directories; send parts of the tree one by one")]
    TooMany,
    /// More than [`MAX_NAMES_BYTES`].
    #[error("the names have more than {MAX_NAMES_BYTES} bytes; send parts of the tree one by one")]
    NamesTooLong,
    /// It is not what the transfer plan announced.
    #[error("the manifest has {came} {what}, but the transfer plan said {want}")]
    NotAsPlanned {
        /// Entries or bytes.
        what: Planned,
        /// How many there are.
        came: u64,
        /// How many were announced.
        want: u64,
    },
}

/// What a transfer plan announces of the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Planned {
    /// The number of entries.
    #[error("entries")]
    Entries,
    /// The bytes of all files together.
    #[error("bytes")]
    Bytes,
}

/// Why an entry is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryError {
    /// Its name is not a valid name.
    #[error("its name cannot be used: {0}")]
    Name(NameError),
    /// Its parent is not a directory that came earlier. The value is the number of that entry.
    #[error("its parent, entry {0}, is no directory that came before it")]
    Parent(u32),
    /// It is nested too deeply.
    #[error("it lies more than {MAX_DEPTH} directories deep")]
    Deep,
    /// Its path is too long. The value is its length in bytes.
    #[error("its path has {0} bytes, at most {MAX_PATH_BYTES} are allowed")]
    Long(u32),
    /// Its mode has bits that are not transferred.
    #[error("its mode is {0:#o}, at most 0o777 is allowed")]
    Mode(u16),
    /// Its time is invalid. The value is the nanoseconds of the time.
    #[error("its time has {0} nanoseconds, want fewer than {NANOS}")]
    Nanos(u32),
    /// The target of a symbolic link is invalid. The value is its length in bytes.
    #[error("its target has {0} bytes, want 1 to {MAX_TARGET_BYTES}, none of them zero")]
    Target(usize),
    /// It is a hard link to something else than a file that came earlier. The value is the number of that entry.
    #[error("it is another name of entry {0}, which is no file that came before it")]
    First(u32),
    /// The lengths overflow. The value is the length of this file in bytes.
    #[error("with its {0} bytes the transfer is longer than {MAX_STREAM_BYTES} bytes")]
    Bytes(u64),
}
