//! The checked contents of a transfer (P8.3).

mod builder;
mod error;

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::{Detail, Entry, EntryRef, Extent, Kind, Owner, Time, Xattr};
pub use builder::ManifestBuilder;
pub use error::{EntryError, ManifestError, Planned};

/// Most entries of a manifest.
pub const MAX_ENTRIES: u32 = 1 << 23;
/// Most names in a path.
pub const MAX_DEPTH: u16 = 1024;
/// Most bytes of a path: its names and the separators between them.
pub const MAX_PATH_BYTES: u32 = 4095;
/// Most bytes of all names together.
pub const MAX_NAMES_BYTES: u64 = 256 << 20;
/// File offsets are signed in all operating systems.
const MAX_STREAM_BYTES: u64 = i64::MAX as u64;

/// Checked files, directories and links: names are single components, parents are earlier directories, no
/// two entries share a path, hard links name earlier files, and all limits hold.
///
/// An entry takes 32 bytes of memory in addition to its name and target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    rows: Vec<Row>,
    /// The name of each entry, followed by its target if it is a symbolic link.
    names: Vec<u8>,
    /// The files that have other names in this manifest.
    firsts: HashSet<u32>,
    owners: BTreeMap<u32, Owner>,
    xattrs: BTreeMap<u32, Vec<Xattr>>,
    /// Where the data of sparse files are.
    data: BTreeMap<u32, Vec<Extent>>,
    files: u32,
    stream_bytes: u64,
}

/// An entry without its name. The order of the fields leaves no gap in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    /// Of a file, its length; of a symbolic link, that of its target; of a hard link, the number of
    /// its file.
    number: u64,
    seconds: i64,
    nanos: u32,
    /// [`NO_PARENT`] for none.
    parent: u32,
    /// Where its name and target end in the names of all entries. They begin where those of the row
    /// before end.
    name_end: u32,
    mode: u16,
    shape: RowShape,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowShape {
    Directory,
    File { sparse: bool },
    Symlink,
    HardLink,
}

/// A value that is larger than the number of any entry.
const NO_PARENT: u32 = u32::MAX;

impl Manifest {
    /// All entries in the order of their numbers.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = EntryRef<'_>> + DoubleEndedIterator {
        let rows = self.rows.iter().enumerate();
        rows.map(|(at, row)| self.view(at, row))
    }

    /// The entry of a number; `None` for a number that no entry has.
    #[must_use]
    pub fn entry(&self, index: u32) -> Option<EntryRef<'_>> {
        let at = usize::try_from(index).ok()?;
        Some(self.view(at, self.rows.get(at)?))
    }

    /// The name of an entry; empty for a number that no entry has.
    pub(super) fn name(&self, index: u32) -> &[u8] {
        self.entry(index).map_or(&[], |entry| entry.name)
    }

    /// How many of the entries are files or links. Each of them gets a verdict.
    #[must_use]
    pub fn files(&self) -> u32 {
        self.files
    }

    /// Bytes of all files together, without the holes that are not sent.
    #[must_use]
    pub fn stream_bytes(&self) -> u64 {
        self.stream_bytes
    }

    /// Bytes of a file in the stream; 0 for any other entry.
    #[must_use]
    pub fn stream_bytes_of(&self, index: u32) -> u64 {
        match self.entry(index).map(|entry| entry.kind) {
            Some(Kind::File { bytes, .. }) => match self.data.get(&index) {
                Some(extents) => extents.iter().map(|extent| extent.data_bytes).sum(),
                None => bytes,
            },
            _ => 0,
        }
    }

    /// The details of all entries that have any.
    pub fn details(&self) -> impl Iterator<Item = Detail> + '_ {
        let keys = self.owners.keys().chain(self.xattrs.keys());
        let mut entries: Vec<u32> = keys.chain(self.data.keys()).copied().collect();
        entries.sort_unstable();
        entries.dedup();
        entries.into_iter().map(|entry| Detail {
            entry,
            owner: self.owner(entry),
            xattrs: self.xattrs(entry).to_vec(),
            data: self.data(entry).map(<[_]>::to_vec),
        })
    }

    /// The owner of an entry, if it is sent.
    pub(super) fn owner(&self, index: u32) -> Option<Owner> {
        self.owners.get(&index).copied()
    }

    pub(super) fn xattrs(&self, index: u32) -> &[Xattr] {
        self.xattrs.get(&index).map_or(&[], Vec::as_slice)
    }

    /// Where the data of a sparse file are; `None`: all of the file is in the stream.
    pub(super) fn data(&self, index: u32) -> Option<&[Extent]> {
        self.data.get(&index).map(Vec::as_slice)
    }

    /// Path of an entry below the receiver's directory; empty for a number that no entry has. Show
    /// it with `{:?}`: the name comes from a peer and may hold control characters.
    #[must_use]
    pub fn path(&self, index: u32) -> PathBuf {
        let names = self.lineage(Some(index)).into_iter().rev();
        names
            .filter_map(|index| self.entry(index))
            .map(|entry| OsStr::from_bytes(entry.name))
            .collect()
    }

    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.rows.len()).unwrap_or(u32::MAX)
    }

    /// An entry and the directories around it, innermost first.
    pub(super) fn lineage(&self, mut index: Option<u32>) -> Vec<u32> {
        let mut lineage = Vec::new();
        // Every parent has a smaller number than its child, so this ends.
        while let Some((at, entry)) = index.and_then(|at| Some((at, self.entry(at)?))) {
            lineage.push(at);
            index = entry.parent;
        }
        lineage
    }

    /// The number of the first file or link from a number on.
    #[must_use]
    pub fn next_verdict(&self, index: u32) -> Option<u32> {
        self.next_file(index).map(|file| file.index)
    }

    /// The first file or link whose number is at least `index`. A link has no bytes in the stream.
    pub(super) fn next_file(&self, index: u32) -> Option<FileEntry> {
        let mut entries = (index..).map_while(|at| Some((at, self.entry(at)?)));
        entries.find_map(|(index, entry)| {
            let (length, sparse) = match entry.kind {
                Kind::Directory => return None,
                Kind::File { bytes, sparse } => (bytes, sparse),
                Kind::Symlink { .. } | Kind::HardLink { .. } => (0, false),
            };
            Some(FileEntry {
                index,
                bytes: self.stream_bytes_of(index),
                length,
                sparse,
            })
        })
    }

    /// Whether other entries are names of this file.
    pub(super) fn has_other_names(&self, index: u32) -> bool {
        self.firsts.contains(&index)
    }

    fn view(&self, at: usize, row: &Row) -> EntryRef<'_> {
        let before = at.checked_sub(1).and_then(|before| self.rows.get(before));
        let start = before.map_or(0, |before| before.name_end);
        let bytes = row.number;
        let mut name = &self.names[position(start)..position(row.name_end)];
        let mut target = &name[name.len()..];
        if row.shape == RowShape::Symlink {
            let target_bytes = usize::try_from(row.number).unwrap_or(0);
            (name, target) = name.split_at(name.len().saturating_sub(target_bytes));
        }
        EntryRef {
            parent: (row.parent != NO_PARENT).then_some(row.parent),
            name,
            kind: match row.shape {
                RowShape::Directory => Kind::Directory,
                RowShape::File { sparse } => Kind::File { bytes, sparse },
                RowShape::Symlink => Kind::Symlink { target },
                RowShape::HardLink => Kind::HardLink {
                    first: u32::try_from(row.number).unwrap_or(u32::MAX),
                },
            },
            mode: row.mode,
            modified: Time {
                seconds: row.seconds,
                nanos: row.nanos,
            },
        }
    }

    /// Adds an entry that was checked.
    fn push(&mut self, entry: &Entry) {
        self.names.extend_from_slice(&entry.name);
        let (shape, number) = match &entry.kind {
            Kind::Directory => (RowShape::Directory, 0),
            Kind::File { bytes, sparse } => (RowShape::File { sparse: *sparse }, *bytes),
            Kind::Symlink { target } => {
                self.names.extend_from_slice(target);
                let target_bytes = u64::try_from(target.len()).unwrap_or(u64::MAX);
                (RowShape::Symlink, target_bytes)
            }
            Kind::HardLink { first } => {
                self.firsts.insert(*first);
                (RowShape::HardLink, u64::from(*first))
            }
        };
        self.rows.push(Row {
            number,
            seconds: entry.modified.seconds,
            nanos: entry.modified.nanos,
            parent: entry.parent.unwrap_or(NO_PARENT),
            name_end: u32::try_from(self.names.len()).unwrap_or(u32::MAX),
            mode: entry.mode,
            shape,
        });
        self.files += u32::from(shape != RowShape::Directory);
        if let Kind::File { bytes, .. } = entry.kind {
            self.stream_bytes += bytes;
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct FileEntry {
    pub(super) index: u32,
    /// In the stream.
    pub(super) bytes: u64,
    pub(super) length: u64,
    pub(super) sparse: bool,
}

/// Converts a 32-bit number to an index in memory.
fn position(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_takes_what_the_documentation_says() {
        assert_eq!(size_of::<Row>(), 32);
    }
}
