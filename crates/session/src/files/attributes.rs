//! Permissions and times of what was received.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;

use rustix::fs::{Mode, Timespec, Timestamps, UTIME_OMIT, fchmod, fstat, futimens};
use rustix::io::Errno;

use super::Time;

/// Permissions that travel.
const PERMISSIONS: Mode = Mode::RWXU.union(Mode::RWXG).union(Mode::RWXO);

/// Something that the file system refuses and that a transfer can do without.
#[derive(Debug)]
pub struct Warning {
    /// What could not be set.
    pub attribute: Attribute,
    /// Of what kind of thing.
    pub of: Thing,
    /// The first one that it could not be set of.
    pub path: PathBuf,
    /// The answer of the operating system.
    pub source: io::Error,
}

/// What a file or directory has beside its contents and its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// Its permissions.
    Permissions,
    /// When it was last written.
    Time,
}

/// What has attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thing {
    /// A file.
    File,
    /// A directory.
    Directory,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let attribute = match self.attribute {
            Attribute::Permissions => "permissions",
            Attribute::Time => "modification time",
        };
        let thing = match self.of {
            Thing::File => "file",
            Thing::Directory => "directory",
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
    /// Those that `poll` has not returned yet.
    pending: VecDeque<Warning>,
}

impl Warnings {
    pub(super) fn poll(&mut self) -> Option<Warning> {
        self.pending.pop_front()
    }

    /// Adds a warning unless there was one of its sort.
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

    /// Sets both attributes of an open file or directory. A file system that does not have them or
    /// does not let this user set them causes a warning.
    ///
    /// # Errors
    /// Any other answer of the operating system.
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

/// Sets permissions. Set-group-id and sticky, which a directory may have had before, stay.
pub(super) fn set_mode(fd: impl AsFd, mode: u16) -> Result<(), Errno> {
    let kept = Mode::from_raw_mode(fstat(&fd)?.st_mode).difference(PERMISSIONS);
    fchmod(&fd, kept | Mode::from_bits_truncate(mode.into()))
}

fn set_time(fd: impl AsFd, modified: Time) -> Result<(), Errno> {
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

/// Whether the file system has no such attribute, or does not let this user set it: FAT, exFAT, SMB
/// and FUSE answer in one of these ways.
fn is_refusal(errno: Errno) -> bool {
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

    /// The files of a process in `/proc` refuse another mode, as files on FAT do.
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
