//! A simulated fabric that can be full, and whose resources are counted.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

use farwrite::Buffer;
use farwrite::fabric::contract::{
    Capabilities, Completion, Counters, Fabric, FabricError, Lkey, QpAttr, Qpn, RemoteQp, Rkey,
    WriteWr,
};
use farwrite::fabric::sim::SimFabric;

/// What a test sees and sets of a [`Choked`] fabric.
#[derive(Clone, Default)]
pub(crate) struct Choke {
    /// Whether there is no room for another packet.
    pub(crate) is_full: Rc<Cell<bool>>,
    /// Queue pairs and remote keys that live.
    pub(crate) live: Rc<Cell<i64>>,
}

/// See the module.
pub(crate) struct Choked {
    pub(crate) inner: SimFabric,
    pub(crate) choke: Choke,
}

impl Choked {
    fn count<T>(&self, change: i64, result: Result<T, FabricError>) -> Result<T, FabricError> {
        if result.is_ok() {
            self.choke.live.set(self.choke.live.get() + change);
        }
        result
    }
}

impl Fabric for Choked {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
    fn local_addr(&self, port: u16) -> SocketAddr {
        self.inner.local_addr(port)
    }
    fn register(&mut self, buffer: Buffer) -> Result<Lkey, FabricError> {
        self.inner.register(buffer)
    }
    fn deregister(&mut self, lkey: Lkey) -> Result<Buffer, FabricError> {
        self.inner.deregister(lkey)
    }
    fn memory(&self, lkey: Lkey) -> Result<&[u8], FabricError> {
        self.inner.memory(lkey)
    }
    fn memory_mut(&mut self, lkey: Lkey) -> Result<&mut [u8], FabricError> {
        self.inner.memory_mut(lkey)
    }
    fn memory_pair(&mut self, read: Lkey, write: Lkey) -> Result<(&[u8], &mut [u8]), FabricError> {
        self.inner.memory_pair(read, write)
    }
    fn expose(&mut self, lkey: Lkey, offset: u64, length: u64) -> Result<Rkey, FabricError> {
        let result = self.inner.expose(lkey, offset, length);
        self.count(1, result)
    }
    fn create_root_key(&mut self, slots: u32, slot_bytes: u64) -> Result<Rkey, FabricError> {
        let result = self.inner.create_root_key(slots, slot_bytes);
        self.count(1, result)
    }
    fn bind(
        &mut self,
        root: Rkey,
        slot: u32,
        lkey: Lkey,
        offset: u64,
        length: u64,
    ) -> Result<(), FabricError> {
        self.inner.bind(root, slot, lkey, offset, length)
    }
    fn unbind(&mut self, root: Rkey, slot: u32) -> Result<(), FabricError> {
        self.inner.unbind(root, slot)
    }
    fn revoke(&mut self, rkey: Rkey) -> Result<(), FabricError> {
        let result = self.inner.revoke(rkey);
        self.count(-1, result)
    }
    fn create_qp(&mut self, attr: QpAttr) -> Result<Qpn, FabricError> {
        let result = self.inner.create_qp(attr);
        self.count(1, result)
    }
    fn connect_qp(&mut self, qpn: Qpn, remote: RemoteQp) -> Result<(), FabricError> {
        self.inner.connect_qp(qpn, remote)
    }
    fn disconnect_qp(&mut self, qpn: Qpn) -> Result<(), FabricError> {
        self.inner.disconnect_qp(qpn)
    }
    fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), FabricError> {
        let result = self.inner.destroy_qp(qpn);
        self.count(-1, result)
    }
    fn post_recv(&mut self, qpn: Qpn, count: u32) -> Result<(), FabricError> {
        self.inner.post_recv(qpn, count)
    }
    fn post_writes(&mut self, qpn: Qpn, writes: &[WriteWr<'_>]) -> Result<usize, FabricError> {
        let room = if self.choke.is_full.get() {
            0
        } else {
            writes.len()
        };
        self.inner.post_writes(qpn, &writes[..room])
    }
    fn post_send(&mut self, qpn: Qpn, payload: &[u8]) -> Result<bool, FabricError> {
        Ok(!self.choke.is_full.get() && self.inner.post_send(qpn, payload)?)
    }
    fn poll(&mut self, out: &mut Vec<Completion>) -> Result<bool, FabricError> {
        self.inner.poll(out)
    }
    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}
