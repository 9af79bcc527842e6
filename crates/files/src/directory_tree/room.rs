//! Whether the files of a manifest fit.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::FileType;

use super::DirectoryTree;
use crate::directory::Directory;
use crate::free_space::{Free, NeededSpace};
use crate::quota::{NAME_BYTES, Stock};
use crate::{EntryRef, Kind, PathError, SinkError};

/// Longer targets of symbolic links take a block.
const SHORT_TARGET_BYTES: usize = 60;

impl DirectoryTree {
    /// Checks that the files fit into the quota. Interrupted files have what is left of it: if there is too little
    /// room for all, those that this transfer does not need are removed.
    pub(super) fn check_quota(&mut self) -> Result<(), SinkError> {
        let (quota_bytes, quota_entries) = (self.policy.quota_bytes, self.policy.quota_entries);
        if quota_bytes.is_none() && quota_entries.is_none() {
            return Ok(());
        }
        let mut stock = Stock::take(&self.root_path).map_err(SinkError::Open)?;
        let needed = self.needed(Measure::Quota);
        let left_entries = quota_entries.map(|most| most.saturating_sub(stock.used_entries));
        if let Some(left) = left_entries.filter(|left| needed.entries > *left) {
            return Err(SinkError::QuotaEntries {
                needed: needed.entries,
                left,
            });
        }
        let Some(quota_bytes) = quota_bytes else {
            return Ok(());
        };
        let left_bytes = quota_bytes.saturating_sub(stock.used_bytes);
        let needed_bytes = needed.bytes;
        if needed_bytes > left_bytes {
            return Err(SinkError::Quota {
                needed_bytes,
                left_bytes,
            });
        }
        let entries = (0..).zip(self.manifest.entries());
        let sources = entries.filter_map(|(index, entry)| {
            let source = self.interrupted.source(&self.manifest, index, &entry);
            Some(source?.place)
        });
        let places: HashSet<u64> = sources.collect();
        stock.shrink_to(left_bytes - needed_bytes, &places);
        Ok(())
    }

    /// Checks that the files fit into what is free, as far as that can be known: a file system
    /// that compresses needs less, and holes need nothing.
    pub(super) fn check_room(&mut self) -> Result<(), SinkError> {
        let Some(reserve_bytes) = self.policy.reserve_bytes else {
            return Ok(());
        };
        let failed = |error| SinkError::Open(PathError::new(&self.root_path, error));
        let Some(free) = Free::around(&self.directories.root).map_err(failed)? else {
            return Ok(());
        };
        let room_bytes = free.bytes.saturating_sub(reserve_bytes);
        let reserve_inodes = free.reserve_inodes(reserve_bytes);
        let free_inodes = free.inodes.unwrap_or(u64::MAX);
        let room_inodes = free_inodes.saturating_sub(reserve_inodes);
        let keeps_inodes = free_inodes >= reserve_inodes;
        let keeps = free.bytes >= reserve_bytes && keeps_inodes;
        let entries = u64::from(self.manifest.len());
        // The last block of each file counts as a whole.
        let most_bytes = entries.saturating_mul(free.block_bytes);
        let most_bytes = most_bytes.saturating_add(self.manifest.stream_bytes());
        if most_bytes <= room_bytes && entries <= room_inodes && keeps {
            return Ok(());
        }
        let needed = self.needed(Measure::Room {
            block_bytes: free.block_bytes,
        });
        let path = self.root_path.clone();
        if needed.bytes > room_bytes || free.bytes < reserve_bytes {
            return Err(SinkError::NoRoom {
                path,
                needed_bytes: needed.bytes,
                reserve_bytes,
                free_bytes: free.bytes,
            });
        }
        if needed.entries > room_inodes || !keeps_inodes {
            return Err(SinkError::NoInodes {
                path,
                needed: needed.entries,
                reserve: reserve_inodes,
                free: free_inodes,
            });
        }
        Ok(())
    }

    /// What the entries need beyond what they replace.
    fn needed(&mut self, measure: Measure) -> Needed {
        let manifest = Arc::clone(&self.manifest);
        let mut space = NeededSpace::default();
        let mut entries = 0;
        for (index, entry) in (0..).zip(manifest.entries()) {
            let around = self.directories.enter(&manifest, entry.parent).ok();
            let found = around.and_then(|around| Some((around.look(entry.name).ok()??, around)));
            let is_file = matches!(entry.kind, Kind::File { .. });
            if let Some((status, around)) = &found
                && (entry.kind.is_directory() || self.comparer.may_be_same(&entry, status, around))
            {
                continue;
            }
            let status = found.map(|(status, _)| status);
            let is_new = status.is_none();
            let is_inode = !matches!(entry.kind, Kind::HardLink { .. });
            entries += u64::from(is_new && (is_inode || measure == Measure::Quota));
            let mut bytes = self.entry_bytes(index, &entry, measure);
            if is_new && measure == Measure::Quota {
                bytes = bytes.saturating_add(NAME_BYTES);
            }
            let freed = status.filter(|status| {
                is_file && status.kind == FileType::RegularFile && status.links == 1
            });
            let freed_bytes = freed.map_or(0, |status| status.allocated_bytes);
            space.add(
                bytes,
                match measure {
                    // The sender decides whether the file arrives, and so whether the older one goes.
                    Measure::Quota => freed_bytes.min(bytes),
                    Measure::Room { .. } => freed_bytes,
                },
            );
        }
        Needed {
            bytes: space.bytes(),
            entries,
        }
    }

    /// The blocks that an entry needs.
    fn entry_bytes(&mut self, index: u32, entry: &EntryRef<'_>, measure: Measure) -> u64 {
        let manifest = Arc::clone(&self.manifest);
        let block_bytes = match measure {
            Measure::Quota => NAME_BYTES,
            Measure::Room { block_bytes } => block_bytes,
        };
        let whole = |bytes: u64| bytes.checked_next_multiple_of(block_bytes);
        let whole = |bytes: u64| whole(bytes).unwrap_or(u64::MAX);
        let own_bytes = match entry.kind {
            Kind::File { bytes, sparse } => {
                // Without a list of its data, nobody knows how much of a sparse file is zeros.
                let is_unknown = sparse && manifest.data(index).is_none();
                match measure {
                    Measure::Quota if is_unknown => whole(bytes),
                    Measure::Quota => whole(manifest.stream_bytes_of(index)),
                    Measure::Room { .. } if is_unknown => 0,
                    Measure::Room { .. } => {
                        let bytes = whole(manifest.stream_bytes_of(index));
                        bytes.saturating_sub(self.interrupted_bytes(index, entry))
                    }
                }
            }
            // A short target lies in the inode.
            Kind::Symlink { target } if target.len() >= SHORT_TARGET_BYTES => {
                whole(target.len() as u64)
            }
            Kind::Directory => match measure {
                Measure::Quota => 0,
                Measure::Room { block_bytes } => block_bytes,
            },
            Kind::Symlink { .. } | Kind::HardLink { .. } => 0,
        };
        let xattrs = manifest.xattrs(index).iter();
        let xattrs_bytes: usize = xattrs.map(|it| it.name.len() + it.value.len()).sum();
        own_bytes.saturating_add(whole(xattrs_bytes as u64))
    }

    /// Bytes that the interrupted file of an entry takes already.
    fn interrupted_bytes(&mut self, index: u32, entry: &EntryRef<'_>) -> u64 {
        let manifest = Arc::clone(&self.manifest);
        let source = self.interrupted.source(&manifest, index, entry);
        let around = self.directories.enter(&manifest, entry.parent).ok();
        source.zip(around).map_or(0, |(source, around)| {
            let (interrupted, parent) = (&mut self.interrupted, entry.parent);
            interrupted.allocated_bytes(parent, around, source)
        })
    }

    /// Ends the transfer if less is free than the reserve. Looks once in a while only.
    ///
    /// # Errors
    /// [`SinkError::Reserve`], [`SinkError::NoInodes`].
    pub(crate) fn keep_reserve(&mut self, written_bytes: u64) -> Result<(), SinkError> {
        let reserve_bytes = self.policy.reserve_bytes.unwrap_or(0);
        if reserve_bytes == 0 || !self.room.is_due(written_bytes) {
            return Ok(());
        }
        check_reserve(&self.directories.root, &self.root_path, reserve_bytes)
    }
}

/// Whether more is free around a directory than a reserve, as far as that can be known.
///
/// # Errors
/// [`SinkError::Reserve`], [`SinkError::NoInodes`].
pub(crate) fn check_reserve(
    directory: &Directory,
    path: &Path,
    reserve_bytes: u64,
) -> Result<(), SinkError> {
    let Ok(Some(free)) = Free::around(directory) else {
        return Ok(());
    };
    let path = path.to_path_buf();
    if free.bytes < reserve_bytes {
        return Err(SinkError::Reserve {
            path,
            reserve_bytes,
            free_bytes: free.bytes,
        });
    }
    let reserve = free.reserve_inodes(reserve_bytes);
    match free.inodes.filter(|free| *free < reserve) {
        None => Ok(()),
        Some(free) => Err(SinkError::NoInodes {
            path,
            needed: 0,
            reserve,
            free,
        }),
    }
}

struct Needed {
    bytes: u64,
    /// Inodes, or for a quota, names.
    entries: u64,
}

/// How bytes of files are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measure {
    /// At most, with a part for each name.
    Quota,
    /// Those that a file system has to find room for. What is there of interrupted files has room already.
    Room { block_bytes: u64 },
}
