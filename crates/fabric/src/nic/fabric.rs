//! A software NIC and a carrier make a fabric.

use std::net::SocketAddr;

use super::{Burst, Carrier, MAX_SGE, Nic};
use crate::contract::{
    Buffer, Capabilities, Completion, Counters, Fabric, FabricError, Lkey, QpAttr, Qpn, RemoteQp,
    Rkey, WriteWr,
};

/// The software NIC over a carrier `C`.
pub struct NicFabric<C> {
    nic: Nic,
    carrier: C,
}

impl<C: Carrier> NicFabric<C> {
    /// A NIC without memory or queue pairs. All its keys and numbers follow from `seed`: 32 bytes
    /// that nobody can guess, or in tests 32 that can be printed.
    pub fn new(carrier: C, seed: [u8; 32]) -> Self {
        Self {
            nic: Nic::new(seed),
            carrier,
        }
    }

    /// Who moves the packets.
    pub fn carrier(&self) -> &C {
        &self.carrier
    }

    /// Who moves the packets, to change how.
    pub fn carrier_mut(&mut self) -> &mut C {
        &mut self.carrier
    }
}

impl<C: Carrier> Fabric for NicFabric<C> {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            max_mtu: self.carrier.max_mtu(),
            ports: self.carrier.ports(),
            root_keys: true,
            null_key_completes: true,
            max_sge: MAX_SGE,
        }
    }

    fn local_addr(&self, port: u16) -> SocketAddr {
        self.carrier.local_addr(port)
    }

    fn register(&mut self, buffer: Buffer) -> Result<Lkey, FabricError> {
        self.nic.keys.register(&mut self.nic.numbers, buffer)
    }

    fn deregister(&mut self, lkey: Lkey) -> Result<Buffer, FabricError> {
        self.nic.keys.deregister(lkey)
    }

    fn memory(&self, lkey: Lkey) -> Result<&[u8], FabricError> {
        self.nic.keys.memory(lkey)
    }

    fn memory_mut(&mut self, lkey: Lkey) -> Result<&mut [u8], FabricError> {
        self.nic.keys.memory_mut(lkey)
    }

    fn memory_pair(&mut self, read: Lkey, write: Lkey) -> Result<(&[u8], &mut [u8]), FabricError> {
        self.nic.keys.memory_pair(read, write)
    }

    fn expose(&mut self, lkey: Lkey, offset: u64, length: u64) -> Result<Rkey, FabricError> {
        let Nic { keys, numbers, .. } = &mut self.nic;
        keys.expose(numbers, lkey, offset, length)
    }

    fn create_root_key(&mut self, slots: u32, slot_bytes: u64) -> Result<Rkey, FabricError> {
        let Nic { keys, numbers, .. } = &mut self.nic;
        keys.create_root_key(numbers, slots, slot_bytes)
    }

    fn bind(
        &mut self,
        root: Rkey,
        slot: u32,
        lkey: Lkey,
        offset: u64,
        length: u64,
    ) -> Result<(), FabricError> {
        self.nic.keys.bind(root, slot, lkey, offset, length)
    }

    fn unbind(&mut self, root: Rkey, slot: u32) -> Result<(), FabricError> {
        self.nic.keys.unbind(root, slot)
    }

    fn revoke(&mut self, rkey: Rkey) -> Result<(), FabricError> {
        self.nic.keys.revoke(rkey)
    }

    fn create_qp(&mut self, attr: QpAttr) -> Result<Qpn, FabricError> {
        let capabilities = self.capabilities();
        let Nic {
            queue_pairs,
            numbers,
            ..
        } = &mut self.nic;
        queue_pairs.create(numbers, &capabilities, attr)
    }

    fn connect_qp(&mut self, qpn: Qpn, remote: RemoteQp) -> Result<(), FabricError> {
        let port = self.nic.queue_pairs.get(qpn)?.attr.port;
        self.carrier.join(port, remote.addr)?;
        let connected = self.nic.queue_pairs.connect(qpn, remote);
        if connected.is_err() {
            self.carrier.part(port, remote.addr);
        }
        connected
    }

    fn disconnect_qp(&mut self, qpn: Qpn) -> Result<(), FabricError> {
        let queue_pair = self.nic.queue_pairs.get_mut(qpn)?;
        let remote = queue_pair.remote.take();
        let remote = remote.ok_or(FabricError::NotConnected(qpn.0))?;
        self.carrier.part(queue_pair.attr.port, remote.addr);
        self.nic.drop_departures(qpn);
        Ok(())
    }

    fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), FabricError> {
        let queue_pair = self.nic.queue_pairs.destroy(qpn)?;
        if let Some(remote) = queue_pair.remote {
            self.carrier.part(queue_pair.attr.port, remote.addr);
        }
        self.nic.drop_departures(qpn);
        Ok(())
    }

    fn post_recv(&mut self, qpn: Qpn, count: u32) -> Result<(), FabricError> {
        self.nic.queue_pairs.post_recv(qpn, count)
    }

    fn post_writes(&mut self, qpn: Qpn, writes: &[WriteWr<'_>]) -> Result<usize, FabricError> {
        let burst = Burst::of_writes(&self.nic, qpn, writes)?;
        let taken = self.carrier.send(&burst)?.min(writes.len());
        let bytes = burst.ip_bytes(taken);
        self.nic.sent(qpn, taken, bytes);
        self.nic.depart(qpn, writes, taken);
        Ok(taken)
    }

    fn post_send(&mut self, qpn: Qpn, payload: &[u8]) -> Result<bool, FabricError> {
        let burst = Burst::of_send(&self.nic, qpn, payload)?;
        let taken = self.carrier.send(&burst)?.min(1);
        let bytes = burst.ip_bytes(taken);
        self.nic.sent(qpn, taken, bytes);
        Ok(taken == 1)
    }

    fn poll(&mut self, out: &mut Vec<Completion>) -> Result<bool, FabricError> {
        out.extend(self.nic.departed.drain(..));
        self.carrier.poll(&mut self.nic, out)
    }

    fn counters(&self) -> Counters {
        Counters {
            socket_drops: self.carrier.socket_drops(),
            ..self.nic.counters
        }
    }
}
