//! The receiving side of a port, as its worker and the control object share it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use farwrite_fabric::contract::{FabricError, Qpn, Table};

use farwrite_fabric::udp::WakeEvent;

use crate::device::{CompletionQueue, Receives};
use crate::port::{QueuePair, ReceiveBuffers};

/// Bits of a request's identifier that number the request within its connection.
const INDEX_BITS: u32 = 16;

/// The receiving side of a port.
pub(crate) struct Receiving {
    pub(crate) queue: Arc<CompletionQueue>,
    /// Wakes the worker.
    pub(crate) wake_event: Arc<WakeEvent>,
    /// Completions for which the queue has room, and that no connection has.
    free: AtomicU32,
    changed: AtomicBool,
    changes: Mutex<Vec<Change>>,
}

/// A change that the control object makes to the queue pairs of a worker.
pub(crate) enum Change {
    Connect(Box<Connection>),
    /// The queue pair was reset.
    Disconnect(u64),
    /// The queue pair was reset and connected again, so its requests are gone. New ones name this
    /// number of resets.
    Refill(Qpn, u64),
}

/// The receiving half of a connected queue pair.
pub(crate) struct Connection {
    /// Unique in the fabric, so a late completion of another connection is not mistaken.
    pub(crate) id: u64,
    pub(crate) qpn: Qpn,
    pub(crate) context: u64,
    pub(crate) qp: Arc<QueuePair>,
    /// What the queue pair returned when it was prepared.
    pub(crate) resets: u64,
    /// Number of receive requests. Each has a number below.
    pub(crate) depth: u32,
    /// Requests that completed and are not posted again.
    pub(crate) spare: Vec<u16>,
    pub(crate) requests: Requests,
}

/// What is known of the receive requests of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requests {
    /// Those that are not spare are posted.
    Posted,
    /// The device has broken the queue pair.
    Broken,
    /// None is posted, but completions of earlier ones may be in the queue.
    Gone,
}

impl Receiving {
    pub(crate) fn new(queue: Arc<CompletionQueue>, completions: u32) -> Result<Self, FabricError> {
        Ok(Self {
            queue,
            wake_event: WakeEvent::new()?,
            free: AtomicU32::new(completions),
            changed: AtomicBool::new(false),
            changes: Mutex::default(),
        })
    }

    /// Reserves room for the completions of a connection. Returns how many it may have.
    pub(crate) fn reserve(&self, wanted: u32, exactly: bool) -> Result<u32, FabricError> {
        // Only the control object takes room.
        let free = self.free.load(Ordering::Relaxed);
        let wanted = wanted.min(1 << INDEX_BITS);
        // Half of the room, so that it never ends at once.
        let depth = if exactly {
            wanted
        } else {
            wanted.min(free / 2)
        };
        if depth > free || depth == 0 {
            return Err(FabricError::OutOfResources(Table::QueuePair));
        }
        self.free.fetch_sub(depth, Ordering::Relaxed);
        Ok(depth)
    }

    /// Gives room back.
    pub(crate) fn release(&self, depth: u32) {
        // Most batches have nothing to give back.
        if depth > 0 {
            self.free.fetch_add(depth, Ordering::Relaxed);
        }
    }

    pub(crate) fn push(&self, change: Change) {
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let wakes = matches!(change, Change::Refill(..));
        changes.push(change);
        self.changed.store(true, Ordering::Release);
        if wakes {
            self.wake_event.waker().wake();
        }
    }

    /// Takes all changes. Costs one atomic load if there are none.
    pub(crate) fn take(&self) -> Vec<Change> {
        if !self.changed.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        self.changed.store(false, Ordering::Relaxed);
        std::mem::take(&mut changes)
    }
}

impl Connection {
    /// Posts all requests, after they are gone.
    pub(crate) fn fill(&mut self, receives: &mut Receives) -> Result<(), FabricError> {
        // At most 2^16 requests.
        #[allow(clippy::cast_possible_truncation)]
        let all = (0..self.depth).map(|index| index as u16);
        self.spare = all.collect();
        self.requests = Requests::Posted;
        self.refill(receives)
    }

    /// Posts all spare requests. Those that the device does not take stay spare.
    pub(crate) fn refill(&mut self, receives: &mut Receives) -> Result<(), FabricError> {
        receives.clear();
        for &index in &self.spare {
            let id = (self.id << INDEX_BITS) | u64::from(index);
            let (addr, length, key) = match &self.qp.buffers {
                ReceiveBuffers::Own(buffers) => buffers.place(index.into()),
                ReceiveBuffers::Shared(buffer) => buffer.place(0),
            };
            receives.push(id, addr, length, key);
        }
        let (posted, result) = self.qp.device.post_receives(self.resets, receives);
        self.spare.drain(..posted);
        result
    }
}

/// The connection and the number of a request.
pub(crate) fn parts(request: u64) -> (u64, u16) {
    #[allow(clippy::cast_possible_truncation)]
    let index = request as u16;
    (request >> INDEX_BITS, index)
}
