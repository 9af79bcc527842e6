//! A thread that sends the packets of a port.
//!
//! The owner of the port copies requests into a queue ([`queue`]). The thread seals the packets and makes
//! the system calls. It has the transmit queue of the port, which nobody else uses.

mod queue;
mod writes;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::contract::{Departed, FabricError, Lkey, Qpn, RealTimeTx, RegionReader, Waker, WriteWr};
use crate::threads;

use queue::{Job, Next, Queue, Work};
use writes::Writes;

/// How long the thread waits for room before it looks whether the job is still wanted.
const WAIT_SLICE: Duration = Duration::from_millis(1);

/// The owner's side of a port whose packets a thread sends. Dropping this value ends the thread, after the
/// packets that wait, as far as the carrier has room for them.
#[derive(Debug)]
pub(crate) struct SendThread {
    queue: Arc<Queue>,
    owner: Waker,
    /// `None` once the thread is joined.
    handle: Option<JoinHandle<()>>,
}

impl SendThread {
    /// Starts the thread of a port. `owner` wakes the owner.
    ///
    /// # Errors
    /// [`FabricError::Io`] when the operating system cannot start a thread, or the port has failed
    /// permanently.
    pub(crate) fn start<T: RealTimeTx + 'static>(
        port: usize,
        mut tx: T,
        owner: &Waker,
    ) -> Result<Self, FabricError> {
        tx.leave_owner();
        // The thread takes departures with its jobs only. These belong to earlier posts.
        let mut departed = Vec::new();
        tx.poll(&mut departed)?;
        let wakes = !departed.is_empty();
        let queue = Arc::new(Queue::new(departed));
        let mut sender = Sender {
            tx,
            queue: Arc::clone(&queue),
            owner: owner.clone(),
            departed: Vec::new(),
        };
        let handle = threads::spawn(format!("farwrite-tx-{port}"), move || sender.run());
        let handle = handle.map_err(|source| FabricError::Io {
            what: "starting a thread that sends".into(),
            source,
        })?;
        if wakes {
            owner.wake();
        }
        Ok(Self {
            queue,
            owner: owner.clone(),
            handle: Some(handle),
        })
    }

    /// As [`TxQueue::post_writes`](crate::contract::TxQueue::post_writes), but the errors of a queue pair come
    /// with [`SendThread::take_broken`]. `reader` gives a reader of a region.
    ///
    /// # Errors
    /// Those of `reader`.
    pub(crate) fn post_writes(
        &self,
        qpn: Qpn,
        writes: &[WriteWr<'_>],
        reader: impl Fn(Lkey) -> Result<RegionReader, FabricError>,
    ) -> Result<usize, FabricError> {
        let room = self.queue.room_for_writes(writes.len());
        if room > 0 {
            let writes = Writes::copy(&writes[..room], room < writes.len(), reader)?;
            let work = Work::Writes(writes);
            self.queue.push(Job { qpn, work });
        }
        Ok(room)
    }

    /// As [`TxQueue::post_send`](crate::contract::TxQueue::post_send), without its errors.
    pub(crate) fn post_send(&self, qpn: Qpn, payload: &[u8]) -> bool {
        let has_room = self.queue.has_room_for_send();
        if has_room {
            let work = Work::Send(payload.to_vec());
            self.queue.push(Job { qpn, work });
        }
        has_room
    }

    /// Takes the departures since the last call.
    pub(crate) fn take_departed(&self, out: &mut Vec<Departed>) {
        self.queue.take_departed(out);
    }

    /// Checks that the port has not failed.
    ///
    /// # Errors
    /// [`FabricError::Io`] if it has failed permanently.
    pub(crate) fn check(&self) -> Result<(), FabricError> {
        self.queue.check()
    }

    /// Takes a queue pair whose packets cannot be sent, with the reason.
    pub(crate) fn take_broken(&self) -> Option<(Qpn, FabricError)> {
        self.queue.take_broken()
    }

    /// Makes the transmit queue apply what has become of queue pairs.
    pub(crate) fn update(&self) {
        self.queue.update();
    }

    /// Drops the writes of a queue pair that have not left, and its departures. Its SENDs leave first, if the
    /// carrier has room. Then the thread uses neither the queue pair nor the memory of its packets.
    pub(crate) fn discard(&self, qpn: Qpn) {
        if self.queue.discard(qpn) {
            self.owner.wake();
        }
    }
}

impl Drop for SendThread {
    fn drop(&mut self) {
        self.queue.close();
        if let Some(handle) = self.handle.take() {
            // A thread that panicked has nothing to return.
            let _ = handle.join();
        }
    }
}

/// What runs on the thread.
struct Sender<T> {
    tx: T,
    queue: Arc<Queue>,
    owner: Waker,
    /// Empty between jobs, kept for its capacity.
    departed: Vec<Departed>,
}

impl<T: RealTimeTx> Sender<T> {
    fn run(&mut self) {
        let sent = catch_unwind(AssertUnwindSafe(|| self.send_jobs()));
        let failure = match sent {
            Ok(Ok(())) => return,
            Ok(Err(failure)) => failure,
            // The panic has already been reported. No state of the thread is used again.
            Err(_) => FabricError::Io {
                what: "sending".into(),
                source: std::io::Error::other("a thread that sends panicked"),
            },
        };
        self.queue.fail(failure);
        self.owner.wake();
    }

    /// Sends until the queue is closed.
    ///
    /// # Errors
    /// [`FabricError::Io`] if the port has failed permanently.
    fn send_jobs(&mut self) -> Result<(), FabricError> {
        while let Some(next) = self.queue.take() {
            let Next::Job(Job { qpn, work }) = next else {
                self.tx.poll(&mut self.departed)?;
                continue;
            };
            let sent = match &work {
                Work::Writes(writes) => self.send_writes(qpn, &writes.requests()),
                Work::Send(payload) => self.send_one(qpn, payload),
            };
            // When the owner hears that packets have left, it may deregister their memory.
            drop(work);
            let error = match sent {
                Err(failure @ FabricError::Io { .. }) => return Err(failure),
                sent => sent.err(),
            };
            if self.queue.finish(&mut self.departed, error) {
                self.owner.wake();
            }
        }
        Ok(())
    }

    fn send_writes(&mut self, qpn: Qpn, writes: &[WriteWr<'_>]) -> Result<(), FabricError> {
        let mut rest = writes;
        loop {
            let taken = self.tx.post_writes(qpn, rest)?;
            self.tx.poll(&mut self.departed)?;
            if taken == rest.len() {
                return Ok(());
            }
            // The queue also reports the last write that the carrier took. The owner does not expect it.
            let last = rest[..taken].last();
            if last.is_some_and(|last| !last.signaled) {
                self.departed.pop();
            }
            rest = &rest[taken..];
            if !self.waits_for_room()? {
                return Ok(());
            }
        }
    }

    fn send_one(&mut self, qpn: Qpn, payload: &[u8]) -> Result<(), FabricError> {
        while !self.tx.post_send(qpn, payload)? && self.waits_for_room()? {}
        Ok(())
    }

    /// Waits until the carrier may have room. Returns false if the job is not worth that.
    fn waits_for_room(&mut self) -> Result<bool, FabricError> {
        if self.queue.is_worth_waiting() {
            self.tx.wait_for_room(WAIT_SLICE)?;
            return Ok(true);
        }
        Ok(false)
    }
}
