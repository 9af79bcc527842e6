//! Permissions and times of received files and directories.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;

use rustix::fs::{
    AtFlags, Gid, Mode, Timespec, Timestamps, UTIME_OMIT, Uid, chownat, fchmod, fchown, fstat,
    futimens, utimensat,
};
use rustix::io::Errno;

use super::acl::{ACCESS, mode_without};
use super::directory::Directory;
use super::status::Status;
use super::{Manifest, Owner, Policy, Time, Xattr, xattrs};

/// Permission bits that are transferred.
const PERMISSIONS: Mode = Mode::RWXU.union(Mode::RWXG).union(Mode::RWXO);

/// An attribute that the file system refuses. The transfer can continue without it.
#[derive(Debug)]
pub struct Warning {
    /// The attribute that could not be set.
    pub attribute: Attribute,
    /// The kind of thing that has the attribute.
    pub of: Thing,
    /// How often it failed.
    pub count: u32,
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
    /// Its user and group.
    Owner,
    /// Its extended attributes and access control lists.
    Xattrs,
    /// Whether its permissions and its time survive a power failure.
    Durability,
    /// What is in it and only at the receiver, and should be removed.
    Extra,
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
        let (thing, things) = match self.of {
            Thing::File => ("file", "files"),
            Thing::Directory => ("directory", "directories"),
            Thing::Link => ("symbolic link", "symbolic links"),
        };
        let things = if self.count == 1 { thing } else { things };
        let (count, path, source) = (self.count, &self.path, &self.source);
        let attribute = match self.attribute {
            Attribute::Permissions => "permissions",
            Attribute::Time => "modification time",
            Attribute::Owner => "owner",
            Attribute::Xattrs => "extended attributes",
            Attribute::Durability => {
                return write!(
                    f,
                    "cannot sync {count} {things}, the first is {path:?}: {source}; after a power failure, \
                     permissions and times may be others"
                );
            }
            Attribute::Extra => {
                return write!(
                    f,
                    "nothing was removed from {count} {things}, the first is {path:?}: {source}"
                );
            }
        };
        match count {
            1 => write!(
                f,
                "cannot set the {attribute} of the {thing} {path:?}: {source}"
            ),
            _ => write!(
                f,
                "cannot set the {attribute} of {count} {things}, the first is {path:?}: {source}"
            ),
        }
    }
}

/// Counts warnings: one for each attribute of each kind of thing.
#[derive(Debug, Default)]
pub(super) struct Warnings(VecDeque<Warning>);

impl Warnings {
    pub(super) fn poll(&mut self) -> Option<Warning> {
        self.0.pop_front()
    }

    /// Adds a warning, or counts it if there is already one of the same sort.
    pub(super) fn add(
        &mut self,
        attribute: Attribute,
        of: Thing,
        path: impl FnOnce() -> PathBuf,
        source: io::Error,
    ) {
        let mut given = self.0.iter_mut();
        if let Some(given) = given.find(|it| it.attribute == attribute && it.of == of) {
            given.count += 1;
            return;
        }
        self.0.push_back(Warning {
            attribute,
            of,
            count: 1,
            path: path(),
            source,
        });
    }

    /// Sets the attributes of an open file or directory. Causes a warning if the file system does
    /// not have them or does not let this user set them.
    ///
    /// # Errors
    /// Any other error of the operating system.
    pub(super) fn set(
        &mut self,
        fd: impl AsFd,
        of: Thing,
        attributes: &Attributes<'_>,
        path: impl Fn() -> PathBuf,
    ) -> io::Result<()> {
        let owned = attributes
            .owner
            .map_or(Ok(()), |owner| set_owner(&fd, owner));
        // A list of who may do what cannot give more than the mode allows, which comes after it.
        let (has_list, set) = xattrs::set(&fd, attributes.xattrs, attributes.lists);
        if let Err(error) = set {
            self.add(Attribute::Xattrs, of, &path, error);
        }
        let list = attributes.xattrs.iter().find(|it| it.name == ACCESS);
        let mode = match list.filter(|_| !has_list) {
            Some(list) => mode_without(attributes.mode, &list.value),
            None => attributes.mode,
        };
        let timed = set_time(&fd, attributes.modified);
        let is_timed = timed.is_ok();
        for (attribute, answer) in [
            (Attribute::Owner, owned),
            (Attribute::Permissions, set_mode(&fd, mode)),
            (Attribute::Time, timed),
        ] {
            match answer {
                Ok(()) => {}
                Err(errno) if is_refusal(errno) => self.add(attribute, of, &path, errno.into()),
                Err(errno) => return Err(errno.into()),
            }
        }
        if is_timed {
            let stored = Status::from(fstat(&fd)?).modified;
            self.check_time(of, (attributes.modified, stored), path);
        }
        Ok(())
    }

    /// Warns if the file system has stored another time.
    pub(super) fn check_time(
        &mut self,
        of: Thing,
        (time, stored): (Time, Time),
        path: impl FnOnce() -> PathBuf,
    ) {
        if stored != time {
            let what = "the file system stores another time";
            self.add(Attribute::Time, of, path, io::Error::other(what));
        }
    }
}

/// The attributes of an entry, as the receiver's user lets it have them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attributes<'a> {
    pub(super) mode: u16,
    pub(super) modified: Time,
    pub(super) owner: Option<Owner>,
    pub(super) xattrs: &'a [Xattr],
    /// Whether access control lists are set. They name users and groups, as owners do, and are not limited
    /// by the umask.
    pub(super) lists: bool,
}

impl<'a> Attributes<'a> {
    pub(super) fn of(manifest: &'a Manifest, index: u32, policy: Policy) -> Option<Self> {
        let entry = manifest.entry(index)?;
        Some(Self {
            mode: policy.mode(entry.mode),
            modified: entry.modified,
            owner: manifest.owner(index).filter(|_| policy.owners),
            xattrs: manifest.xattrs(index),
            lists: policy.owners,
        })
    }
}

fn set_owner(fd: impl AsFd, owner: Owner) -> Result<(), Errno> {
    let (user, group) = ids(owner)?;
    fchown(&fd, user, group)
}

pub(super) fn set_link_owner(
    directory: &Directory,
    name: &[u8],
    owner: Owner,
) -> Result<(), Errno> {
    let (user, group) = ids(owner)?;
    chownat(directory, name, user, group, AtFlags::SYMLINK_NOFOLLOW)
}

/// The greatest number means to change nothing, so nobody has it.
fn ids(owner: Owner) -> Result<(Option<Uid>, Option<Gid>), Errno> {
    if owner.user == u32::MAX || owner.group == u32::MAX {
        return Err(Errno::INVAL);
    }
    Ok((
        Some(Uid::from_raw(owner.user)),
        Some(Gid::from_raw(owner.group)),
    ))
}

/// Sets permissions. A directory keeps its set-group-id and sticky bits.
pub(super) fn set_mode(fd: impl AsFd, mode: u16) -> Result<(), Errno> {
    let kept = Mode::from_raw_mode(fstat(&fd)?.st_mode).difference(PERMISSIONS);
    fchmod(&fd, kept | Mode::from_bits_truncate(mode.into()))
}

pub(super) fn set_time(fd: impl AsFd, modified: Time) -> Result<(), Errno> {
    futimens(&fd, &timestamps(modified))
}

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

    const ATTRIBUTES: Attributes<'_> = Attributes {
        mode: 0o600,
        modified: Time {
            seconds: 1,
            nanos: 2,
        },
        owner: None,
        xattrs: &[],
        lists: false,
    };

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
                .set(&file, of, &ATTRIBUTES, || path.into())
                .expect("a refusal is no error");
        }
        let first = warnings.poll().expect("of files");
        assert_eq!(first.attribute, Attribute::Permissions);
        assert_eq!(first.source.kind(), io::ErrorKind::PermissionDenied);
        assert!(
            first
                .to_string()
                .contains("2 files, the first is \"/proc/self/comm\""),
            "{first}"
        );
        let rest: Vec<_> = std::iter::from_fn(|| warnings.poll()).collect();
        let kinds: Vec<_> = rest
            .iter()
            .filter(|warning| warning.attribute == Attribute::Permissions)
            .map(|warning| warning.of)
            .collect();
        assert_eq!(kinds, [Thing::Directory], "{rest:?}");
    }

    #[test]
    fn failures_of_a_disk_are_no_refusals() {
        assert!(!is_refusal(Errno::IO));
        assert!(!is_refusal(Errno::NOSPC));
    }
}
