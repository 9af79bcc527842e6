//! The caller's handle of an operation in flight.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::buffer::Buffers;
use crate::error::CollectiveError;
use crate::report::Report;

/// An operation that a [`Communicator`](crate::Communicator) runs. Any thread can use the ticket.
/// It can be dropped at any time: the operation continues.
#[derive(Debug)]
pub struct Ticket(Arc<SharedTicket>);

/// The other half of a ticket. If it is dropped before its operation is complete, the ticket ends
/// as failed.
#[derive(Debug)]
pub(crate) struct Completion {
    shared: Arc<SharedTicket>,
    rank: usize,
}

#[derive(Debug, Default)]
struct SharedTicket {
    is_done: AtomicBool,
    state: Mutex<TicketState>,
    done: Condvar,
}

#[derive(Debug, Default)]
struct TicketState {
    result: Option<Result<Report, CollectiveError>>,
    buffers: Option<Buffers>,
}

impl Ticket {
    /// Whether the operation has ended: one atomic load.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.0.is_done.load(Ordering::Acquire)
    }

    /// Sleeps until the operation has ended, for at most `timeout`. It can be called repeatedly,
    /// and by several threads.
    ///
    /// # Errors
    /// [`CollectiveError::StillRunning`] if the operation has not ended; otherwise the error with
    /// which it failed.
    pub fn wait(&self, timeout: Duration) -> Result<Report, CollectiveError> {
        // `None`: wait without an end.
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
            // Some clocks cannot represent a time that far in the future.
            let left = left.min(Duration::from_secs(3600));
            let waited = self.0.done.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Takes the memory of an operation that has ended. Returns `None` before the end, on a second
    /// call, or if the thread of the communicator has panicked. The communicator does not access
    /// memory of a caller any more after [`Ticket::is_done`] returns true.
    #[must_use]
    pub fn take_buffers(&self) -> Option<Buffers> {
        self.0.lock().buffers.take()
    }
}

impl SharedTicket {
    fn lock(&self) -> MutexGuard<'_, TicketState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Completion {
    pub(crate) fn new(rank: usize) -> (Self, Ticket) {
        let shared = Arc::new(SharedTicket::default());
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
