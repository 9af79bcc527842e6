//! A file that is being received, under a temporary name.
//!
//! The name is `.farwrite-RANDOM.part`. The receiver holds an advisory lock on the file, so that
//! another receiver can distinguish it from a file that a killed receiver left behind.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{FileType, FlockOperation, flock};
use rustix::io::Errno;

use super::close::store;
use super::directory::Directory;
use super::sparse::stretches;
use super::status::{Id, Status};

/// Attempts to find a name. Before the file is locked, another receiver may mistake it for a
/// leftover.
const ATTEMPTS: usize = 8;
const PREFIX: &[u8] = b".farwrite-";
const SUFFIX: &[u8] = b".part";
const DIGITS: usize = 16;
const LOCK: FlockOperation = FlockOperation::NonBlockingLockExclusive;

/// An open file that is being written.
#[derive(Debug)]
pub(super) struct OpenPart {
    file: File,
    name: PartName,
    id: Id,
    hasher: blake3::Hasher,
    written_bytes: u64,
    sparse: bool,
}

/// A file whose bytes have all arrived, with the hash of these bytes.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) name: PartName,
    pub(super) id: Id,
    pub(super) hash: blake3::Hash,
    /// The open file, which holds the lock.
    pub(super) file: Option<File>,
}

/// The random number of a temporary name.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartName(u64);

impl PartName {
    fn random() -> io::Result<Self> {
        getrandom::u64().map(Self).map_err(io::Error::other)
    }

    pub(super) fn bytes(self) -> Vec<u8> {
        let digits = format!("{:0DIGITS$x}", self.0);
        [PREFIX, digits.as_bytes(), SUFFIX].concat()
    }
}

impl OpenPart {
    /// Makes a file in a directory, and locks it. If `hole` is given, the file starts as one hole
    /// of that length, and blocks of zeros stay holes.
    pub(super) fn create(directory: &Directory, hole: Option<u64>) -> io::Result<Self> {
        for _ in 0..ATTEMPTS {
            let name = PartName::random()?;
            let file = match directory.create_new(&name.bytes()) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                created => created?,
            };
            if let Some(id) = claim(directory, name, &file)? {
                if let Some(Err(error)) = hole.map(|bytes| file.set_len(bytes)) {
                    let _ = directory.remove(&name.bytes());
                    return Err(error);
                }
                return Ok(Self {
                    file,
                    name,
                    id,
                    hasher: blake3::Hasher::new(),
                    written_bytes: 0,
                    sparse: hole.is_some(),
                });
            }
        }
        Err(io::Error::other(
            "other receivers removed each temporary file",
        ))
    }

    pub(super) fn name(&self) -> PartName {
        self.name
    }

    /// Writes the next bytes.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.sparse {
            for (offset, stretch) in stretches(self.written_bytes, bytes) {
                self.file.write_all_at(stretch, offset)?;
            }
        } else {
            self.file.write_all_at(bytes, self.written_bytes)?;
        }
        self.hasher.update(bytes);
        self.written_bytes += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        Ok(())
    }

    /// Finishes the writing.
    pub(super) fn end(self) -> io::Result<Part> {
        store(&self.file)?;
        Ok(Part {
            name: self.name,
            id: self.id,
            hash: self.hasher.finalize(),
            file: Some(self.file),
        })
    }
}

/// Locks a new file. Returns `None` if another receiver has just treated it as a leftover. On a
/// file system without locks, no receiver can do that.
fn claim(directory: &Directory, name: PartName, file: &File) -> io::Result<Option<Id>> {
    let name = name.bytes();
    if flock(file, LOCK) == Err(Errno::WOULDBLOCK) {
        // Either of the two receivers removes the file.
        let _ = directory.remove(&name);
        return Ok(None);
    }
    let id = Status::of_file(file)?.id;
    let named = directory.look(&name)?;
    Ok(named.is_some_and(|named| named.id == id).then_some(id))
}

/// Removes the files of killed receivers from a directory. A file that cannot be removed stays: it
/// does no harm.
pub(super) fn remove_leftovers(directory: &Directory) {
    for name in directory
        .names(usize::MAX, is_part_name)
        .into_iter()
        .flatten()
        .flatten()
    {
        let _ = remove_leftover(directory, &name);
    }
}

fn is_part_name(name: &[u8]) -> bool {
    let middle = name.strip_prefix(PREFIX);
    let digits = middle.and_then(|middle| middle.strip_suffix(SUFFIX));
    digits.is_some_and(|digits| {
        digits.len() == DIGITS
            && digits
                .iter()
                .all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// Removes a file unless another process holds its lock. This locks the file first, so that a
/// receiver that has just made the file notices.
fn remove_leftover(directory: &Directory, name: &[u8]) -> io::Result<()> {
    let is_file = |status: Option<Status>| status.filter(|it| it.kind == FileType::RegularFile);
    if is_file(directory.look(name)?).is_none() {
        return Ok(());
    }
    let file = directory.open_to_write(name)?;
    flock(&file, LOCK)?;
    let id = Status::of_file(&file)?.id;
    match is_file(directory.look(name)?) {
        Some(named) if named.id == id => directory.remove(name),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn temporary_name_is_recognised() {
        let name = PartName(0xab).bytes();
        assert_eq!(name, b".farwrite-00000000000000ab.part");
        assert!(is_part_name(&name));
        for other in [
            &b".farwrite-00000000000000AB.part"[..],
            b".farwrite-0000000000000ab.part",
            b".farwrite-00000000000000ab.part.",
            b"farwrite-00000000000000ab.part",
            b".farwrite-.part",
            b".a.farwrite-00000000000000ab.part",
        ] {
            assert!(!is_part_name(other), "{}", other.escape_ascii());
        }
    }

    #[test]
    fn file_that_another_receiver_took_for_a_leftover_is_not_used() {
        let place = tempfile::tempdir().expect("directory");
        let directory = Directory::open(place.path()).expect("open");
        let name = PartName(7);
        // The other receiver removed the file before this one locked it.
        let file = directory.create_new(&name.bytes()).expect("create");
        remove_leftovers(&directory);
        assert_eq!(claim(&directory, name, &file).expect("no error"), None);
        // The other receiver has the file open and is about to remove it.
        let file = directory.create_new(&name.bytes()).expect("create");
        let other = directory.open_to_write(&name.bytes()).expect("open");
        flock(&other, LOCK).expect("free");
        assert_eq!(claim(&directory, name, &file).expect("no error"), None);
        // No other receiver has the file.
        let file = directory.create_new(&name.bytes()).expect("create");
        assert!(claim(&directory, name, &file).expect("no error").is_some());
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
                let Ok(part) = OpenPart::create(&directory, None) else {
                    // All names failed: an error, but no data loss.
                    continue;
                };
                thread::yield_now();
                let named = directory.look(&part.name.bytes()).expect("look");
                assert!(named.is_some_and(|named| named.id == part.id), "removed");
                directory.remove(&part.name.bytes()).expect("remove");
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}
