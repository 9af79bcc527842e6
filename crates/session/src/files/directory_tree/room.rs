//! Whether the files of a manifest fit.

use std::collections::HashSet;
use std::sync::Arc;

use rustix::fs::FileType;

use super::DirectoryTree;
use crate::files::free_space::{NeededSpace, free_bytes};
use crate::files::quota::Stock;
use crate::files::status::Status;
use crate::files::{EntryRef, Kind, SinkError};

impl DirectoryTree {
    /// Checks that the files fit into the quota. Interrupted files have what is left of it: if there is too little
    /// room for all, those that this transfer does not need are removed.
    pub(super) fn check_quota(&mut self) -> Result<(), SinkError> {
        let Some(quota_bytes) = self.policy.quota_bytes else {
            return Ok(());
        };
        let stock = Stock::take(&self.root_path);
        let mut stock = stock.map_err(|(path, source)| SinkError::Open { path, source })?;
        let left_bytes = quota_bytes.saturating_sub(stock.used_bytes);
        let needed_bytes = self.needed_bytes(Measure::Length);
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

    /// Checks that the files fit into the free bytes, as far as that can be known: a file system
    /// that compresses needs less, and holes need nothing.
    pub(super) fn check_room(&mut self) -> Result<(), SinkError> {
        let Some(reserve_bytes) = self.policy.reserve_bytes else {
            return Ok(());
        };
        let free = free_bytes(self.directories.root());
        let Some(free_bytes) = free.map_err(|source| SinkError::Open {
            path: self.root_path.clone(),
            source,
        })?
        else {
            return Ok(());
        };
        let room_bytes = free_bytes.saturating_sub(reserve_bytes);
        if self.manifest.stream_bytes() <= room_bytes && free_bytes >= reserve_bytes {
            return Ok(());
        }
        let needed_bytes = self.needed_bytes(Measure::Allocated);
        if needed_bytes <= room_bytes && free_bytes >= reserve_bytes {
            return Ok(());
        }
        Err(SinkError::NoRoom {
            path: self.root_path.clone(),
            needed_bytes,
            reserve_bytes,
            free_bytes,
        })
    }

    /// The bytes that the files need beyond those of the files that they replace.
    fn needed_bytes(&mut self, measure: Measure) -> u64 {
        let manifest = Arc::clone(&self.manifest);
        let mut need = NeededSpace::default();
        for (index, entry) in (0..).zip(manifest.entries()) {
            if let Kind::File { bytes, sparse } = entry.kind {
                let around = self.around(index).ok();
                let status = around.and_then(|around| around.look(entry.name).ok()?);
                if let Some(status) = &status
                    && self.compare.may_be_same(&entry, status)
                {
                    continue;
                }
                let freed = status
                    .filter(|status| status.kind == FileType::RegularFile && status.links == 1);
                // Without a list of its data, nobody knows how much of a sparse file is zeros.
                let is_unknown = sparse && manifest.data(index).is_none();
                let bytes = match measure {
                    Measure::Length => bytes,
                    Measure::Allocated if is_unknown => 0,
                    Measure::Allocated => {
                        let bytes = manifest.stream_bytes_of(index);
                        bytes.saturating_sub(self.interrupted_bytes(index, &entry))
                    }
                };
                let freed_bytes = freed.map_or(0, |status| measure.of(&status));
                need.add(
                    bytes,
                    match measure {
                        // The sender decides whether the file arrives, and so whether the older one goes.
                        Measure::Length => freed_bytes.min(bytes),
                        Measure::Allocated => freed_bytes,
                    },
                );
            }
        }
        need.bytes()
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
    /// [`SinkError::Reserve`].
    pub(in crate::files) fn keep_reserve(&mut self, written_bytes: u64) -> Result<(), SinkError> {
        let reserve_bytes = self.policy.reserve_bytes.unwrap_or(0);
        if reserve_bytes == 0 || !self.room.is_due(written_bytes) {
            return Ok(());
        }
        match free_bytes(self.directories.root()) {
            Ok(Some(free_bytes)) if free_bytes < reserve_bytes => Err(SinkError::Reserve {
                path: self.root_path.clone(),
                reserve_bytes,
                free_bytes,
            }),
            _ => Ok(()),
        }
    }
}

/// How bytes of files are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measure {
    /// With holes.
    Length,
    /// Those that a file system has to find room for. What is there of interrupted files has room already.
    Allocated,
}

impl Measure {
    fn of(self, status: &Status) -> u64 {
        match self {
            Self::Length => status.bytes,
            Self::Allocated => status.allocated_bytes,
        }
    }
}
