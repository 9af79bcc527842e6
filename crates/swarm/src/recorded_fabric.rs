//! A fabric that records which resources an endpoint holds, and that can accept only a part of a
//! call.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;

use farwrite::fabric::contract::{
    Capabilities, Counters, Departed, Fabric, FabricError, Lkey, QpAttr, QpRoute, QpSealing, Qpn,
    Region, RegionPtr, RegionReader, RemotePlace, RemoteQp, TxQueue, Window, WindowSet, WriteWr,
};
use farwrite::fabric::sim::SimFabric;

use farwrite_rng::SplitMix;

/// The resources of the fabric that an endpoint holds.
#[derive(Debug, Default)]
pub(crate) struct Resources {
    pub(crate) regions: BTreeSet<Lkey>,
    pub(crate) window_sets: BTreeSet<WindowSet>,
    /// Windows that are open, or closed and not yet reported.
    pub(crate) windows: BTreeSet<Window>,
    pub(crate) queue_pairs: BTreeSet<Qpn>,
}

/// How full the fabric is. The case sets it.
#[derive(Debug)]
pub(crate) struct Fullness {
    /// Probability that a call is accepted only in part.
    pub(crate) share: f64,
    /// Number of calls that were accepted only in part.
    pub(crate) refused: u64,
    rng: SplitMix,
}

/// The send queue of a port. It is full at random times.
pub(crate) struct RecordedTx {
    inner: <SimFabric as Fabric>::Tx,
    fullness: Rc<RefCell<Fullness>>,
}

/// A simulated fabric with a record of its resources.
pub(crate) struct RecordedFabric {
    inner: SimFabric,
    pub(crate) holdings: Resources,
    fullness: Rc<RefCell<Fullness>>,
}

impl Fullness {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            share: 0.0,
            refused: 0,
            rng: SplitMix::new(seed),
        }
    }

    /// How many of `count` packets the queue accepts.
    fn room(&mut self, count: usize) -> usize {
        if count == 0 || self.share == 0.0 || !self.rng.chance(self.share) {
            return count;
        }
        self.refused += 1;
        self.rng.index(count)
    }
}

impl RecordedFabric {
    pub(crate) fn new(inner: SimFabric, fullness: Rc<RefCell<Fullness>>) -> Self {
        Self {
            inner,
            holdings: Resources::default(),
            fullness,
        }
    }
}

impl TxQueue for RecordedTx {
    fn post_writes(&mut self, qpn: Qpn, writes: &[WriteWr<'_>]) -> Result<usize, FabricError> {
        let room = self.fullness.borrow_mut().room(writes.len());
        if room == writes.len() {
            return self.inner.post_writes(qpn, writes);
        }
        // The last accepted write of a batch has a completion, as the contract requires.
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

    fn poll(&mut self, out: &mut Vec<Departed>) -> Result<(), FabricError> {
        self.inner.poll(out)
    }
}

impl Fabric for RecordedFabric {
    type Tx = RecordedTx;
    type Rx = <SimFabric as Fabric>::Rx;

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn local_addr(&self, port: u16) -> SocketAddr {
        self.inner.local_addr(port)
    }

    fn take_tx(&mut self, port: u16) -> Result<RecordedTx, FabricError> {
        Ok(RecordedTx {
            inner: self.inner.take_tx(port)?,
            fullness: Rc::clone(&self.fullness),
        })
    }

    fn take_rx(&mut self, port: u16) -> Result<Self::Rx, FabricError> {
        self.inner.take_rx(port)
    }

    fn register(&mut self, region: Region) -> Result<Lkey, FabricError> {
        let lkey = self.inner.register(region)?;
        self.holdings.regions.insert(lkey);
        Ok(lkey)
    }

    fn deregister(&mut self, lkey: Lkey) -> Result<Region, FabricError> {
        let region = self.inner.deregister(lkey)?;
        self.holdings.regions.remove(&lkey);
        Ok(region)
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
        let set = self.inner.create_windows(of, slots, slot_bytes)?;
        self.holdings.window_sets.insert(set);
        Ok(set)
    }

    fn destroy_windows(&mut self, set: WindowSet) -> Result<(), FabricError> {
        self.inner.destroy_windows(set)?;
        self.holdings.window_sets.remove(&set);
        Ok(())
    }

    fn open_window(
        &mut self,
        set: WindowSet,
        slot: u32,
        lkey: Lkey,
        offset: u64,
        length: u64,
    ) -> Result<(Window, RemotePlace), FabricError> {
        let opened = self.inner.open_window(set, slot, lkey, offset, length)?;
        self.holdings.windows.insert(opened.0);
        Ok(opened)
    }

    fn close_window(&mut self, window: Window) -> Result<(), FabricError> {
        self.inner.close_window(window)
    }

    fn poll_closed(&mut self) -> Option<Window> {
        let window = self.inner.poll_closed()?;
        self.holdings.windows.remove(&window);
        Some(window)
    }

    fn create_qp(&mut self, attr: QpAttr) -> Result<Qpn, FabricError> {
        let qpn = self.inner.create_qp(attr)?;
        self.holdings.queue_pairs.insert(qpn);
        Ok(qpn)
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
        self.inner.disconnect_qp(qpn)
    }

    fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), FabricError> {
        self.inner.destroy_qp(qpn)?;
        self.holdings.queue_pairs.remove(&qpn);
        Ok(())
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}
