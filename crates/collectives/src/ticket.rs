//! What a caller holds of an operation in flight.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::buffer::Buffers;
use crate::error::CollectiveError;
use crate::report::Report;

/// An operation that a [`Communicator`](crate::Communicator) runs. Any thread can use it, and it
/// can be dropped at any time: the operation goes on.
#[derive(Debug)]
pub struct Ticket(Arc<Shared>);

/// The other half of a ticket. Dropped before its operation is complete, it ends the ticket as
/// failed.
#[derive(Debug)]
pub(crate) struct Completion {
    shared: Arc<Shared>,
    rank: usize,
}

#[derive(Debug, Default)]
struct Shared {
    is_done: AtomicBool,
    state: Mutex<State>,
    done: Condvar,
}

#[derive(Debug, Default)]
struct State {
    result: Option<Result<Report, CollectiveError>>,
    buffers: Option<Buffers>,
}

impl Ticket {
    /// Whether the operation is over: one atomic load.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.0.is_done.load(Ordering::Acquire)
    }

    /// Sleeps until the operation is over, at most for `timeout`. It can be called again, and by
    /// several threads.
    ///
    /// # Errors
    /// [`CollectiveError::StillRunning`] if it is not over; else how it failed.
    pub fn wait(&self, timeout: Duration) -> Result<Report, CollectiveError> {
        // `None`: no end.
        let end = Instant::now().checked_add(timeout);
        let mut state = self.0.lock();
        loop {
            if let Some(result) = &state.result {
                return result.clone();
            }
            let left = end.map_or(Duration::MAX, |end| {
                end.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                return Err(CollectiveError::StillRunning);
            }
            // Some clocks cannot count to the end of time.
            let left = left.min(Duration::from_secs(3600));
            let waited = self.0.done.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The memory of an operation that is over, once. `None` before, or if the thread of the
    /// communicator has panicked. The communicator does not touch memory of a caller any more when
    /// [`Ticket::is_done`].
    #[must_use]
    pub fn take_buffers(&self) -> Option<Buffers> {
        self.0.lock().buffers.take()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Completion {
    pub(crate) fn new(rank: usize) -> (Self, Ticket) {
        let shared = Arc::new(Shared::default());
        let ticket = Ticket(Arc::clone(&shared));
        (Self { shared, rank }, ticket)
    }

    /// Ends the operation.
    pub(crate) fn complete(self, result: Result<Report, CollectiveError>, buffers: Buffers) {
        self.end(result, Some(buffers));
    }

    fn end(&self, result: Result<Report, CollectiveError>, buffers: Option<Buffers>) {
        let mut state = self.shared.lock();
        if state.result.is_none() {
            state.result = Some(result);
            state.buffers = buffers;
            self.shared.is_done.store(true, Ordering::Release);
            self.shared.done.notify_all();
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        self.end(Err(CollectiveError::stopped(self.rank)), None);
    }
}
