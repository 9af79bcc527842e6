//! What interrupted transfers have left in directories: files to go on with, and files to remove (P8.8).

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{FileType, Mode, fchmod, flock};
use rustix::process::geteuid;

use super::directory::Directory;
use super::in_use::{InUse, Wanted, is_in_use, want};
use super::part_file::LOCK;
use super::part_name::PartName;
use super::partial::{MAX_PARTIALS, Partial, PeerKey, SourceId};
use super::status::{Id, Status};
use super::{EntryRef, Kind, Manifest};

/// How long an interrupted file waits for its transfer to go on.
pub const KEPT_DAYS: i64 = 7;
/// How long to wait for an earlier transfer that still uses a file: it syncs the file first.
const TAKE_OVER: Duration = Duration::from_secs(10);
const DAY_SECONDS: i64 = 24 * 60 * 60;

/// An interrupted file that this receiver goes on with. It is locked.
#[derive(Debug)]
pub(super) struct Interrupted {
    pub(super) file: File,
    pub(super) name: PartName,
    pub(super) id: Id,
    /// The bytes at its start to go on from.
    pub(super) bytes: u64,
    /// Bytes that the file system has allocated for it.
    allocated_bytes: u64,
    /// Marks the file as in use while this transfer resumes it.
    pub(super) in_use: Option<InUse>,
}

/// The interrupted files in the directories of a manifest.
#[derive(Debug)]
pub(super) struct InterruptedFiles {
    /// Whose files they may be; `None`: no transfer goes on.
    peer: Option<PeerKey>,
    /// By the number of their directory.
    names: HashMap<Option<u32>, Vec<PartName>>,
    /// Those that this transfer goes on with, by the number of their entry.
    taken: BTreeMap<u32, Interrupted>,
    wanted: Wanted,
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
            self.names.insert(directory, names);
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
        let Some(names) = self.names.get(&entry.parent) else {
            return false;
        };
        let (Some(source), Kind::File { bytes: length, .. }) =
            (self.source(manifest, index, entry), entry.kind)
        else {
            return false;
        };
        let mut may_have_waited = false;
        let of_place = names
            .iter()
            .filter(|name| name.source().is_some_and(|it| it.place == source.place));
        let mut best: Option<Interrupted> = None;
        for name in of_place {
            let may_take = !is_there && name.source() == Some(source);
            may_have_waited |= may_take;
            let locked = match may_take {
                true => take_over(around, *name, &self.wanted, &mut self.patience),
                false => lock(around, *name),
            };
            let Ok(found) = locked else {
                continue;
            };
            if may_take && self.taken.len() >= MAX_PARTIALS {
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

    /// Whether a later transfer wants a file of this one.
    pub(super) fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// The open file of an entry, to read it.
    pub(super) fn open(&self, index: u32) -> Option<&File> {
        Some(&self.taken.get(&index)?.file)
    }

    /// Takes the file of an entry, to write to it.
    pub(super) fn take(&mut self, index: u32) -> Option<Interrupted> {
        self.taken.remove(&index)
    }

    /// Bytes that the interrupted file of an entry in `around` takes already.
    pub(super) fn allocated_bytes(around: &Directory, source: SourceId) -> u64 {
        let is_it =
            |name: &[u8]| PartName::parse(name).is_some_and(|name| name.source() == Some(source));
        let names = around.names(usize::MAX, is_it);
        let names = names.into_iter().flatten().flatten();
        let found = names.filter_map(|name| lock(around, PartName::parse(&name)?).ok());
        found.map(|it| it.allocated_bytes).max().unwrap_or(0)
    }
}

/// Removes the files of killed receivers from a directory, and those that nobody has gone on with for days.
/// A file that cannot be removed stays: it does no harm. Returns the names of those that wait for their
/// transfer to go on.
pub(super) fn remove_leftovers(directory: &Directory) -> Vec<PartName> {
    let is_name = |name: &[u8]| PartName::parse(name).is_some();
    let names = directory.names(usize::MAX, is_name);
    let names = names.into_iter().flatten().flatten();
    let names = names.filter_map(|name| PartName::parse(&name));
    let mut waiting = Vec::new();
    for name in names {
        match directory.look(&name.bytes()) {
            Ok(Some(status)) if name.source().is_some() && !is_old(&status) => waiting.push(name),
            Ok(Some(status))
                if is_part(name, &status)
                    && !is_in_use(status.id)
                    && lock(directory, name).is_ok() =>
            {
                let _ = directory.remove(&name.bytes());
            }
            _ => {}
        }
    }
    waiting
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
    let file = directory.open_to_change(&bytes)?;
    flock(&file, LOCK)?;
    let status = Status::of_file(&file)?;
    // Another receiver may have renamed it just before.
    match directory.look(&bytes)? {
        Some(named) if named.id == status.id && is_ours(&named) => Ok(Interrupted {
            file,
            name,
            id: status.id,
            bytes: status.bytes,
            allocated_bytes: status.allocated_bytes,
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
        let status = directory.look(&name.bytes())?;
        if asked.is_none() {
            asked = status.and_then(|status| want(status.id, by));
        }
        let is_asked = asked.as_ref().is_some_and(|asked| !asked.has_refused());
        if error.kind() != io::ErrorKind::WouldBlock || !is_asked || start.elapsed() >= *patience {
            break Err(error);
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

    use super::super::CommitGate;
    use super::super::part_file::{OpenPart, PartOptions};
    use super::*;

    fn plain() -> PartOptions<'static> {
        PartOptions {
            length: 0,
            sparse: false,
            data: None,
            source: None,
            wanted: Wanted::default(),
            sync: true,
            gate: CommitGate::default(),
        }
    }

    /// A file of the user is not removed, whatever its name: not one that was written under such a
    /// name, and not a copy of a leftover under the same name.
    #[test]
    fn only_what_a_receiver_made_is_removed() {
        let place = tempfile::tempdir().expect("directory");
        let copies = tempfile::tempdir().expect("directory");
        let directory = Directory::open(place.path()).expect("open");
        let part = OpenPart::create(&directory, plain()).expect("create");
        let name = String::from_utf8(part.name().bytes()).expect("digits");
        let copy = copies.path().join(&name);
        fs::copy(place.path().join(&name), &copy).expect("copy");
        let own = place
            .path()
            .join(".farwrite-0123456789abcdef-0123456789abcdef.part");
        fs::write(&own, "mine").expect("write");
        remove_leftovers(&directory);
        assert!(place.path().join(&name).exists(), "it is locked");
        drop(part);
        remove_leftovers(&directory);
        assert!(!place.path().join(&name).exists(), "nobody holds it");
        assert_eq!(fs::read(&own).expect("read"), b"mine");
        remove_leftovers(&Directory::open(copies.path()).expect("open"));
        assert!(copy.exists());
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
                let part = OpenPart::create(&directory, plain()).expect("create");
                thread::yield_now();
                let named = directory.look(&part.name().bytes()).expect("look");
                assert!(
                    named.is_some_and(|named| part.name().is_of(named.id)),
                    "removed"
                );
                directory.remove(&part.name().bytes()).expect("remove");
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}
