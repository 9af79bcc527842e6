//! The paths that a user named, and the entries of each.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};

use super::Manifest;
use super::directory::Directory;
use super::open_directories::OpenDirectories;

/// A path that a user named. Links in it are trusted and followed.
#[derive(Debug)]
pub(super) struct Root {
    /// Number of its first entry. The entries of a path are consecutive.
    first: u32,
    pub(super) path: PathBuf,
    /// Whether the path itself is the first entry. Otherwise its entries lie in it.
    is_entry: bool,
}

impl Root {
    /// Returns whether an entry is the target of the path.
    pub(super) fn is(&self, index: u32) -> bool {
        self.is_entry && self.first == index
    }

    /// Opens the path as a directory.
    pub(super) fn open_directories(&self) -> io::Result<OpenDirectories> {
        let directory = Directory::open(&self.path)?;
        Ok(OpenDirectories::new(
            directory,
            self.is_entry.then_some(self.first),
        ))
    }
}

/// Opens a path that a user named as a file for reading. This does not wait if the path is a pipe.
pub(super) fn open_file(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(openat(CWD, path, flags, Mode::empty())?.into())
}

/// All paths, in the order of their entries.
#[derive(Debug, Default)]
pub(super) struct Roots(Vec<Root>);

impl Roots {
    /// Adds a path whose first entry will have the number `first`.
    pub(super) fn push(&mut self, first: u32, path: &Path, is_entry: bool) {
        self.0.push(Root {
            first,
            path: path.into(),
            is_entry,
        });
    }

    /// Returns the path of an entry, and the index of that path.
    pub(super) fn of(&self, index: u32) -> Option<(usize, &Root)> {
        // A path without entries has the same number as the next path. The last of them has the
        // entry.
        let after = self.0.partition_point(|root| root.first <= index);
        let at = after.checked_sub(1)?;
        Some((at, self.0.get(at)?))
    }

    /// Returns the location of an entry; empty for a number that no entry has.
    pub(super) fn path(&self, manifest: &Manifest, index: u32) -> PathBuf {
        let mut lineage = manifest.lineage(Some(index));
        let (Some((_, root)), false) = (self.of(index), lineage.is_empty()) else {
            return PathBuf::new();
        };
        if root.is_entry {
            lineage.pop();
        }
        let mut path = root.path.clone();
        let entries = lineage.into_iter().rev();
        let entries = entries.filter_map(|index| manifest.entry(index));
        path.extend(entries.map(|entry| OsStr::from_bytes(entry.name)));
        path
    }

    /// Whether a path stands for its contents, so that they lie beside each other in the receiver's directory.
    pub(super) fn has_contents(&self) -> bool {
        self.0.iter().any(|root| !root.is_entry)
    }

    pub(super) fn last_path(&self) -> PathBuf {
        let last = self.0.last();
        last.map_or_else(PathBuf::new, |root| root.path.clone())
    }

    pub(super) fn last_is_entry(&self) -> bool {
        self.0.last().is_some_and(|root| root.is_entry)
    }
}
