//! The receiver's directory and those below it, each reached from the one around it.

use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use super::directory::Directory;
use super::{Entry, Kind, Manifest, SinkError};

/// The directory that everything goes into, and a path of open directories down from it.
#[derive(Debug)]
pub(super) struct Tree {
    root: Directory,
    root_path: PathBuf,
    /// Directories that are open, by number of their entry, each in the one before. A manifest
    /// bounds the depth, and so the open files.
    open: Vec<(u32, Directory)>,
}

impl Tree {
    /// Opens a directory that is there.
    pub(super) fn open(root: &Path) -> Result<Self, SinkError> {
        let directory = Directory::open(root).map_err(|source| SinkError::Io {
            tried: "open",
            path: root.into(),
            source,
        })?;
        Ok(Self {
            root: directory,
            root_path: root.into(),
            open: Vec::new(),
        })
    }

    /// Path of an entry, for people.
    pub(super) fn path(&self, manifest: &Manifest, index: u32) -> PathBuf {
        self.root_path.join(manifest.path(index))
    }

    /// Makes all directories of a manifest, and checks that no directory has the name of a file.
    pub(super) fn prepare(&mut self, manifest: &Manifest) -> Result<(), SinkError> {
        for (index, entry) in (0..).zip(manifest.entries()) {
            let directory = self.enter(manifest, entry.parent)?;
            let prepared = match entry.kind {
                Kind::Directory => directory.make(&entry.name),
                Kind::File { .. } => match directory.kind(&entry.name) {
                    Ok(Some(FileType::Directory)) => {
                        return Err(SinkError::InTheWay {
                            path: self.path(manifest, index),
                        });
                    }
                    looked => looked.map(drop),
                },
            };
            prepared.map_err(|source| self.failed("prepare", manifest, index, source))?;
        }
        Ok(())
    }

    /// The directory of an entry, or the outermost.
    pub(super) fn enter(
        &mut self,
        manifest: &Manifest,
        index: Option<u32>,
    ) -> Result<&Directory, SinkError> {
        let mut wanted = manifest.lineage(index);
        wanted.reverse();
        let open = self.open.iter().map(|(index, _)| index);
        let shared = open.zip(&wanted).take_while(|(a, b)| a == b).count();
        self.open.truncate(shared);
        for &index in &wanted[shared..] {
            let name = manifest.get(index).map_or(&[][..], |entry| &entry.name);
            let entered = self.innermost().enter(name);
            let directory =
                entered.map_err(|source| self.failed("enter", manifest, index, source))?;
            self.open.push((index, directory));
        }
        Ok(self.innermost())
    }

    /// Gives all directories their permissions and times, innermost first: putting something into a
    /// directory changes its time.
    pub(super) fn dress(&mut self, manifest: &Manifest) -> Result<(), SinkError> {
        let entries = (0..)
            .zip(manifest.entries())
            .collect::<Vec<(u32, &Entry)>>();
        for (index, entry) in entries.into_iter().rev() {
            if entry.kind == Kind::Directory {
                let directory = self.enter(manifest, Some(index))?;
                let dressed = directory.dress(entry.mode, entry.modified);
                dressed.map_err(|source| {
                    self.failed("set permissions and time of", manifest, index, source)
                })?;
            }
        }
        Ok(())
    }

    /// An error of the operating system about an entry.
    pub(super) fn failed(
        &self,
        tried: &'static str,
        manifest: &Manifest,
        index: u32,
        source: std::io::Error,
    ) -> SinkError {
        SinkError::Io {
            tried,
            path: self.path(manifest, index),
            source,
        }
    }

    fn innermost(&self) -> &Directory {
        self.open
            .last()
            .map_or(&self.root, |(_, directory)| directory)
    }
}
