//! The interface between the carriers of packets and all layers above them.
//!
//! A [`Fabric`] is the control object of a NIC. It registers memory, opens windows for peers, and
//! creates and connects queue pairs. Each of its ports has one [`TxQueue`], which sends, and one
//! [`RxWorker`], which receives and places packets. If the types are `Send`, each of them can run
//! on its own thread.

mod counters;
mod error;
mod limits;
mod memory;
#[cfg(target_os = "linux")]
mod pages;
mod racing;
mod waker;
mod work;

use std::net::SocketAddr;
use std::time::Duration;

pub use counters::{Counters, DropReason};
pub use error::{Capability, FabricError, Object, Table};
pub use limits::{MAX_OBJECTS, check_windows};
pub use memory::{Memory, Region, RegionPtr, RegionReader, Registered, WindowHold};
pub use waker::Waker;
pub use work::{
    Capabilities, Cipher, Completion, Departed, DirectionSecret, Ecn, Lkey, QpAttr, QpRoute,
    QpSealing, Qpn, RemotePlace, RemoteQp, Rkey, SendArrival, Sender, Sge, Window, WindowKeys,
    WindowSet, WriteWr,
};

/// The control object of a UC NIC.
///
/// No call blocks on a peer or on a worker. Time passes only between calls: a fabric that needs a
/// clock reads it itself, or its owner advances virtual time. A call that fails changes nothing.
///
/// A packet is applied completely or not at all. A packet that is not applied is counted under the
/// first [`DropReason`] that matches, in the order of that enum.
pub trait Fabric {
    /// The queue that sends through one port.
    type Tx: TxQueue;
    /// The worker that receives through one port.
    type Rx: RxWorker;

    /// The capabilities of this fabric.
    fn capabilities(&self) -> Capabilities;
    /// The address of a port, as a peer on the same network would write it.
    fn local_addr(&self, port: u16) -> SocketAddr;
    /// Hands out the queue that sends through a port. This succeeds once for each port.
    ///
    /// # Errors
    /// [`FabricError::BadAttribute`] for a port that does not exist, [`FabricError::InUse`] if the
    /// queue was handed out before.
    fn take_tx(&mut self, port: u16) -> Result<Self::Tx, FabricError>;
    /// Hands out the worker that receives through a port. This succeeds once for each port. A port
    /// without a worker receives nothing.
    ///
    /// # Errors
    /// Same as [`Fabric::take_tx`].
    fn take_rx(&mut self, port: u16) -> Result<Self::Rx, FabricError>;

    /// Registers memory under a local key. No peer can reach it yet.
    ///
    /// # Errors
    /// [`FabricError::OutOfResources`], [`FabricError::Unsupported`] for a ghost. [`FabricError::Io`] of a
    /// device.
    fn register(&mut self, region: Region) -> Result<Lkey, FabricError>;
    /// Deregisters a region and returns it. After that, the fabric neither reads nor writes its
    /// bytes.
    ///
    /// # Errors
    /// [`FabricError::UnknownKey`]. [`FabricError::InUse`] while a window onto the region is open
    /// or has not been reported by [`Fabric::poll_closed`], while a posted request that names
    /// the region has not completed, or while a [`RegionReader`] of it exists.
    fn deregister(&mut self, lkey: Lkey) -> Result<Region, FabricError>;
    /// The address of a region.
    ///
    /// # Errors
    /// [`FabricError::UnknownKey`].
    fn region(&self, lkey: Lkey) -> Result<RegionPtr, FabricError>;
    /// The bytes of a region that no peer can reach; empty for a ghost.
    ///
    /// # Errors
    /// [`FabricError::UnknownKey`]. [`FabricError::InUse`] while a window onto the region is open
    /// or has not been reported by [`Fabric::poll_closed`].
    fn memory(&self, lkey: Lkey) -> Result<&[u8], FabricError>;
    /// Copies bytes of a region, from `offset` on, to `out`; zeros from a ghost. If a peer writes
    /// the bytes at the same time, the copy has old bytes, new bytes or a mixture.
    ///
    /// # Errors
    /// [`FabricError::UnknownKey`], [`FabricError::OutOfBounds`].
    fn copy_out(&self, lkey: Lkey, offset: u64, out: &mut [u8]) -> Result<(), FabricError>;
    /// A reader of a region, for other threads. The region counts as in use while it exists.
    ///
    /// # Errors
    /// [`FabricError::UnknownKey`].
    fn reader(&self, lkey: Lkey) -> Result<RegionReader, FabricError>;
    /// Copies `bytes` into a region, from `offset` on; a ghost ignores them. The caller must not
    /// change bytes that a posted request names.
    ///
    /// # Errors
    /// [`FabricError::UnknownKey`], [`FabricError::OutOfBounds`], [`FabricError::ReadOnly`].
    fn copy_in(&mut self, lkey: Lkey, offset: u64, bytes: &[u8]) -> Result<(), FabricError>;

    /// Creates a set of `slots` windows of at most `slot_bytes` each, all closed. Closed windows
    /// use almost no memory.
    ///
    /// The set is bound to the queue pairs `of`: packets reach its windows through these queue pairs
    /// only, as with InfiniBand's memory windows of type 2 (IBTA 10.6.7). So another peer cannot
    /// use the key, even if it has seen it. The binding to a queue pair ends when that queue pair is
    /// destroyed. A fabric without [`Capabilities::binds_windows`] only checks that the queue pairs
    /// exist.
    ///
    /// A software NIC gives each set one key, with addresses from zero as in the paper's Fig. 5. A
    /// remote address that the peer knows therefore stays the same when a window is closed and
    /// another one is opened at its slot.
    ///
    /// # Errors
    /// [`FabricError::OutOfResources`]. [`FabricError::BadAttribute`] for no or too many slots, or
    /// for slots beyond 64 bits of address. [`FabricError::UnknownQp`].
    fn create_windows(
        &mut self,
        of: &[Qpn],
        slots: u32,
        slot_bytes: u64,
    ) -> Result<WindowSet, FabricError>;
    /// Destroys a set. Its open windows are closed as by [`Fabric::close_window`].
    ///
    /// # Errors
    /// [`FabricError::UnknownKey`].
    fn destroy_windows(&mut self, set: WindowSet) -> Result<(), FabricError>;
    /// Opens a window. Through it, the peers of the set's queue pairs may write into `length` bytes of a
    /// region, from `offset` on. The first byte is at the returned [`RemotePlace::addr`]. Several windows
    /// may be open onto one region.
    ///
    /// # Errors
    /// [`FabricError::UnknownKey`]. [`FabricError::InUse`] if a window is open at the slot.
    /// [`FabricError::OutOfBounds`] for a slot that does not exist, for more bytes than the slot
    /// holds, or for bytes outside the region. [`FabricError::ReadOnly`].
    fn open_window(
        &mut self,
        set: WindowSet,
        slot: u32,
        lkey: Lkey,
        offset: u64,
        length: u64,
    ) -> Result<(Window, RemotePlace), FabricError>;
    /// Closes a window. Packets that no worker has begun to apply no longer reach it; with
    /// [`Capabilities::places_on_arrival`], packets that have not arrived.
    /// [`Fabric::poll_closed`] reports when all workers are done with the others. The slot can be
    /// used again at once.
    ///
    /// # Errors
    /// [`FabricError::UnknownKey`]. [`FabricError::UnknownWindow`] if the window was closed before.
    fn close_window(&mut self, window: Window) -> Result<(), FabricError>;
    /// The next closed window that no worker uses any more: no byte is written through it, and no
    /// caller of a worker still handles the completion of a packet that was. This holds as soon as
    /// each worker has left the batch that it was in when the window was closed; at once, if no
    /// worker was in a batch. See [`RxWorker::end_batch`].
    fn poll_closed(&mut self) -> Option<Window>;

    /// Creates a queue pair. It receives nothing until it is connected.
    ///
    /// # Errors
    /// [`FabricError::BadAttribute`], [`FabricError::OutOfResources`].
    fn create_qp(&mut self, attr: QpAttr) -> Result<Qpn, FabricError>;
    /// Makes a queue pair seal its writes, and accept only sealed ones (P2.7), or ends that with
    /// `None`. Call it before [`Fabric::connect_qp`]. SENDs are not sealed. A sealed packet is 24 bytes longer. Sealing ends
    /// when the queue pair is disconnected. Ghosts are sealed as zeros.
    ///
    /// A queue pair uses no counter twice. Two queue pairs must not seal with the same secret for the
    /// same queue pair of a peer.
    ///
    /// # Errors
    /// [`FabricError::UnknownQp`], [`FabricError::InUse`] if connected, [`FabricError::Unsupported`],
    /// [`FabricError::BadAttribute`] if a sealed packet with [`QpAttr::mtu`] bytes is too long.
    fn seal_qp(&mut self, _qpn: Qpn, sealing: Option<QpSealing>) -> Result<(), FabricError> {
        match sealing {
            None => Ok(()),
            Some(_) => Err(FabricError::Unsupported(Capability::Sealing)),
        }
    }
    /// Connects a queue pair to its peer, over [`QpRoute::to`] the peer's address.
    ///
    /// # Errors
    /// [`FabricError::UnknownQp`], [`FabricError::InUse`] if connected,
    /// [`FabricError::BadAttribute`] for an address or number it cannot reach.
    fn connect_qp(&mut self, qpn: Qpn, remote: RemoteQp) -> Result<(), FabricError>;
    /// Changes the addresses of a connected queue pair. The change applies to packets posted and
    /// received after the call.
    ///
    /// # Errors
    /// [`FabricError::UnknownQp`], [`FabricError::NotConnected`], [`FabricError::BadAttribute`].
    fn set_route(&mut self, qpn: Qpn, route: QpRoute) -> Result<(), FabricError>;
    /// Disconnects a queue pair from its peer. The queue pair is then in the state before
    /// [`Fabric::connect_qp`] and can be connected again. Departures that were not polled, and
    /// writes that have not departed, are discarded.
    ///
    /// # Errors
    /// [`FabricError::UnknownQp`], [`FabricError::NotConnected`].
    fn disconnect_qp(&mut self, qpn: Qpn) -> Result<(), FabricError>;
    /// Destroys a queue pair. Departures that were not polled, and writes that have not departed,
    /// are discarded. A worker on another thread may still deliver packets of its current batch.
    ///
    /// # Errors
    /// [`FabricError::UnknownQp`].
    fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), FabricError>;

    /// Counters of carried and dropped packets. They include each worker's last batch.
    fn counters(&self) -> Counters;
}

/// Sends through one port of a [`Fabric`].
///
/// Every posted write completes: a signalled one with a [`Departed`], an unsignalled one with the
/// next signalled one of its queue pair. Departures of one queue pair come in order, those of
/// different queue pairs in any order.
pub trait TxQueue {
    /// Posts writes in order. Returns how many were accepted. Fewer than all means that the carrier
    /// is full at the moment: post the rest later. The last accepted write then completes as if it
    /// were signalled, so a call whose last write is signalled always has a completion.
    ///
    /// # Errors
    /// [`FabricError::UnknownQp`], [`FabricError::NotConnected`], [`FabricError::UnknownKey`],
    /// [`FabricError::OutOfBounds`] of a region or the MTU, [`FabricError::BadAttribute`] for more
    /// than [`Capabilities::max_sge`] entries: in these cases nothing is posted.
    /// [`FabricError::BrokenQp`] if packets of this queue pair cannot be sent, [`FabricError::Io`]
    /// if the port is permanently broken.
    fn post_writes(&mut self, qpn: Qpn, writes: &[WriteWr<'_>]) -> Result<usize, FabricError>;
    /// Posts one SEND of at most the MTU. Returns false if the carrier is full at the moment. The
    /// payload is copied.
    ///
    /// # Errors
    /// Same as [`TxQueue::post_writes`].
    fn post_send(&mut self, qpn: Qpn, payload: &[u8]) -> Result<bool, FabricError>;
    /// Same as [`TxQueue::post_send`], but the packet may leave together with the next writes of the port,
    /// before them. Without writes it leaves at [`TxQueue::flush`].
    ///
    /// # Errors
    /// Same as [`TxQueue::post_send`], also for an earlier packet to the same address.
    fn hold_send(&mut self, qpn: Qpn, payload: &[u8]) -> Result<bool, FabricError> {
        self.post_send(qpn, payload)
    }
    /// Sends what [`TxQueue::hold_send`] has held. Returns false if the carrier is full at the moment, so that
    /// packets are left.
    ///
    /// # Errors
    /// [`FabricError::Io`] if the port is permanently broken.
    fn flush(&mut self) -> Result<bool, FabricError> {
        Ok(true)
    }
    /// Appends the departures since the last call to `out`.
    ///
    /// # Errors
    /// [`FabricError::Io`] if the port is permanently broken.
    fn poll(&mut self, out: &mut Vec<Departed>) -> Result<(), FabricError>;
}

/// Receives through one port of a [`Fabric`].
///
/// A worker is in a *batch* from [`RxWorker::poll`] until [`RxWorker::end_batch`], its next poll,
/// or its drop. The batch includes the time in which the caller handles the completions: until it
/// ends, no window that was open at its beginning is reported as closed.
pub trait RxWorker {
    /// Ends the last batch and begins another one: receives a bounded number of packets, places
    /// them, and appends completions to `out`. Returns whether more packets may be waiting.
    ///
    /// # Errors
    /// [`FabricError::Io`] if the port is permanently broken.
    fn poll(&mut self, out: &mut Vec<Completion>) -> Result<bool, FabricError>;
    /// Ends the batch, if the worker is in one. Call this after handling the completions. As long
    /// as a caller neither polls again nor ends its batch, closed windows are not reported.
    fn end_batch(&mut self);
}

/// A fabric that runs in real time.
pub trait RealTime: Fabric<Rx: RealTimeRx> {
    /// Nanoseconds since a fixed moment, by a clock that never runs backward.
    fn now_ns(&self) -> u64;
    /// Sleeps until a packet arrives at one of `workers` (the workers that the caller polls
    /// itself), until a port that was full at the last post has room, until [`RealTime::waker`]
    /// wakes the caller, or for `at_most`. A wait may also end early without a visible reason. A
    /// worker that is in a batch stays in it.
    ///
    /// # Errors
    /// [`FabricError::Io`].
    fn wait(&mut self, at_most: Duration, workers: &[Self::Rx]) -> Result<(), FabricError>;
    /// A waker that ends waits of this control object from other threads.
    fn waker(&self) -> Waker;
}

/// A receive worker of a [`RealTime`] fabric. It can sleep on its own thread.
///
/// # Safety
/// While a worker is in a batch, [`Fabric::poll_closed`] of its fabric must not report a window
/// that was open when the batch began, as [`RxWorker`] requires. Owners rely on that report when
/// they free memory that a worker's thread uses during a batch.
#[allow(unsafe_code)]
pub unsafe trait RealTimeRx: RxWorker + Send {
    /// Ends the batch, then sleeps until a packet arrives at the port, until [`RealTimeRx::waker`]
    /// wakes the worker, or for `at_most`. A wait may also end early without a visible reason.
    ///
    /// # Errors
    /// [`FabricError::Io`].
    fn wait(&mut self, at_most: Duration) -> Result<(), FabricError>;
    /// A waker that ends waits of this worker from other threads.
    fn waker(&self) -> Waker;
}
