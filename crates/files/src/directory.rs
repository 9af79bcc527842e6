//! A directory that is held open, so that changes to the paths around it have no effect.
//!
//! Every call takes a single name, never a path, and follows no symbolic link. A link causes an
//! error and does not lead to a file elsewhere.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
#[cfg(target_os = "linux")]
use std::sync::LazyLock;

use rustix::fs::{
    Access, AtFlags, CWD, Dir, Mode, OFlags, RenameFlags, accessat, fchmod, fstat, linkat, mkdirat,
    openat, readlinkat, renameat, renameat_with, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::status::Status;

const OPEN: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);
/// For a file that another type of file may have replaced: the call does not follow a link and does
/// not wait for a pipe.
const FILE: OFlags = OFlags::NOFOLLOW
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);
/// What this end needs to put files into a directory.
const OWNER: Mode = Mode::RWXU;

/// Where a process finds what it has open. Without privileges, only a link there gives an open file a name.
const OPEN_FILES: &str = "/proc/self/fd";

#[derive(Debug)]
pub(super) struct Directory(OwnedFd);

impl Directory {
    /// Opens the directory that a user named. Links in that path are trusted.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(openat(CWD, path, OPEN, Mode::empty())?))
    }

    /// Checks that this process may make names in the directory.
    pub(super) fn check_writable(&self) -> io::Result<()> {
        let access = Access::WRITE_OK | Access::EXEC_OK;
        match accessat(&self.0, ".", access, AtFlags::EACCESS) {
            Err(error @ (Errno::ACCESS | Errno::ROFS)) => Err(error.into()),
            // The others say that it cannot be asked, for example under a filter of system calls.
            _ => Ok(()),
        }
    }

    /// Returns another descriptor of this directory.
    pub(super) fn another(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    /// Opens a directory in this one.
    pub(super) fn enter(&self, name: &[u8]) -> io::Result<Self> {
        let flags = OPEN | OFlags::NOFOLLOW;
        Ok(Self(openat(&self.0, name, flags, Mode::empty())?))
    }

    /// Returns the wanted names in this directory, sorted by their bytes.
    pub(super) fn names(&self, wanted: impl Fn(&[u8]) -> bool) -> io::Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        for item in Dir::read_from(&self.0)? {
            let item = item?;
            let name = item.file_name().to_bytes();
            if name != b"." && name != b".." && wanted(name) {
                names.push(name.to_vec());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    pub(super) fn status(&self) -> io::Result<Status> {
        Ok(fstat(&self.0)?.into())
    }

    /// Returns the status of the file with this name, if it exists.
    pub(super) fn look(&self, name: &[u8]) -> io::Result<Option<Status>> {
        match statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat.into())),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a directory in this one with permissions for its owner only. Returns whether it is
    /// new.
    pub(super) fn make(&self, name: &[u8]) -> io::Result<bool> {
        match mkdirat(&self.0, name, OWNER) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Lets the owner put files into this directory, and returns its previous mode; `None` if
    /// nothing was changed. A received tree with read-only directories needs this.
    pub(super) fn open_up(&self) -> io::Result<Option<u16>> {
        let mode = Mode::from_raw_mode(fstat(&self.0)?.st_mode);
        // If the change is refused, creating the first file shows whether it was needed.
        if mode.contains(OWNER) || fchmod(&self.0, mode | OWNER).is_err() {
            return Ok(None);
        }
        Ok(Some(u16::try_from(mode.bits()).unwrap_or_default()))
    }

    /// Makes a new file that only its owner can read.
    pub(super) fn create_new(&self, name: &[u8]) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(openat(&self.0, name, flags | OFlags::CLOEXEC, mode)?.into())
    }

    /// Makes a file without a name on the file system of this directory, which only its owner can read. It is gone
    /// when it is closed, unless [`Directory::link`] has given it a name.
    ///
    /// # Errors
    /// The file system has no such files.
    #[cfg(target_os = "linux")]
    pub(super) fn create_unnamed(&self) -> io::Result<File> {
        static CAN_LINK: LazyLock<bool> = LazyLock::new(|| Path::new(OPEN_FILES).is_dir());
        if !*CAN_LINK {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(openat(&self.0, ".", flags, mode)?.into())
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn create_unnamed(&self) -> io::Result<File> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Gives a file of [`Directory::create_unnamed`] a name in this directory. Fails if the name is taken.
    pub(super) fn link(&self, file: &File, name: &[u8]) -> Result<(), Errno> {
        let path = format!("{OPEN_FILES}/{}", file.as_raw_fd());
        linkat(CWD, path, &self.0, name, AtFlags::SYMLINK_FOLLOW)
    }

    pub(super) fn open_to_read(&self, name: &[u8]) -> io::Result<File> {
        Ok(openat(&self.0, name, FILE | OFlags::RDONLY, Mode::empty())?.into())
    }

    /// Opens a file for reading and writing; its contents stay.
    pub(super) fn open_to_change(&self, name: &[u8]) -> io::Result<File> {
        Ok(openat(&self.0, name, FILE | OFlags::RDWR, Mode::empty())?.into())
    }

    /// Renames a file within this directory. This replaces a file or link that has the new name.
    pub(super) fn rename(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        Ok(renameat(&self.0, from, &self.0, to)?)
    }

    /// Renames a file within this directory unless the new name is taken.
    pub(super) fn rename_to_free(&self, from: &[u8], to: &[u8]) -> Result<(), Errno> {
        renameat_with(&self.0, from, &self.0, to, RenameFlags::NOREPLACE)
    }

    /// Fails if the name is taken.
    pub(super) fn make_symlink(&self, name: &[u8], target: &[u8]) -> io::Result<()> {
        Ok(symlinkat(target, &self.0, name)?)
    }

    pub(super) fn read_link(&self, name: &[u8]) -> io::Result<Vec<u8>> {
        Ok(readlinkat(&self.0, name, Vec::new())?.into_bytes())
    }

    /// Gives a file in another directory a name in this one too. Fails if the name is taken.
    pub(super) fn make_hard_link(
        &self,
        name: &[u8],
        other: &Self,
        other_name: &[u8],
    ) -> io::Result<()> {
        Ok(linkat(
            &other.0,
            other_name,
            &self.0,
            name,
            AtFlags::empty(),
        )?)
    }

    /// Removes an empty directory.
    pub(super) fn remove_directory(&self, name: &[u8]) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, AtFlags::REMOVEDIR)?)
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
