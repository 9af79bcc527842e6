//! What the receiver has already (P8.6).

use std::fs::File;
use std::io;

use rustix::fs::FileType;
use serde::{Deserialize, Serialize};

use super::directory::Directory;
use super::status::Status;
use super::{EntryRef, Kind};

/// How the receiver finds files that it has already. The order of the variants is their number on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Compare {
    /// All files are sent.
    #[default]
    Nothing,
    /// A file of the same length and time is the same.
    Time,
    /// A file with the same bytes is the same. Both ends read it.
    Hash,
}

/// A file that the receiver has already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Present {
    /// Number of its entry.
    pub entry: u32,
    /// With [`Compare::Hash`], BLAKE3 of its bytes.
    pub hash: Option<[u8; 32]>,
}

impl Compare {
    /// Whether what has the name of a file, as its status says, may be that file.
    pub(super) fn may_be_same(self, entry: &EntryRef<'_>, status: &Status) -> bool {
        let Kind::File { bytes, .. } = entry.kind else {
            return false;
        };
        let is_as_long = status.kind == FileType::RegularFile && status.bytes == bytes;
        match self {
            Self::Nothing => false,
            Self::Time => is_as_long && status.modified == entry.modified,
            Self::Hash => is_as_long,
        }
    }

    /// Returns what to tell the sender about a file that may be the same; `None` if it cannot be read.
    pub(super) fn present(
        self,
        index: u32,
        entry: &EntryRef<'_>,
        around: &Directory,
    ) -> Option<Present> {
        let hash = match self {
            Self::Hash => Some(hash_file(&around.open_to_read(entry.name).ok()?).ok()?),
            Self::Nothing | Self::Time => None,
        };
        Some(Present { entry: index, hash })
    }
}

/// BLAKE3 of the bytes of a file.
pub(super) fn hash_file(file: &File) -> io::Result<[u8; 32]> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(file)?;
    Ok(hasher.finalize().into())
}
