//! An open socket that several fabrics of this process share.
//!
//! The kernel gives each datagram of a stranger to one socket of a port. So fabrics at one address cannot
//! have an open socket each: they share one, and whoever reads it hands the datagrams to the others.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::datagram::ReceivedBatch;
use super::peers::Peers;
use super::real_time::now_ns;
use super::receiver::Buffers;
use super::route_packets::OwnersPacket;
use super::rx::STRANGERS_NS;
use super::socket::SharedSocket;
use super::wake_event::WakeEvent;
use crate::contract::{Ecn, FabricError};

/// The largest number of bytes that wait for a fabric that reads slowly. Further datagrams are dropped; the
/// network could drop them as well.
const MOST_BYTES: usize = 1 << 20;
/// What a waiting datagram takes besides its payload.
const OVERHEAD_BYTES: usize = 128;

/// An open socket, and the fabrics that share it.
#[derive(Debug)]
pub(super) struct SharedOpen {
    socket: Arc<SharedSocket>,
    readers: Mutex<Readers>,
}

#[derive(Debug, Default)]
struct Readers {
    /// The time of the last read.
    read_ns: u64,
    inboxes: Vec<Arc<Inbox>>,
}

/// What one fabric gets of the socket when another one reads it.
#[derive(Debug)]
struct Inbox {
    /// Tells whether packets of peers may arrive at the open socket.
    peers: Arc<Peers>,
    /// Wake the fabric, whether its owner or a worker receives.
    wake_events: [Arc<WakeEvent>; 2],
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    batches: VecDeque<Batch>,
    bytes: usize,
}

/// A [`ReceivedBatch`] that waits.
#[derive(Debug)]
struct Batch {
    src: SocketAddr,
    dst: SocketAddr,
    ecn: Ecn,
    received_ns: Option<u64>,
    segment_bytes: usize,
    bytes: Box<[u8]>,
}

/// The membership of one fabric, which ends when it is dropped.
#[derive(Debug)]
pub(super) struct SharedReader {
    open: Arc<SharedOpen>,
    inbox: Arc<Inbox>,
}

impl SharedOpen {
    pub(super) fn new(socket: Arc<SharedSocket>) -> Self {
        Self {
            socket,
            readers: Mutex::default(),
        }
    }

    pub(super) fn socket(&self) -> &Arc<SharedSocket> {
        &self.socket
    }

    /// Adds a fabric.
    pub(super) fn reader(
        self: &Arc<Self>,
        peers: &Arc<Peers>,
        wake_events: [&Arc<WakeEvent>; 2],
    ) -> SharedReader {
        let inbox = Arc::new(Inbox {
            peers: Arc::clone(peers),
            wake_events: wake_events.map(Arc::clone),
            waiting: Mutex::default(),
        });
        let readers = self.readers.lock();
        let mut readers = readers.unwrap_or_else(PoisonError::into_inner);
        readers.inboxes.push(Arc::clone(&inbox));
        SharedReader {
            open: Arc::clone(self),
            inbox,
        }
    }
}

impl SharedReader {
    /// Passes what has arrived at the socket to `each`, and returns whether more may wait. Without
    /// `is_awaited`, only strangers send to the socket, and it is read now and then.
    pub(super) fn recv(
        &self,
        is_awaited: bool,
        buffers: &mut Buffers,
        mut each: impl FnMut(ReceivedBatch<'_>),
    ) -> Result<bool, FabricError> {
        for batch in self.inbox.take() {
            each(batch.as_received());
        }
        // Whoever holds the lock reads for this fabric too, and wakes it.
        let Ok(mut readers) = self.open.readers.try_lock() else {
            return Ok(false);
        };
        let now_ns = now_ns();
        if !is_awaited && now_ns < readers.read_ns + STRANGERS_NS {
            return Ok(false);
        }
        readers.read_ns = now_ns;
        let (received, is_full) = buffers.recv(&self.open.socket)?;
        for batch in received {
            for inbox in &readers.inboxes {
                if Arc::ptr_eq(inbox, &self.inbox) {
                    each(batch);
                } else {
                    inbox.push(&batch);
                }
            }
        }
        Ok(is_full && is_awaited)
    }
}

impl Drop for SharedReader {
    fn drop(&mut self) {
        let readers = self.open.readers.lock();
        let mut readers = readers.unwrap_or_else(PoisonError::into_inner);
        let is_other = |inbox: &Arc<Inbox>| !Arc::ptr_eq(inbox, &self.inbox);
        readers.inboxes.retain(is_other);
    }
}

impl Inbox {
    /// Adds a datagram that may be for this fabric: for its owner, or for the NIC of one whose peers have no
    /// sockets of their own.
    fn push(&self, batch: &ReceivedBatch<'_>) {
        let is_for_owner = |payload| OwnersPacket::of(payload).is_some();
        if !self.peers.shares() && !batch.segments().any(is_for_owner) {
            return;
        }
        let mut waiting = self.waiting();
        let bytes = batch.bytes.len() + OVERHEAD_BYTES;
        if waiting.bytes + bytes > MOST_BYTES {
            return;
        }
        waiting.bytes += bytes;
        waiting.batches.push_back(Batch {
            src: batch.src,
            dst: batch.dst,
            ecn: batch.ecn,
            received_ns: batch.received_ns,
            segment_bytes: batch.segment_bytes,
            bytes: batch.bytes.into(),
        });
        drop(waiting);
        for wake_event in &self.wake_events {
            wake_event.waker().wake();
        }
    }

    fn take(&self) -> VecDeque<Batch> {
        std::mem::take(&mut *self.waiting()).batches
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Batch {
    fn as_received(&self) -> ReceivedBatch<'_> {
        ReceivedBatch {
            src: self.src,
            dst: self.dst,
            ecn: self.ecn,
            received_ns: self.received_ns,
            segment_bytes: self.segment_bytes,
            bytes: &self.bytes,
        }
    }
}
