//! Removes what is only at the receiver (P8.7).

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use super::CommitGate;
use super::aliases::ByName;
use super::attributes::{Attribute, Thing, Warnings};
use super::directory::Directory;
use super::open_directories::OpenDirectories;
use super::part_name::is_temporary;

/// Why everything in a directory stays.
const ALIASED: &str =
    "names that were sent lead to other names there, as where upper and lower case are one";

/// What the sender wants to be removed. The order of the fields is that on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Delete {
    /// If there is more than this, nothing is removed.
    pub max: Option<u32>,
    /// Whether the manifest also lists all that the receiver's directory shall have.
    pub top: bool,
}

/// The names in a directory that are not in the manifest. Temporary files of receivers stay, and so do directories of
/// another file system, which are mounted there. `None` if a name of the manifest leads to something with another name:
/// then nobody knows which of the names are in the manifest, and all of them stay.
fn extra_names(
    listed: &ByName,
    parent: Option<u32>,
    directory: &Directory,
) -> io::Result<Option<Vec<Vec<u8>>>> {
    let mut names = directory.names(|_| true)?;
    for name in listed.names(parent) {
        let is_here = names.binary_search_by(|it| it[..].cmp(name)).is_ok();
        if !is_here && directory.look(name)?.is_some() {
            return Ok(None);
        }
    }
    let here = directory.status()?.id;
    names.retain(|name| {
        if listed.has(parent, name) || is_temporary(name) {
            return false;
        }
        // On an overlay, a file can have another device than its directory.
        let status = directory.look(name).ok().flatten();
        status.is_some_and(|it| it.kind != FileType::Directory || it.id.is_beside(here))
    });
    Ok(Some(names))
}

/// Something in a directory of a manifest that is not in the manifest.
#[derive(Debug)]
pub(super) struct Extra {
    pub(super) parent: Option<u32>,
    pub(super) name: Vec<u8>,
}

/// Returns what is in these directories of a manifest and not in the manifest. Warns of directories in which everything
/// stays, because names lead to something with another name there. `path` is that of a directory.
///
/// # Errors
/// The number of a directory that cannot be read, and why.
pub(super) fn find(
    directories: &mut OpenDirectories,
    listed: &ByName,
    parents: impl IntoIterator<Item = Option<u32>>,
    (warnings, path): (&mut Warnings, impl Fn(Option<u32>) -> PathBuf),
) -> Result<Vec<Extra>, (Option<u32>, io::Error)> {
    let mut extra = Vec::new();
    for parent in parents {
        let entered = directories.enter(&listed.manifest, parent);
        let directory = entered.map_err(|error| (Some(error.index), error.source))?;
        match extra_names(listed, parent, directory).map_err(|source| (parent, source))? {
            Some(names) => extra.extend(names.into_iter().map(|name| Extra { parent, name })),
            None => {
                let what = io::Error::other(ALIASED);
                warnings.add(Attribute::Extra, Thing::Directory, || path(parent), what);
            }
        }
    }
    Ok(extra)
}

/// Calls `tell` with the path of the file or directory `name`, and then with the path of each file and directory below
/// it. `around` is the path of the directory that has `name`. The path of a directory ends with `/`.
pub(super) fn walk(
    directory: &Directory,
    around: &Path,
    name: &[u8],
    tell: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let path = around.join(OsStr::from_bytes(name));
    let Some(inner) = inner(directory, name)? else {
        return tell(path.as_os_str().as_bytes());
    };
    tell(path.join("").as_os_str().as_bytes())?;
    for name in inner.names(|_| true)? {
        walk(&inner, &path, &name, tell)?;
    }
    Ok(())
}

/// What a removal has done so far.
#[derive(Debug, Default)]
pub(super) struct Removal {
    /// Files and directories that were removed.
    pub(super) removed: u64,
    /// The first path that could not be removed, and why.
    pub(super) failed: Option<(PathBuf, io::Error)>,
}

impl Removal {
    pub(super) fn fail(&mut self, path: &Path, error: io::Error) {
        self.failed
            .get_or_insert_with(|| (path.to_path_buf(), error));
    }

    /// Removes something at a path and all below it. Follows no link, and stays on the file system. What cannot
    /// be removed stays, with the directories around it, and the rest goes.
    pub(super) fn remove(
        &mut self,
        directory: &Directory,
        name: &[u8],
        path: &Path,
        gate: &CommitGate,
    ) {
        if gate.is_closed() {
            return self.fail(path, io::Error::other("the transfer was stopped"));
        }
        match open(directory, name) {
            Ok(None) => {}
            Ok(Some((inner, names))) => {
                for name in names {
                    self.remove(&inner, &name, &path.join(OsStr::from_bytes(&name)), gate);
                }
            }
            Err(error) => return self.fail(path, error),
        }
        match remove_one(directory, name, gate) {
            Ok(()) => self.removed += 1,
            // The first failure counts: a directory stays because of what it still has.
            Err(error) => self.fail(path, error),
        }
    }
}

/// Removes a file, a link or an empty directory.
fn remove_one(directory: &Directory, name: &[u8], gate: &CommitGate) -> io::Result<()> {
    let is_directory = directory
        .look(name)?
        .is_some_and(|it| it.kind == FileType::Directory);
    let Some(_pass) = gate.pass() else {
        return Err(io::Error::other("the transfer was stopped"));
    };
    match is_directory {
        true => directory.remove_directory(name),
        false => directory.remove(name),
    }
}

/// Opens a directory to remove what is in it, and lists that; `None` as [`inner`].
fn open(directory: &Directory, name: &[u8]) -> io::Result<Option<(Directory, Vec<Vec<u8>>)>> {
    let Some(inner) = inner(directory, name)? else {
        return Ok(None);
    };
    inner.open_up()?;
    let names = inner.names(|_| true)?;
    Ok(Some((inner, names)))
}

/// Opens a directory in another one; `None` if it is something else, or on another file system.
fn inner(directory: &Directory, name: &[u8]) -> io::Result<Option<Directory>> {
    let status = directory.look(name)?;
    let here = directory.status()?.id;
    match status {
        Some(it) if it.kind == FileType::Directory && it.id.is_beside(here) => {
            directory.enter(name).map(Some)
        }
        _ => Ok(None),
    }
}
