//! What a transfer consists of, checked (P8.3).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::entry::{Entry, Kind, MODE_BITS, NANOS, NameError, check_name};

/// Most entries of a manifest.
pub const MAX_ENTRIES: u32 = 1 << 20;
/// Most names in a path.
pub const MAX_DEPTH: u16 = 64;
/// Most bytes of a path: its names and the separators between them.
pub const MAX_PATH_BYTES: u32 = 4095;
/// Most bytes of all names together.
pub const MAX_NAMES_BYTES: u64 = 64 << 20;
/// File offsets are signed in all operating systems.
const MAX_STREAM_BYTES: u64 = i64::MAX as u64;

/// Files and directories, every one checked: names are single components, parents are directories
/// that come earlier, no two entries share a path, all bounds are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    entries: Vec<Entry>,
    files: u32,
    stream_bytes: u64,
}

impl Manifest {
    /// All entries; an entry's number is its place here.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// How many of the entries are files.
    #[must_use]
    pub fn files(&self) -> u32 {
        self.files
    }

    /// Bytes of all files together.
    #[must_use]
    pub fn stream_bytes(&self) -> u64 {
        self.stream_bytes
    }

    /// Path of an entry below the receiver's directory; empty for a number that no entry has. Show
    /// it with `{:?}`: the name comes from a peer and may hold control characters.
    #[must_use]
    pub fn path(&self, index: u32) -> PathBuf {
        let names = self.lineage(Some(index)).into_iter().rev();
        names
            .filter_map(|index| self.get(index))
            .map(|entry| OsStr::from_bytes(&entry.name))
            .collect()
    }

    /// The entry of a number.
    pub(super) fn get(&self, index: u32) -> Option<&Entry> {
        self.entries.get(usize::try_from(index).ok()?)
    }

    /// An entry and the directories around it, innermost first.
    pub(super) fn lineage(&self, mut index: Option<u32>) -> Vec<u32> {
        let mut lineage = Vec::new();
        // Every parent has a smaller number than its child, so this ends.
        while let Some((at, entry)) = index.and_then(|at| Some((at, self.get(at)?))) {
            lineage.push(at);
            index = entry.parent;
        }
        lineage
    }

    /// The first file whose number is at least `index`: its number, its entry, its length.
    pub(super) fn next_file(&self, index: u32) -> Option<(u32, &Entry, u64)> {
        let mut entries = (index..).map_while(|at| Some((at, self.get(at)?)));
        entries.find_map(|(at, entry)| match entry.kind {
            Kind::File { bytes } => Some((at, entry, bytes)),
            Kind::Directory => None,
        })
    }
}

/// Puts a [`Manifest`] together, entry by entry, and refuses the first that breaks a rule.
#[derive(Debug, Default)]
pub struct ManifestBuilder {
    manifest: Manifest,
    /// One for each entry.
    shapes: Vec<Shape>,
    names_bytes: u64,
}

/// What the children of an entry need to know of it.
#[derive(Clone, Copy, Debug, Default)]
struct Shape {
    /// Names in its path.
    depth: u16,
    /// Bytes of its path.
    path_bytes: u32,
    is_directory: bool,
}

impl ManifestBuilder {
    /// Adds an entry; its number is how many were added before.
    ///
    /// # Errors
    /// A [`ManifestError`] that names the entry.
    pub fn push(&mut self, entry: Entry) -> Result<u32, ManifestError> {
        let index = self.entries();
        if index >= MAX_ENTRIES {
            return Err(ManifestError::TooMany);
        }
        let names_bytes = self.names_bytes + u64::try_from(entry.name.len()).unwrap_or(u64::MAX);
        if names_bytes > MAX_NAMES_BYTES {
            return Err(ManifestError::NamesTooLong);
        }
        let (shape, stream_bytes) = self.check(&entry).map_err(|why| ManifestError::Entry {
            index,
            path: self.shown_path(&entry),
            why,
        })?;
        self.names_bytes = names_bytes;
        self.manifest.stream_bytes = stream_bytes;
        self.manifest.files += u32::from(!shape.is_directory);
        self.manifest.entries.push(entry);
        self.shapes.push(shape);
        Ok(index)
    }

    /// The entry's shape, and the length of the stream with it.
    fn check(&self, entry: &Entry) -> Result<(Shape, u64), EntryError> {
        check_name(&entry.name).map_err(EntryError::Name)?;
        let shape = self.shape(entry)?;
        if entry.mode > MODE_BITS {
            return Err(EntryError::Mode { came: entry.mode });
        }
        if entry.modified.nanos >= NANOS {
            return Err(EntryError::Nanos {
                came: entry.modified.nanos,
            });
        }
        let bytes = match entry.kind {
            Kind::Directory => 0,
            Kind::File { bytes } => bytes,
        };
        let sum = self.manifest.stream_bytes.checked_add(bytes);
        let stream_bytes = sum.filter(|sum| *sum <= MAX_STREAM_BYTES);
        Ok((
            shape,
            stream_bytes.ok_or(EntryError::Bytes { came: bytes })?,
        ))
    }

    /// The path of a refused entry: what would make it another path is replaced.
    fn shown_path(&self, entry: &Entry) -> PathBuf {
        let name = String::from_utf8_lossy(&entry.name).replace(['/', '\0'], "\u{fffd}");
        let parent = entry.parent.map(|parent| self.manifest.path(parent));
        parent.unwrap_or_default().join(name)
    }

    fn shape(&self, entry: &Entry) -> Result<Shape, EntryError> {
        let parent = match entry.parent {
            None => Shape::default(),
            Some(at) => usize::try_from(at)
                .ok()
                .and_then(|at| self.shapes.get(at))
                .filter(|shape| shape.is_directory)
                .copied()
                .ok_or(EntryError::Parent { came: at })?,
        };
        let depth = parent.depth + 1;
        if depth > MAX_DEPTH {
            return Err(EntryError::Deep);
        }
        let separator = u32::from(parent.depth > 0);
        let name_bytes = u32::try_from(entry.name.len()).unwrap_or(u32::MAX);
        let path_bytes = (parent.path_bytes + separator).saturating_add(name_bytes);
        if path_bytes > MAX_PATH_BYTES {
            return Err(EntryError::Long { came: path_bytes });
        }
        Ok(Shape {
            depth,
            path_bytes,
            is_directory: entry.kind == Kind::Directory,
        })
    }

    /// How many entries there are so far.
    #[must_use]
    pub fn entries(&self) -> u32 {
        u32::try_from(self.shapes.len()).unwrap_or(u32::MAX)
    }

    /// The manifest.
    ///
    /// # Errors
    /// [`ManifestError::Twice`] if two entries have the same path.
    pub fn build(self) -> Result<Manifest, ManifestError> {
        let entries = &self.manifest.entries;
        let mut by_name: Vec<u32> = (0..self.entries()).collect();
        let key = |index: &u32| {
            let entry = usize::try_from(*index).ok().and_then(|at| entries.get(at));
            entry.map(|entry| (entry.parent, &entry.name))
        };
        by_name.sort_unstable_by_key(key);
        let twice = by_name.iter().zip(by_name.iter().skip(1));
        match twice.into_iter().find(|(a, b)| key(a) == key(b)) {
            None => Ok(self.manifest),
            Some((a, b)) => Err(ManifestError::Twice {
                first: *a.min(b),
                second: *a.max(b),
                path: self.manifest.path(*a),
            }),
        }
    }
}

/// Why a manifest is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// An entry breaks a rule.
    #[error("manifest entry {index} ({path:?}): {why}")]
    Entry {
        /// Its number.
        index: u32,
        /// Its path, as far as it can be shown.
        path: PathBuf,
        /// Which rule.
        why: EntryError,
    },
    /// Two entries have the same path.
    #[error("manifest entries {first} and {second} have the same path {path:?}")]
    Twice {
        /// Number of one.
        first: u32,
        /// Number of the other.
        second: u32,
        /// Their path.
        path: PathBuf,
    },
    /// More than [`MAX_ENTRIES`].
    #[error("more than {MAX_ENTRIES} files and directories; send parts of the tree one by one")]
    TooMany,
    /// More than [`MAX_NAMES_BYTES`].
    #[error("the names have more than {MAX_NAMES_BYTES} bytes; send parts of the tree one by one")]
    NamesTooLong,
    /// It is not what the transfer plan announced.
    #[error("the manifest has {came} {what}, but the transfer plan said {want}")]
    NotAsPlanned {
        /// Entries or bytes.
        what: &'static str,
        /// How many there are.
        came: u64,
        /// How many were announced.
        want: u64,
    },
}

/// Why an entry is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// Its name is no name.
    #[error("its name cannot be used: {0}")]
    Name(NameError),
    /// Its parent is not a directory that came earlier.
    #[error("its parent, entry {came}, is no directory that came before it")]
    Parent {
        /// The parent that it names.
        came: u32,
    },
    /// It lies too deep.
    #[error("it lies more than {MAX_DEPTH} directories deep")]
    Deep,
    /// Its path is too long.
    #[error("its path has {came} bytes, at most {MAX_PATH_BYTES} are allowed")]
    Long {
        /// The length.
        came: u32,
    },
    /// Its mode has bits that do not travel.
    #[error("its mode is {came:#o}, at most 0o777 is allowed")]
    Mode {
        /// The mode.
        came: u16,
    },
    /// Its time is no time.
    #[error("its time has {came} nanoseconds, want fewer than {NANOS}")]
    Nanos {
        /// What came.
        came: u32,
    },
    /// The lengths overflow.
    #[error("with its {came} bytes the transfer is longer than {MAX_STREAM_BYTES} bytes")]
    Bytes {
        /// Its length.
        came: u64,
    },
}
