//! A directory held open, so that what happens to the paths around it does not matter.
//!
//! Every call takes a single name, never a path, and follows no symbolic link: whoever puts one in
//! the way gets an error, not a file somewhere else.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, fchmod, fstat,
    futimens, mkdirat, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;

use super::Time;

const OPEN: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);
/// What this end needs to put files into a directory.
const OWNER: Mode = Mode::RWXU;
/// Permissions that travel.
const PERMISSIONS: Mode = Mode::RWXU.union(Mode::RWXG).union(Mode::RWXO);

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

    /// Makes a directory in this one, for its owner alone; one that is there will do.
    pub(super) fn make(&self, name: &[u8]) -> io::Result<()> {
        match mkdirat(&self.0, name, OWNER) {
            Err(Errno::EXIST) => self.enter(name)?.open_up(),
            made => made.map_err(io::Error::from),
        }
    }

    /// A directory that takes no files, as a read-only tree that was received before, is made to.
    fn open_up(&self) -> io::Result<()> {
        let mode = Mode::from_raw_mode(fstat(&self.0)?.st_mode);
        if mode.contains(OWNER) {
            return Ok(());
        }
        match fchmod(&self.0, mode | OWNER) {
            // Not ours: if it takes no files, the first one says so.
            Ok(()) | Err(Errno::PERM) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// What a name stands for, if anything.
    pub(super) fn kind(&self, name: &[u8]) -> io::Result<Option<FileType>> {
        match statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a file that was not there, readable by its owner alone.
    pub(super) fn create_new(&self, name: &[u8]) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(openat(&self.0, name, flags | OFlags::CLOEXEC, mode)?.into())
    }

    /// Renames a file within this directory; a file or link of the new name is replaced.
    pub(super) fn rename(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        Ok(renameat(&self.0, from, &self.0, to)?)
    }

    /// Removes a file.
    pub(super) fn remove(&self, name: &[u8]) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, AtFlags::empty())?)
    }

    /// Gives a file that its owner may write its permissions and time.
    pub(super) fn dress_file(&self, name: &[u8], mode: u16, modified: Time) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.0, name, flags, Mode::empty())?;
        Ok(dress(file, mode, modified)?)
    }

    /// Gives the directory itself its permissions and time, where it is ours to change.
    pub(super) fn dress(&self, mode: u16, modified: Time) -> io::Result<()> {
        match dress(&self.0, mode, modified) {
            Err(Errno::PERM) => Ok(()),
            dressed => Ok(dressed?),
        }
    }
}

/// Set-group-id and sticky, which a directory may have had before, stay.
fn dress(fd: impl AsFd, mode: u16, modified: Time) -> rustix::io::Result<()> {
    let kept = Mode::from_raw_mode(fstat(&fd)?.st_mode).difference(PERMISSIONS);
    fchmod(&fd, kept | Mode::from_bits_truncate(mode.into()))?;
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: modified.seconds,
            tv_nsec: modified.nanos.into(),
        },
    };
    futimens(&fd, &times)
}
