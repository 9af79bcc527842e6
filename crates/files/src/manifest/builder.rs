//! Builds a manifest from single entries.

use std::path::PathBuf;

use super::{
    EntryError, MAX_DEPTH, MAX_ENTRIES, MAX_NAMES_BYTES, MAX_PATH_BYTES, MAX_STREAM_BYTES,
    Manifest, ManifestError, position,
};
use crate::detail::{MAX_ALL_EXTENTS, MAX_ALL_XATTRS_BYTES, check_extents, check_xattrs};
use crate::entry::{MAX_TARGET_BYTES, MODE_BITS, NANOS, check_name};
use crate::{Detail, DetailError, Entry, Kind, Xattr};

/// Builds a [`Manifest`] entry by entry, and refuses the first entry that breaks a rule.
#[derive(Debug, Default)]
pub struct ManifestBuilder {
    manifest: Manifest,
    /// One for each entry.
    depths: Vec<Depth>,
    xattrs_bytes: usize,
    extents: usize,
}

/// The depth and the length of an entry's path, for the checks against the limits.
#[derive(Clone, Copy, Debug, Default)]
struct Depth {
    /// Names in its path.
    names: u16,
    /// Bytes of its path.
    bytes: u16,
}

impl ManifestBuilder {
    /// Adds an entry. Its number is the count of earlier entries.
    ///
    /// # Errors
    /// A [`ManifestError`] that names the entry.
    pub fn push(&mut self, entry: &Entry) -> Result<u32, ManifestError> {
        let index = self.entries();
        if index >= MAX_ENTRIES {
            return Err(ManifestError::TooMany);
        }
        let more_bytes = entry.name.len() + entry.kind.target_bytes();
        let names_bytes = self.manifest.names.len().saturating_add(more_bytes);
        if u64::try_from(names_bytes).is_ok_and(|bytes| bytes > MAX_NAMES_BYTES) {
            return Err(ManifestError::NamesTooLong);
        }
        let depth = self.check(entry).map_err(|why| ManifestError::Entry {
            index,
            path: self.shown_path(entry),
            why,
        })?;
        self.manifest.push(entry);
        self.depths.push(depth);
        Ok(index)
    }

    /// Adds a detail of an earlier entry.
    ///
    /// # Errors
    /// [`ManifestError::Detail`].
    pub fn push_detail(&mut self, detail: Detail) -> Result<(), ManifestError> {
        let index = detail.entry;
        self.add_detail(detail)
            .map_err(|why| ManifestError::Detail { index, why })
    }

    fn add_detail(&mut self, detail: Detail) -> Result<(), DetailError> {
        let index = detail.entry;
        let entry = self.manifest.entry(index).ok_or(DetailError::Entry)?;
        let file = match entry.kind {
            Kind::Directory => None,
            Kind::File { bytes, sparse } => Some((bytes, sparse)),
            Kind::Symlink { .. } if detail.xattrs.is_empty() => None,
            Kind::Symlink { .. } | Kind::HardLink { .. } => return Err(DetailError::Entry),
        };
        if detail.owner.is_none() && detail.xattrs.is_empty() && detail.data.is_none() {
            return Err(DetailError::Empty);
        }
        if let Some(owner) = detail.owner
            && self.manifest.owners.insert(index, owner).is_some()
        {
            return Err(DetailError::Twice("owner"));
        }
        if !detail.xattrs.is_empty() {
            self.xattrs_bytes += check_xattrs(&detail.xattrs)?;
            if self.xattrs_bytes > MAX_ALL_XATTRS_BYTES {
                return Err(DetailError::Long);
            }
            if self.manifest.xattrs.insert(index, detail.xattrs).is_some() {
                return Err(DetailError::Twice("extended attributes"));
            }
        }
        if let Some(extents) = detail.data {
            let Some((bytes, true)) = file else {
                return Err(DetailError::Extents);
            };
            let data_bytes = check_extents(&extents, bytes)?;
            self.extents += extents.len().max(1);
            if self.extents > MAX_ALL_EXTENTS {
                return Err(DetailError::Extents);
            }
            if self.manifest.data.insert(index, extents).is_some() {
                return Err(DetailError::Twice("data"));
            }
            self.manifest.stream_bytes -= bytes - data_bytes;
        }
        Ok(())
    }

    pub(crate) fn has_room_for_extents(&self, extents: usize) -> bool {
        self.extents + extents.max(1) <= MAX_ALL_EXTENTS
    }

    pub(crate) fn has_room_for_xattrs(&self, xattrs: &[Xattr]) -> bool {
        check_xattrs(xattrs).is_ok_and(|bytes| self.xattrs_bytes + bytes <= MAX_ALL_XATTRS_BYTES)
    }

    pub(crate) fn set_mode(&mut self, index: u32, mode: u16) {
        if let Some(row) = self.manifest.rows.get_mut(position(index)) {
            row.mode = mode & MODE_BITS;
        }
    }

    /// Returns the number of entries so far.
    #[must_use]
    pub fn entries(&self) -> u32 {
        self.manifest.len()
    }

    /// The manifest.
    ///
    /// # Errors
    /// [`ManifestError::Twice`] if two entries have the same path.
    pub fn build(mut self) -> Result<Manifest, ManifestError> {
        self.depths = Vec::new();
        self.manifest.rows.shrink_to_fit();
        self.manifest.names.shrink_to_fit();
        let mut by_name: Vec<u32> = (0..self.entries()).collect();
        let key = |index: &u32| {
            let entry = self.manifest.entry(*index);
            entry.map(|entry| (entry.parent, entry.name))
        };
        by_name.sort_unstable_by_key(key);
        let mut neighbours = by_name.iter().zip(by_name.iter().skip(1));
        let twice = neighbours.find(|(a, b)| key(a) == key(b));
        if let Some((a, b)) = twice {
            return Err(ManifestError::Twice {
                first: *a.min(b),
                second: *a.max(b),
                path: self.manifest.path(*a),
            });
        }
        Ok(self.manifest)
    }

    /// Returns the entries so far. Names may still be duplicated.
    pub(crate) fn so_far(&self) -> &Manifest {
        &self.manifest
    }

    fn check(&self, entry: &Entry) -> Result<Depth, EntryError> {
        check_name(&entry.name).map_err(EntryError::Name)?;
        let depth = self.depth(entry)?;
        if entry.mode > MODE_BITS {
            return Err(EntryError::Mode(entry.mode));
        }
        if entry.modified.nanos >= NANOS {
            return Err(EntryError::Nanos(entry.modified.nanos));
        }
        match &entry.kind {
            Kind::Directory => {}
            Kind::File { bytes, .. } => {
                let sum = self.manifest.stream_bytes.checked_add(*bytes);
                if sum.is_none_or(|sum| sum > MAX_STREAM_BYTES) {
                    return Err(EntryError::Bytes(*bytes));
                }
            }
            Kind::Symlink { target } => {
                let is_target = (1..=MAX_TARGET_BYTES).contains(&target.len());
                if !is_target || target.contains(&0) {
                    return Err(EntryError::Target(target.len()));
                }
            }
            Kind::HardLink { first } => {
                let file = self.manifest.entry(*first);
                if !file.is_some_and(|file| matches!(file.kind, Kind::File { .. })) {
                    return Err(EntryError::First(*first));
                }
            }
        }
        Ok(depth)
    }

    fn depth(&self, entry: &Entry) -> Result<Depth, EntryError> {
        let parent = match entry.parent {
            None => Depth::default(),
            Some(at) => self.depth_of_directory(at)?,
        };
        let names = parent.names + 1;
        if names > MAX_DEPTH {
            return Err(EntryError::Deep);
        }
        let separator = u32::from(parent.names > 0);
        let name_bytes = u32::try_from(entry.name.len()).unwrap_or(u32::MAX);
        let path_bytes = (u32::from(parent.bytes) + separator).saturating_add(name_bytes);
        let bytes = u16::try_from(path_bytes).ok();
        let bytes = bytes.filter(|_| path_bytes <= MAX_PATH_BYTES);
        Ok(Depth {
            names,
            bytes: bytes.ok_or(EntryError::Long(path_bytes))?,
        })
    }

    fn depth_of_directory(&self, index: u32) -> Result<Depth, EntryError> {
        let entry = self.manifest.entry(index);
        let directory = entry.filter(|entry| entry.kind == Kind::Directory);
        let depth = directory.and_then(|_| self.depths.get(position(index)));
        depth.copied().ok_or(EntryError::Parent(index))
    }

    /// Returns the path of a refused entry. Replaces characters that would make it another path.
    fn shown_path(&self, entry: &Entry) -> PathBuf {
        let name = String::from_utf8_lossy(&entry.name).replace(['/', '\0'], "\u{fffd}");
        let parent = entry.parent.map(|parent| self.manifest.path(parent));
        parent.unwrap_or_default().join(name)
    }
}
