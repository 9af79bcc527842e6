//! Makes files durable, gives them their final names, and gives their verdicts.

use std::fs::File;
use std::io;
use std::mem;
use std::sync::Arc;

use rustix::fs::FileType;

use super::{FileFailure, FileStep, Sink, SinkError, Verdict, is_full};
use crate::attributes::{Attribute, Attributes, Thing};
use crate::durable::{BATCH, Directories, sync_all};
use crate::final_name::Nameless::{self, Temporary, Unnamed};
use crate::links::NewLink;
use crate::part_file::Part;
use crate::part_name::PartName;
use crate::status::{Id, Status};

/// A file for which both the bytes and the sender's report have arrived.
#[derive(Debug)]
pub(super) enum Whole {
    /// It has the right hash, and its permissions and time.
    Part(Box<Part>),
    /// A symbolic link, with its time.
    Link(NewLink),
    /// Another name of a file that is before it.
    HardLink {
        first: u32,
    },
    /// The file is there already.
    Kept,
    /// The symbolic link is there already.
    KeptLink(Status),
    Failed(Box<FileFailure>),
}

impl Whole {
    pub(super) fn part_name(&self) -> Option<PartName> {
        match self {
            Self::Part(part) => part.name,
            _ => None,
        }
    }

    /// The temporary file, if it is open.
    pub(super) fn open_file(&self) -> Option<&File> {
        match self {
            Self::Part(part) => part.file.as_deref(),
            _ => None,
        }
    }
}

impl Sink {
    /// Returns how many files wait for [`Sink::commit`].
    #[must_use]
    pub fn uncommitted_files(&self) -> usize {
        self.whole.len()
    }

    /// Adds a file that waits for its verdict. Verdicts have the order of the files, so a file that
    /// failed waits too.
    pub(super) fn add_whole(&mut self, index: u32, whole: Whole) -> Result<(), SinkError> {
        self.whole.push_back((index, whole));
        let limit = if self.policy.sync { BATCH } else { 1 };
        if self.whole.len() >= limit {
            self.commit()?;
        }
        Ok(())
    }

    /// Gives a verdict on each file for which the bytes and the sender's report have arrived: makes
    /// the files durable, renames them, and makes their new names durable.
    ///
    /// # Errors
    /// [`SinkError::Full`], [`SinkError::Stopped`].
    pub fn commit(&mut self) -> Result<(), SinkError> {
        let mut full = None;
        self.sync_files(&mut full);
        let mut ended = Vec::new();
        let named = self.name_files(&mut ended, &mut full);
        self.sync_names(&mut ended);
        for verdict in &ended {
            match verdict.failure {
                None if verdict.is_kept => self.summary.kept_files += 1,
                None => {
                    self.summary.verified_files += 1;
                    self.summary.verified_bytes += self.manifest.stream_bytes_of(verdict.index);
                }
                Some(_) => self.summary.failed_files += 1,
            }
        }
        self.verdicts.extend(ended);
        self.is_full |= full.is_some();
        full.map_or(named, Err)
    }

    /// Syncs the files that wait. One that cannot be synced fails, since nobody knows what the disk
    /// has of it.
    fn sync_files(&mut self, full: &mut Option<SinkError>) {
        if !self.policy.sync {
            return;
        }
        let mut all = mem::take(&mut self.whole);
        let files = all.iter().filter_map(|(_, whole)| whole.open_file());
        let results = sync_all(&files.collect::<Vec<_>>());
        let synced = all.iter_mut().filter(|(_, it)| it.open_file().is_some());
        for ((index, whole), result) in synced.zip(results) {
            if let Err(errno) = result {
                self.remove(*index, whole.part_name());
                let failure = self.verdict(*index, FileStep::Sync, errno.into(), full);
                *whole = Whole::Failed(Box::new(failure));
            }
        }
        self.whole = all;
    }

    /// Gives files their final names. `ended` gets each file that has its name or failed.
    fn name_files(
        &mut self,
        ended: &mut Vec<Verdict>,
        full: &mut Option<SinkError>,
    ) -> Result<(), SinkError> {
        while let Some((index, whole)) = self.whole.pop_front() {
            let mut is_kept = matches!(whole, Whole::Kept | Whole::KeptLink(_));
            let hash = match &whole {
                Whole::Part(part) => Some(part.hash.into()),
                _ => None,
            };
            let failure = match whole {
                Whole::Failed(failure) => Some(*failure),
                Whole::Part(part) => {
                    let named = match (part.name, part.file.as_deref()) {
                        (None, Some(file)) => self.name(index, (Unnamed(file), part.id), full),
                        (name, _) => {
                            let name = name.map(PartName::bytes).unwrap_or_default();
                            self.name(index, (Temporary(&name), part.id), full)
                        }
                    };
                    if matches!(named, Err(SinkError::Stopped)) {
                        self.whole.push_front((index, Whole::Part(part)));
                    }
                    named?
                }
                Whole::Link(link) => self.name(index, (Temporary(&link.name), link.id), full)?,
                Whole::HardLink { first } => self.name_again(index, first, &mut is_kept, full)?,
                Whole::Kept => kept(self.keep(index)),
                Whole::KeptLink(status) => kept(self.keep_link(index, &status)),
            };
            ended.push(Verdict {
                index,
                failure,
                is_kept,
                hash,
            });
        }
        Ok(())
    }

    /// Notes that a symbolic link stays.
    fn keep_link(&mut self, index: u32, status: &Status) -> io::Result<Option<FileFailure>> {
        let is_kept = self.named.keep(index, self.tree.around(index)?, status)?;
        Ok((!is_kept).then_some(FileFailure::SameName))
    }

    /// A file has its name, and others may be further names of it.
    fn note_first(&mut self, index: u32, id: Id) {
        if self.manifest.has_other_names(index) {
            self.firsts.insert(index, id);
        }
    }

    /// Gives the attributes of the manifest to a file that was there already.
    fn keep(&mut self, index: u32) -> io::Result<Option<FileFailure>> {
        let manifest = Arc::clone(&self.manifest);
        let attributes = Attributes::of(&manifest, index, self.policy);
        let (Some(attributes), Some(status)) = (attributes, self.tree.still_there(index)?) else {
            return Ok(Some(FileFailure::Changed));
        };
        let around = self.tree.around(index)?;
        if !self.named.keep(index, around, &status)? {
            return Ok(Some(FileFailure::SameName));
        }
        let is_dressed = status.mode == attributes.mode
            && self.tree.has_time(index, &status)
            && attributes.owner.is_none_or(|owner| owner == status.owner)
            && attributes.xattrs.is_empty();
        if !is_dressed {
            let path = self.tree.path(index);
            let around = self.tree.around(index)?;
            let name = manifest.name(index);
            match around.open_to_read(name) {
                Ok(file) if Status::of_file(&file)?.id != status.id => {
                    return Ok(Some(FileFailure::Changed));
                }
                Ok(file) => {
                    let path = || path.clone();
                    self.warnings.set(&file, Thing::File, &attributes, path)?;
                }
                Err(source) => {
                    let path = || path;
                    self.warnings
                        .add(Attribute::Permissions, Thing::File, path, source);
                }
            }
        }
        self.note_first(index, status.id);
        Ok(None)
    }

    /// Makes another name of a file.
    fn name_again(
        &mut self,
        index: u32,
        first: u32,
        is_kept: &mut bool,
        full: &mut Option<SinkError>,
    ) -> Result<Option<FileFailure>, SinkError> {
        let Some(id) = self.firsts.get(&first).copied() else {
            return Ok(Some(FileFailure::NoFirst));
        };
        match self.make_hard_link(index, first, id) {
            Ok(Some(link)) => self.name(index, (Temporary(&link.name), id), full),
            Ok(None) => {
                *is_kept = true;
                Ok(None)
            }
            Err(source) => Ok(Some(self.verdict(index, FileStep::Link, source, full))),
        }
    }

    /// Makes a hard link under a temporary name; `None` if its final name leads to the file already.
    fn make_hard_link(&mut self, index: u32, first: u32, id: Id) -> io::Result<Option<NewLink>> {
        let manifest = Arc::clone(&self.manifest);
        let name_of = |index| manifest.name(index);
        let beside_first = self.tree.around(first)?.another()?;
        let around = self.tree.around(index)?;
        let there = around.look(name_of(index))?;
        if there.is_some_and(|there| there.id == id) {
            return Ok(None);
        }
        NewLink::hard(around, (&beside_first, name_of(first)), id).map(Some)
    }

    /// Gives a temporary file or link its final name, or removes it.
    fn name(
        &mut self,
        index: u32,
        (from, id): (Nameless<'_>, Id),
        full: &mut Option<SinkError>,
    ) -> Result<Option<FileFailure>, SinkError> {
        let failure = match self.give_name(index, from, id) {
            Ok(Some(Ok(()))) => {
                self.note_first(index, id);
                return Ok(None);
            }
            Ok(Some(Err(failure))) => failure,
            Ok(None) => {
                // A later transfer goes on with a file that has a lasting name.
                if !from.lasts() {
                    self.discard(index, from);
                }
                return Err(SinkError::Stopped);
            }
            Err(source) => self.verdict(index, FileStep::Name, source, full),
        };
        self.discard(index, from);
        Ok(Some(failure))
    }

    /// Removes the temporary name. A file without one is gone when it is closed.
    fn discard(&mut self, index: u32, from: Nameless<'_>) {
        if let Temporary(name) = from {
            self.remove_name(index, name);
        }
    }

    /// Returns the verdict on a file that cannot be completed. If the disk is full, the transfer ends
    /// after this commit, so `full` gets the error. The other files of the commit still get their
    /// verdicts: the sender expects one for each file, in order.
    fn verdict(
        &self,
        index: u32,
        tried: FileStep,
        source: io::Error,
        full: &mut Option<SinkError>,
    ) -> FileFailure {
        if is_full(&source) {
            let copy = source
                .raw_os_error()
                .map_or_else(|| source.kind().into(), io::Error::from_raw_os_error);
            let path = self.tree.path(index);
            full.get_or_insert(SinkError::Full { path, source: copy });
        }
        FileFailure::Io { tried, source }
    }

    /// Gives a file its final name; `None` if the gate is closed.
    fn give_name(
        &mut self,
        index: u32,
        from: Nameless<'_>,
        id: Id,
    ) -> io::Result<Option<Result<(), FileFailure>>> {
        let manifest = Arc::clone(&self.manifest);
        let entry = manifest.entry(index).ok_or(io::ErrorKind::NotFound)?;
        let around = self.tree.around(index)?;
        let there = around.look(entry.name)?;
        if there.is_some_and(|there| there.kind == FileType::Directory) {
            if self.named.aliases.is_shared(index, around)? {
                return Ok(Some(Err(FileFailure::SameName)));
            }
            if !self.tree.replace(index, entry.name, &self.gate)? {
                return Ok(self.gate.pass().map(|_| Err(FileFailure::InTheWay)));
            }
        }
        let Some(_pass) = self.gate.pass() else {
            return Ok(None);
        };
        let directory = self.tree.around(index)?;
        let given = self.named.give(directory, from, (index, entry.name), id)?;
        Ok(Some(given.then_some(()).ok_or(FileFailure::SameName)))
    }

    /// Syncs the directories in which files got their names.
    fn sync_names(&mut self, ended: &mut [Verdict]) {
        if !self.policy.sync {
            return;
        }
        let manifest = Arc::clone(&self.manifest);
        let parent_of = move |index| manifest.entry(index).and_then(|entry| entry.parent);
        let mut directories = Directories::new();
        let mut failures = Vec::new();
        let new = ended
            .iter()
            .filter(|end| end.failure.is_none() && !end.is_kept);
        for end in new {
            let around = self.tree.around(end.index).map_err(io::Error::from);
            let parent = parent_of(end.index);
            if let Err(source) = around.and_then(|around| directories.add(parent, around)) {
                failures.push((parent, source));
            }
        }
        failures.extend(directories.sync());
        for (parent, source) in failures {
            let kind = source.kind();
            let text = source.to_string();
            for end in ended.iter_mut() {
                if end.failure.is_none() && !end.is_kept && parent_of(end.index) == parent {
                    end.failure = Some(FileFailure::Io {
                        tried: FileStep::SyncName,
                        source: io::Error::new(kind, text.clone()),
                    });
                }
            }
        }
    }
}

/// Why a file does not stay, if it does not.
fn kept(tried: io::Result<Option<FileFailure>>) -> Option<FileFailure> {
    let failed = |source| FileFailure::Io {
        tried: FileStep::Keep,
        source,
    };
    tried.unwrap_or_else(|source| Some(failed(source)))
}
