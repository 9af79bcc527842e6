//! A fabric that is chosen when a program runs: UDP sockets, or an RDMA device.
#![allow(unsafe_code)]

use std::net::SocketAddr;
use std::time::Duration;

use farwrite_fabric::contract::{
    Capabilities, Completion, Counters, Departed, Fabric, FabricError, Lkey, QpAttr, QpRoute,
    QpSealing, Qpn, RealTime, RealTimeRx, Region, RegionPtr, RegionReader, RemotePlace, RemoteQp,
    RxWorker, TxQueue, Waker, Window, WindowSet, WriteWr,
};
use farwrite_fabric::udp::{HasSockets, UdpFabric};

use crate::fabric::VerbsFabric;
use crate::rx::VerbsRx;
use crate::tx::VerbsTx;

/// UDP sockets or an RDMA device.
pub enum AnyFabric {
    /// UDP sockets.
    Udp(Box<UdpFabric>),
    /// An RDMA device.
    Device(Box<VerbsFabric>),
}

/// The transmit queue of a port of an [`AnyFabric`].
pub enum AnyTx {
    /// Of UDP sockets.
    Udp(Box<<UdpFabric as Fabric>::Tx>),
    /// Of an RDMA device.
    Device(Box<VerbsTx>),
}

/// The receive worker of a port of an [`AnyFabric`].
pub enum AnyRx {
    /// Of UDP sockets.
    Udp(Box<<UdpFabric as Fabric>::Rx>),
    /// Of an RDMA device.
    Device(Box<VerbsRx>),
}

impl From<UdpFabric> for AnyFabric {
    fn from(fabric: UdpFabric) -> Self {
        Self::Udp(Box::new(fabric))
    }
}

impl From<VerbsFabric> for AnyFabric {
    fn from(fabric: VerbsFabric) -> Self {
        Self::Device(Box::new(fabric))
    }
}

impl HasSockets for AnyFabric {
    fn sockets(&self) -> Option<&UdpFabric> {
        match self {
            Self::Udp(fabric) => Some(fabric),
            Self::Device(_) => None,
        }
    }
}

/// Does the same with either.
macro_rules! either {
    ($self:expr, $inner:ident => $call:expr) => {
        match $self {
            Self::Udp($inner) => $call,
            Self::Device($inner) => $call,
        }
    };
}

impl Fabric for AnyFabric {
    type Tx = AnyTx;
    type Rx = AnyRx;

    fn capabilities(&self) -> Capabilities {
        either!(self, fabric => fabric.capabilities())
    }

    fn local_addr(&self, port: u16) -> SocketAddr {
        either!(self, fabric => fabric.local_addr(port))
    }

    fn take_tx(&mut self, port: u16) -> Result<AnyTx, FabricError> {
        Ok(match self {
            Self::Udp(fabric) => AnyTx::Udp(Box::new(fabric.take_tx(port)?)),
            Self::Device(fabric) => AnyTx::Device(Box::new(fabric.take_tx(port)?)),
        })
    }

    fn take_rx(&mut self, port: u16) -> Result<AnyRx, FabricError> {
        Ok(match self {
            Self::Udp(fabric) => AnyRx::Udp(Box::new(fabric.take_rx(port)?)),
            Self::Device(fabric) => AnyRx::Device(Box::new(fabric.take_rx(port)?)),
        })
    }

    fn register(&mut self, region: Region) -> Result<Lkey, FabricError> {
        either!(self, fabric => fabric.register(region))
    }

    fn deregister(&mut self, lkey: Lkey) -> Result<Region, FabricError> {
        either!(self, fabric => fabric.deregister(lkey))
    }

    fn region(&self, lkey: Lkey) -> Result<RegionPtr, FabricError> {
        either!(self, fabric => fabric.region(lkey))
    }

    fn memory(&self, lkey: Lkey) -> Result<&[u8], FabricError> {
        either!(self, fabric => fabric.memory(lkey))
    }

    fn copy_out(&self, lkey: Lkey, offset: u64, out: &mut [u8]) -> Result<(), FabricError> {
        either!(self, fabric => fabric.copy_out(lkey, offset, out))
    }

    fn reader(&self, lkey: Lkey) -> Result<RegionReader, FabricError> {
        either!(self, fabric => fabric.reader(lkey))
    }

    fn copy_in(&mut self, lkey: Lkey, offset: u64, bytes: &[u8]) -> Result<(), FabricError> {
        either!(self, fabric => fabric.copy_in(lkey, offset, bytes))
    }

    fn create_windows(
        &mut self,
        of: &[Qpn],
        slots: u32,
        slot_bytes: u64,
    ) -> Result<WindowSet, FabricError> {
        either!(self, fabric => fabric.create_windows(of, slots, slot_bytes))
    }

    fn destroy_windows(&mut self, set: WindowSet) -> Result<(), FabricError> {
        either!(self, fabric => fabric.destroy_windows(set))
    }

    fn open_window(
        &mut self,
        set: WindowSet,
        slot: u32,
        lkey: Lkey,
        offset: u64,
        length: u64,
    ) -> Result<(Window, RemotePlace), FabricError> {
        either!(self, fabric => fabric.open_window(set, slot, lkey, offset, length))
    }

    fn close_window(&mut self, window: Window) -> Result<(), FabricError> {
        either!(self, fabric => fabric.close_window(window))
    }

    fn poll_closed(&mut self) -> Option<Window> {
        either!(self, fabric => fabric.poll_closed())
    }

    fn create_qp(&mut self, attr: QpAttr) -> Result<Qpn, FabricError> {
        either!(self, fabric => fabric.create_qp(attr))
    }

    fn seal_qp(&mut self, qpn: Qpn, sealing: Option<QpSealing>) -> Result<(), FabricError> {
        either!(self, fabric => fabric.seal_qp(qpn, sealing))
    }

    fn connect_qp(&mut self, qpn: Qpn, remote: RemoteQp) -> Result<(), FabricError> {
        either!(self, fabric => fabric.connect_qp(qpn, remote))
    }

    fn set_route(&mut self, qpn: Qpn, route: QpRoute) -> Result<(), FabricError> {
        either!(self, fabric => fabric.set_route(qpn, route))
    }

    fn disconnect_qp(&mut self, qpn: Qpn) -> Result<(), FabricError> {
        either!(self, fabric => fabric.disconnect_qp(qpn))
    }

    fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), FabricError> {
        either!(self, fabric => fabric.destroy_qp(qpn))
    }

    fn counters(&self) -> Counters {
        either!(self, fabric => fabric.counters())
    }
}

impl TxQueue for AnyTx {
    fn post_writes(&mut self, qpn: Qpn, writes: &[WriteWr<'_>]) -> Result<usize, FabricError> {
        either!(self, queue => queue.post_writes(qpn, writes))
    }

    fn post_send(&mut self, qpn: Qpn, payload: &[u8]) -> Result<bool, FabricError> {
        either!(self, queue => queue.post_send(qpn, payload))
    }

    fn hold_send(&mut self, qpn: Qpn, payload: &[u8]) -> Result<bool, FabricError> {
        either!(self, queue => queue.hold_send(qpn, payload))
    }

    fn flush(&mut self) -> Result<bool, FabricError> {
        either!(self, queue => queue.flush())
    }

    fn poll(&mut self, out: &mut Vec<Departed>) -> Result<(), FabricError> {
        either!(self, queue => queue.poll(out))
    }
}

impl RxWorker for AnyRx {
    fn poll(&mut self, out: &mut Vec<Completion>) -> Result<bool, FabricError> {
        either!(self, worker => worker.poll(out))
    }

    fn end_batch(&mut self) {
        either!(self, worker => worker.end_batch());
    }
}

impl RealTime for AnyFabric {
    fn now_ns(&self) -> u64 {
        either!(self, fabric => fabric.now_ns())
    }

    fn wait(&mut self, at_most: Duration, workers: &[AnyRx]) -> Result<(), FabricError> {
        // All workers are of one kind: that of their fabric.
        match self {
            Self::Udp(fabric) => {
                let workers = workers.iter().filter_map(|worker| match worker {
                    AnyRx::Udp(worker) => Some(&**worker),
                    AnyRx::Device(_) => None,
                });
                fabric.wait_among(at_most, workers)
            }
            Self::Device(fabric) => {
                let workers = workers.iter().filter_map(|worker| match worker {
                    AnyRx::Device(worker) => Some(&**worker),
                    AnyRx::Udp(_) => None,
                });
                fabric.wait_among(at_most, workers)
            }
        }
    }

    fn waker(&self) -> Waker {
        either!(self, fabric => fabric.waker())
    }
}

// SAFETY: each worker keeps the promise for its own fabric, to which `AnyFabric` passes every call.
unsafe impl RealTimeRx for AnyRx {
    fn wait(&mut self, at_most: Duration) -> Result<(), FabricError> {
        either!(self, worker => worker.wait(at_most))
    }

    fn waker(&self) -> Waker {
        either!(self, worker => worker.waker())
    }
}
