//! Permissions and times of received files and directories.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;

use rustix::fs::{
    AtFlags, Mode, Timespec, Timestamps, UTIME_OMIT, fchmod, fstat, futimens, utimensat,
};
use rustix::io::Errno;

use super::Time;
use super::directory::Directory;

/// Permission bits that are transferred.
const PERMISSIONS: Mode = Mode::RWXU.union(Mode::RWXG).union(Mode::RWXO);

/// An attribute that the file system refuses. The transfer can continue without it.
#[derive(Debug)]
pub struct Warning {
    /// The attribute that could not be set.
    pub attribute: Attribute,
    /// The kind of thing that has the attribute.
    pub of: Thing,
    /// The first path where setting it failed.
    pub path: PathBuf,
    /// The error of the operating system.
    pub source: io::Error,
}

/// What a file or directory has besides its contents and its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// Its permissions.
    Permissions,
    /// When it was last written.
    Time,
    /// Whether its permissions and its time survive a power failure.
    Durability,
}

/// What has attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thing {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let thing = match self.of {
            Thing::File => "file",
            Thing::Directory => "directory",
            Thing::Link => "symbolic link",
        };
        let attribute = match self.attribute {
            Attribute::Permissions => "permissions",
            Attribute::Time => "modification time",
            Attribute::Durability => {
                return write!(
                    f,
                    "cannot sync the {thing} {:?}: {}; after a power failure, it and any further \
                     {thing} may have other permissions and times",
                    self.path, self.source
                );
            }
        };
        write!(
            f,
            "cannot set the {attribute} of the {thing} {:?}: {}; it and any further {thing} may \
             keep what the file system gives",
            self.path, self.source
        )
    }
}

/// Collects warnings: at most one for each attribute of each kind of thing.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    given: Vec<(Attribute, Thing)>,
    /// Warnings that `poll` has not returned yet.
    pending: VecDeque<Warning>,
}

impl Warnings {
    pub(super) fn poll(&mut self) -> Option<Warning> {
        self.pending.pop_front()
    }

    /// Adds a warning, unless there is already one of the same sort.
    pub(super) fn add(
        &mut self,
        attribute: Attribute,
        of: Thing,
        path: impl FnOnce() -> PathBuf,
        source: io::Error,
    ) {
        if self.given.contains(&(attribute, of)) {
            return;
        }
        self.given.push((attribute, of));
        self.pending.push_back(Warning {
            attribute,
            of,
            path: path(),
            source,
        });
    }

    /// Sets both attributes of an open file or directory. Causes a warning if the file system does
    /// not have them or does not let this user set them.
    ///
    /// # Errors
    /// Any other error of the operating system.
    pub(super) fn set(
        &mut self,
        fd: impl AsFd,
        of: Thing,
        (mode, modified): (u16, Time),
        path: impl Fn() -> PathBuf,
    ) -> io::Result<()> {
        for (attribute, answer) in [
            (Attribute::Permissions, set_mode(&fd, mode)),
            (Attribute::Time, set_time(&fd, modified)),
        ] {
            match answer {
                Ok(()) => {}
                Err(errno) if is_refusal(errno) => self.add(attribute, of, &path, errno.into()),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}

/// Sets permissions. A directory keeps its set-group-id and sticky bits.
pub(super) fn set_mode(fd: impl AsFd, mode: u16) -> Result<(), Errno> {
    let kept = Mode::from_raw_mode(fstat(&fd)?.st_mode).difference(PERMISSIONS);
    fchmod(&fd, kept | Mode::from_bits_truncate(mode.into()))
}

fn set_time(fd: impl AsFd, modified: Time) -> Result<(), Errno> {
    futimens(&fd, &timestamps(modified))
}

/// Sets the time of a symbolic link.
pub(super) fn set_link_time(
    directory: &Directory,
    name: &[u8],
    modified: Time,
) -> Result<(), Errno> {
    let times = timestamps(modified);
    utimensat(directory, name, &times, AtFlags::SYMLINK_NOFOLLOW)
}

fn timestamps(modified: Time) -> Timestamps {
    Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: modified.seconds,
            tv_nsec: modified.nanos.into(),
        },
    }
}

/// Returns whether the error means that the file system has no such attribute, or does not let this
/// user set it. FAT, exFAT, SMB and FUSE return one of these errors.
pub(super) fn is_refusal(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::ROFS
    )
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    const MODE_AND_TIME: (u16, Time) = (
        0o600,
        Time {
            seconds: 1,
            nanos: 2,
        },
    );

    /// The files of a process in `/proc` refuse a change of mode, as files on FAT do.
    #[test]
    fn refused_permissions_are_one_warning_for_each_kind_of_thing() {
        let mut warnings = Warnings::default();
        for (path, of) in [
            ("/proc/self/comm", Thing::File),
            ("/proc/self/limits", Thing::File),
            ("/proc/self/task", Thing::Directory),
        ] {
            let file = File::open(path).expect("proc is mounted");
            warnings
                .set(&file, of, MODE_AND_TIME, || path.into())
                .expect("a refusal is no error");
        }
        let first = warnings.poll().expect("of files");
        assert_eq!(first.attribute, Attribute::Permissions);
        assert_eq!(first.source.kind(), io::ErrorKind::PermissionDenied);
        assert!(first.to_string().contains("/proc/self/comm"), "{first}");
        let rest: Vec<_> = std::iter::from_fn(|| warnings.poll()).collect();
        let kinds: Vec<_> = rest
            .iter()
            .filter(|warning| warning.attribute == Attribute::Permissions)
            .map(|warning| warning.of)
            .collect();
        assert_eq!(kinds, [Thing::Directory], "{rest:?}");
    }

    #[test]
    fn other_answers_are_errors() {
        assert!(!is_refusal(Errno::IO));
        assert!(!is_refusal(Errno::NOSPC));
    }
}
