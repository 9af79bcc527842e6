//! Writes that outlive the call that posts them.

use crate::contract::{FabricError, Lkey, RegionReader, Rkey, Sge, WriteWr};

/// Writes of one post, with the memory that they name.
#[derive(Debug)]
pub(super) struct Writes {
    writes: Vec<Write>,
    /// The scatter entries of all writes.
    entries: Vec<Sge>,
    /// Their regions count as in use until this is dropped.
    _regions: Vec<RegionReader>,
}

/// A write whose scatter entries are elsewhere.
#[derive(Debug)]
struct Write {
    wr_id: u64,
    signaled: bool,
    remote_addr: u64,
    rkey: Rkey,
    imm: u32,
    entries: usize,
}

impl Writes {
    /// Copies the requests, not the bytes. The last write is signalled if some were left out: `is_cut`.
    ///
    /// # Errors
    /// Those of `reader`, which gives a reader of a region.
    pub(super) fn copy(
        requests: &[WriteWr<'_>],
        is_cut: bool,
        reader: impl Fn(Lkey) -> Result<RegionReader, FabricError>,
    ) -> Result<Self, FabricError> {
        let mut writes = Vec::with_capacity(requests.len());
        let mut entries = Vec::with_capacity(requests.len());
        let (mut keys, mut regions) = (Vec::new(), Vec::new());
        for request in requests {
            for entry in request.local {
                // Most posts name one region.
                if !keys.contains(&entry.lkey) {
                    regions.push(reader(entry.lkey)?);
                    keys.push(entry.lkey);
                }
                entries.push(*entry);
            }
            writes.push(Write {
                wr_id: request.wr_id,
                signaled: request.signaled,
                remote_addr: request.remote_addr,
                rkey: request.rkey,
                imm: request.imm,
                entries: request.local.len(),
            });
        }
        if let Some(last) = writes.last_mut() {
            last.signaled |= is_cut;
        }
        Ok(Self {
            writes,
            entries,
            _regions: regions,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.writes.len()
    }

    /// The requests, as they were posted.
    pub(super) fn requests(&self) -> Vec<WriteWr<'_>> {
        let mut rest = &self.entries[..];
        let request = |write: &Write| {
            let (local, others) = rest.split_at(write.entries);
            rest = others;
            WriteWr {
                wr_id: write.wr_id,
                signaled: write.signaled,
                local,
                remote_addr: write.remote_addr,
                rkey: write.rkey,
                imm: write.imm,
            }
        };
        self.writes.iter().map(request).collect()
    }
}
