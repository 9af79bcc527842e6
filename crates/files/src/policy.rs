//! What a receiver's user decides about files.

use super::PeerKey;

/// What a receiver's user decides about the files that arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Permission bits that no received file and no directory of a transfer gets, as with `umask`.
    pub umask: u16,
    /// Whether files get the owners that they have at the sender. Only root can do so.
    pub owners: bool,
    /// Whether a sender may remove what it does not have.
    pub delete: bool,
    /// Bytes of the file system that stay free for others, and the same share of its inodes. A transfer that does not fit is refused
    /// before its first byte, and one that leaves less ends. `None`: nothing is checked, and the
    /// transfer ends when the file system is full.
    pub reserve_bytes: Option<u64>,
    /// The most bytes below the receiver's directory, with those of the transfer: the blocks of files and links, and 4
    /// KiB for each name. `None`: no limit.
    pub quota_bytes: Option<u64>,
    /// The most files, directories and links below the receiver's directory, with those of the transfer. `None`: no
    /// limit.
    pub quota_entries: Option<u64>,
    /// Whether files are made durable (`fsync`) before their verdict, and directories before the
    /// end. Then a verified file survives a power failure.
    pub sync: bool,
    /// For whom large files that are interrupted are kept, so that a later transfer goes on with them.
    /// `None`: they are removed.
    pub resume: Option<PeerKey>,
}

impl Default for Policy {
    /// Takes permissions as the sender has them, uses all room, makes everything durable, and keeps nothing
    /// that is interrupted.
    fn default() -> Self {
        Self {
            umask: 0,
            owners: false,
            delete: false,
            reserve_bytes: Some(0),
            quota_bytes: None,
            quota_entries: None,
            sync: true,
            resume: None,
        }
    }
}

impl Policy {
    /// The permissions of something that has `mode` at the sender.
    pub(super) fn mode(&self, mode: u16) -> u16 {
        mode & !self.umask
    }
}
