//! What interrupted transfers have left in directories: files to go on with, and files to remove (P8.8).

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{FileType, Mode, fchmod};
use rustix::process::geteuid;

use super::directory::Directory;
use super::in_use::{InUse, Wanted, is_in_use, want};
use super::locked_file::LockedFile;
use super::open_files::part_of_sink;
use super::part_name::PartName;
use super::partial::{MAX_PARTIALS, Partial, PeerKey, SourceId};
use super::status::{Id, Status};
use super::{EntryRef, Kind, Manifest};

/// How long an interrupted file waits for its transfer to go on.
pub const KEPT_DAYS: i64 = 7;
/// How long a transfer waits for earlier ones that still use its files: they sync the files first.
const TAKE_OVER: Duration = Duration::from_secs(10);
/// The most interrupted files that are kept in one directory.
const KEPT_FILES: usize = 256;
const DAY_SECONDS: i64 = 24 * 60 * 60;

/// An interrupted file that this receiver goes on with. It is locked.
#[derive(Debug)]
pub(super) struct Interrupted {
    pub(super) file: LockedFile,
    pub(super) name: PartName,
    pub(super) id: Id,
    /// The bytes at its start to go on from.
    pub(super) bytes: u64,
    /// Marks the file as in use while this transfer resumes it.
    pub(super) in_use: Option<InUse>,
}

/// Names of interrupted files in a directory, by the peer and the path.
type Places = HashMap<u64, Vec<PartName>>;

/// The interrupted files in the directories of a manifest.
#[derive(Debug)]
pub(super) struct InterruptedFiles {
    /// Whose files they may be; `None`: no transfer goes on.
    peer: Option<PeerKey>,
    /// By the number of their directory.
    names: HashMap<Option<u32>, Places>,
    /// Those that this transfer goes on with, by the number of their entry.
    taken: BTreeMap<u32, Interrupted>,
    /// Whether a later transfer wants a file of this one.
    pub(super) wanted: Wanted,
    /// How long this transfer may still wait for earlier ones.
    patience: Duration,
}

impl InterruptedFiles {
    pub(super) fn new(peer: Option<PeerKey>) -> Self {
        Self {
            peer,
            names: HashMap::new(),
            taken: BTreeMap::new(),
            wanted: Wanted::default(),
            patience: TAKE_OVER,
        }
    }

    /// Adds the names in a directory.
    pub(super) fn add(&mut self, directory: Option<u32>, names: Vec<PartName>) {
        if self.peer.is_some() && !names.is_empty() {
            self.names.insert(directory, places(names));
        }
    }

    /// Which source an entry is, if its transfer can go on.
    pub(super) fn source(
        &self,
        manifest: &Manifest,
        index: u32,
        entry: &EntryRef<'_>,
    ) -> Option<SourceId> {
        SourceId::of(self.peer.as_ref()?, manifest, index, entry)
    }

    /// Looks for the interrupted file of an entry. `is_there`: the file needs no bytes. Removes what no transfer
    /// can go on with. Returns whether it may have waited for an earlier transfer that had the file.
    pub(super) fn look(
        &mut self,
        (index, entry): (u32, &EntryRef<'_>),
        manifest: &Manifest,
        around: &Directory,
        is_there: bool,
    ) -> bool {
        if !self.names.contains_key(&entry.parent) {
            return false;
        }
        let (Some(source), Kind::File { bytes: length, .. }) =
            (self.source(manifest, index, entry), entry.kind)
        else {
            return false;
        };
        let mut may_have_waited = false;
        let places = self.names.get(&entry.parent);
        let names = places.and_then(|places| places.get(&source.place));
        let mut best: Option<Interrupted> = None;
        for name in names.into_iter().flatten() {
            let may_take = !is_there && name.source() == Some(source);
            may_have_waited |= may_take;
            let locked = match may_take {
                true => take_over(around, *name, &self.wanted, &mut self.patience),
                false => lock(around, *name),
            };
            let Ok(found) = locked else {
                continue;
            };
            if may_take && self.taken.len() >= part_of_sink(MAX_PARTIALS) {
                // This transfer has too many. A later transfer can resume it.
                continue;
            }
            let offered = Partial::of(index, found.bytes, length).filter(|_| may_take);
            let better = offered
                .filter(|offered| best.as_ref().is_none_or(|best| best.bytes < offered.bytes));
            let worse = match better {
                Some(offered) if make_private(&found.file) => best.replace(Interrupted {
                    bytes: offered.bytes,
                    ..found
                }),
                _ => Some(found),
            };
            if let Some(worse) = worse {
                let _ = around.remove(&worse.name.bytes());
            }
        }
        if let Some(mut best) = best {
            best.in_use = Some(InUse::begin(best.id, &self.wanted));
            self.taken.insert(index, best);
        }
        may_have_waited
    }

    /// The files that this transfer goes on with.
    pub(super) fn partials(&self) -> impl Iterator<Item = Partial> + '_ {
        self.taken.iter().map(|(entry, it)| Partial {
            entry: *entry,
            bytes: it.bytes,
        })
    }

    /// The open file of an entry, to read it.
    pub(super) fn open(&self, index: u32) -> Option<&File> {
        Some(&self.taken.get(&index)?.file)
    }

    /// Takes the file of an entry, to write to it.
    pub(super) fn take(&mut self, index: u32) -> Option<Interrupted> {
        self.taken.remove(&index)
    }

    /// Bytes that the interrupted file of an entry takes already. Lists the directory `around` it once.
    pub(super) fn allocated_bytes(
        &mut self,
        parent: Option<u32>,
        around: &Directory,
        source: SourceId,
    ) -> u64 {
        let listed = self.names.entry(parent);
        let listed = listed.or_insert_with(|| places(part_names(around)));
        let names = listed.get(&source.place).into_iter().flatten();
        let names = names.filter(|name| name.source() == Some(source));
        // An earlier transfer may still hold the lock. It has to give the file up.
        let found = names.filter_map(|name| {
            let status = around.look(&name.bytes()).ok()??;
            is_part(*name, &status).then_some(status.allocated_bytes)
        });
        found.max().unwrap_or(0)
    }
}

fn places(names: impl IntoIterator<Item = PartName>) -> Places {
    let mut places = Places::new();
    for name in names {
        if let Some(source) = name.source() {
            places.entry(source.place).or_default().push(name);
        }
    }
    places
}

/// The temporary names in a directory; none if it cannot be listed.
fn part_names(directory: &Directory) -> impl Iterator<Item = PartName> {
    let names = directory.names(|name| PartName::parse(name).is_some());
    let names = names.into_iter().flatten();
    names.filter_map(|name| PartName::parse(&name))
}

/// Removes the files of killed receivers from a directory, those that nobody has gone on with for days, and the
/// oldest of very many. A file that cannot be removed stays: it does no harm. Returns the names of those that
/// wait for their transfer to go on.
pub(super) fn remove_leftovers(directory: &Directory) -> Vec<PartName> {
    let mut waiting = Vec::new();
    for name in part_names(directory) {
        match directory.look(&name.bytes()) {
            Ok(Some(status)) if !is_part(name, &status) => {}
            Ok(Some(status)) if name.source().is_some() && !is_old(&status) => {
                waiting.push((status.changed, name));
            }
            Ok(Some(status)) if !is_in_use(status.id) => remove_interrupted(directory, name),
            _ => {}
        }
    }
    if waiting.len() > KEPT_FILES {
        waiting.sort_unstable_by_key(|(changed, name)| (*changed, name.bytes()));
        for (_, oldest) in waiting.drain(..waiting.len() - KEPT_FILES) {
            remove_interrupted(directory, oldest);
        }
    }
    waiting.into_iter().map(|(_, name)| name).collect()
}

/// Removes a temporary file, unless a transfer uses it.
pub(super) fn remove_interrupted(directory: &Directory, name: PartName) {
    if lock(directory, name).is_ok() {
        let _ = directory.remove(&name.bytes());
    }
}

/// Whether a name is that of a file that is being received, or was.
pub(super) fn is_temporary_file(name: &[u8], status: &Status) -> bool {
    PartName::parse(name).is_some_and(|name| is_part(name, status))
}

/// Whether the last change was long ago. Nobody can set this time.
fn is_old(status: &Status) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
    now.saturating_sub(status.changed.seconds) > KEPT_DAYS * DAY_SECONDS
}

/// Whether a receiver gave a name to this very file.
fn is_part(name: PartName, status: &Status) -> bool {
    status.kind == FileType::RegularFile && name.is_of(status.id)
}

/// Opens and locks a file if its name is the one that a receiver gave to it, and if no process holds its
/// lock. Does not follow a link.
fn lock(directory: &Directory, name: PartName) -> io::Result<Interrupted> {
    let none = || io::Error::from(io::ErrorKind::NotFound);
    let bytes = name.bytes();
    let is_ours = |status: &Status| is_part(name, status);
    if !directory.look(&bytes)?.is_some_and(|it| is_ours(&it)) {
        return Err(none());
    }
    let file = LockedFile::of(directory.open_to_change(&bytes)?)?;
    let status = Status::of_file(&file)?;
    // Another receiver may have renamed it just before.
    match directory.look(&bytes)? {
        Some(named) if named.id == status.id && is_ours(&named) => Ok(Interrupted {
            file,
            name,
            id: status.id,
            bytes: status.bytes,
            in_use: None,
        }),
        _ => Err(none()),
    }
}

/// Locks a file. If another transfer of this process holds the lock, it is of the same peer and of the same file:
/// asks it, and waits until it has ended or refused.
fn take_over(
    directory: &Directory,
    name: PartName,
    by: &Wanted,
    patience: &mut Duration,
) -> io::Result<Interrupted> {
    let start = Instant::now();
    let mut asked = None;
    let locked = loop {
        let error = match lock(directory, name) {
            Ok(locked) => break Ok(locked),
            Err(error) => error,
        };
        if error.kind() != io::ErrorKind::WouldBlock || start.elapsed() >= *patience {
            break Err(error);
        }
        let status = directory.look(&name.bytes())?;
        asked = asked.or_else(|| want(status?.id, by));
        match &asked {
            // It is of another process, or its transfer has just ended: that unlocks first.
            None => break lock(directory, name),
            Some(asked) if asked.has_refused() => break Err(error),
            Some(_) => {}
        }
        thread::sleep(Duration::from_millis(20));
    };
    *patience = patience.saturating_sub(start.elapsed());
    locked
}

/// Makes a file one that only this user can read. Returns whether it is this user's alone: one that has
/// further names, or belongs to another user, may be anything.
pub(super) fn make_private(file: &File) -> bool {
    let status = Status::of_file(file);
    let is_own = status.is_ok_and(|it| it.links == 1 && it.owner.user == geteuid().as_raw());
    is_own && fchmod(file, Mode::RUSR | Mode::WUSR).is_ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::super::part_file::create_named;
    use super::*;

    /// A peer that begins many files and ends none leaves a limited number in a directory.
    #[test]
    fn the_oldest_of_many_interrupted_files_go() {
        let place = tempfile::tempdir().expect("directory");
        let directory = Directory::open(place.path()).expect("open");
        for number in 0..u64::try_from(KEPT_FILES).expect("few") + 3 {
            let file = directory.create_new(b"new").expect("create");
            let id = Status::of_file(&file).expect("status").id;
            let source = SourceId {
                place: number,
                version: 0,
            };
            let name = PartName::lasting(source, id).bytes();
            directory.rename(b"new", &name).expect("rename");
        }
        let waiting = remove_leftovers(&directory);
        assert_eq!(waiting.len(), KEPT_FILES);
        let left = fs::read_dir(place.path()).expect("list").count();
        assert_eq!(left, KEPT_FILES);
        let newest = waiting.iter().filter_map(|name| name.source());
        assert!(newest.map(|source| source.place).max() > Some(KEPT_FILES as u64));
    }

    /// In any order of their steps, no receiver loses a file to another receiver that removes
    /// leftovers.
    #[test]
    fn parts_in_use_survive_other_receivers() {
        let place = tempfile::tempdir().expect("directory");
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let directory = Directory::open(place.path()).expect("open");
                while !done.load(Ordering::Relaxed) {
                    remove_leftovers(&directory);
                }
            });
            let directory = Directory::open(place.path()).expect("open");
            for _ in 0..500 {
                let (_file, _, name) = create_named(&directory).expect("create");
                thread::yield_now();
                let named = directory.look(&name.bytes()).expect("look");
                assert!(named.is_some_and(|named| name.is_of(named.id)), "removed");
                directory.remove(&name.bytes()).expect("remove");
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}
