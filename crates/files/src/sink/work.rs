//! Operations of a sink on a single file.

use std::io;
use std::sync::Arc;

use super::commit::Whole;
use super::{FileFailure, FileStep, SenderReport, Sink, SinkError, is_full};
use crate::Kind;
use crate::attributes::{Attribute, Attributes, Thing, set_link_owner, set_link_time};
use crate::directory::Directory;
use crate::in_use::{InUse, Wanted};
use crate::links::NewLink;
use crate::locked_file::LockedFile;
use crate::manifest::FileEntry;
use crate::part_file::{OpenPart, Part};
use crate::part_name::{PartName, new_name_of};
use crate::quota::NAME_BYTES;

/// The file whose bytes come next.
#[derive(Debug)]
pub(super) struct Current {
    pub(super) index: u32,
    pub(super) taken_bytes: u64,
    state: WorkState,
}

#[derive(Debug)]
enum WorkState {
    /// No byte has arrived, and nothing is on the disk.
    New,
    Open(Box<OpenPart>),
    /// Further bytes are discarded.
    Failed(FileFailure),
}

/// The state of a file whose bytes have all arrived.
#[derive(Debug)]
pub(super) enum Written {
    /// It has no bytes, or it is a link. The sink makes it when its hash arrives, so a million empty
    /// files that wait for their hashes take no room on the disk.
    Empty,
    Part(Box<Part>),
    Failed(Box<FileFailure>),
}

impl Current {
    pub(super) fn new(file: FileEntry) -> Self {
        Self {
            index: file.index,
            taken_bytes: 0,
            state: WorkState::New,
        }
    }

    /// The temporary file, while it is open.
    pub(super) fn open_part(&mut self) -> Option<&mut OpenPart> {
        match &mut self.state {
            WorkState::Open(part) => Some(part),
            WorkState::New | WorkState::Failed(_) => None,
        }
    }

    pub(super) fn part_name(&self) -> Option<PartName> {
        match &self.state {
            WorkState::Open(part) => part.name,
            WorkState::New | WorkState::Failed(_) => None,
        }
    }
}

impl Written {
    /// Closes the temporary file, which releases its lock, under a name by which no later transfer resumes it. If
    /// it cannot get that name, it stays open.
    pub(super) fn unlock(&mut self, around: &Directory, by: &Wanted) {
        let Self::Part(part) = self else {
            return;
        };
        if part.name.is_none_or(|name| name.source().is_some()) {
            let Ok((random, _)) = new_name_of() else {
                return;
            };
            let name = PartName::new(random, part.id);
            let named = match (part.name, part.file.as_deref()) {
                (Some(former), _) => around.rename(&former.bytes(), &name.bytes()),
                (None, Some(file)) => around.link(file, &name.bytes()).map_err(Into::into),
                (None, None) => Err(io::ErrorKind::NotFound.into()),
            };
            if named.is_err() {
                return;
            }
            part.name = Some(name);
        }
        part.in_use = Some(InUse::begin(part.id, by));
        part.file = None;
    }

    pub(super) fn part_name(&self) -> Option<PartName> {
        match self {
            Self::Part(part) => part.name,
            Self::Empty | Self::Failed(_) => None,
        }
    }
}

impl Sink {
    pub(super) fn take(&mut self, current: &mut Current, bytes: &[u8]) -> Result<(), SinkError> {
        current.taken_bytes += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if let WorkState::New = current.state {
            current.state = self.begin(current.index)?;
        }
        if let WorkState::Open(part) = &mut current.state {
            let written = part
                .write(bytes)
                .map_err(|source| (FileStep::Write, source));
            let kept = written.and_then(|()| {
                let around = self.tree.around(current.index).map_err(io::Error::from);
                let kept = around.and_then(|around| part.keep(around));
                kept.map_err(|source| (FileStep::Sync, source))
            });
            if let Err((step, source)) = kept {
                let name = part.name;
                self.remove(current.index, name);
                current.state = WorkState::Failed(self.failure(current.index, step, source)?);
            }
        }
        Ok(())
    }

    fn begin(&mut self, index: u32) -> Result<WorkState, SinkError> {
        Ok(match self.create(index) {
            Ok(part) => WorkState::Open(Box::new(part)),
            Err(source) => WorkState::Failed(self.failure(index, FileStep::Create, source)?),
        })
    }

    /// Finishes the writing of a file whose bytes have all arrived.
    pub(super) fn end_writing(&mut self, whole: Current) -> Result<Written, SinkError> {
        let index = whole.index;
        let state = match whole.state {
            // All that has come of it is a hole.
            WorkState::New if self.goes_on(index) => self.begin(index)?,
            state => state,
        };
        Ok(match state {
            WorkState::New => Written::Empty,
            WorkState::Open(part) => match self.end_part(index, *part)? {
                Ok(part) => Written::Part(Box::new(part)),
                Err(failure) => Written::Failed(Box::new(failure)),
            },
            WorkState::Failed(failure) => Written::Failed(Box::new(failure)),
        })
    }

    fn end_part(
        &mut self,
        index: u32,
        part: OpenPart,
    ) -> Result<Result<Part, FileFailure>, SinkError> {
        let name = part.name;
        match part.end() {
            Ok(part) => Ok(Ok(part)),
            Err(source) => {
                self.remove(index, name);
                self.failure(index, FileStep::Write, source).map(Err)
            }
        }
    }

    /// Ends a file for which both the bytes and the sender's report have arrived.
    pub(super) fn end_file(
        &mut self,
        index: u32,
        written: Written,
        claim: SenderReport,
    ) -> Result<(), SinkError> {
        let kept = self.tree.keep_reserve(NAME_BYTES);
        self.is_full |= kept.is_err();
        kept?;
        let whole = match (written, claim) {
            (Written::Failed(failure), _) => Whole::Failed(failure),
            (written, SenderReport::Abandoned { reason, .. }) => {
                self.remove(index, written.part_name());
                Whole::Failed(Box::new(FileFailure::Abandoned { reason }))
            }
            // The sink has counted no bytes for it.
            (_, SenderReport::Same) => Whole::Kept,
            (Written::Part(part), SenderReport::Hash(want)) => self.check(index, *part, want)?,
            (Written::Empty, SenderReport::Hash(want)) => self.end_empty(index, want)?,
        };
        self.add_whole(index, whole)
    }

    /// Makes a file without bytes, or a symbolic link. A hard link is made when its file has its name.
    fn end_empty(&mut self, index: u32, want: blake3::Hash) -> Result<Whole, SinkError> {
        let manifest = Arc::clone(&self.manifest);
        let created = match manifest.entry(index).map(|entry| entry.kind) {
            Some(Kind::Symlink { target }) if blake3::hash(target) == want => {
                if let Some(status) = self.tree.same_link(index, target) {
                    return Ok(Whole::KeptLink(status));
                }
                match self.create_symlink(index, target) {
                    Ok(link) => return Ok(Whole::Link(link)),
                    Err(source) => Err(source),
                }
            }
            Some(Kind::HardLink { first }) => return Ok(Whole::HardLink { first }),
            Some(Kind::Symlink { target }) => {
                let came = blake3::hash(target);
                return Ok(Whole::Failed(Box::new(FileFailure::Hash { came, want })));
            }
            _ => self.create(index),
        };
        match created {
            Ok(part) => match self.end_part(index, part)? {
                Ok(part) => self.check(index, part, want),
                Err(failure) => Ok(Whole::Failed(Box::new(failure))),
            },
            Err(source) => {
                let failure = self.failure(index, FileStep::Create, source)?;
                Ok(Whole::Failed(Box::new(failure)))
            }
        }
    }

    /// Makes a symbolic link under a temporary name, and sets its owner and time.
    fn create_symlink(&mut self, index: u32, target: &[u8]) -> io::Result<NewLink> {
        let modified = self.manifest.entry(index).map(|entry| entry.modified);
        let owner = self.manifest.owner(index).filter(|_| self.policy.owners);
        let path = self.tree.path(index);
        let around = self.tree.around(index)?;
        let link = NewLink::symbolic(around, target)?;
        let owned = owner.map_or(Ok(()), |owner| set_link_owner(around, &link.name, owner));
        let timed = modified.map_or(Ok(()), |time| set_link_time(around, &link.name, time));
        if let (Ok(()), Some(time)) = (timed, modified)
            && let Some(status) = around.look(&link.name)?
        {
            let times = (time, status.modified);
            self.warnings
                .check_time(Thing::Link, times, || path.clone());
        }
        for (attribute, answer) in [(Attribute::Owner, owned), (Attribute::Time, timed)] {
            if let Err(errno) = answer {
                let path = || path.clone();
                self.warnings
                    .add(attribute, Thing::Link, path, errno.into());
            }
        }
        Ok(link)
    }

    /// The names of all temporary files, without those of links.
    pub(super) fn part_names(&self) -> impl Iterator<Item = (u32, PartName)> {
        let current = self.current.iter();
        let current = current.filter_map(|it| Some((it.index, it.part_name()?)));
        let written = self.written.iter();
        let written = written.filter_map(|(index, it)| Some((*index, it.part_name()?)));
        let whole = self.whole.iter();
        let whole = whole.filter_map(|(index, it)| Some((*index, it.part_name()?)));
        current.chain(written).chain(whole)
    }

    /// Removes the temporary file of an entry. If this fails, the file is unlocked soon and the
    /// next receiver removes it. One without a name is gone when it is closed.
    pub(super) fn remove(&mut self, index: u32, name: Option<PartName>) {
        if let Some(name) = name {
            self.remove_name(index, &name.bytes());
        }
    }

    /// Removes a temporary file or link.
    pub(super) fn remove_name(&mut self, index: u32, name: &[u8]) {
        if let Ok(directory) = self.tree.around(index) {
            let _ = directory.remove(name);
        }
    }

    /// Sets the attributes of a file if it has the right hash. Otherwise removes it.
    fn check(
        &mut self,
        index: u32,
        mut part: Part,
        want: blake3::Hash,
    ) -> Result<Whole, SinkError> {
        let name = part.name;
        let failure = if part.hash == want {
            match self.set_attributes(index, &mut part) {
                Ok(()) => return Ok(Whole::Part(Box::new(part))),
                Err(source) => self.failure(index, FileStep::Name, source),
            }
        } else {
            let came = part.hash;
            Ok(FileFailure::Hash { came, want })
        };
        self.remove(index, name);
        Ok(Whole::Failed(Box::new(failure?)))
    }

    /// Sets the attributes of a file. The file is open then.
    fn set_attributes(&mut self, index: u32, part: &mut Part) -> io::Result<()> {
        let manifest = Arc::clone(&self.manifest);
        let attributes = Attributes::of(&manifest, index, self.policy);
        let attributes = attributes.ok_or(io::ErrorKind::NotFound)?;
        let file = match part.file.take() {
            Some(file) => file,
            None => {
                let directory = self.tree.around(index)?;
                let name = part.name.ok_or(io::ErrorKind::NotFound)?;
                // The file waits for the commit.
                LockedFile::if_possible(directory.open_to_change(&name.bytes())?)
            }
        };
        let path = || self.tree.path(index);
        self.warnings.set(&*file, Thing::File, &attributes, path)?;
        part.file = Some(file);
        Ok(())
    }

    /// Classifies an error of the operating system.
    pub(super) fn failure(
        &self,
        index: u32,
        tried: FileStep,
        source: io::Error,
    ) -> Result<FileFailure, SinkError> {
        if is_full(&source) {
            let path = self.tree.path(index);
            return Err(SinkError::Full { path, source });
        }
        Ok(FileFailure::Io { tried, source })
    }
}

impl Drop for Sink {
    /// Removes files without a final name, except those that a later transfer can go on with, before they are closed and
    /// unlocked. The directories get their modes back after this.
    fn drop(&mut self) {
        let _ = self.keep_parts();
        let parts = self.part_names();
        let parts = parts.filter(|(_, name)| name.source().is_none() || self.is_full);
        let parts = parts.map(|(index, name)| (index, name.bytes()));
        let links = self.whole.iter().filter_map(|(index, whole)| match whole {
            Whole::Link(link) => Some((*index, link.name.clone())),
            _ => None,
        });
        for (index, name) in parts.chain(links).collect::<Vec<_>>() {
            self.remove_name(index, &name);
        }
    }
}
