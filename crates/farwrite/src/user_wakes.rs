//! How users of queue pairs on other threads make the owner of the endpoint serve them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use farwrite_fabric::contract::Waker;

use crate::handle::QueuePair;

/// Makes the thread of an endpoint run the tasks of one queue pair
/// ([`ProgressThread::add_task_of`](crate::ProgressThread::add_task_of)).
#[derive(Clone, Debug)]
pub struct QpWaker {
    wake: Arc<Wake>,
    wakes: UserWakes,
    thread: Waker,
}

/// The wakes that the owner of the endpoint has not seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct UserWakes(Arc<Mutex<Vec<Arc<Wake>>>>);

#[derive(Debug)]
struct Wake {
    index: u32,
    is_listed: AtomicBool,
}

impl QpWaker {
    /// Runs the tasks of the queue pair soon. Several calls before that count as one.
    pub fn wake(&self) {
        // Also orders what this thread did before, if the wake is listed already: the owner sees it
        // when it takes the wake from the list.
        if !self.wake.is_listed.swap(true, Ordering::AcqRel) {
            let mut wakes = self.wakes.0.lock().unwrap_or_else(PoisonError::into_inner);
            wakes.push(Arc::clone(&self.wake));
            drop(wakes);
            self.thread.wake();
        }
    }
}

impl UserWakes {
    /// `thread` wakes the owner of the endpoint.
    pub(crate) fn waker(&self, qp: QueuePair, thread: Waker) -> QpWaker {
        let wake = Wake {
            index: qp.index,
            is_listed: AtomicBool::new(false),
        };
        QpWaker {
            wake: Arc::new(wake),
            wakes: self.clone(),
            thread,
        }
    }

    /// Passes the queue pairs that were woken since the last call to `serve`.
    pub(crate) fn take(&self, mut serve: impl FnMut(u32)) {
        let mut wakes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for wake in wakes.drain(..) {
            wake.is_listed.swap(false, Ordering::AcqRel);
            serve(wake.index);
        }
    }
}
