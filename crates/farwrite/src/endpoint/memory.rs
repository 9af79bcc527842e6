//! Registered memory of an endpoint.

use farwrite_fabric::contract::{Fabric, FabricError, Memory, Object, Region};

use super::Endpoint;
use crate::error::Error;
use crate::memory::MemoryRegion;
use crate::pair::Pair;

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
        if self.users_of(region).any(|pair| pair.uses(region.lkey)) {
            return Err(FabricError::InUse(Object::MemoryRegion).into());
        }
        loop {
            match self.fabric.deregister(region.lkey) {
                // Threads may still code a message that has ended.
                Err(FabricError::InUse(_)) if self.coding.wait_for_one()? => {}
                done => {
                    let freed = done?;
                    self.region_users.forget(region.lkey);
                    return Ok(freed);
                }
            }
        }
    }

    fn users_of(&self, region: MemoryRegion) -> impl Iterator<Item = &Pair> {
        let users = self.region_users.of(region.lkey);
        users.filter_map(|index| self.queue_pairs.at(index))
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use crate::{Endpoint, Error, QpOptions, UdpConfig};

    #[test]
    fn deregistering_asks_only_the_queue_pairs_that_have_used_the_region() {
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut endpoint = Endpoint::over_udp(&UdpConfig::new(loopback)).expect("a socket");
        let new = |_| endpoint.create_qp(QpOptions::default());
        let pairs = (0..50).map(new).collect::<Result<Vec<_>, _>>();
        let pairs = pairs.expect("queue pairs");
        let region = endpoint.register(vec![0; 4096]).expect("registered");
        let idle = endpoint.register(vec![0; 4096]).expect("registered");
        for qp in &pairs[..2] {
            let posted = endpoint.post_recv(*qp, region.whole());
            posted.expect("posted");
        }
        assert_eq!(endpoint.users_of(idle).count(), 0);
        assert_eq!(endpoint.users_of(region).count(), 2);
        for qp in &pairs[..2] {
            let refused = endpoint.deregister(region).map(drop);
            assert!(matches!(refused, Err(Error::Fabric(_))), "{refused:?}");
            endpoint.destroy_qp(*qp).expect("destroyed");
        }
        endpoint.deregister(region).expect("nothing uses it");
        endpoint.deregister(idle).expect("nothing uses it");
    }
}
