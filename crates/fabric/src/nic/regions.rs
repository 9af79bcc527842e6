//! Registered regions.
//!
//! Only the control object changes the table; all transmit queues read it. A queue holds the read
//! lock while it posts. During a post, no region that it names can be deregistered, and no window
//! can be opened onto one.
#![allow(unsafe_code)]

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::numbers::{ByNumber, Numbers};
use crate::contract::{
    FabricError, Lkey, MAX_OBJECTS, Object, Region, RegionReader, Registered, Sge, Table,
};

/// The control object's reference to the table of regions.
#[derive(Default)]
pub(super) struct RegionsOwner(Arc<RwLock<Regions>>);

/// A transmit queue's reference to the table of regions.
pub(super) struct RegionsReader(Arc<RwLock<Regions>>);

/// All regions of a NIC. Each window onto a region and each reader holds another reference to it.
#[derive(Default)]
pub(super) struct Regions {
    table: ByNumber<Arc<Registered>>,
}

/// The bytes that a scatter entry names.
pub(super) enum Found<'a> {
    Bytes(&'a [u8]),
    /// Bytes that a peer may write at the same time.
    Shared,
    Ghost,
}

/// Looks up regions. It checks the last one first, because the entries of a post mostly name the
/// same region.
pub(super) struct Lookups<'a> {
    regions: &'a Regions,
    last: Option<(Lkey, &'a Arc<Registered>)>,
}

impl Regions {
    pub(super) fn register(
        &mut self,
        numbers: &mut Numbers,
        region: Region,
    ) -> Result<Lkey, FabricError> {
        if self.table.len() >= MAX_OBJECTS {
            return Err(FabricError::OutOfResources(Table::MemoryRegion));
        }
        let lkey = numbers.key(&self.table);
        self.table.insert(lkey, Arc::new(Registered::new(region)));
        Ok(Lkey(lkey))
    }

    pub(super) fn deregister(&mut self, lkey: Lkey) -> Result<Region, FabricError> {
        let unknown = FabricError::UnknownKey(lkey.0);
        let entry = self.table.get_mut(&lkey.0).ok_or(unknown)?;
        // `get_mut` also synchronizes with the drop of the last window or reader.
        if Arc::get_mut(entry).is_none() {
            return Err(FabricError::InUse(Object::MemoryRegion));
        }
        let entry = self.table.remove(&lkey.0).and_then(Arc::into_inner);
        let entry = entry.ok_or(FabricError::InUse(Object::MemoryRegion))?;
        Ok(entry.into_region())
    }

    /// The region, for opening a window onto it.
    pub(super) fn get(&self, lkey: Lkey) -> Result<&Arc<Registered>, FabricError> {
        let entry = self.table.get(&lkey.0);
        entry.ok_or(FabricError::UnknownKey(lkey.0))
    }

    pub(super) fn reader(&self, lkey: Lkey) -> Result<RegionReader, FabricError> {
        let region = self.get(lkey)?;
        // SAFETY: the region is not deregistered while there is another reference to it. NICs and
        // owners write with `copy_in`.
        Ok(unsafe { RegionReader::new(region.bytes(), Arc::<Registered>::clone(region)) })
    }

    /// Starts the lookups for the entries of one post.
    pub(super) fn lookups(&self) -> Lookups<'_> {
        Lookups {
            regions: self,
            last: None,
        }
    }

    /// Copies the current bytes of a region; zeros from a ghost.
    pub(super) fn copy_out(
        &self,
        lkey: Lkey,
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), FabricError> {
        let region = self.get(lkey)?.bytes();
        let part = region.slice(offset, out.len() as u64)?;
        // SAFETY: the region stays registered while the table is borrowed.
        unsafe { part.copy_out(out) };
        Ok(())
    }

    /// Copies `bytes` into a region. Exclusive access prevents posts at the same time.
    pub(super) fn copy_in(
        &mut self,
        lkey: Lkey,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), FabricError> {
        let region = self.get(lkey)?;
        region.check_writable()?;
        let part = region.bytes().slice(offset, bytes.len() as u64)?;
        // SAFETY: same as in `copy_out`.
        unsafe { part.copy_in(bytes) };
        Ok(())
    }
}

impl<'a> Lookups<'a> {
    pub(super) fn find(&mut self, sge: &Sge) -> Result<Found<'a>, FabricError> {
        let region = self.get(sge.lkey)?;
        let part = region.bytes().slice(sge.offset, sge.length.into())?;
        if part.is_ghost() {
            return Ok(Found::Ghost);
        }
        if region.has_windows() {
            return Ok(Found::Shared);
        }
        // SAFETY: no window is open, and none is opened while the table is borrowed, since opening
        // takes the write lock of the table. The owner does not change bytes of a posted request.
        Ok(Found::Bytes(unsafe { region.as_slice(part) }))
    }

    /// Copies the current bytes that an entry names; zeros from a ghost.
    pub(super) fn copy_out(&mut self, sge: &Sge, out: &mut [u8]) -> Result<(), FabricError> {
        let part = self.get(sge.lkey)?.bytes();
        let part = part.slice(sge.offset, sge.length.into())?;
        // SAFETY: the region stays registered while the table is borrowed.
        unsafe { part.copy_out(out) };
        Ok(())
    }

    fn get(&mut self, lkey: Lkey) -> Result<&'a Arc<Registered>, FabricError> {
        if let Some((last, region)) = self.last
            && last == lkey
        {
            return Ok(region);
        }
        let region = self.regions.get(lkey)?;
        self.last = Some((lkey, region));
        Ok(region)
    }
}

impl RegionsOwner {
    pub(super) fn reader(&self) -> RegionsReader {
        RegionsReader(Arc::clone(&self.0))
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, Regions> {
        // The table is valid even after a panic of another thread.
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the table for writing. `&mut self` ensures that [`RegionsOwner::memory`] is not in
    /// use.
    pub(super) fn write(&mut self) -> RwLockWriteGuard<'_, Regions> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes of a region that no peer can reach; empty for a ghost.
    pub(super) fn memory(&self, lkey: Lkey) -> Result<&[u8], FabricError> {
        let regions = self.read();
        let region = regions.get(lkey)?;
        if region.has_windows() {
            return Err(FabricError::InUse(Object::MemoryRegion));
        }
        let region: *const Registered = Arc::as_ptr(region);
        // SAFETY: the region is on the heap. Deregistering it, opening a window onto it and copying
        // into it all take `write`, and so `&mut self`, which is borrowed while the reference is in
        // use. Readers do not write.
        unsafe { Ok((*region).as_slice((*region).bytes())) }
    }
}

impl RegionsReader {
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Regions> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}
