//! The status of a file or directory.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{FileType, Stat, fstat, stat};

use super::entry::{MODE_BITS, NANOS};
use super::{Owner, Time};

/// Bytes of a block as `st_blocks` counts it, on every file system.
const BLOCK_BYTES: u64 = 512;

/// Device and inode number. They identify a file under all of its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Id {
    pub(super) device: u64,
    pub(super) inode: u64,
}

impl Id {
    /// Whether both are on the same file system.
    pub(super) fn is_beside(self, other: Self) -> bool {
        self.device == other.device
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Status {
    pub(super) kind: FileType,
    /// Permission bits, without set-user-id, set-group-id and sticky.
    pub(super) mode: u16,
    pub(super) bytes: u64,
    /// Bytes that the file system has allocated for the contents. Fewer than `bytes` means that the
    /// file has holes.
    pub(super) allocated_bytes: u64,
    pub(super) modified: Time,
    /// When it was last changed, in any way.
    pub(super) changed: Time,
    pub(super) id: Id,
    /// How many names it has.
    pub(super) links: u64,
    pub(super) owner: Owner,
}

impl Status {
    /// Returns the status of the target of a user's path, through links.
    pub(super) fn of_path(path: &Path) -> io::Result<Self> {
        Ok(stat(path)?.into())
    }

    pub(super) fn of_file(file: &File) -> io::Result<Self> {
        Ok(fstat(file)?.into())
    }
}

impl From<Stat> for Status {
    fn from(stat: Stat) -> Self {
        let blocks = u64::try_from(stat.st_blocks).unwrap_or(0);
        let nanos = |nanos: Result<u32, _>| nanos.unwrap_or(0).min(NANOS - 1);
        Self {
            kind: FileType::from_raw_mode(stat.st_mode),
            mode: u16::try_from(stat.st_mode & u32::from(MODE_BITS)).unwrap_or(0),
            bytes: u64::try_from(stat.st_size).unwrap_or(0),
            allocated_bytes: blocks.saturating_mul(BLOCK_BYTES),
            modified: Time {
                seconds: stat.st_mtime,
                nanos: nanos(u32::try_from(stat.st_mtime_nsec)),
            },
            changed: Time {
                seconds: stat.st_ctime,
                nanos: nanos(u32::try_from(stat.st_ctime_nsec)),
            },
            id: Id {
                device: stat.st_dev,
                inode: stat.st_ino,
            },
            links: links(&stat),
            owner: Owner {
                user: stat.st_uid,
                group: stat.st_gid,
            },
        }
    }
}

/// The type of this number differs between processors.
#[allow(clippy::useless_conversion, clippy::unnecessary_fallible_conversions)]
fn links(stat: &Stat) -> u64 {
    u64::try_from(stat.st_nlink).unwrap_or(u64::MAX)
}
