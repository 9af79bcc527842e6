//! Removes what is only at the receiver (P8.7).

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use super::directory::Directory;
use super::open_directories::OpenDirectories;
use super::part_name::is_temporary;
use super::status::Id;
use super::{CommitGate, Manifest};

/// What the sender wants to be removed. The order of the fields is that on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Delete {
    /// If there is more than this, nothing is removed.
    pub max: Option<u32>,
    /// Whether the manifest also lists all that the receiver's directory shall have.
    pub top: bool,
}

/// The names in directories of a manifest.
pub(super) struct Listed<'a> {
    manifest: &'a Manifest,
    by_name: Vec<u32>,
    /// What the entries are on this file system. Where case is ignored, a listed file can have another name.
    ids: HashSet<Id>,
}

impl<'a> Listed<'a> {
    /// `look` returns the identity of what has the name of an entry.
    pub(super) fn new(manifest: &'a Manifest, mut look: impl FnMut(u32) -> Option<Id>) -> Self {
        let mut by_name: Vec<u32> = (0..manifest.len()).collect();
        by_name.sort_unstable_by_key(|index| Self::key(manifest, *index));
        Self {
            manifest,
            ids: by_name.iter().filter_map(|index| look(*index)).collect(),
            by_name,
        }
    }

    fn key(manifest: &Manifest, index: u32) -> (Option<u32>, &[u8]) {
        let entry = manifest.entry(index);
        entry.map_or((None, &[]), |entry| (entry.parent, entry.name))
    }

    /// The names in a directory of the manifest that are not in the manifest. Temporary files of receivers and
    /// what belongs to another file system stay.
    fn extra(&self, parent: Option<u32>, directory: &Directory) -> io::Result<Vec<Vec<u8>>> {
        let here = directory.status()?.id;
        let is_listed = |name: &[u8]| {
            let found = self
                .by_name
                .binary_search_by_key(&(parent, name), |index| Self::key(self.manifest, *index));
            found.is_ok()
        };
        let names = directory.names(usize::MAX, |name| !is_listed(name) && !is_temporary(name))?;
        let mut extra = names.unwrap_or_default();
        extra.retain(|name| {
            let status = directory.look(name).ok().flatten();
            status.is_some_and(|it| it.id.is_beside(here) && !self.ids.contains(&it.id))
        });
        Ok(extra)
    }
}

/// Something in a directory of a manifest that is not in the manifest.
#[derive(Debug)]
pub(super) struct Extra {
    pub(super) parent: Option<u32>,
    pub(super) name: Vec<u8>,
}

/// Returns what is in these directories of a manifest and not in the manifest.
///
/// # Errors
/// The number of a directory that cannot be read, and why.
pub(super) fn find(
    directories: &mut OpenDirectories,
    listed: &Listed<'_>,
    parents: impl IntoIterator<Item = Option<u32>>,
) -> Result<Vec<Extra>, (Option<u32>, io::Error)> {
    let mut found = Vec::new();
    for parent in parents {
        let entered = directories.enter(listed.manifest, parent);
        let directory = entered.map_err(|error| (Some(error.index), error.source))?;
        let names = listed.extra(parent, directory);
        let names = names.map_err(|source| (parent, source))?;
        found.extend(names.into_iter().map(|name| Extra { parent, name }));
    }
    Ok(found)
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
    for name in inner.names(usize::MAX, |_| true)?.unwrap_or_default() {
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
    let names = inner.names(usize::MAX, |_| true)?.unwrap_or_default();
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
