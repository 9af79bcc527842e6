//! What a transfer would find and remove at the receiver, without a change there (P8.9).

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FileType;

use super::aliases::ByName;
use super::attributes::Warnings;
use super::compare::Comparer;
use super::directory::Directory;
use super::extra::{Extra, find, walk};
use super::identities::Identities;
use super::open_directories::OpenDirectories;
use super::status::Id;
use super::{Compare, Delete, EntryRef, Kind, Manifest, PathError, Present, SinkError, Warning};

/// Looks at the receiver's directory as a [`Sink`](super::Sink) would, but only reads.
#[derive(Debug)]
pub struct Preview {
    manifest: Arc<Manifest>,
    root_path: PathBuf,
    directories: OpenDirectories,
    present: Vec<Present>,
    /// The present files that have other names in the manifest.
    firsts: HashMap<u32, Id>,
    /// The directories of the manifest that exist.
    there: HashSet<u32>,
    comparer: Comparer,
    /// Entries whose names have something of another kind, which they would replace.
    in_the_way: Vec<u32>,
    warnings: Warnings,
    identities: Identities,
}

impl Preview {
    /// Looks for everything in a manifest, in an existing directory.
    ///
    /// # Errors
    /// Those with which a transfer would end before its first byte: [`SinkError::Open`], [`SinkError::Prepare`],
    /// [`SinkError::SameDirectory`] of directories that exist. Room, quota, and whether this end may write are not checked.
    pub fn look(root: &Path, manifest: Arc<Manifest>, compare: Compare) -> Result<Self, SinkError> {
        let opened = Directory::open(root);
        let directory = opened.map_err(|error| SinkError::Open(PathError::new(root, error)))?;
        let mut preview = Self {
            manifest: Arc::clone(&manifest),
            root_path: root.into(),
            directories: OpenDirectories::new(directory, None),
            present: Vec::new(),
            firsts: HashMap::new(),
            there: HashSet::new(),
            // Nothing may change here.
            comparer: Comparer::new(compare, false),
            in_the_way: Vec::new(),
            warnings: Warnings::default(),
            identities: Identities::new(&manifest),
        };
        for (index, entry) in (0..).zip(manifest.entries()) {
            if entry.parent.is_some_and(|it| !preview.there.contains(&it)) {
                continue;
            }
            let looked = match entry.kind {
                Kind::Directory => preview.look_into(index, &entry),
                _ => preview.look_at(index, &entry),
            };
            looked?;
        }
        Ok(preview)
    }

    /// Returns the files and links that the receiver already has, in ascending order of their entries.
    #[must_use]
    pub fn present(&self) -> &[Present] {
        &self.present
    }

    /// Whether an entry has the name of something of another kind, which it would replace.
    pub(super) fn replaces(&self) -> bool {
        !self.in_the_way.is_empty()
    }

    /// Returns what a user should know about the answer.
    pub fn poll_warning(&mut self) -> Option<Warning> {
        self.warnings.poll()
    }

    /// Calls `tell` with each path that `order` would remove, relative to the receiver's directory. A directory comes
    /// before what is in it, and its path ends with `/`. Returns the number of paths.
    ///
    /// # Errors
    /// [`SinkError::Extra`] if a directory cannot be read, or with an error of `tell`.
    pub fn tell_extra(
        &mut self,
        order: Delete,
        tell: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<u64, SinkError> {
        let manifest = Arc::clone(&self.manifest);
        let listed = ByName::new(&manifest);
        let mut parents: Vec<_> = self.there.iter().map(|index| Some(*index)).collect();
        parents.extend(order.top.then_some(None));
        parents.sort_unstable();
        let root_path = &self.root_path;
        let path = |parent: Option<u32>| parent.map_or_else(PathBuf::new, |it| manifest.path(it));
        let failed = |(parent, source)| {
            SinkError::Extra(PathError::new(root_path.join(path(parent)), source))
        };
        let mut count = 0;
        let shown = |parent| root_path.join(path(parent));
        let told = (&mut self.warnings, shown);
        let extra = find(&mut self.directories, &listed, parents, told).map_err(failed)?;
        let in_the_way = self.in_the_way.iter().filter_map(|it| manifest.entry(*it));
        let in_the_way = in_the_way.map(|entry| Extra {
            parent: entry.parent,
            name: entry.name.to_vec(),
        });
        for Extra { parent, name } in in_the_way.chain(extra) {
            let entered = self.directories.enter(&manifest, parent);
            let told = entered.map_err(io::Error::from).and_then(|directory| {
                walk(directory, &path(parent), &name, &mut |path| {
                    count += 1;
                    tell(path)
                })
            });
            told.map_err(|source| failed((parent, source)))?;
        }
        Ok(count)
    }

    /// Looks whether a directory of the manifest exists.
    fn look_into(&mut self, index: u32, entry: &EntryRef<'_>) -> Result<(), SinkError> {
        let entered = self.directories.enter(&self.manifest, Some(index));
        let status = entered.map_err(io::Error::from).and_then(Directory::status);
        let status = match status {
            Ok(status) => status,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(_) if self.is_no_directory(entry) => {
                self.in_the_way.push(index);
                return Ok(());
            }
            Err(source) => return Err(self.failed(index, source)),
        };
        let around = self.directories.enter(&self.manifest, entry.parent);
        let added = around.map_err(io::Error::from).and_then(|around| {
            let identities = &mut self.identities;
            identities.add(status.id, index, Some(around))
        });
        if let Some(first) = added.map_err(|source| self.failed(index, source))? {
            return Err(SinkError::SameDirectory {
                first: self.root_path.join(first),
                second: self.root_path.join(self.manifest.path(index)),
            });
        }
        self.there.insert(index);
        Ok(())
    }

    /// Whether something that is no directory has the name of an entry.
    fn is_no_directory(&mut self, entry: &EntryRef<'_>) -> bool {
        let around = self.directories.enter(&self.manifest, entry.parent);
        let there = around.ok().and_then(|it| it.look(entry.name).ok()?);
        there.is_some_and(|it| it.kind != FileType::Directory)
    }

    /// Looks what has the name of a file or link.
    fn look_at(&mut self, index: u32, entry: &EntryRef<'_>) -> Result<(), SinkError> {
        let around = self.directories.enter(&self.manifest, entry.parent);
        let looked = around
            .map_err(io::Error::from)
            .and_then(|around| Ok((around.look(entry.name)?, around)));
        let (status, around) = match looked {
            Ok((Some(status), around)) => (status, around),
            Ok((None, _)) => return Ok(()),
            Err(source) => return Err(self.failed(index, source)),
        };
        if status.kind == FileType::Directory {
            self.in_the_way.push(index);
            return Ok(());
        }
        let comparer = &mut self.comparer;
        let is_there = match entry.kind {
            Kind::Symlink { target } => {
                status.kind == FileType::Symlink
                    && around.read_link(entry.name).is_ok_and(|it| it == target)
                    && comparer.has_time(entry, &status, around)
            }
            Kind::HardLink { first } => self.firsts.get(&first) == Some(&status.id),
            _ => comparer.may_be_same(entry, &status, around),
        };
        if comparer.compare == Compare::Time && is_there {
            let hash = None;
            self.present.push(Present { entry: index, hash });
            if self.manifest.has_other_names(index) {
                self.firsts.insert(index, status.id);
            }
        }
        Ok(())
    }

    fn failed(&self, index: u32, source: io::Error) -> SinkError {
        let path = self.root_path.join(self.manifest.path(index));
        SinkError::Prepare(PathError { path, source })
    }
}
