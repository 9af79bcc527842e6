//! Whether a transfer fits into the free bytes of its file system.

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

/// Returns the free bytes around a directory; `None` if its file system does not count them.
pub(super) fn free_bytes(directory: &Directory) -> io::Result<Option<u64>> {
    let status = fstatvfs(directory)?;
    let free = status.f_bavail.saturating_mul(status.f_frsize);
    Ok((status.f_blocks > 0).then_some(free))
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
