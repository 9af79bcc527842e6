//! Lends an endpoint to a thread that waits for it.
//!
//! An arrival wakes the endpoint's thread, which wakes the thread that waits for the message: two switches of threads.
//! A thread that waits again shortly after its last wait saves one of them. It borrows the endpoint and polls it
//! itself, until what it waits for has come. Then it leaves the endpoint where the next wait or write of such a
//! thread finds it. If none comes, the endpoint's thread takes the endpoint back ([`MOST_IDLE`]).

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{OnceLock, PoisonError};
use std::time::{Duration, Instant};

#[cfg(not(all(test, loom)))]
use farwrite_fabric::Alarm;
#[cfg(not(all(test, loom)))]
use std::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

#[cfg(all(test, loom))]
use interleavings::{Alarm, now};
#[cfg(all(test, loom))]
use loom::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use super::MAX_SLEEP;
use crate::error::Error;

/// The longest time for which nobody polls an endpoint that a thread has borrowed and left. Arrivals and timers may wait
/// for this time.
/// A thread that polls and leaves the endpoint sets the alarm again when less than half of this time is left. It is also
/// the longest time between two waits of a thread that borrows.
pub(super) const MOST_IDLE: Duration = Duration::from_micros(200);

#[cfg(not(all(test, loom)))]
fn now() -> Instant {
    Instant::now()
}

/// What the thread that polls an endpoint does with it.
pub(super) trait Polled {
    /// Does what other threads ask for, polls, and runs tasks. Returns when to do it again.
    fn round(&mut self) -> Result<Option<u64>, Error>;
    /// Sleeps until the time that [`Polled::round`] has returned, or until there is more work.
    fn sleep(&mut self, next_ns: Option<u64>, at_most: Duration) -> Result<(), Error>;
    /// Whether this time is over, on the clock of [`Polled::round`].
    fn is_over(&self, time_ns: u64) -> bool;
    /// Whether the endpoint's thread is to end.
    fn is_stopped(&self) -> bool;
}

/// Why an endpoint can be used no more.
pub(super) enum Ending {
    Failed(Error),
    /// A call or a task has panicked.
    Panicked(Box<dyn Any + Send>),
}

/// When the endpoint's thread takes back what a thread leaves.
#[derive(Clone, Copy)]
enum TakeBack {
    AtOnce,
    /// After at most [`MOST_IDLE`], because the thread has polled.
    Later,
    /// At the time for which the alarm is set, because the thread has not polled.
    AsBefore,
}

/// Where an endpoint is while its thread does not have it.
pub(super) struct Lending<P> {
    state: Mutex<State<P>>,
    changed: Condvar,
    /// Wakes the endpoint's thread, which has lent the endpoint. `None` if the system gives none.
    alarm: OnceLock<Option<Alarm>>,
    /// Whether a thread waits for the endpoint's thread to lend.
    is_wanted: AtomicBool,
    /// Number of threads that may borrow.
    users: AtomicUsize,
}

struct State<P> {
    /// The endpoint and its tasks, while no thread polls them.
    left: Option<Box<P>>,
    ending: Option<Ending>,
    /// Whether a thread has borrowed the endpoint.
    is_borrowed: bool,
    /// When the alarm ends.
    alarm_at: Option<Instant>,
    /// The endpoint's thread has ended, or cannot lend.
    is_closed: bool,
}

impl<P> State<P> {
    /// Keeps what a thread leaves, and sets the alarm that wakes the endpoint's thread.
    fn leave(&mut self, progress: Box<P>, alarm: &Alarm, take_back: TakeBack) {
        self.left = Some(progress);
        let now = now();
        let least = match take_back {
            TakeBack::AtOnce => None,
            TakeBack::Later => Some(now + MOST_IDLE / 2),
            TakeBack::AsBefore => Some(now),
        };
        let is_set = |at: Instant| least.is_some_and(|least| at > least);
        if !self.alarm_at.is_some_and(is_set) {
            // A thread that has not polled must not put the alarm off.
            let delay = match take_back {
                TakeBack::Later => MOST_IDLE,
                TakeBack::AtOnce | TakeBack::AsBefore => Duration::ZERO,
            };
            self.alarm_at = Some(now + delay);
            alarm.set(delay);
        }
    }
}

impl<P> Default for Lending<P> {
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                left: None,
                ending: None,
                is_borrowed: false,
                alarm_at: None,
                is_closed: false,
            }),
            changed: Condvar::new(),
            alarm: OnceLock::new(),
            is_wanted: AtomicBool::new(false),
            users: AtomicUsize::new(0),
        }
    }
}

impl<P: Polled> Lending<P> {
    fn lock(&self) -> MutexGuard<'_, State<P>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn alarm(&self) -> Option<&Alarm> {
        self.alarm.get_or_init(|| Alarm::new().ok()).as_ref()
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Acquire)
    }

    /// Lends the endpoint, and returns it when it has come back, with the reason if it can be used no more.
    pub(super) fn lend(&self, progress: Box<P>) -> (Box<P>, Option<Ending>) {
        let Some(alarm) = self.alarm() else {
            self.close();
            return (progress, None);
        };
        let mut state = self.lock();
        self.is_wanted.store(false, Ordering::Release);
        state.leave(progress, alarm, TakeBack::Later);
        drop(state);
        self.changed.notify_all();
        loop {
            alarm.wait();
            let mut state = self.lock();
            if let Some(progress) = state.left.take() {
                state.alarm_at = None;
                return (progress, state.ending.take());
            }
        }
    }

    /// Makes the endpoint's thread take the endpoint back at once, if nobody polls it.
    pub(super) fn recall(&self) {
        if let Some(Some(alarm)) = self.alarm.get() {
            let mut state = self.lock();
            if state.left.is_some() {
                state.alarm_at = None;
                alarm.set(Duration::ZERO);
            }
        }
    }

    /// Lends nothing any more.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        self.is_wanted.store(false, Ordering::Release);
        drop(state);
        self.changed.notify_all();
    }

    /// Counts the calling thread as one that may borrow, until [`Lending::leave`].
    pub(super) fn enter(&self) {
        self.users.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn leave(&self) {
        self.users.fetch_sub(1, Ordering::AcqRel);
    }

    /// Polls until `ready` returns true, or for `at_most`. `wake` makes the endpoint's thread poll. Returns false if
    /// the calling thread, which has called [`Lending::enter`], may not poll, or may do so no longer.
    pub(super) fn poll_until(
        &self,
        at_most: Duration,
        wake: impl FnOnce(),
        ready: &mut dyn FnMut() -> bool,
    ) -> bool {
        let has_others = self.users.load(Ordering::Acquire) > 1;
        if has_others || at_most.is_zero() {
            return false;
        }
        let end = now().checked_add(at_most);
        let Some(mut borrowed) = self.borrow(at_most, wake) else {
            return false;
        };
        loop {
            if ready() {
                return true;
            }
            let left = end.map_or(MAX_SLEEP, |end| end.saturating_duration_since(now()));
            if left.is_zero() {
                return true;
            }
            let Some(next_ns) = borrowed.round() else {
                return false;
            };
            if ready() {
                return true;
            }
            if borrowed.is_stopped() || !borrowed.sleep(next_ns, left.min(MAX_SLEEP)) {
                return false;
            }
        }
    }

    /// Polls once, if a thread has borrowed the endpoint and left it.
    pub(super) fn poll_once(&self) -> bool {
        match self.take(false) {
            Some(mut borrowed) => borrowed.round().is_some(),
            None => false,
        }
    }

    /// Takes what a thread has left. `is_user`: the calling thread has called [`Lending::enter`].
    fn take(&self, is_user: bool) -> Option<Borrowed<'_, P>> {
        let mut state = self.lock();
        // An endpoint that can be used no more is for its own thread.
        if state.ending.is_some() || state.left.as_ref()?.is_stopped() {
            return None;
        }
        let progress = state.left.take()?;
        state.is_borrowed = true;
        Some(Borrowed {
            lending: self,
            progress: Some(progress),
            ending: None,
            is_user,
            take_back: TakeBack::AsBefore,
        })
    }

    /// Asks the endpoint's thread to lend, unless another thread has borrowed. Waits for `at_most`.
    fn borrow(&self, at_most: Duration, wake: impl FnOnce()) -> Option<Borrowed<'_, P>> {
        if let Some(borrowed) = self.take(true) {
            return Some(borrowed);
        }
        let mut state = self.lock();
        if state.is_closed || state.is_borrowed || self.is_wanted() {
            return None;
        }
        self.is_wanted.store(true, Ordering::Release);
        wake();
        let end = now().checked_add(at_most);
        while self.is_wanted() {
            let left = end.map_or(MAX_SLEEP, |end| end.saturating_duration_since(now()));
            if left.is_zero() {
                break;
            }
            let waited = self.changed.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        self.is_wanted.store(false, Ordering::Release);
        drop(state);
        self.take(true)
    }
}

/// An endpoint that this thread has borrowed.
struct Borrowed<'a, P: Polled> {
    lending: &'a Lending<P>,
    /// `None` once it is given back.
    progress: Option<Box<P>>,
    ending: Option<Ending>,
    is_user: bool,
    take_back: TakeBack,
}

impl<P: Polled> Borrowed<'_, P> {
    /// Does a round of the endpoint's thread. Returns when to do the next one, and `None` if the endpoint can be used
    /// no more.
    fn round(&mut self) -> Option<Option<u64>> {
        let progress = self.progress.as_mut()?;
        // A panic ends the endpoint: nobody uses it after that.
        self.ending = match catch_unwind(AssertUnwindSafe(|| progress.round())) {
            Ok(Ok(next_ns)) => {
                let is_due = next_ns.is_some_and(|next_ns| progress.is_over(next_ns));
                self.take_back = if is_due {
                    TakeBack::AtOnce
                } else {
                    TakeBack::Later
                };
                return Some(next_ns);
            }
            Ok(Err(error)) => Some(Ending::Failed(error)),
            Err(panic) => Some(Ending::Panicked(panic)),
        };
        None
    }

    /// Sleeps until there is more work. Returns whether the endpoint can still be used.
    fn sleep(&mut self, next_ns: Option<u64>, at_most: Duration) -> bool {
        let slept = match &mut self.progress {
            Some(progress) => progress.sleep(next_ns, at_most),
            None => Ok(()),
        };
        self.ending = slept.err().map(Ending::Failed);
        self.ending.is_none()
    }

    fn is_stopped(&self) -> bool {
        self.progress
            .as_ref()
            .is_some_and(|progress| progress.is_stopped())
    }
}

impl<P: Polled> Drop for Borrowed<'_, P> {
    fn drop(&mut self) {
        let (Some(progress), Some(alarm)) = (self.progress.take(), self.lending.alarm()) else {
            return;
        };
        // Another thread that waits again and again cannot borrow while this one does.
        let users = self.lending.users.load(Ordering::Acquire);
        let has_others = users > usize::from(self.is_user);
        if has_others || self.ending.is_some() || progress.is_stopped() {
            self.take_back = TakeBack::AtOnce;
        }
        let mut state = self.lending.lock();
        state.is_borrowed = false;
        state.ending = self.ending.take();
        state.leave(progress, alarm, self.take_back);
    }
}

#[cfg(all(test, loom))]
mod interleavings;
