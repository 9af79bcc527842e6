//! How users of queue pairs on other threads make the owner of the endpoint serve them.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use farwrite_fabric::contract::Waker;

use crate::handle::QueuePair;
use crate::progress::{Lender, RepeatedWait};

/// Makes the thread of an endpoint run the tasks of one queue pair
/// ([`ProgressThread::add_task_of`](crate::ProgressThread::add_task_of)).
#[derive(Clone)]
pub struct QpWaker {
    wake: Arc<Wake>,
    wakes: UserWakes,
    thread: Waker,
    /// `None` if the endpoint has no thread yet.
    lender: Option<Arc<dyn Lender>>,
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
        if self.list() {
            self.wake_thread();
        }
    }

    /// As [`QpWaker::wake`], but this thread polls the endpoint itself if a thread has polled in a [`RepeatedWait`] and
    /// nobody polls now. So the caller must hold no lock that a task, or a call of another thread, may take.
    pub fn wake_or_poll(&self) {
        if self.list()
            && !self
                .lender
                .as_ref()
                .is_some_and(|lender| lender.poll_once())
        {
            self.wake_thread();
        }
    }

    /// Begins a wait of a thread whose last wait of the same kind ended at `last_ended`. Returns `None` if the thread
    /// should not poll the endpoint itself.
    #[must_use]
    pub fn wait_again(&self, last_ended: Option<Instant>) -> Option<RepeatedWait> {
        RepeatedWait::begin(self.lender.as_ref()?, last_ended)
    }

    fn wake_thread(&self) {
        self.thread.wake();
        if let Some(lender) = &self.lender {
            lender.recall();
        }
    }

    /// Returns whether the wake was not listed.
    fn list(&self) -> bool {
        // Also orders what this thread did before, if the wake is listed already: the owner sees it
        // when it takes the wake from the list.
        let is_new = !self.wake.is_listed.swap(true, Ordering::AcqRel);
        if is_new {
            let mut wakes = self.wakes.0.lock().unwrap_or_else(PoisonError::into_inner);
            wakes.push(Arc::clone(&self.wake));
        }
        is_new
    }
}

impl fmt::Debug for QpWaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Wake { index, .. } = *self.wake;
        f.debug_struct("QpWaker").field("index", &index).finish()
    }
}

impl UserWakes {
    /// `thread` wakes the owner of the endpoint, and `lender` lends the endpoint.
    pub(crate) fn waker(
        &self,
        qp: QueuePair,
        thread: Waker,
        lender: Option<Arc<dyn Lender>>,
    ) -> QpWaker {
        let wake = Wake {
            index: qp.index,
            is_listed: AtomicBool::new(false),
        };
        QpWaker {
            wake: Arc::new(wake),
            wakes: self.clone(),
            thread,
            lender,
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
