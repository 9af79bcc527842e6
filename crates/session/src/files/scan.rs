//! Builds a manifest from the paths that the sender sends.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use super::directory::Directory;
use super::not_sent::NotSent;
use super::open_directories::OpenDirectories;
use super::root::Roots;
use super::status::{Id, Status};
use super::{Entry, Kind, MAX_ENTRIES, Manifest, ManifestBuilder, ManifestError};

/// What to do with anything that is neither a file nor a directory: symbolic links, pipes, sockets,
/// devices. None of these is ever sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// Fail at the first one.
    Refuse,
    /// Leave them out, and list them.
    Skip,
}

/// A manifest, and where its entries are found.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) manifest: Manifest,
    pub(super) roots: Roots,
    /// The identity of each entry when it was listed.
    pub(super) ids: Vec<Id>,
    pub(super) skipped: Vec<PathBuf>,
    pub(super) unreadable: Vec<Unreadable>,
    pub(super) dropped: NotSent,
}

/// Something in a tree that could not be listed: a directory whose contents are missing at the
/// receiver, or a file.
#[derive(Debug)]
pub struct Unreadable {
    /// Its path below the receiver's directory.
    pub path: PathBuf,
    /// Why: the path here, and the error of the operating system.
    pub error: ScanError,
}

/// Lists what paths lead to. See [`super::Source::scan`].
pub(super) fn scan(paths: &[PathBuf], special: Special) -> Result<Scan, ScanError> {
    let mut scanner = Scanner {
        builder: ManifestBuilder::default(),
        roots: Roots::default(),
        ids: Vec::new(),
        skipped: Vec::new(),
        unreadable: Vec::new(),
        dropped: NotSent::default(),
        special,
    };
    let mut named: HashMap<Vec<u8>, &Path> = HashMap::new();
    for path in paths {
        match own_name(path) {
            Some(name) => {
                if let Some(first) = named.insert(name.to_vec(), path) {
                    return Err(ScanError::SameName {
                        first: first.into(),
                        second: path.clone(),
                    });
                }
                scanner.add_named(name, path)?;
            }
            None => scanner.add_contents(path)?,
        }
    }
    scanner.ids.shrink_to_fit();
    Ok(Scan {
        manifest: scanner.builder.build()?,
        roots: scanner.roots,
        ids: scanner.ids,
        skipped: scanner.skipped,
        unreadable: scanner.unreadable,
        dropped: scanner.dropped,
    })
}

/// Returns the name under which a path is sent; `None` for `/` and for a path that ends in `.` or
/// `..`, which stands for the contents of the directory. A slash at the end changes nothing.
fn own_name(path: &Path) -> Option<&[u8]> {
    let mut parts = path.as_os_str().as_bytes().rsplit(|byte| *byte == b'/');
    let last = parts.find(|part| !part.is_empty())?;
    (last != b"." && last != b"..").then_some(last)
}

struct Scanner {
    builder: ManifestBuilder,
    roots: Roots,
    ids: Vec<Id>,
    skipped: Vec<PathBuf>,
    unreadable: Vec<Unreadable>,
    dropped: NotSent,
    special: Special,
}

impl Scanner {
    /// Adds the target of a path under a name. Follows a link that the user named.
    fn add_named(&mut self, name: &[u8], path: &Path) -> Result<(), ScanError> {
        let first = self.builder.entries();
        self.roots.push(first, path, true);
        let failed = |source| ScanError::io(path, source);
        // Open the directory before reading its status, so that both refer to the same directory.
        let (status, directory) = match Directory::open(path) {
            Ok(directory) => (directory.status().map_err(failed)?, Some(directory)),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                let status = Status::of_path(path).map_err(failed)?;
                if status.kind == FileType::Directory {
                    return Err(failed(error));
                }
                (status, None)
            }
            Err(error) => return Err(failed(error)),
        };
        self.add(None, name, &status)?;
        match directory {
            Some(directory) => {
                self.add_below(OpenDirectories::new(directory, Some(first)), Some(first))
            }
            None => Ok(()),
        }
    }

    /// Adds what a directory contains.
    fn add_contents(&mut self, path: &Path) -> Result<(), ScanError> {
        self.roots.push(self.builder.entries(), path, false);
        let directory = Directory::open(path).map_err(|source| ScanError::io(path, source))?;
        self.add_below(OpenDirectories::new(directory, None), None)
    }

    /// Adds the contents of a directory, and of all directories below it. What cannot be read below
    /// the first directory is left out and remembered.
    fn add_below(
        &mut self,
        mut directories: OpenDirectories,
        top: Option<u32>,
    ) -> Result<(), ScanError> {
        let mut pending = vec![top];
        while let Some(parent) = pending.pop() {
            let first = pending.len();
            match self.add_directory(&mut directories, parent, &mut pending) {
                Err(error @ ScanError::Io { .. }) if parent != top => {
                    let path = parent.map(|index| self.builder.so_far().path(index));
                    self.unreadable.push(Unreadable {
                        path: path.unwrap_or_default(),
                        error,
                    });
                }
                added => added?,
            }
            // The list is last in, first out. Reverse it, so that directories too are sent in the
            // order of their names.
            pending[first..].reverse();
        }
        Ok(())
    }

    /// Adds what a directory contains. `pending` gets the directories in it.
    fn add_directory(
        &mut self,
        directories: &mut OpenDirectories,
        parent: Option<u32>,
        pending: &mut Vec<Option<u32>>,
    ) -> Result<(), ScanError> {
        let limit = usize::try_from(MAX_ENTRIES).unwrap_or(usize::MAX);
        let entered = directories.enter(self.builder.so_far(), parent);
        let directory =
            entered.map_err(|error| ScanError::io(&self.path(Some(error.index)), error.source))?;
        let names = directory.names(limit, |_| true);
        let names = names.map_err(|source| ScanError::io(&self.path(parent), source))?;
        self.dropped.look_at(directory);
        for name in names.ok_or(ManifestError::TooMany)? {
            let status = match directory.look(&name) {
                Ok(Some(status)) => status,
                // A file that was removed since the names were listed.
                Ok(None) => continue,
                Err(source) => {
                    let above = parent.map(|index| self.builder.so_far().path(index));
                    self.unreadable.push(Unreadable {
                        path: above.unwrap_or_default().join(OsStr::from_bytes(&name)),
                        error: ScanError::io(&self.below(parent, &name), source),
                    });
                    continue;
                }
            };
            let added = self.add(parent, &name, &status)?;
            if status.kind == FileType::Directory {
                pending.push(added);
            }
        }
        Ok(())
    }

    /// Adds an entry. Returns `None` if it is left out.
    fn add(
        &mut self,
        parent: Option<u32>,
        name: &[u8],
        status: &Status,
    ) -> Result<Option<u32>, ScanError> {
        let kind = match status.kind {
            FileType::Directory => Kind::Directory,
            FileType::RegularFile => Kind::File {
                bytes: status.bytes,
                sparse: status.allocated_bytes < status.bytes,
            },
            kind => return self.special(self.below(parent, name), kind),
        };
        let index = self.builder.push(&Entry {
            parent,
            name: name.into(),
            kind,
            mode: status.mode,
            modified: status.modified,
        })?;
        self.ids.push(status.id);
        self.dropped.note_links(status);
        Ok(Some(index))
    }

    fn special(&mut self, path: PathBuf, kind: FileType) -> Result<Option<u32>, ScanError> {
        if self.special == Special::Skip {
            self.skipped.push(path);
            return Ok(None);
        }
        let what = match kind {
            FileType::Symlink => SpecialKind::Symlink,
            FileType::Fifo => SpecialKind::Pipe,
            FileType::Socket => SpecialKind::Socket,
            _ => SpecialKind::Device,
        };
        Err(ScanError::Special { path, what })
    }

    /// Where a directory lies; `None` is the path that is being listed.
    fn path(&self, index: Option<u32>) -> PathBuf {
        match index {
            Some(index) => self.roots.path(self.builder.so_far(), index),
            None => self.roots.last_path(),
        }
    }

    /// Where a name in a directory lies. The path that is being listed may itself be the entry.
    fn below(&self, parent: Option<u32>, name: &[u8]) -> PathBuf {
        if parent.is_none() && self.roots.last_is_entry() {
            return self.roots.last_path();
        }
        self.path(parent).join(OsStr::from_bytes(name))
    }
}

/// Why paths cannot be sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScanError {
    /// The operating system returned an error.
    #[error("cannot read {path:?}: {source}")]
    Io {
        /// The path.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// Something that is never sent.
    #[error(
        "{path:?} is {what}; only files and directories are sent, and --skip-special leaves out \
         everything else"
    )]
    Special {
        /// Where it is.
        path: PathBuf,
        /// What it is.
        what: SpecialKind,
    },
    /// Two paths that would have the same name at the receiver.
    #[error(
        "{first:?} and {second:?} would arrive under the same name; send them one after the other"
    )]
    SameName {
        /// One.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// Too many entries, too deep, or the like.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
}

/// What a path is that is neither a file nor a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecialKind {
    /// A symbolic link.
    #[error("a symbolic link")]
    Symlink,
    /// A named pipe.
    #[error("a named pipe")]
    Pipe,
    /// A Unix socket.
    #[error("a socket")]
    Socket,
    /// A device.
    #[error("a device")]
    Device,
}

impl ScanError {
    fn io(path: &Path, source: io::Error) -> Self {
        Self::Io {
            path: path.into(),
            source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_as_cp_takes_them() {
        for (path, name) in [
            ("a", Some("a")),
            ("a/", Some("a")),
            ("/x/a//", Some("a")),
            ("a/.", None),
            ("a/./", None),
            (".", None),
            ("..", None),
            ("a/..", None),
            ("/", None),
            ("...", Some("...")),
        ] {
            assert_eq!(own_name(Path::new(path)), name.map(str::as_bytes), "{path}");
        }
    }
}
