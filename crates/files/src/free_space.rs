//! Whether a transfer fits into what is free on its file system.

use std::io;

use rustix::fs::fstatvfs;

use super::directory::Directory;

/// Bytes that are written between two looks at the free bytes.
const LOOK_BYTES: u64 = 16 << 20;

/// How many more bytes a transfer needs than its older versions have, while files replace them one
/// after the other.
#[derive(Debug, Default)]
pub(super) struct NeededSpace {
    /// After the files so far.
    now: i128,
    /// At most so far.
    peak: i128,
}

impl NeededSpace {
    /// Adds a file of `bytes`, whose final name is that of a file for which `older_bytes` are
    /// allocated. Both exist until the new one is whole.
    pub(super) fn add(&mut self, bytes: u64, older_bytes: u64) {
        self.now += i128::from(bytes);
        self.peak = self.peak.max(self.now);
        self.now -= i128::from(older_bytes);
    }

    /// The bytes that must be free.
    pub(super) fn bytes(&self) -> u64 {
        u64::try_from(self.peak).unwrap_or(u64::MAX)
    }
}

/// What is free on a file system.
#[derive(Clone, Copy, Debug)]
pub(super) struct Free {
    pub(super) bytes: u64,
    /// Files take whole blocks.
    pub(super) block_bytes: u64,
    all_bytes: u64,
    /// `None`: the file system does not count them.
    pub(super) inodes: Option<u64>,
    all_inodes: u64,
}

impl Free {
    /// What is free around a directory; `None` if its file system does not count bytes.
    pub(super) fn around(directory: &Directory) -> io::Result<Option<Self>> {
        let status = fstatvfs(directory)?;
        let block_bytes = status.f_frsize.max(1);
        let free = Self {
            bytes: status.f_bavail.saturating_mul(block_bytes),
            block_bytes,
            all_bytes: status.f_blocks.saturating_mul(block_bytes),
            inodes: (status.f_files > 0).then_some(status.f_favail),
            all_inodes: status.f_files,
        };
        Ok((status.f_blocks > 0).then_some(free))
    }

    /// The inodes that stay free with a reserve of bytes: the same share of all.
    pub(super) fn reserve_inodes(&self, reserve_bytes: u64) -> u64 {
        let share = u128::from(self.all_inodes) * u128::from(reserve_bytes.min(self.all_bytes));
        let share = share / u128::from(self.all_bytes.max(1));
        u64::try_from(share).unwrap_or(u64::MAX)
    }
}

/// Looks at the free bytes from time to time.
#[derive(Debug, Default)]
pub(super) struct FreeSpaceWatch {
    unseen_bytes: u64,
}

impl FreeSpaceWatch {
    /// Counts written bytes. Returns whether it is time to look.
    pub(super) fn is_due(&mut self, bytes: u64) -> bool {
        self.unseen_bytes += bytes;
        let is_due = self.unseen_bytes >= LOOK_BYTES;
        if is_due {
            self.unseen_bytes = 0;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_is_the_same_share_of_inodes() {
        let free = Free {
            bytes: 0,
            block_bytes: 4096,
            all_bytes: 200 << 20,
            inodes: Some(0),
            all_inodes: 100_000,
        };
        assert_eq!(free.reserve_inodes(0), 0);
        assert_eq!(free.reserve_inodes(50 << 20), 25_000);
        assert_eq!(free.reserve_inodes(1 << 60), 100_000);
    }

    #[test]
    fn files_that_replace_others_need_the_room_of_one() {
        let mut need = NeededSpace::default();
        for _ in 0..10 {
            need.add(100, 100);
        }
        assert_eq!(need.bytes(), 100);
        need.add(250, 0);
        assert_eq!(need.bytes(), 250);
        need.add(100, 1000);
        assert_eq!(need.bytes(), 350);
        need.add(100, 0);
        assert_eq!(need.bytes(), 350, "there is room from the one before");
    }
}
