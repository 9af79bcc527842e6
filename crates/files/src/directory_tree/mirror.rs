//! Removes what is only at the receiver (P8.7).

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FileType;

use super::DirectoryTree;
use crate::aliases::ByName;
use crate::attributes::Warnings;
use crate::extra::{Extra, Removal, find, walk};
use crate::identities::Identities;
use crate::{CommitGate, Compare, EntryRef, Preview, SinkError};

impl DirectoryTree {
    /// Checks, before anything is removed, that not more would be removed than is allowed, if something is in the way
    /// of a file or a directory and has to go first.
    pub(super) fn check_replaced(&self) -> Result<(), SinkError> {
        let order = self
            .delete
            .and_then(|order| Some((order, u64::from(order.max?))));
        let Some((order, most)) = order else {
            return Ok(());
        };
        let manifest = Arc::clone(&self.manifest);
        // What cannot be read here is an error where it is needed.
        let Ok(mut preview) = Preview::look(&self.root_path, manifest, Compare::Nothing) else {
            return Ok(());
        };
        if !preview.replaces() {
            return Ok(());
        }
        match preview.tell_extra(order, &mut |_| Ok(()))? {
            count if count > most => Err(SinkError::TooMuchToReplace { count, most }),
            _ => Ok(()),
        }
    }

    /// Makes the directory of an entry whose name is taken. Returns whether it is new; `None` if something that is no
    /// directory has the name, and stays.
    pub(super) fn make_instead(
        &mut self,
        index: u32,
        entry: &EntryRef<'_>,
        identities: &mut Identities,
    ) -> io::Result<Option<bool>> {
        let around = self.around(index)?;
        match around.look(entry.name)? {
            Some(there) if there.kind == FileType::Directory => return Ok(Some(false)),
            None => {}
            // It may be what another entry shall be.
            Some(_) if identities.aliases.is_shared(index, around)? => return Ok(None),
            Some(_) if !self.may_replace(1) => return Ok(None),
            Some(_) => {
                self.around(index)?.remove(entry.name)?;
                self.removed += 1;
            }
        }
        self.around(index)?.make(entry.name).map(Some)
    }

    /// Removes a directory that has the name of a file or link, which is about to get it. Returns `false` if it stays.
    pub(crate) fn replace(
        &mut self,
        index: u32,
        name: &[u8],
        gate: &CommitGate,
    ) -> io::Result<bool> {
        let path = self.path(index);
        let mut count = 0;
        let around = self.around(index)?;
        walk(around, Path::new(""), name, &mut |_| {
            count += 1;
            Ok(())
        })?;
        if !self.may_replace(count) {
            return Ok(false);
        }
        let mut removal = Removal::default();
        removal.remove(self.around(index)?, name, &path, gate);
        self.removed += removal.removed;
        match removal.failed {
            None => Ok(true),
            Some((_, source)) => Err(source),
        }
    }

    /// Whether so many files and directories may be removed in addition.
    fn may_replace(&self, count: u64) -> bool {
        let most = self
            .delete
            .map(|order| order.max.map_or(u64::MAX, u64::from));
        most.is_some_and(|most| self.removed.saturating_add(count) <= most)
    }

    /// How many files and directories were removed.
    pub(crate) fn removed(&self) -> u32 {
        u32::try_from(self.removed).unwrap_or(u32::MAX)
    }

    /// Returns the path of a directory that cannot exist, because something else has its name.
    pub(crate) fn poll_unmade(&mut self) -> Option<PathBuf> {
        let index = self.unmade.pop_front()?;
        Some(self.manifest.path(index))
    }

    /// Removes what is in directories of the manifest and not in the manifest, if the sender wants that, and if all
    /// directories exist.
    pub(crate) fn remove_extra(
        &mut self,
        gate: &CommitGate,
        warnings: &mut Warnings,
    ) -> Result<(), SinkError> {
        let Some(order) = self.delete.filter(|_| self.blocked.is_empty()) else {
            return Ok(());
        };
        let manifest = Arc::clone(&self.manifest);
        let listed = ByName::new(&manifest);
        let directories = (0..).zip(manifest.entries());
        let directories = directories.filter(|(_, entry)| entry.kind.is_directory());
        let directories = directories.map(|(index, _)| Some(index));
        let top = order.top.then_some(None);
        let parents = top.into_iter().chain(directories);
        let root_path = self.root_path.clone();
        let path_of = |parent: Option<u32>| match parent {
            Some(index) => root_path.join(manifest.path(index)),
            None => root_path.clone(),
        };
        let failed = |(parent, source)| SinkError::Delete {
            path: path_of(parent),
            removed: 0,
            source,
        };
        let told = (warnings, path_of);
        let extra = find(&mut self.directories, &listed, parents, told).map_err(failed)?;
        let mut sum = self.removed;
        for Extra { parent, name } in &extra {
            let entered = self.directories.enter(&manifest, *parent);
            let counted = entered.map_err(io::Error::from).and_then(|directory| {
                walk(directory, Path::new(""), name, &mut |_| {
                    sum += 1;
                    Ok(())
                })
            });
            counted.map_err(|source| failed((*parent, source)))?;
        }
        if let Some(most) = order.max
            && sum > u64::from(most)
        {
            return Err(SinkError::TooMuchToDelete { count: sum, most });
        }
        let mut removal = Removal::default();
        for Extra { parent, name } in extra {
            let path = path_of(parent).join(OsStr::from_bytes(&name));
            match self.directories.enter(&manifest, parent) {
                Ok(directory) => removal.remove(directory, &name, &path, gate),
                Err(error) => removal.fail(&path, error.into()),
            }
        }
        let Removal { removed, failed } = removal;
        self.removed += removed;
        match failed {
            None => Ok(()),
            Some((path, source)) => Err(SinkError::Delete {
                path,
                removed,
                source,
            }),
        }
    }
}
