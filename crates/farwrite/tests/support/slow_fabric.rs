//! A simulated fabric that uses the freedom that the contract gives a NIC: it takes requests and
//! sends them later, port by port, it takes only part of a batch, and it runs out of resources.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;

use farwrite::Buffer;
use farwrite::fabric::contract::{
    Capabilities, Completion, Counters, Fabric, FabricError, Lkey, QpAttr, Qpn, RemoteQp, Rkey,
    Sge, WriteWr,
};
use farwrite::fabric::sim::{SimFabric, SimNetwork};

/// What a test sets and sees of a [`SlowFabric`]. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Controls {
    /// Packets that the fabric takes between two polls; `None`: any number.
    pub(crate) room: Rc<Cell<Option<usize>>>,
    /// Ports that take no writes.
    pub(crate) full_ports: Rc<RefCell<HashSet<u16>>>,
    /// How long each port keeps a write before it sends it, in nanoseconds; ports without an entry
    /// send at once. [`HOLD`] keeps writes until the entry changes.
    pub(crate) delays_ns: Rc<RefCell<HashMap<u16, u64>>>,
    /// Whether the fabric has no room for another memory region.
    pub(crate) is_out_of_memory: Rc<Cell<bool>>,
    /// Packets that the sockets dropped, beside those that the fabric counts itself.
    pub(crate) socket_drops: Rc<Cell<u64>>,
    /// Queue pairs and remote keys that exist.
    pub(crate) live: Rc<Cell<i64>>,
    /// Writes taken, and how many of them were signalled.
    pub(crate) writes: Rc<Cell<usize>>,
    pub(crate) signalled: Rc<Cell<usize>>,
}

/// A delay that does not end.
pub(crate) const HOLD: u64 = u64::MAX;

/// A write that was taken and has not left.
struct Held {
    qpn: Qpn,
    port: u16,
    taken_ns: u64,
    wr_id: u64,
    signaled: bool,
    local: Vec<Sge>,
    remote_addr: u64,
    rkey: Rkey,
    imm: u32,
}

/// See the module.
pub(crate) struct SlowFabric {
    inner: SimFabric,
    network: SimNetwork,
    controls: Controls,
    ports: HashMap<Qpn, u16>,
    /// In the order of posting.
    held: VecDeque<Held>,
    /// Packets taken since the last poll.
    taken: usize,
}

impl SlowFabric {
    pub(crate) fn new(network: &SimNetwork, inner: SimFabric, controls: &Controls) -> Self {
        Self {
            inner,
            network: network.clone(),
            controls: controls.clone(),
            ports: HashMap::new(),
            held: VecDeque::new(),
            taken: 0,
        }
    }

    fn count<T>(&self, change: i64, result: Result<T, FabricError>) -> Result<T, FabricError> {
        if result.is_ok() {
            self.controls.live.set(self.controls.live.get() + change);
        }
        result
    }

    fn room(&self) -> usize {
        let room = self.controls.room.get().unwrap_or(usize::MAX);
        room.saturating_sub(self.taken)
    }

    /// Sends the writes whose delay is over.
    fn send_due(&mut self) -> Result<(), FabricError> {
        let now_ns = self.network.now_ns();
        let delays_ns = self.controls.delays_ns.borrow();
        let is_due = |held: &Held| {
            let delay_ns = delays_ns.get(&held.port).copied().unwrap_or(0);
            held.taken_ns.saturating_add(delay_ns) <= now_ns
        };
        let (due, later) = self.held.drain(..).partition::<VecDeque<_>, _>(is_due);
        self.held = later;
        for held in due {
            let write = WriteWr {
                wr_id: held.wr_id,
                signaled: held.signaled,
                local: &held.local,
                remote_addr: held.remote_addr,
                rkey: held.rkey,
                imm: held.imm,
            };
            self.inner.post_writes(held.qpn, &[write])?;
        }
        Ok(())
    }

    /// Drops what a queue pair has not sent.
    fn flush(&mut self, qpn: Qpn) {
        self.held.retain(|held| held.qpn != qpn);
    }
}

impl Fabric for SlowFabric {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
    fn local_addr(&self, port: u16) -> SocketAddr {
        self.inner.local_addr(port)
    }
    fn register(&mut self, buffer: Buffer) -> Result<Lkey, FabricError> {
        if self.controls.is_out_of_memory.get() {
            return Err(FabricError::OutOfResources("memory region"));
        }
        self.inner.register(buffer)
    }
    fn deregister(&mut self, lkey: Lkey) -> Result<Buffer, FabricError> {
        let mut local = self.held.iter().flat_map(|held| &held.local);
        if local.any(|sge| sge.lkey == lkey) {
            return Err(FabricError::InUse("the memory region"));
        }
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
        let qpn = self.count(1, result)?;
        self.ports.insert(qpn, attr.port);
        Ok(qpn)
    }
    fn connect_qp(&mut self, qpn: Qpn, remote: RemoteQp) -> Result<(), FabricError> {
        self.inner.connect_qp(qpn, remote)
    }
    fn disconnect_qp(&mut self, qpn: Qpn) -> Result<(), FabricError> {
        self.flush(qpn);
        self.inner.disconnect_qp(qpn)
    }
    fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), FabricError> {
        self.flush(qpn);
        let result = self.inner.destroy_qp(qpn);
        self.count(-1, result)
    }
    fn post_recv(&mut self, qpn: Qpn, count: u32) -> Result<(), FabricError> {
        self.inner.post_recv(qpn, count)
    }
    fn post_writes(&mut self, qpn: Qpn, writes: &[WriteWr<'_>]) -> Result<usize, FabricError> {
        let port = self.ports[&qpn];
        let room = match self.controls.full_ports.borrow().contains(&port) {
            true => 0,
            false => self.room(),
        };
        let taken = writes.len().min(room);
        self.taken += taken;
        self.controls.writes.set(self.controls.writes.get() + taken);
        for (index, write) in writes[..taken].iter().enumerate() {
            let is_cut = taken < writes.len() && index + 1 == taken;
            let signalled = self.controls.signalled.get() + usize::from(write.signaled);
            self.controls.signalled.set(signalled);
            self.held.push_back(Held {
                qpn,
                port,
                taken_ns: self.network.now_ns(),
                wr_id: write.wr_id,
                signaled: write.signaled || is_cut,
                local: write.local.to_vec(),
                remote_addr: write.remote_addr,
                rkey: write.rkey,
                imm: write.imm,
            });
        }
        self.send_due()?;
        Ok(taken)
    }
    fn post_send(&mut self, qpn: Qpn, payload: &[u8]) -> Result<bool, FabricError> {
        if self.room() == 0 {
            return Ok(false);
        }
        self.taken += 1;
        self.inner.post_send(qpn, payload)
    }
    fn poll(&mut self, out: &mut Vec<Completion>) -> Result<bool, FabricError> {
        self.taken = 0;
        self.send_due()?;
        self.inner.poll(out)
    }
    fn counters(&self) -> Counters {
        let counters = self.inner.counters();
        Counters {
            socket_drops: counters.socket_drops + self.controls.socket_drops.get(),
            ..counters
        }
    }
}
