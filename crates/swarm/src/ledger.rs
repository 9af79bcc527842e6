//! A fabric that keeps books: what an endpoint took and gave back, and calls that it cuts short.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;

use farwrite::fabric::contract::{
    Buffer, Capabilities, Completion, Counters, Fabric, FabricError, Lkey, QpAttr, Qpn, RemoteQp,
    Rkey, WriteWr,
};
use farwrite::fabric::sim::SimFabric;

use crate::dice::Dice;

/// What an endpoint holds of its fabric.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    pub(crate) regions: BTreeSet<Lkey>,
    pub(crate) remote_keys: BTreeSet<Rkey>,
    pub(crate) bound_slots: BTreeSet<(Rkey, u32)>,
    pub(crate) queue_pairs: BTreeSet<Qpn>,
}

/// How full the fabric is, set from outside.
#[derive(Debug)]
pub(crate) struct Fullness {
    /// Probability that a call is cut short.
    pub(crate) share: f64,
    /// Calls that were.
    pub(crate) refused: u64,
    dice: Dice,
}

/// A simulated fabric with books.
pub(crate) struct Ledger {
    inner: SimFabric,
    pub(crate) holdings: Holdings,
    fullness: Rc<RefCell<Fullness>>,
}

impl Fullness {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            share: 0.0,
            refused: 0,
            dice: Dice::new(seed),
        }
    }

    /// How many of `count` packets there is room for.
    fn room(&mut self, count: usize) -> usize {
        if count == 0 || self.share == 0.0 || !self.dice.chance(self.share) {
            return count;
        }
        self.refused += 1;
        self.dice.index(count)
    }
}

impl Ledger {
    pub(crate) fn new(inner: SimFabric, fullness: Rc<RefCell<Fullness>>) -> Self {
        Self {
            inner,
            holdings: Holdings::default(),
            fullness,
        }
    }
}

impl Fabric for Ledger {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn local_addr(&self, port: u16) -> SocketAddr {
        self.inner.local_addr(port)
    }

    fn register(&mut self, buffer: Buffer) -> Result<Lkey, FabricError> {
        let lkey = self.inner.register(buffer)?;
        self.holdings.regions.insert(lkey);
        Ok(lkey)
    }

    fn deregister(&mut self, lkey: Lkey) -> Result<Buffer, FabricError> {
        let buffer = self.inner.deregister(lkey)?;
        self.holdings.regions.remove(&lkey);
        Ok(buffer)
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
        let rkey = self.inner.expose(lkey, offset, length)?;
        self.holdings.remote_keys.insert(rkey);
        Ok(rkey)
    }

    fn create_root_key(&mut self, slots: u32, slot_bytes: u64) -> Result<Rkey, FabricError> {
        let rkey = self.inner.create_root_key(slots, slot_bytes)?;
        self.holdings.remote_keys.insert(rkey);
        Ok(rkey)
    }

    fn bind(
        &mut self,
        root: Rkey,
        slot: u32,
        lkey: Lkey,
        offset: u64,
        length: u64,
    ) -> Result<(), FabricError> {
        self.inner.bind(root, slot, lkey, offset, length)?;
        self.holdings.bound_slots.insert((root, slot));
        Ok(())
    }

    fn unbind(&mut self, root: Rkey, slot: u32) -> Result<(), FabricError> {
        self.inner.unbind(root, slot)?;
        self.holdings.bound_slots.remove(&(root, slot));
        Ok(())
    }

    fn revoke(&mut self, rkey: Rkey) -> Result<(), FabricError> {
        self.inner.revoke(rkey)?;
        self.holdings.remote_keys.remove(&rkey);
        self.holdings.bound_slots.retain(|&(root, _)| root != rkey);
        Ok(())
    }

    fn create_qp(&mut self, attr: QpAttr) -> Result<Qpn, FabricError> {
        let qpn = self.inner.create_qp(attr)?;
        self.holdings.queue_pairs.insert(qpn);
        Ok(qpn)
    }

    fn connect_qp(&mut self, qpn: Qpn, remote: RemoteQp) -> Result<(), FabricError> {
        self.inner.connect_qp(qpn, remote)
    }

    fn disconnect_qp(&mut self, qpn: Qpn) -> Result<(), FabricError> {
        self.inner.disconnect_qp(qpn)
    }

    fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), FabricError> {
        self.inner.destroy_qp(qpn)?;
        self.holdings.queue_pairs.remove(&qpn);
        Ok(())
    }

    fn post_recv(&mut self, qpn: Qpn, count: u32) -> Result<(), FabricError> {
        self.inner.post_recv(qpn, count)
    }

    fn post_writes(&mut self, qpn: Qpn, writes: &[WriteWr<'_>]) -> Result<usize, FabricError> {
        let room = self.fullness.borrow_mut().room(writes.len());
        if room == writes.len() {
            return self.inner.post_writes(qpn, writes);
        }
        // The last write of a cut batch completes, as the contract has it.
        let mut writes = writes[..room].to_vec();
        if let Some(last) = writes.last_mut() {
            last.signaled = true;
        }
        self.inner.post_writes(qpn, &writes)
    }

    fn post_send(&mut self, qpn: Qpn, payload: &[u8]) -> Result<bool, FabricError> {
        if self.fullness.borrow_mut().room(1) == 0 {
            return Ok(false);
        }
        self.inner.post_send(qpn, payload)
    }

    fn poll(&mut self, out: &mut Vec<Completion>) -> Result<bool, FabricError> {
        self.inner.poll(out)
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}
