//! The receiver's directory and those below it.

mod mirror;
mod room;

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FileType;

use super::attributes::{Attribute, Attributes, Thing, Warnings, set_mode};
use super::compare::Comparer;
use super::directory::Directory;
use super::durable::{Directories, sync_around};
use super::free_space::FreeSpaceWatch;
use super::identities::Identities;
use super::interrupted::{InterruptedFiles, remove_leftovers};
use super::open_directories::{EnterError, OpenDirectories};
use super::partial::SourceId;
use super::sink::is_full;
use super::status::{Id, Status};
use super::{
    Compare, Delete, EntryRef, Kind, Manifest, PathError, Policy, Present, SinkError, Time,
};
pub(super) use room::check_reserve;

/// The directory that receives everything, and the directories of a manifest in it.
///
/// During the transfer, each directory is open to its owner. If the tree is dropped before
/// [`DirectoryTree::dress`], existing directories get back their previous mode, and new directories get the
/// mode of the manifest.
#[derive(Debug)]
pub(super) struct DirectoryTree {
    manifest: Arc<Manifest>,
    policy: Policy,
    directories: OpenDirectories,
    root_path: PathBuf,
    room: FreeSpaceWatch,
    comparer: Comparer,
    /// The files that the receiver has already, in ascending order of their numbers.
    pub(super) present: Vec<Present>,
    /// What the files were whose bytes were hashed, and when they had changed last.
    hashed: HashMap<u32, (Id, Time)>,
    /// What the sender wants to be removed, if this end allows that.
    delete: Option<Delete>,
    /// Files and directories that were removed: what had the name of something of another kind, and what the sender
    /// does not have.
    removed: u64,
    /// Directories that cannot exist, because something else has the name, and the outermost of them.
    blocked: HashSet<u32>,
    unmade: VecDeque<u32>,
    /// The files of interrupted transfers to go on with.
    pub(super) interrupted: InterruptedFiles,
    /// The modes that directories get if the transfer fails, sorted by the number of their entry.
    modes_after_failure: Vec<(u32, u16)>,
}

impl DirectoryTree {
    /// Makes all directories of a manifest in an existing one, if there is room for its files. Checks that the files
    /// can get names. Removes the leftovers of killed receivers from directories that existed before, and, for `delete`,
    /// what has the name of a directory and is none.
    pub(super) fn prepare(
        root: &Path,
        manifest: Arc<Manifest>,
        policy: Policy,
        (compare, delete): (Compare, Option<Delete>),
    ) -> Result<Self, SinkError> {
        let opened = Directory::open(root);
        let directory = opened.map_err(|error| SinkError::Open(PathError::new(root, error)))?;
        let mut interrupted = InterruptedFiles::new(policy.resume);
        interrupted.add(None, remove_leftovers(&directory));
        let mut tree = Self {
            manifest: Arc::clone(&manifest),
            policy,
            directories: OpenDirectories::new(directory, None),
            root_path: root.into(),
            room: FreeSpaceWatch::default(),
            comparer: Comparer::new(compare, true),
            present: Vec::new(),
            hashed: HashMap::new(),
            delete,
            removed: 0,
            blocked: HashSet::new(),
            unmade: VecDeque::new(),
            interrupted,
            modes_after_failure: Vec::new(),
        };
        tree.check_quota()?;
        tree.check_room()?;
        tree.check_replaced()?;
        let mut directories = Identities::new(&manifest);
        let mut grown = Directories::new();
        for (index, entry) in (0..).zip(manifest.entries()) {
            if entry.parent.is_some_and(|it| tree.blocked.contains(&it)) {
                // Its files and links fail when their turn comes.
                tree.blocked
                    .extend(entry.kind.is_directory().then_some(index));
                continue;
            }
            match entry.kind {
                Kind::Directory => {
                    if tree.make(index, &entry, &mut directories)? && policy.sync {
                        tree.add_grown(index, &mut grown)?;
                    }
                }
                Kind::File { .. } | Kind::Symlink { .. } | Kind::HardLink { .. } => {
                    tree.check_free(index, &entry)?;
                }
            }
        }
        tree.sync_grown(&mut grown)?;
        tree.check_writable()?;
        if policy.sync {
            sync_around(&tree.directories.root).map_err(|error| tree.root_failed(error))?;
        }
        Ok(tree)
    }

    /// Checks that the files get into the first directory, if none of them goes into another one. So the sender
    /// learns of a directory that cannot be written before it sends them.
    fn check_writable(&self) -> Result<(), SinkError> {
        let entries = (0..).zip(self.manifest.entries());
        let is_present = |index: u32| {
            let found = self.present.binary_search_by_key(&index, |it| it.entry);
            found.is_ok()
        };
        let mut files = entries.filter(|(_, entry)| !entry.kind.is_directory());
        let mut has_new = false;
        let are_first = files.all(|(index, entry)| {
            has_new |= !is_present(index);
            entry.parent.is_none()
        });
        if !(are_first && has_new) {
            return Ok(());
        }
        let checked = self.directories.root.check_writable();
        checked.map_err(|error| self.root_failed(error))
    }

    /// Which source an entry is, if a later transfer can go on with it.
    pub(super) fn source(&self, index: u32) -> Option<SourceId> {
        let entry = self.manifest.entry(index)?;
        self.interrupted.source(&self.manifest, index, &entry)
    }

    /// Remembers that the directory around a new one must be synced.
    fn add_grown(
        &mut self,
        index: u32,
        grown: &mut Directories<Option<u32>>,
    ) -> Result<(), SinkError> {
        let parent = self.manifest.entry(index).and_then(|entry| entry.parent);
        match self.work_around(index, |around| grown.add(parent, around))? {
            true => self.sync_grown(grown),
            false => Ok(()),
        }
    }

    /// Makes the names of new directories durable.
    fn sync_grown(&self, grown: &mut Directories<Option<u32>>) -> Result<(), SinkError> {
        match grown.sync().into_iter().next() {
            None => Ok(()),
            Some((None, source)) => Err(self.root_failed(source)),
            Some((Some(index), source)) => Err(self.failed(index, source)),
        }
    }

    /// Returns the path of an entry, for display.
    pub(super) fn path(&self, index: u32) -> PathBuf {
        self.root_path.join(self.manifest.path(index))
    }

    /// Returns the parent directory of an entry, and gives its owner access first: another transfer into the
    /// directory may have ended meanwhile, and set its final mode.
    pub(super) fn around(&mut self, index: u32) -> Result<&Directory, EnterError> {
        let parent = self.manifest.entry(index).and_then(|entry| entry.parent);
        let around = self.directories.enter(&self.manifest, parent)?;
        if let Some(index) = parent {
            let source = around.open_up().err();
            source.map_or(Ok(()), |source| Err(EnterError { index, source }))?;
        }
        Ok(around)
    }

    /// Calls `work` with the parent directory of an entry.
    fn work_around<R>(
        &mut self,
        index: u32,
        work: impl FnOnce(&Directory) -> io::Result<R>,
    ) -> Result<R, SinkError> {
        let around = self.around(index);
        let worked =
            around.and_then(|around| work(around).map_err(|source| EnterError { index, source }));
        worked.map_err(|error| self.failed(error.index, error.source))
    }

    /// Gives all directories their permissions and times, innermost first, because adding a file to
    /// a directory changes its time. An attribute that cannot be set causes a warning, since the
    /// files have arrived. Syncs the directories.
    pub(super) fn dress(&mut self, warnings: &mut Warnings) {
        let manifest = Arc::clone(&self.manifest);
        let path = |index| self.root_path.join(manifest.path(index));
        let mut dressed_ones = Directories::new();
        let sync = |warnings: &mut Warnings, directories: &mut Directories<u32>| {
            for (index, source) in directories.sync() {
                warnings.add(
                    Attribute::Durability,
                    Thing::Directory,
                    || path(index),
                    source,
                );
            }
        };
        for (at, entry) in manifest.entries().enumerate().rev() {
            let index = u32::try_from(at).unwrap_or(u32::MAX);
            if !entry.kind.is_directory() || self.blocked.contains(&index) {
                continue;
            }
            let Some(attributes) = Attributes::of(&manifest, index, self.policy) else {
                continue;
            };
            let entered = self.directories.enter(&manifest, Some(index));
            let dressed = entered.map_err(io::Error::from).and_then(|directory| {
                warnings.set(directory, Thing::Directory, &attributes, || path(index))?;
                if self.policy.sync && dressed_ones.add(index, directory)? {
                    sync(warnings, &mut dressed_ones);
                }
                Ok(())
            });
            if let Err(source) = dressed {
                let (of, path) = (Thing::Directory, || path(index));
                warnings.add(Attribute::Permissions, of, path, source);
            }
        }
        sync(warnings, &mut dressed_ones);
        self.modes_after_failure.clear();
    }

    /// Makes the directory of an entry, unless something else has the name. Returns whether it is new.
    fn make(
        &mut self,
        index: u32,
        entry: &EntryRef<'_>,
        directories: &mut Identities,
    ) -> Result<bool, SinkError> {
        let mut is_new = self.work_around(index, |around| around.make(entry.name))?;
        if !is_new {
            let made = self.make_instead(index, entry, directories);
            is_new = match made.map_err(|source| self.failed(index, source))? {
                Some(is_new) => is_new,
                None => {
                    self.blocked.insert(index);
                    self.unmade.push_back(index);
                    return Ok(false);
                }
            };
        }
        let entered = match self.directories.enter(&self.manifest, Some(index)) {
            Ok(directory) => directory,
            Err(error) => return Err(self.failed(error.index, error.source)),
        };
        let new_mode = self.policy.mode(entry.mode);
        let mut leftovers = Vec::new();
        let prepared = entered.status().and_then(|status| {
            if is_new {
                return Ok((status.id, Some(new_mode)));
            }
            let former = entered.open_up()?;
            leftovers = remove_leftovers(entered);
            Ok((status.id, former))
        });
        self.interrupted.add(Some(index), leftovers);
        let (id, mode) = prepared.map_err(|source| self.failed(index, source))?;
        let mode = mode.map(|mode| (index, mode));
        self.modes_after_failure.extend(mode);
        let around = match self.directories.enter(&self.manifest, entry.parent) {
            Ok(around) => around,
            Err(error) => return Err(self.failed(error.index, error.source)),
        };
        let added = directories.add(id, index, Some(around).filter(|_| !is_new));
        match added.map_err(|source| self.failed(index, source))? {
            None => Ok(is_new),
            Some(first) => Err(SinkError::SameDirectory {
                first: self.root_path.join(first),
                second: self.path(index),
            }),
        }
    }

    /// Looks what has the name of a file.
    fn check_free(&mut self, index: u32, entry: &EntryRef<'_>) -> Result<(), SinkError> {
        let status = self.work_around(index, |around| around.look(entry.name))?;
        if status.is_some_and(|status| status.kind == FileType::Directory) {
            // The file fails when it should get the name, or replaces the directory.
            return Ok(());
        }
        let status = status.filter(|status| self.may_be_same(entry, status));
        let is_there = status.is_some() && self.comparer.compare == Compare::Time;
        let status = match self.look_for_interrupted(index, entry, is_there) {
            // The earlier transfer may just have given the file its name.
            true => status.or_else(|| self.look_again(index, entry)),
            false => status,
        };
        if let Some(status) = status {
            let compare = self.comparer.compare;
            let around = self.around(index).ok();
            let present = around.and_then(|around| compare.present(index, entry, around));
            if compare == Compare::Hash && present.is_some() {
                self.hashed.insert(index, (status.id, status.modified));
            }
            self.present.extend(present);
        }
        Ok(())
    }

    /// Looks whether an interrupted transfer has left some of a file. Returns whether it may have waited for
    /// an earlier transfer.
    fn look_for_interrupted(&mut self, index: u32, entry: &EntryRef<'_>, is_there: bool) -> bool {
        let manifest = Arc::clone(&self.manifest);
        let parent = self.directories.enter(&manifest, entry.parent);
        parent.is_ok_and(|around| {
            let found = (index, entry);
            self.interrupted.look(found, &manifest, around, is_there)
        })
    }

    /// Returns the status of a file that may be the one of an entry.
    fn look_again(&mut self, index: u32, entry: &EntryRef<'_>) -> Option<Status> {
        let around = self.around(index).ok()?;
        let status = around.look(entry.name).ok()??;
        self.may_be_same(entry, &status).then_some(status)
    }

    /// Whether what has the name of a file may still be the file that was there. Returns its status.
    pub(super) fn still_there(&mut self, index: u32) -> io::Result<Option<Status>> {
        let manifest = Arc::clone(&self.manifest);
        let entry = manifest.entry(index).ok_or(io::ErrorKind::NotFound)?;
        let compare = self.comparer.compare;
        let status = self.around(index)?.look(entry.name)?;
        let status = status.filter(|status| self.may_be_same(&entry, status));
        let is_hashed = |status: &Status| {
            let before = self.hashed.get(&index);
            compare != Compare::Hash || before == Some(&(status.id, status.modified))
        };
        Ok(status.filter(is_hashed))
    }

    /// Whether what has the name of a file, as its status says, may be that file.
    fn may_be_same(&mut self, entry: &EntryRef<'_>, status: &Status) -> bool {
        let around = self.directories.enter(&self.manifest, entry.parent);
        around.is_ok_and(|around| self.comparer.may_be_same(entry, status, around))
    }

    /// Returns the status of a symbolic link that is there already, with its target, its time and its owner.
    pub(super) fn same_link(&mut self, index: u32, target: &[u8]) -> Option<Status> {
        if self.comparer.compare == Compare::Nothing {
            return None;
        }
        let name = self.manifest.entry(index)?.name.to_vec();
        let owner = self.manifest.owner(index).filter(|_| self.policy.owners);
        let around = self.around(index).ok()?;
        let status = around.look(&name).ok()??;
        let is_same = status.kind == FileType::Symlink
            && around.read_link(&name).is_ok_and(|it| it == target);
        let has_owner = owner.is_none_or(|owner| owner == status.owner);
        (is_same && has_owner && self.has_time(index, &status)).then_some(status)
    }

    /// Whether what has the name of a file has its time, as far as the file system can store it.
    pub(super) fn has_time(&mut self, index: u32, status: &Status) -> bool {
        let Some(entry) = self.manifest.entry(index) else {
            return false;
        };
        let around = self.directories.enter(&self.manifest, entry.parent);
        around.is_ok_and(|around| self.comparer.has_time(&entry, status, around))
    }

    fn failed(&self, index: u32, source: io::Error) -> SinkError {
        let path = self.path(index);
        if is_full(&source) {
            return SinkError::Full { path, source };
        }
        SinkError::Prepare(PathError { path, source })
    }

    /// The first directory cannot be prepared.
    fn root_failed(&self, source: io::Error) -> SinkError {
        SinkError::Prepare(PathError::new(&self.root_path, source))
    }
}

impl Drop for DirectoryTree {
    /// Errors are ignored: no caller is left to handle them.
    fn drop(&mut self) {
        // Innermost first: after its mode changes, a directory may refuse access.
        for (index, mode) in self.modes_after_failure.drain(..).rev() {
            if let Ok(directory) = self.directories.enter(&self.manifest, Some(index)) {
                let _ = set_mode(directory, mode);
            }
        }
    }
}
