//! The inodes that the kernel knows, and the open files behind them.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fuser::{Errno, INodeNo};

/// Inodes by number. The number is that of the backing file system, except for the root, and on a disk without
/// stable numbers.
///
/// Each inode has an `O_PATH` descriptor. So it stays the same file when names change, and its
/// number is not reused for another file.
#[derive(Debug)]
pub(crate) struct Inodes(Mutex<HashMap<u64, Inode>>);

#[derive(Debug)]
struct Inode {
    fd: Arc<OwnedFd>,
    /// How often the kernel was given it; it forgets as often.
    lookups: u64,
}

impl Inodes {
    pub(crate) fn new(root: OwnedFd) -> Self {
        let fd = Arc::new(root);
        let root = Inode { fd, lookups: 1 };
        Self(Mutex::new(HashMap::from([(INodeNo::ROOT.0, root)])))
    }

    pub(crate) fn get(&self, ino: INodeNo) -> Result<Arc<OwnedFd>, Errno> {
        let inodes = self.lock();
        let inode = inodes.get(&ino.0).ok_or(Errno::ESTALE)?;
        Ok(inode.fd.clone())
    }

    /// Notes that the kernel was given an inode.
    pub(crate) fn remember(&self, ino: u64, fd: OwnedFd) {
        let mut inodes = self.lock();
        let lookups = inodes.get(&ino).map_or(0, |inode| inode.lookups) + 1;
        // A number that belongs to a name leads to what has the name now.
        let fd = Arc::new(fd);
        inodes.insert(ino, Inode { fd, lookups });
    }

    pub(crate) fn forget(&self, ino: INodeNo, lookups: u64) {
        let mut inodes = self.lock();
        if let Some(inode) = inodes.get_mut(&ino.0) {
            inode.lookups = inode.lookups.saturating_sub(lookups);
            if inode.lookups == 0 {
                inodes.remove(&ino.0);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Inode>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a path that leads to the file of an open descriptor, whatever its current name is.
pub(crate) fn through(fd: &impl AsRawFd) -> PathBuf {
    format!("/proc/self/fd/{}", fd.as_raw_fd()).into()
}

/// Returns the current name of the file of an open descriptor.
pub(crate) fn path_of(fd: &impl AsRawFd) -> PathBuf {
    std::fs::read_link(through(fd)).unwrap_or_default()
}
