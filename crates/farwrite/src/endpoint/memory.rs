//! Registered memory of an endpoint.

use farwrite_fabric::contract::{Fabric, FabricError, Memory, Object, Region};

use super::Endpoint;
use crate::error::Error;
use crate::memory::MemoryRegion;

impl<F: Fabric> Endpoint<F> {
    /// Registers memory. The endpoint owns the memory until [`Endpoint::deregister`].
    ///
    /// # Errors
    /// [`Error::Fabric`] when the fabric is out of keys.
    pub fn register(&mut self, memory: impl Memory + 'static) -> Result<MemoryRegion, Error> {
        self.register_region(Region::owned(memory))
    }

    /// Registers a region: one that [`Endpoint::deregister`] returned, one that the caller created,
    /// or a ghost.
    ///
    /// # Errors
    /// [`Error::Fabric`] when the fabric is out of keys, or does not support ghosts.
    pub fn register_region(&mut self, region: Region) -> Result<MemoryRegion, Error> {
        let length = region.length();
        let lkey = self.fabric.register(region)?;
        Ok(MemoryRegion { lkey, length })
    }

    /// Deregisters a region and returns its memory.
    ///
    /// # Errors
    /// [`Error::Fabric`] while a message is sent from the region or received into it, while a part
    /// of it is exposed, or while the fabric holds packets of the region that it has not sent.
    pub fn deregister(&mut self, region: MemoryRegion) -> Result<Region, Error> {
        self.take_departures()?;
        if self.queue_pairs.iter().any(|pair| pair.uses(region.lkey)) {
            return Err(FabricError::InUse(Object::MemoryRegion).into());
        }
        loop {
            match self.fabric.deregister(region.lkey) {
                // Threads may still code a message that has ended.
                Err(FabricError::InUse(_)) if self.coding.wait_for_one()? => {}
                done => return Ok(done?),
            }
        }
    }

    /// Returns the bytes of a region that has no open receive. A ghost has no bytes.
    ///
    /// # Errors
    /// [`Error::Fabric`] if the region is not registered here, or if it has an open receive. Use
    /// [`Endpoint::read_memory`] to read what has arrived for an open receive.
    pub fn memory(&self, region: MemoryRegion) -> Result<&[u8], Error> {
        Ok(self.fabric.memory(region.lkey)?)
    }

    /// Copies bytes of a region, starting at `offset`, to `out`. A ghost reads as zeros. A chunk
    /// whose bit is set is complete in memory.
    ///
    /// # Errors
    /// [`Error::Fabric`] for bytes that are not registered here.
    pub fn read_memory(
        &self,
        region: MemoryRegion,
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), Error> {
        Ok(self.fabric.copy_out(region.lkey, offset, out)?)
    }

    /// Copies `bytes` into a region, starting at `offset`. Do not change the bytes of a message
    /// while it is being sent: retransmissions read from this memory.
    ///
    /// # Errors
    /// [`Error::Fabric`] for bytes that are not registered here.
    pub fn write_memory(
        &mut self,
        region: MemoryRegion,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), Error> {
        Ok(self.fabric.copy_in(region.lkey, offset, bytes)?)
    }
}
