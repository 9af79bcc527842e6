//! Threads that receive packets. The NIC below (`fabric`: `nic/rx.rs`) has placed their payloads.
//!
//! Each thread runs the receive worker of one port. It receives a batch of packets, sets the bits
//! of what arrived in the slot tables, and passes the remaining work to the owner. Schemes, control
//! and sending stay with the owner, so a worker needs no lock to process a packet.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use farwrite_fabric::contract::{FabricError, RealTimeRx, Waker};
use farwrite_fabric::threads;

use crate::completions::{CompletionHandler, Notice, PairReceive};
use crate::handle::QueuePair;

/// Maximum sleep of a worker. Packets end the sleep at once, and so does [`Workers::drop`].
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// The receive workers of an endpoint. Dropping this value ends the threads.
#[derive(Debug)]
pub(crate) struct Workers {
    threads: Vec<Thread>,
    from_threads: Receiver<FromThread>,
}

#[derive(Debug)]
struct Thread {
    shared: Arc<SharedWorker>,
    waker: Waker,
    /// `None` once the thread is joined.
    handle: Option<JoinHandle<()>>,
}

/// State shared by the owner and one thread.
#[derive(Debug, Default)]
struct SharedWorker {
    stop: AtomicBool,
    changed: AtomicBool,
    changes: Mutex<Vec<Change>>,
}

#[derive(Debug)]
enum Change {
    Insert(u32, Arc<PairReceive>),
    Remove(QueuePair),
}

/// A message from a thread to the owner. The number of notices is bounded for every queue pair
/// ([`MAX_WAITING`](crate::completions::MAX_WAITING)), so the channel needs no bound.
enum FromThread {
    Notices(Vec<Notice>),
    /// The port has failed permanently, and the thread has ended.
    Failed(FabricError),
}

impl Workers {
    /// Starts a thread for every receive worker. `handler` has the existing queue pairs. `owner`
    /// wakes the owner.
    ///
    /// # Errors
    /// [`FabricError::Io`] when the operating system cannot start a thread.
    pub(crate) fn start<R: RealTimeRx + 'static>(
        receive_workers: Vec<R>,
        handler: &CompletionHandler,
        owner: &Waker,
    ) -> Result<Self, FabricError> {
        let (to_owner, from_threads) = mpsc::channel();
        let mut workers = Self {
            threads: Vec::new(),
            from_threads,
        };
        for (port, rx) in receive_workers.into_iter().enumerate() {
            let shared = Arc::new(SharedWorker::default());
            let waker = rx.waker();
            let mut worker = Worker {
                rx,
                handler: handler.clone(),
                shared: Arc::clone(&shared),
                to_owner: to_owner.clone(),
                owner: owner.clone(),
            };
            let handle = threads::spawn(format!("farwrite-rx-{port}"), move || worker.run());
            let handle = handle.map_err(|source| FabricError::Io {
                what: "starting a receive worker".into(),
                source,
            })?;
            workers.threads.push(Thread {
                shared,
                waker,
                handle: Some(handle),
            });
        }
        Ok(workers)
    }

    /// Completions of the queue pair may arrive from now on.
    pub(crate) fn insert(&self, index: u32, receive: &Arc<PairReceive>) {
        for thread in &self.threads {
            thread
                .shared
                .push(Change::Insert(index, Arc::clone(receive)));
        }
    }

    /// Removes a queue pair that has ended.
    pub(crate) fn remove(&self, pair: QueuePair) {
        for thread in &self.threads {
            thread.shared.push(Change::Remove(pair));
        }
    }

    /// Takes the notices that the threads have sent since the last call.
    ///
    /// # Errors
    /// [`FabricError::Io`] when a port has failed permanently.
    pub(crate) fn take(&self, notices: &mut Vec<Notice>) -> Result<(), FabricError> {
        for message in self.from_threads.try_iter() {
            match message {
                FromThread::Notices(mut more) => notices.append(&mut more),
                FromThread::Failed(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for thread in &self.threads {
            thread.shared.stop.store(true, Ordering::Release);
            thread.waker.wake();
        }
        for handle in self.threads.iter_mut().filter_map(|t| t.handle.take()) {
            // A worker that panicked has nothing to return.
            let _ = handle.join();
        }
    }
}

impl SharedWorker {
    fn push(&self, change: Change) {
        let changes = self.changes.lock();
        changes.unwrap_or_else(PoisonError::into_inner).push(change);
        self.changed.store(true, Ordering::Release);
    }

    /// Returns the changes since the last call. Costs only one load if there are none.
    fn take(&self) -> Vec<Change> {
        if !self.changed.load(Ordering::Acquire) {
            return Vec::new();
        }
        let changes = self.changes.lock();
        let mut changes = changes.unwrap_or_else(PoisonError::into_inner);
        self.changed.store(false, Ordering::Relaxed);
        std::mem::take(&mut *changes)
    }
}

/// The state of a worker on its thread.
struct Worker<R> {
    rx: R,
    handler: CompletionHandler,
    shared: Arc<SharedWorker>,
    to_owner: Sender<FromThread>,
    owner: Waker,
}

impl<R: RealTimeRx> Worker<R> {
    fn run(&mut self) {
        let received = catch_unwind(AssertUnwindSafe(|| self.receive()));
        let failed = match received {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error,
            // The panic has already been reported. No state of the worker is used again.
            Err(_) => FabricError::Io {
                what: "receiving".into(),
                source: std::io::Error::other("a receive worker panicked"),
            },
        };
        // If the owner is gone, nobody reads the notice.
        let _ = self.to_owner.send(FromThread::Failed(failed));
        self.owner.wake();
    }

    fn receive(&mut self) -> Result<(), FabricError> {
        let mut completions = Vec::new();
        while !self.shared.stop.load(Ordering::Acquire) {
            let more = self.rx.poll(&mut completions)?;
            // Apply the changes after the poll. The owner announces a queue pair here before it
            // connects that queue pair, so no completion arrives before its change.
            for change in self.shared.take() {
                match change {
                    Change::Insert(index, receive) => self.handler.insert(index, receive),
                    Change::Remove(pair) => self.handler.remove(pair),
                }
            }
            let mut notices = Vec::new();
            self.handler.take(&mut completions, &mut notices);
            // From here on, the owner may release memory that was written in this batch.
            self.rx.end_batch();
            if !notices.is_empty() {
                let _ = self.to_owner.send(FromThread::Notices(notices));
                self.owner.wake();
            }
            if !more {
                self.rx.wait(MAX_SLEEP)?;
            }
        }
        Ok(())
    }
}
