//! Threads that wait for one thing.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

#[cfg(not(all(test, loom)))]
use std::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicUsize, Ordering, fence},
};

#[cfg(all(test, loom))]
use loom::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicUsize, Ordering, fence},
};

/// Threads that wait for one thing, such as the next connection of a listener. The code that changes the
/// thing calls [`Waiters::wake`] after the change.
/// [`ProgressThread::wait_with`](crate::ProgressThread::wait_with) waits.
#[derive(Debug, Default)]
pub struct Waiters {
    count: AtomicUsize,
    history: Mutex<History>,
    woken: Condvar,
}

#[derive(Debug, Default)]
struct History {
    /// Number of wakes while a thread was waiting.
    wakes: u64,
    /// When a thread has last ceased to wait.
    last_ended: Option<Instant>,
}

impl Waiters {
    /// Makes the threads that wait look at the thing again. Costs a few instructions if none waits.
    pub fn wake(&self) {
        // Pairs with the fence in `Waiting::look`: either the waiter sees the change, or this thread
        // sees the waiter.
        fence(Ordering::SeqCst);
        if self.count.load(Ordering::SeqCst) > 0 {
            self.lock().wakes += 1;
            self.woken.notify_all();
        }
    }

    /// When a thread has last waited.
    pub(crate) fn last_ended(&self) -> Option<Instant> {
        self.lock().last_ended
    }

    /// Notes that a thread has waited.
    pub(crate) fn end(&self) {
        self.lock().last_ended = Some(Instant::now());
    }

    /// Counts the calling thread as waiting until the result is dropped.
    pub(crate) fn enter(&self) -> Waiting<'_> {
        self.count.fetch_add(1, Ordering::SeqCst);
        Waiting(self)
    }

    fn lock(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Waiting<'a>(&'a Waiters);

impl Waiting<'_> {
    /// Returns the number of wakes before the thread looks at the thing.
    pub(crate) fn look(&self) -> u64 {
        let wakes = self.0.lock().wakes;
        fence(Ordering::SeqCst);
        wakes
    }

    /// Sleeps until a wake that came after [`Waiting::look`] has returned `before`, at most for
    /// `at_most`.
    pub(crate) fn sleep(&self, before: u64, at_most: Duration) {
        let history = self.0.lock();
        if history.wakes == before {
            let slept = self.0.woken.wait_timeout(history, at_most);
            drop(slept.unwrap_or_else(PoisonError::into_inner));
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::SeqCst);
    }
}
