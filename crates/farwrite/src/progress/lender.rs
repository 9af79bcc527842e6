//! The thread of an endpoint as a lender, and the waits of threads that borrow from it.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farwrite_fabric::contract::RealTime;

use super::SharedThread;
use super::lending::MOST_IDLE;

thread_local! {
    /// The thread of an endpoint for which this thread polls at the moment. It polls no other endpoint meanwhile, and
    /// waits for none.
    static POLLS_FOR: Cell<*const ()> = const { Cell::new(std::ptr::null()) };
}

/// A thread of an endpoint, for threads that wait. It hides the type of the fabric.
pub(crate) trait Lender: Send + Sync {
    /// Counts the calling thread as one that may borrow the endpoint, until [`Lender::leave`].
    fn enter(&self);
    fn leave(&self);
    /// Polls until `ready` returns true, or for `at_most`. Returns false if this thread may not poll, or may do so no
    /// longer: the endpoint's thread does.
    fn poll_until(&self, at_most: Duration, ready: &mut dyn FnMut() -> bool) -> bool;
    /// Polls once, if a thread has borrowed the endpoint and left it.
    fn poll_once(&self) -> bool;
    /// Makes the endpoint's thread take the endpoint back at once, if nobody polls it.
    fn recall(&self);
}

/// A wait that begins shortly after the last wait for the same thing has ended.
pub struct RepeatedWait(Arc<dyn Lender>);

impl RepeatedWait {
    /// Returns `None` if the last wait ended too long ago.
    pub(crate) fn begin(lender: &Arc<dyn Lender>, last_ended: Option<Instant>) -> Option<Self> {
        last_ended.filter(|ended| ended.elapsed() < MOST_IDLE)?;
        lender.enter();
        Some(Self(Arc::clone(lender)))
    }

    /// Polls the endpoint until `ready` returns true, or for `at_most`. `ready` must not call the endpoint. Returns
    /// false if this thread may not poll, or may do so no longer: then the caller waits for what polls.
    pub fn poll_until(&self, at_most: Duration, mut ready: impl FnMut() -> bool) -> bool {
        self.0.poll_until(at_most, &mut ready)
    }
}

impl Drop for RepeatedWait {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// The calling thread polls for the thread of an endpoint until this is dropped.
pub(super) struct PollsHere(*const ());

impl Drop for PollsHere {
    fn drop(&mut self) {
        POLLS_FOR.set(self.0);
    }
}

impl<F: RealTime> SharedThread<F> {
    /// Notes that the calling thread polls for this thread.
    pub(super) fn polls_here(&self) -> PollsHere {
        PollsHere(POLLS_FOR.replace(std::ptr::from_ref(self).cast()))
    }

    /// Whether the calling thread polls for this thread at the moment.
    pub(super) fn is_polled_here(&self) -> bool {
        std::ptr::eq(POLLS_FOR.get(), std::ptr::from_ref(self).cast())
    }
}

impl<F: RealTime<Tx: Send> + Send + 'static> Lender for SharedThread<F> {
    fn enter(&self) {
        self.lending.enter();
    }

    fn leave(&self) {
        self.lending.leave();
    }

    fn poll_until(&self, at_most: Duration, ready: &mut dyn FnMut() -> bool) -> bool {
        let wake = || self.waker.wake();
        !polls_for_any() && self.lending.poll_until(at_most, wake, ready)
    }

    fn poll_once(&self) -> bool {
        !polls_for_any() && self.lending.poll_once()
    }

    fn recall(&self) {
        self.lending.recall();
    }
}

/// Whether this thread polls an endpoint at the moment.
fn polls_for_any() -> bool {
    !POLLS_FOR.get().is_null()
}
