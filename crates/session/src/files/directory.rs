//! A directory held open, so that what happens to the paths around it does not matter.
//!
//! Every call takes a single name, never a path, and follows no symbolic link: a link in the way
//! leads to an error, not to a file somewhere else.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, Mode, OFlags, RenameFlags, fchmod, fstat, mkdirat, openat, renameat,
    renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use super::status::Status;

const OPEN: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);
/// For a file that may have become something else: a link is not followed, a pipe is not waited
/// for.
const FILE: OFlags = OFlags::NOFOLLOW
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);
/// What this end needs to put files into a directory.
const OWNER: Mode = Mode::RWXU;

#[derive(Debug)]
pub(super) struct Directory(OwnedFd);

impl Directory {
    /// Opens the directory that a user named; links in that path are the user's own.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(openat(CWD, path, OPEN, Mode::empty())?))
    }

    /// Opens a directory in this one.
    pub(super) fn enter(&self, name: &[u8]) -> io::Result<Self> {
        let flags = OPEN | OFlags::NOFOLLOW;
        Ok(Self(openat(&self.0, name, flags, Mode::empty())?))
    }

    /// The names in this directory that are wanted, in the order of their bytes; `None` if there
    /// are more than `limit`.
    pub(super) fn names(
        &self,
        limit: usize,
        wanted: impl Fn(&[u8]) -> bool,
    ) -> io::Result<Option<Vec<Vec<u8>>>> {
        let mut names = Vec::new();
        for item in Dir::read_from(&self.0)? {
            let item = item?;
            let name = item.file_name().to_bytes();
            if name == b"." || name == b".." || !wanted(name) {
                continue;
            }
            if names.len() == limit {
                return Ok(None);
            }
            names.push(name.to_vec());
        }
        names.sort_unstable();
        Ok(Some(names))
    }

    /// What this directory is.
    pub(super) fn status(&self) -> io::Result<Status> {
        Ok(fstat(&self.0)?.into())
    }

    /// What a name stands for, if anything.
    pub(super) fn look(&self, name: &[u8]) -> io::Result<Option<Status>> {
        match statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat.into())),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a directory in this one, for its owner alone. Returns whether it was not there before.
    pub(super) fn make(&self, name: &[u8]) -> io::Result<bool> {
        match mkdirat(&self.0, name, OWNER) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Lets the owner put files into this directory, and returns the mode that it had; `None` if
    /// nothing was changed. A tree that was received with read-only directories needs this.
    pub(super) fn open_up(&self) -> io::Result<Option<u16>> {
        let mode = Mode::from_raw_mode(fstat(&self.0)?.st_mode);
        // Where the change is refused, the first file says whether it was needed.
        if mode.contains(OWNER) || fchmod(&self.0, mode | OWNER).is_err() {
            return Ok(None);
        }
        Ok(Some(u16::try_from(mode.bits()).unwrap_or_default()))
    }

    /// Makes a file that was not there, readable by its owner alone.
    pub(super) fn create_new(&self, name: &[u8]) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(openat(&self.0, name, flags | OFlags::CLOEXEC, mode)?.into())
    }

    /// Opens a file for reading.
    pub(super) fn open_to_read(&self, name: &[u8]) -> io::Result<File> {
        Ok(openat(&self.0, name, FILE | OFlags::RDONLY, Mode::empty())?.into())
    }

    /// Opens a file for writing; its contents stay.
    pub(super) fn open_to_write(&self, name: &[u8]) -> io::Result<File> {
        Ok(openat(&self.0, name, FILE | OFlags::WRONLY, Mode::empty())?.into())
    }

    /// Renames a file within this directory; a file or link of the new name is replaced.
    pub(super) fn rename(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        Ok(renameat(&self.0, from, &self.0, to)?)
    }

    /// Renames a file within this directory unless the new name is taken.
    pub(super) fn rename_to_free(&self, from: &[u8], to: &[u8]) -> Result<(), Errno> {
        renameat_with(&self.0, from, &self.0, to, RenameFlags::NOREPLACE)
    }

    /// Removes a file.
    pub(super) fn remove(&self, name: &[u8]) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, AtFlags::empty())?)
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
