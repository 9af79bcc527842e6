//! The advisory lock of a temporary file.

use std::fs::File;
use std::io;
use std::ops::Deref;

use rustix::fs::{FlockOperation, flock};

const LOCK: FlockOperation = FlockOperation::NonBlockingLockExclusive;

/// An open file. When this is dropped, the file is unlocked.
///
/// It is not enough to close the file: the thread that syncs it has a copy of the descriptor, and so has any
/// process that another thread starts, until it runs its program. Each copy would hold the lock, and a later
/// transfer that comes in this time could not go on with the file.
#[derive(Debug)]
pub(super) struct LockedFile(File);

impl LockedFile {
    /// # Errors
    /// Another open file has the lock, or the file system has no locks.
    pub(super) fn of(file: File) -> io::Result<Self> {
        flock(&file, LOCK)?;
        Ok(Self(file))
    }

    /// Locks a file where that is possible. On a file system without locks, no receiver removes the files of
    /// another.
    pub(super) fn if_possible(file: File) -> Self {
        lock_if_possible(&file);
        Self(file)
    }

    /// A file without a name, which nobody else finds.
    pub(super) fn unnamed(file: File) -> Self {
        Self(file)
    }
}

pub(super) fn lock_if_possible(file: &File) {
    let _ = flock(file, LOCK);
}

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that another thread starts has a copy of the descriptor until it runs its program.
    #[test]
    fn a_copy_of_the_descriptor_does_not_hold_the_lock() {
        let place = tempfile::tempdir().expect("directory");
        let path = place.path().join("file");
        let open = || File::create(&path).expect("open");
        let locked = LockedFile::of(open()).expect("lock");
        let copy = locked.try_clone().expect("copy");
        let error = LockedFile::of(open()).expect_err("it is locked");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop(locked);
        LockedFile::of(open()).expect("nobody uses the file");
        drop(copy);
    }
}
