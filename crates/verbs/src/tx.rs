//! The transmit queue of a port.

use std::sync::Arc;

use farwrite_fabric::contract::{Departed, FabricError, Qpn, TxQueue, WriteWr};

use crate::port::Port;
use crate::regions::Regions;

/// The transmit queue of a port of a [`VerbsFabric`](crate::VerbsFabric).
pub struct VerbsTx {
    port: Arc<Port>,
    regions: Regions,
}

impl VerbsTx {
    pub(crate) fn new(port: Arc<Port>, regions: Regions) -> Self {
        Self { port, regions }
    }
}

impl TxQueue for VerbsTx {
    fn post_writes(&mut self, qpn: Qpn, writes: &[WriteWr<'_>]) -> Result<usize, FabricError> {
        self.port.device.check_works()?;
        let regions = self.regions.read();
        self.port
            .sending
            .post_writes(&self.port, &regions, qpn, writes)
    }

    fn post_send(&mut self, qpn: Qpn, payload: &[u8]) -> Result<bool, FabricError> {
        self.port.device.check_works()?;
        self.port.sending.post_send(&self.port, qpn, payload)
    }

    fn poll(&mut self, out: &mut Vec<Departed>) -> Result<(), FabricError> {
        self.port.sending.poll(out)?;
        self.port.device.check_works()
    }
}
