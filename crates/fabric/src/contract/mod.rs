//! The border between the carriers of packets and everything above them.
//!
//! A [`Fabric`] is the control object of a NIC. It registers memory, opens windows for peers, and
//! makes and connects queue pairs. Each of its ports has one [`TxQueue`], which sends, and one
//! [`RxWorker`], which receives and places what arrives. Where the types are `Send`, each can run
//! on a thread of its own.

mod counters;
mod error;
mod memory;
mod racing;
mod waker;
mod work;

use std::net::SocketAddr;
use std::time::Duration;

pub use counters::{Counters, DropReason};
pub use error::FabricError;
pub(crate) use memory::Registered;
pub use memory::{Memory, Region, RegionPtr};
pub use waker::Waker;
pub use work::{
    Capabilities, Completion, Departed, Ecn, Lkey, QpAttr, QpPath, Qpn, RemotePlace, RemoteQp,
    Rkey, SendArrival, Sender, Sge, Window, WindowSet, WriteWr,
};

/// The control object of a UC NIC.
///
/// No call blocks on a peer or on a worker. Time passes between calls only: a fabric that needs a
/// clock reads it itself, or its owner advances the virtual one. A call that fails has changed
/// nothing.
///
/// A packet is applied whole or not at all. What is not applied is counted under the first
/// [`DropReason`] that holds, in the order of that enum.
pub trait Fabric {
    /// Sends through one port.
    type Tx: TxQueue;
    /// Receives through one port.
    type Rx: RxWorker;

    /// What this fabric can do.
    fn capabilities(&self) -> Capabilities;
    /// Address of a port, as a peer on the same network would write it.
    fn local_addr(&self, port: u16) -> SocketAddr;
    /// Hands out the queue that sends through a port, once.
    ///
    /// # Errors
    /// [`FabricError::BadAttribute`] for a port that does not exist, [`FabricError::InUse`] if it
    /// was handed out before.
    fn take_tx(&mut self, port: u16) -> Result<Self::Tx, FabricError>;
    /// Hands out the worker that receives through a port, once. Without one, nothing is received.
    ///
    /// # Errors
    /// As [`Fabric::take_tx`].
    fn take_rx(&mut self, port: u16) -> Result<Self::Rx, FabricError>;

    /// Registers memory under a local key. No peer can reach it yet.
    ///
    /// # Errors
    /// [`FabricError::OutOfResources`], [`FabricError::Unsupported`] for a ghost.
    fn register(&mut self, region: Region) -> Result<Lkey, FabricError>;
    /// Gives a region back. After this returns, the fabric neither reads nor writes a byte of it.
    ///
    /// # Errors
    /// [`FabricError::UnknownKey`], [`FabricError::InUse`] while a window onto it is open or has
    /// not been reported by [`Fabric::poll_closed`], or a posted request that names it has not
    /// completed.
    fn deregister(&mut self, lkey: Lkey) -> Result<Region, FabricError>;
    /// The address of a region.
    ///
    /// # Errors
    /// [`FabricError::UnknownKey`].
    fn region(&self, lkey: Lkey) -> Result<RegionPtr, FabricError>;
    /// The bytes of a region that no peer can reach; none of a ghost.
    ///
    /// # Errors
    /// [`FabricError::UnknownKey`], [`FabricError::InUse`] while a window onto it is open or has
    /// not been reported by [`Fabric::poll_closed`].
    fn memory(&self, lkey: Lkey) -> Result<&[u8], FabricError>;
    /// Copies bytes of a region, from `offset` on, to `out`; zeros from a ghost. Bytes that a peer
    /// writes meanwhile come old, new or mixed.
    ///
    /// # Errors
    /// [`FabricError::UnknownKey`], [`FabricError::OutOfBounds`].
    fn copy_out(&self, lkey: Lkey, offset: u64, out: &mut [u8]) -> Result<(), FabricError>;
    /// Copies `bytes` into a region, from `offset` on; a ghost ignores them. The caller does not
    /// change bytes that a posted request names.
    ///
    /// # Errors
    /// [`FabricError::UnknownKey`], [`FabricError::OutOfBounds`].
    fn copy_in(&mut self, lkey: Lkey, offset: u64, bytes: &[u8]) -> Result<(), FabricError>;

    /// Makes a set of `slots` windows of at most `slot_bytes` each, all closed. Closed windows cost
    /// next to no memory.
    ///
    /// A software NIC gives a set one key, zero-based as in the paper's Fig. 5. Then a place that
    /// is known to the peer stays the same when a window is closed and another opened at its slot.
    ///
    /// # Errors
    /// [`FabricError::OutOfResources`], [`FabricError::BadAttribute`] for no or too many slots, or
    /// slots beyond 64 bits of address.
    fn create_windows(&mut self, slots: u32, slot_bytes: u64) -> Result<WindowSet, FabricError>;
    /// Ends a set. Its open windows are closed as by [`Fabric::close_window`].
    ///
    /// # Errors
    /// [`FabricError::UnknownKey`].
    fn destroy_windows(&mut self, set: WindowSet) -> Result<(), FabricError>;
    /// Lets peers write into `length` bytes of a region, from `offset` on, and says where: the
    /// first byte is at [`RemotePlace::addr`]. Many windows may be open onto a region.
    ///
    /// # Errors
    /// [`FabricError::UnknownKey`], [`FabricError::InUse`] if a window is open at the slot,
    /// [`FabricError::OutOfBounds`] for a slot that does not exist, more bytes than it holds, or
    /// bytes that the region does not have.
    fn open_window(
        &mut self,
        set: WindowSet,
        slot: u32,
        lkey: Lkey,
        offset: u64,
        length: u64,
    ) -> Result<(Window, RemotePlace), FabricError>;
    /// Closes a window to packets that no worker has begun to apply. [`Fabric::poll_closed`]
    /// reports when the others are done. The slot is free at once.
    ///
    /// # Errors
    /// [`FabricError::UnknownKey`], [`FabricError::UnknownWindow`] if it was closed before.
    fn close_window(&mut self, window: Window) -> Result<(), FabricError>;
    /// The next closed window that no worker uses any more: no byte is written through it, and no
    /// caller of a worker still handles a completion of a packet that was. That is so when each
    /// worker has left the batch that it was in when the window was closed; with no worker in a
    /// batch, at once. See [`RxWorker::end_batch`].
    fn poll_closed(&mut self) -> Option<Window>;

    /// Makes a queue pair. It receives nothing until connected.
    ///
    /// # Errors
    /// [`FabricError::BadAttribute`], [`FabricError::OutOfResources`].
    fn create_qp(&mut self, attr: QpAttr) -> Result<Qpn, FabricError>;
    /// Connects a queue pair to its peer, over [`QpPath::to`] the peer's address.
    ///
    /// # Errors
    /// [`FabricError::UnknownQp`], [`FabricError::InUse`] if connected,
    /// [`FabricError::BadAttribute`] for an address or number it cannot reach.
    fn connect_qp(&mut self, qpn: Qpn, remote: RemoteQp) -> Result<(), FabricError>;
    /// Changes the addresses of a connected queue pair. It holds for what is posted and received
    /// after.
    ///
    /// # Errors
    /// [`FabricError::UnknownQp`], [`FabricError::NotConnected`], [`FabricError::BadAttribute`].
    fn set_path(&mut self, qpn: Qpn, path: QpPath) -> Result<(), FabricError>;
    /// Parts a queue pair from its peer. It is then as it was before [`Fabric::connect_qp`] and can
    /// be connected again. Its departures not yet polled, and writes that have not departed, are
    /// gone.
    ///
    /// # Errors
    /// [`FabricError::UnknownQp`], [`FabricError::NotConnected`].
    fn disconnect_qp(&mut self, qpn: Qpn) -> Result<(), FabricError>;
    /// Ends a queue pair. Its departures not yet polled, and writes that have not departed, are
    /// gone. A worker on another thread may still deliver packets of the batch that it is in.
    ///
    /// # Errors
    /// [`FabricError::UnknownQp`].
    fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), FabricError>;

    /// What was carried and what was dropped, by reason. Complete up to each worker's last batch.
    fn counters(&self) -> Counters;
}

/// Sends through one port of a [`Fabric`].
///
/// Every posted write completes: a signalled one with a [`Departed`], an unsignalled one with the
/// next signalled one of its queue pair. Departures of one queue pair come in order, those of
/// different queue pairs in any order.
pub trait TxQueue {
    /// Posts writes in order; returns how many were taken. Fewer than all means that the carrier is
    /// full for the moment: post the rest later. The last one taken then completes as if it were
    /// signalled, so every call of which the last write is signalled has a completion.
    ///
    /// # Errors
    /// [`FabricError::UnknownQp`], [`FabricError::NotConnected`], [`FabricError::UnknownKey`],
    /// [`FabricError::OutOfBounds`] of a region or the MTU, [`FabricError::BadAttribute`] for more
    /// than [`Capabilities::max_sge`] entries: nothing is posted then. [`FabricError::BrokenQp`]
    /// when packets of this queue pair cannot be sent, [`FabricError::Io`] when the port is broken
    /// for good.
    fn post_writes(&mut self, qpn: Qpn, writes: &[WriteWr<'_>]) -> Result<usize, FabricError>;
    /// Posts one SEND of at most the MTU; false where the carrier is full for the moment. The
    /// payload is copied.
    ///
    /// # Errors
    /// As [`TxQueue::post_writes`].
    fn post_send(&mut self, qpn: Qpn, payload: &[u8]) -> Result<bool, FabricError>;
    /// Appends the departures since the last call to `out`.
    ///
    /// # Errors
    /// [`FabricError::Io`] when the port is broken for good.
    fn poll(&mut self, out: &mut Vec<Departed>) -> Result<(), FabricError>;
}

/// Receives through one port of a [`Fabric`].
///
/// A worker is in a *batch* from [`RxWorker::poll`] until [`RxWorker::end_batch`], its next poll,
/// or its end. The batch covers what the caller does with the completions: while it lasts, no
/// window that was open when it began is reported as closed.
pub trait RxWorker {
    /// Ends the last batch and begins another: takes in a bounded amount of what has arrived,
    /// places it, and appends completions to `out`. Returns whether more may be waiting.
    ///
    /// # Errors
    /// [`FabricError::Io`] when the port is broken for good.
    fn poll(&mut self, out: &mut Vec<Completion>) -> Result<bool, FabricError>;
    /// Ends the batch, if the worker is in one: its completions are handled. A caller that neither
    /// polls again nor ends its batch keeps closed windows from being reported.
    fn end_batch(&mut self);
}

/// A fabric that lives in real time.
pub trait RealTime: Fabric<Rx: RealTimeRx> {
    /// Nanoseconds since a fixed moment, by a clock that never runs backward.
    fn now_ns(&self) -> u64;
    /// Sleeps until something arrives at one of `workers`, which are those that the caller polls
    /// itself; or, where the last post found a port full, until there is room; or until
    /// [`RealTime::waker`] wakes it; but at most for `at_most`. A wait may end early for no reason
    /// that the caller sees. A worker that is in a batch stays in it.
    ///
    /// # Errors
    /// [`FabricError::Io`].
    fn wait(&mut self, at_most: Duration, workers: &[Self::Rx]) -> Result<(), FabricError>;
    /// Ends waits of this fabric's control object from other threads.
    fn waker(&self) -> Waker;
}

/// A receive worker of a [`RealTime`] fabric, which can sleep on a thread of its own.
///
/// # Safety
/// While a worker is in a batch, [`Fabric::poll_closed`] of its fabric reports no window that was
/// open when the batch began, as [`RxWorker`] says. Owners free memory by that which a worker's
/// thread still uses until its batch ends.
#[allow(unsafe_code)]
pub unsafe trait RealTimeRx: RxWorker + Send {
    /// Ends the batch, and sleeps until something arrives at the port or [`RealTimeRx::waker`]
    /// wakes it, but at most for `at_most`. A wait may end early for no reason that the caller
    /// sees.
    ///
    /// # Errors
    /// [`FabricError::Io`].
    fn wait(&mut self, at_most: Duration) -> Result<(), FabricError>;
    /// Ends waits of this worker from other threads.
    fn waker(&self) -> Waker;
}
