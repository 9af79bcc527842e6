//! What the receiver has already (P8.6).

use std::collections::HashMap;
use std::fs::File;
use std::io;

use rustix::fs::FileType;
use serde::{Deserialize, Serialize};

use super::attributes::set_time;
use super::directory::Directory;
use super::part_name::new_name;
use super::status::{Id, Status};
use super::{EntryRef, Kind, Time};

/// How the receiver finds files that it has already. The order of the variants is their number on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Compare {
    /// All files are sent.
    #[default]
    Nothing,
    /// A file of the same length and time is the same.
    Time,
    /// A file with the same bytes is the same. Both ends read it.
    Hash,
}

/// A file that the receiver has already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Present {
    /// Number of its entry.
    pub entry: u32,
    /// With [`Compare::Hash`], BLAKE3 of its bytes.
    pub hash: Option<[u8; 32]>,
}

impl Compare {
    /// Returns what to tell the sender about a file that may be the same; `None` if it cannot be read.
    pub(super) fn present(
        self,
        index: u32,
        entry: &EntryRef<'_>,
        around: &Directory,
    ) -> Option<Present> {
        let hash = match self {
            Self::Hash => Some(hash_file(&around.open_to_read(entry.name).ok()?).ok()?),
            Self::Nothing | Self::Time => None,
        };
        Some(Present { entry: index, hash })
    }
}

/// Whether `there` is what a file system stores for a time.
fn is_time(time: Time, there: Time, stored: impl FnOnce(Time) -> Option<Time>) -> bool {
    there == time || stored(time) == Some(there)
}

/// Compares files with those of the sender, and knows which times their file systems can store.
#[derive(Debug)]
pub(super) struct Comparer {
    pub(super) compare: Compare,
    /// Whether a file with a name may be made for a moment.
    may_name: bool,
    /// A file without a name on each file system; `None`: it has no such files.
    clocks: HashMap<u64, Option<File>>,
}

impl Comparer {
    pub(super) fn new(compare: Compare, may_name: bool) -> Self {
        Self {
            compare,
            may_name,
            clocks: HashMap::new(),
        }
    }

    /// Whether what has the name of a file in a directory may be that file.
    pub(super) fn may_be_same(
        &mut self,
        entry: &EntryRef<'_>,
        status: &Status,
        around: &Directory,
    ) -> bool {
        let Kind::File { bytes, .. } = entry.kind else {
            return false;
        };
        let is_as_long = status.kind == FileType::RegularFile && status.bytes == bytes;
        match self.compare {
            Compare::Nothing => false,
            Compare::Time => is_as_long && self.has_time(entry, status, around),
            Compare::Hash => is_as_long,
        }
    }

    /// Whether a file in a directory has the time of an entry, as far as its file system can store it.
    pub(super) fn has_time(
        &mut self,
        entry: &EntryRef<'_>,
        status: &Status,
        around: &Directory,
    ) -> bool {
        is_time(entry.modified, status.modified, |time| {
            self.stored(time, status.id, around)
        })
    }

    /// The time that the file system of a file in a directory stores for a time.
    fn stored(&mut self, time: Time, id: Id, around: &Directory) -> Option<Time> {
        let may_name = self.may_name;
        let clock = self.clocks.entry(id.device);
        let clock = clock.or_insert_with(|| nameless(around, may_name).ok());
        let file = clock.as_ref()?;
        set_time(file, time).ok()?;
        Some(Status::of_file(file).ok()?.modified)
    }
}

/// Makes a file without a name, which is gone when it is closed.
fn nameless(directory: &Directory, may_name: bool) -> io::Result<File> {
    match directory.create_unnamed() {
        Err(_) if may_name => {
            let name = new_name()?;
            let file = directory.create_new(&name)?;
            directory.remove(&name)?;
            Ok(file)
        }
        made => made,
    }
}

/// BLAKE3 of the bytes of a file.
pub(super) fn hash_file(file: &File) -> io::Result<[u8; 32]> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(file)?;
    Ok(hasher.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_that_which_the_file_system_stores() {
        let at = |seconds, nanos| Time { seconds, nanos };
        // As on FAT.
        let stored = |time: Time| {
            Some(Time {
                seconds: (time.seconds & !1).max(315_532_800),
                nanos: 0,
            })
        };
        let sent = at(1_000_000_001, 7);
        assert!(is_time(sent, sent, |_| None));
        assert!(is_time(sent, at(1_000_000_000, 0), stored));
        assert!(!is_time(sent, at(1_000_000_000, 0), |_| None));
        // Nothing near it is equal.
        for near in [
            at(1_000_000_002, 0),
            at(1_000_000_001, 0),
            at(999_999_998, 0),
        ] {
            assert!(!is_time(sent, near, stored));
        }
        assert!(is_time(at(-5, 0), at(315_532_800, 0), stored));
    }

    #[test]
    fn a_file_shows_which_time_is_stored() {
        let place = tempfile::tempdir().expect("place");
        let around = Directory::open(place.path()).expect("open");
        let id = around.status().expect("status").id;
        let mut comparer = Comparer::new(Compare::Time, true);
        let time = Time {
            seconds: 1_000_000_000,
            nanos: 0,
        };
        assert_eq!(comparer.stored(time, id, &around), Some(time));
        let names = around.names(|_| true).expect("list");
        assert!(names.is_empty(), "nothing is left");
    }
}
