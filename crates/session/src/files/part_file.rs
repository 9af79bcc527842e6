//! A file that is being received, under a temporary name.
//!
//! The name is `.farwrite-RANDOM-TAG.part`. The tag is a hash of the random number and of the inode
//! number, so a file of the same name that someone copied, restored or made is none of ours. The
//! receiver holds an advisory lock on the file, so that another receiver can distinguish it from a
//! file that a killed receiver left behind.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{FileType, FlockOperation, flock};

use super::directory::Directory;
use super::receptions::Reception;
use super::sparse::{Layout, stretches};
use super::status::{Id, Status};
use super::sys::{start_writing, store};
use super::{CommitGate, Extent};

const PREFIX: &[u8] = b".farwrite-";
const SUFFIX: &[u8] = b".part";
/// Digits of each of the two numbers in a name.
const DIGITS: usize = 16;
pub(super) const LOCK: FlockOperation = FlockOperation::NonBlockingLockExclusive;
/// Domain of the hash in names (P8.4).
const TAG_CONTEXT: &str = "farwrite temporary file 1";
/// Bytes after which the disk starts to write them, so that little is left for the sync at the end.
const START_BYTES: u64 = 8 << 20;

/// An open file that is being written.
#[derive(Debug)]
pub(super) struct OpenPart {
    file: File,
    name: PartName,
    id: Id,
    hasher: blake3::Hasher,
    layout: Layout,
    gate: CommitGate,
    written_bytes: u64,
    /// Bytes that the disk has started to write; `None` if nobody waits for the disk.
    started_bytes: Option<u64>,
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

/// The numbers in a temporary name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartName {
    random: u64,
    tag: u64,
}

impl PartName {
    /// The name of a file with this inode.
    fn new(random: u64, id: Id) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(TAG_CONTEXT);
        hasher.update(&random.to_be_bytes());
        hasher.update(&id.inode().to_be_bytes());
        let mut tag = [0; 8];
        hasher.finalize_xof().fill(&mut tag);
        Self {
            random,
            tag: u64::from_be_bytes(tag),
        }
    }

    pub(super) fn bytes(self) -> Vec<u8> {
        let numbers = format!("{:0DIGITS$x}-{:0DIGITS$x}", self.random, self.tag);
        [PREFIX, numbers.as_bytes(), SUFFIX].concat()
    }

    fn parse(name: &[u8]) -> Option<Self> {
        let numbers = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
        let (random, tag) = str::from_utf8(numbers).ok()?.split_once('-')?;
        let number = |digits| u64::from_str_radix(digits, 16).ok();
        let parsed = Self {
            random: number(random)?,
            tag: number(tag)?,
        };
        (parsed.bytes() == name).then_some(parsed)
    }
}

/// What a temporary file is made for.
#[derive(Clone, Debug)]
pub(super) struct PartOptions<'a> {
    pub(super) length: u64,
    /// The file starts as one hole of its length, and blocks of zeros stay holes.
    pub(super) sparse: bool,
    /// Where the data of a sparse file are; `None`: everywhere.
    pub(super) data: Option<&'a [Extent]>,
    /// The file will be synced.
    pub(super) sync: bool,
    /// Ends the work on long holes when it is closed.
    pub(super) gate: CommitGate,
}

impl OpenPart {
    /// Makes a file in a directory, and locks it.
    pub(super) fn create(directory: &Directory, options: PartOptions<'_>) -> io::Result<Self> {
        // The inode is known after the file was made. Nobody else looks for files of this name, and
        // when the file gets the name that others look for, it is locked.
        let (random, first) = new_name_of()?;
        let file = directory.create_new(&first)?;
        let prepared = || {
            // On a file system without locks, no receiver removes the files of another.
            let _ = flock(&file, LOCK);
            let id = Status::of_file(&file)?.id;
            if options.sparse {
                file.set_len(options.length)?;
            }
            let name = PartName::new(random, id);
            directory.rename(&first, &name.bytes())?;
            Ok((id, name))
        };
        let (id, name) = prepared().inspect_err(|_: &io::Error| {
            let _ = directory.remove(&first);
        })?;
        Ok(Self {
            file,
            name,
            id,
            hasher: blake3::Hasher::new(),
            layout: Layout::new(options.data, options.length),
            gate: options.gate,
            written_bytes: 0,
            started_bytes: options.sync.then_some(0),
            sparse: options.sparse,
        })
    }

    pub(super) fn name(&self) -> PartName {
        self.name
    }

    /// Writes the next bytes of the stream.
    pub(super) fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let room = self.layout.piece(&mut self.hasher, &self.gate)?;
            let room = usize::try_from(room).map_or(bytes.len(), |room| room.min(bytes.len()));
            if room == 0 {
                return Err(io::Error::other("bytes after the end of the file"));
            }
            let (piece, rest) = bytes.split_at(room);
            let at = self.layout.offset;
            if self.sparse {
                for (offset, stretch) in stretches(at, piece) {
                    self.file.write_all_at(stretch, offset)?;
                }
            } else {
                self.file.write_all_at(piece, at)?;
            }
            self.hasher.update(piece);
            self.layout.advance(u64::try_from(room).unwrap_or(u64::MAX));
            bytes = rest;
        }
        self.written_bytes = self.layout.offset;
        self.start_writing(START_BYTES);
        Ok(())
    }

    /// Makes the disk start to write what it has not started to write yet, if that is enough bytes.
    fn start_writing(&mut self, enough_bytes: u64) {
        if let Some(started_bytes) = &mut self.started_bytes {
            let bytes = self.written_bytes - *started_bytes;
            if bytes >= enough_bytes {
                start_writing(&self.file, *started_bytes, bytes);
                *started_bytes = self.written_bytes;
            }
        }
    }

    /// Finishes the writing.
    pub(super) fn end(mut self) -> io::Result<Part> {
        self.start_writing(1);
        self.layout.finish(&mut self.hasher, &self.gate)?;
        store(&self.file)?;
        Ok(Part {
            name: self.name,
            id: self.id,
            hash: self.hasher.finalize(),
            file: Some(self.file),
        })
    }
}

/// A temporary name that nothing has and nobody looks for.
pub(super) fn new_name() -> io::Result<Vec<u8>> {
    Ok(new_name_of()?.1)
}

/// The same, with its random number.
fn new_name_of() -> io::Result<(u64, Vec<u8>)> {
    let random = getrandom::u64().map_err(io::Error::other)?;
    let name = [PREFIX, format!("{random:0DIGITS$x}.new").as_bytes()].concat();
    Ok((random, name))
}

/// Whether a name is one of temporary files or links.
pub(super) fn is_temporary(name: &[u8]) -> bool {
    name.starts_with(PREFIX) && (name.ends_with(SUFFIX) || name.ends_with(b".new"))
}

/// Removes the files of killed receivers from a directory. A file that cannot be removed stays: it
/// does no harm. While this process receives other transfers, all files stay.
pub(super) fn remove_leftovers(directory: &Directory) {
    if Reception::has_others() {
        return;
    }
    let is_name = |name: &[u8]| PartName::parse(name).is_some();
    let names = directory.names(usize::MAX, is_name);
    for name in names.into_iter().flatten().flatten() {
        let _ = remove_leftover(directory, &name);
    }
}

/// Removes a file if its name is the one that a receiver gave to this very file, and if no process
/// holds its lock.
fn remove_leftover(directory: &Directory, name: &[u8]) -> io::Result<()> {
    let is_part = |status: &Status| {
        let name = PartName::parse(name);
        status.kind == FileType::RegularFile
            && name.is_some_and(|name| name == PartName::new(name.random, status.id))
    };
    if !directory.look(name)?.is_some_and(|status| is_part(&status)) {
        return Ok(());
    }
    let file = directory.open_to_write(name)?;
    flock(&file, LOCK)?;
    let id = Status::of_file(&file)?.id;
    match directory.look(name)? {
        Some(named) if named.id == id && is_part(&named) => directory.remove(name),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    fn plain() -> PartOptions<'static> {
        PartOptions {
            length: 0,
            sparse: false,
            data: None,
            sync: true,
            gate: CommitGate::default(),
        }
    }

    #[test]
    fn temporary_name_is_recognised() {
        let name = PartName {
            random: 0xab,
            tag: 0xcd,
        };
        let bytes = b".farwrite-00000000000000ab-00000000000000cd.part";
        assert_eq!(name.bytes(), bytes);
        assert_eq!(PartName::parse(bytes), Some(name));
        for other in [
            &b".farwrite-00000000000000AB-00000000000000cd.part"[..],
            b".farwrite-0000000000000ab-00000000000000cd.part",
            b".farwrite-+0000000000000ab-00000000000000cd.part",
            b".farwrite-00000000000000ab-00000000000000cd.part.",
            b"farwrite-00000000000000ab-00000000000000cd.part",
            b".farwrite-00000000000000ab.part",
            b".farwrite--.part",
            b".a.farwrite-00000000000000ab-00000000000000cd.part",
        ] {
            assert_eq!(PartName::parse(other), None, "{}", other.escape_ascii());
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
        let name = String::from_utf8(part.name.bytes()).expect("digits");
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
                let named = directory.look(&part.name.bytes()).expect("look");
                assert!(named.is_some_and(|named| named.id == part.id), "removed");
                directory.remove(&part.name.bytes()).expect("remove");
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}
