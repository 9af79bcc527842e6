//! A simulated fabric that uses the freedom of the fabric contract: it sends requests later than it
//! takes them, port by port; it takes only a part of a batch; and it runs out of resources. It takes memory of devices:
//! its packets carry zeros, and what they bring is not stored.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;

use farwrite::fabric::contract::{
    Capabilities, Counters, Departed, Fabric, FabricError, Lkey, Object, QpAttr, QpRoute,
    QpSealing, Qpn, Region, RegionPtr, RegionReader, RemotePlace, RemoteQp, Rkey, Sge, Table,
    TxQueue, Window, WindowSet, WriteWr,
};
use farwrite::fabric::sim::{SimFabric, SimNetwork};

/// The settings and counters of a [`SlowFabric`]. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Controls {
    /// Number of packets that the fabric takes between two polls. `None` means any number.
    pub(crate) room: Rc<Cell<Option<usize>>>,
    /// Whether the queue pair of the next post breaks.
    pub(crate) breaks_next: Rc<Cell<bool>>,
    /// Ports that take no writes.
    pub(crate) full_ports: Rc<RefCell<HashSet<u16>>>,
    /// How long each port keeps a write before it sends it, in nanoseconds; ports without an entry
    /// send at once. [`HOLD`] keeps writes until the entry changes.
    pub(crate) delays_ns: Rc<RefCell<HashMap<u16, u64>>>,
    /// Whether the fabric has no room for another memory region.
    pub(crate) is_out_of_memory: Rc<Cell<bool>>,
    /// Packets that the sockets dropped, in addition to those that the fabric counts.
    pub(crate) socket_drops: Rc<Cell<u64>>,
    /// Whether workers appear to stay in their batch, so that no window closes.
    pub(crate) holds_windows: Rc<Cell<bool>>,
    /// Queue pairs and window sets that exist.
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

/// The state that a fabric shares with its queues.
#[derive(Clone, Default)]
struct SlowState {
    /// Held writes, in the order of posting.
    held: Rc<RefCell<VecDeque<Held>>>,
    /// Packets taken since the last poll.
    taken: Rc<Cell<usize>>,
}

/// The fabric that the module describes.
pub(crate) struct SlowFabric {
    inner: SimFabric,
    network: SimNetwork,
    controls: Controls,
    shared: SlowState,
}

/// The queue of one port.
pub(crate) struct SlowTx {
    inner: <SimFabric as Fabric>::Tx,
    port: u16,
    network: SimNetwork,
    controls: Controls,
    shared: SlowState,
}

impl SlowFabric {
    pub(crate) fn new(network: &SimNetwork, inner: SimFabric, controls: &Controls) -> Self {
        Self {
            inner,
            network: network.clone(),
            controls: controls.clone(),
            shared: SlowState::default(),
        }
    }

    fn count<T>(&self, change: i64, result: Result<T, FabricError>) -> Result<T, FabricError> {
        if result.is_ok() {
            self.controls.live.set(self.controls.live.get() + change);
        }
        result
    }

    /// Drops the unsent packets of a queue pair.
    fn flush(&mut self, qpn: Qpn) {
        let mut held = self.shared.held.borrow_mut();
        held.retain(|held| held.qpn != qpn);
    }
}

impl SlowTx {
    fn room(&self) -> usize {
        let room = self.controls.room.get().unwrap_or(usize::MAX);
        room.saturating_sub(self.shared.taken.get())
    }

    fn take(&self, packets: usize) {
        self.shared.taken.set(self.shared.taken.get() + packets);
    }

    /// Sends the writes whose delay has ended.
    fn send_due(&mut self) -> Result<(), FabricError> {
        let now_ns = self.network.now_ns();
        let delays_ns = self.controls.delays_ns.borrow();
        let delay_ns = delays_ns.get(&self.port).copied().unwrap_or(0);
        let is_due = |held: &Held| {
            held.port == self.port && held.taken_ns.saturating_add(delay_ns) <= now_ns
        };
        let mut held = self.shared.held.borrow_mut();
        let (due, later) = held.drain(..).partition::<VecDeque<_>, _>(is_due);
        *held = later;
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
}

impl TxQueue for SlowTx {
    fn post_writes(&mut self, qpn: Qpn, writes: &[WriteWr<'_>]) -> Result<usize, FabricError> {
        if self.controls.breaks_next.take() {
            let source = FabricError::NotConnected(qpn.0);
            return Err(FabricError::BrokenQp {
                qpn,
                source: Box::new(source),
            });
        }
        let room = match self.controls.full_ports.borrow().contains(&self.port) {
            true => 0,
            false => self.room(),
        };
        let taken = writes.len().min(room);
        self.take(taken);
        self.controls.writes.set(self.controls.writes.get() + taken);
        for (index, write) in writes[..taken].iter().enumerate() {
            let is_cut = taken < writes.len() && index + 1 == taken;
            let signalled = self.controls.signalled.get() + usize::from(write.signaled);
            self.controls.signalled.set(signalled);
            self.shared.held.borrow_mut().push_back(Held {
                qpn,
                port: self.port,
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
        self.take(1);
        self.inner.post_send(qpn, payload)
    }
    fn poll(&mut self, out: &mut Vec<Departed>) -> Result<(), FabricError> {
        self.shared.taken.set(0);
        self.send_due()?;
        self.inner.poll(out)
    }
}

impl Fabric for SlowFabric {
    type Tx = SlowTx;
    type Rx = <SimFabric as Fabric>::Rx;

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
    fn local_addr(&self, port: u16) -> SocketAddr {
        self.inner.local_addr(port)
    }
    fn take_tx(&mut self, port: u16) -> Result<SlowTx, FabricError> {
        Ok(SlowTx {
            inner: self.inner.take_tx(port)?,
            port,
            network: self.network.clone(),
            controls: self.controls.clone(),
            shared: self.shared.clone(),
        })
    }
    fn take_rx(&mut self, port: u16) -> Result<Self::Rx, FabricError> {
        self.inner.take_rx(port)
    }
    fn register(&mut self, region: Region) -> Result<Lkey, FabricError> {
        if self.controls.is_out_of_memory.get() {
            return Err(FabricError::OutOfResources(Table::MemoryRegion));
        }
        self.inner.register(region)
    }
    fn deregister(&mut self, lkey: Lkey) -> Result<Region, FabricError> {
        let held = self.shared.held.borrow();
        let mut local = held.iter().flat_map(|held| &held.local);
        if local.any(|sge| sge.lkey == lkey) {
            return Err(FabricError::InUse(Object::MemoryRegion));
        }
        self.inner.deregister(lkey)
    }
    fn region(&self, lkey: Lkey) -> Result<RegionPtr, FabricError> {
        self.inner.region(lkey)
    }
    fn memory(&self, lkey: Lkey) -> Result<&[u8], FabricError> {
        self.inner.memory(lkey)
    }
    fn copy_out(&self, lkey: Lkey, offset: u64, out: &mut [u8]) -> Result<(), FabricError> {
        self.inner.copy_out(lkey, offset, out)
    }
    fn reader(&self, lkey: Lkey) -> Result<RegionReader, FabricError> {
        self.inner.reader(lkey)
    }
    fn copy_in(&mut self, lkey: Lkey, offset: u64, bytes: &[u8]) -> Result<(), FabricError> {
        self.inner.copy_in(lkey, offset, bytes)
    }
    fn create_windows(
        &mut self,
        of: &[Qpn],
        slots: u32,
        slot_bytes: u64,
    ) -> Result<WindowSet, FabricError> {
        let result = self.inner.create_windows(of, slots, slot_bytes);
        self.count(1, result)
    }
    fn destroy_windows(&mut self, set: WindowSet) -> Result<(), FabricError> {
        let result = self.inner.destroy_windows(set);
        self.count(-1, result)
    }
    fn open_window(
        &mut self,
        set: WindowSet,
        slot: u32,
        lkey: Lkey,
        offset: u64,
        length: u64,
    ) -> Result<(Window, RemotePlace), FabricError> {
        self.inner.open_window(set, slot, lkey, offset, length)
    }
    fn close_window(&mut self, window: Window) -> Result<(), FabricError> {
        self.inner.close_window(window)
    }
    fn poll_closed(&mut self) -> Option<Window> {
        if self.controls.holds_windows.get() {
            return None;
        }
        self.inner.poll_closed()
    }
    fn create_qp(&mut self, attr: QpAttr) -> Result<Qpn, FabricError> {
        let result = self.inner.create_qp(attr);
        self.count(1, result)
    }
    fn seal_qp(&mut self, qpn: Qpn, sealing: Option<QpSealing>) -> Result<(), FabricError> {
        self.inner.seal_qp(qpn, sealing)
    }
    fn connect_qp(&mut self, qpn: Qpn, remote: RemoteQp) -> Result<(), FabricError> {
        self.inner.connect_qp(qpn, remote)
    }
    fn set_route(&mut self, qpn: Qpn, route: QpRoute) -> Result<(), FabricError> {
        self.inner.set_route(qpn, route)
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
    fn counters(&self) -> Counters {
        let counters = self.inner.counters();
        Counters {
            socket_drops: counters.socket_drops + self.controls.socket_drops.get(),
            ..counters
        }
    }
}
