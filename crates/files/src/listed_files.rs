//! The entries that a sender has listed: opens them again, and checks that they are unchanged.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::FileType;

use super::compare::hash_file;
use super::directory::Directory;
use super::open_directories::OpenDirectories;
use super::root::{Roots, open_file};
use super::status::{Id, Status};
use super::{Kind, Manifest, PathError};

/// The entries of a manifest at the sender. Each directory is opened from its parent.
#[derive(Debug)]
pub(super) struct ListedFiles {
    manifest: Arc<Manifest>,
    roots: Roots,
    /// Of each entry.
    ids: Vec<Id>,
    /// The index of a root, and its open directories.
    directories: Option<(usize, OpenDirectories)>,
}

impl ListedFiles {
    pub(super) fn new(manifest: Arc<Manifest>, roots: Roots, ids: Vec<Id>) -> Self {
        Self {
            manifest,
            roots,
            ids,
            directories: None,
        }
    }

    /// Where an entry is read from; empty for a number that no entry has.
    pub(super) fn path(&self, index: u32) -> PathBuf {
        self.roots.path(&self.manifest, index)
    }

    /// As [`Roots::has_contents`].
    pub(super) fn have_contents(&self) -> bool {
        self.roots.has_contents()
    }

    /// Reads a file only to hash it.
    pub(super) fn hash(&mut self, index: u32) -> Result<[u8; 32], ReadError> {
        let file = self.open(index)?;
        self.check_unchanged(index, &file)?;
        let bytes = self.bytes(index);
        let hash = hash_file(&file).map_err(|source| self.failed(index, source))?;
        // A file that has grown has another hash, and is sent.
        let status = Status::of_file(&file).map_err(|source| self.failed(index, source))?;
        if status.bytes == bytes {
            self.check_unchanged(index, &file)?;
        }
        Ok(hash)
    }

    /// Checks that a link is as it was listed. Returns the hash that stands for it; `None` if the entry is
    /// no link.
    pub(super) fn link(&mut self, index: u32) -> Option<Result<[u8; 32], ReadError>> {
        let manifest = Arc::clone(&self.manifest);
        let entry = manifest.entry(index)?;
        let same = match entry.kind {
            Kind::Directory | Kind::File { .. } => return None,
            Kind::Symlink { target } => self.around(index).and_then(|around| {
                let now = around.read_link(entry.name);
                let now = now.map_err(|source| self.failed(index, source))?;
                Ok((now == target).then(|| blake3::hash(target)))
            }),
            Kind::HardLink { .. } => self.look(index).map(|status| {
                let is_same = status.is_some_and(|status| Some(&status.id) == self.id(index));
                is_same.then(|| blake3::hash(&[]))
            }),
        };
        Some(same.and_then(|hash| {
            hash.map(Into::into).ok_or_else(|| ReadError::Changed {
                path: self.path(index),
                what: "another link or file has taken its place".into(),
            })
        }))
    }

    /// Returns the status of an entry.
    fn look(&mut self, index: u32) -> Result<Option<Status>, ReadError> {
        if let Some((_, root)) = self.roots.of(index)
            && root.is(index)
        {
            let status = Status::of_path(&root.path);
            return status
                .map(Some)
                .map_err(|source| self.failed(index, source));
        }
        let manifest = Arc::clone(&self.manifest);
        let name = manifest.name(index);
        let around = self.around(index)?;
        let status = around.look(name);
        status.map_err(|source| self.failed(index, source))
    }

    /// Opens a file from its parent directory.
    pub(super) fn open(&mut self, index: u32) -> Result<File, ReadError> {
        let Some((_, root)) = self.roots.of(index) else {
            return Err(self.failed(index, io::ErrorKind::NotFound.into()));
        };
        if root.is(index) {
            return open_file(&root.path).map_err(|source| self.failed(index, source));
        }
        let manifest = Arc::clone(&self.manifest);
        let name = manifest.name(index);
        let opened = self.around(index)?.open_to_read(name);
        opened.map_err(|source| self.failed(index, source))
    }

    /// Returns another descriptor of the directory that an entry lies in. The entry must not be a path that the user named.
    fn around(&mut self, index: u32) -> Result<Directory, ReadError> {
        let (Some((at, root)), Some(entry)) = (self.roots.of(index), self.manifest.entry(index))
        else {
            return Err(self.failed(index, io::ErrorKind::NotFound.into()));
        };
        let mut directories = match self.directories.take() {
            Some((open, directories)) if open == at => directories,
            _ => {
                let opened = root.open_directories();
                opened.map_err(|source| ReadError::Io(PathError::new(&root.path, source)))?
            }
        };
        let entered = directories.enter(&self.manifest, entry.parent);
        let directory = entered
            .map_err(|error| self.failed(error.index, error.source))
            .and_then(|directory| {
                let another = directory.another();
                another.map_err(|source| self.failed(index, source))
            });
        self.directories = Some((at, directories));
        directory
    }

    /// Checks that a file is unchanged, or longer. A file that was written to after it was listed may
    /// match neither its old nor its new contents. A file that has become longer, such as a log,
    /// most likely still begins with what was listed. Returns whether it is longer.
    pub(super) fn check_unchanged(&self, index: u32, file: &File) -> Result<bool, ReadError> {
        let status = Status::of_file(file).map_err(|source| self.failed(index, source))?;
        match self.change(index, &status) {
            None => Ok(status.bytes > self.bytes(index)),
            Some(what) => Err(ReadError::Changed {
                path: self.path(index),
                what,
            }),
        }
    }

    /// Returns how a file differs from its listed state, if it does.
    fn change(&self, index: u32, status: &Status) -> Option<String> {
        let entry = self.manifest.entry(index)?;
        let id = self.id(index);
        let bytes = self.bytes(index);
        if status.kind != FileType::RegularFile {
            return Some("it is no file any more".into());
        }
        if id != Some(&status.id) {
            return Some("another file has taken its place".into());
        }
        if status.bytes < bytes {
            return Some(format!("{bytes} bytes became {}", status.bytes));
        }
        let is_longer = status.bytes > bytes;
        (!is_longer && status.modified != entry.modified).then(|| "it was written to".into())
    }

    /// Length of a file when it was listed.
    pub(super) fn bytes(&self, index: u32) -> u64 {
        let entry = self.manifest.entry(index);
        entry.map_or(0, |entry| entry.kind.length())
    }

    /// Identity of an entry when it was listed.
    fn id(&self, index: u32) -> Option<&Id> {
        self.ids.get(usize::try_from(index).ok()?)
    }

    pub(super) fn failed(&self, index: u32, source: io::Error) -> ReadError {
        ReadError::Io(PathError::new(self.path(index), source))
    }
}

/// Why the bytes of a file are useless.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The operating system returned an error.
    #[error("cannot read {0}")]
    Io(#[source] PathError),
    /// It has changed since it was listed.
    #[error("{path:?} changed while it was being sent: {what}")]
    Changed {
        /// The file.
        path: PathBuf,
        /// In what way.
        what: String,
    },
    /// Its length is not that of its contents.
    #[error(
        "{path:?} holds more than the {bytes} bytes it said, as files in /proc do; \
         send a copy of it"
    )]
    Longer {
        /// The file.
        path: PathBuf,
        /// The length in its metadata.
        bytes: u64,
    },
}
