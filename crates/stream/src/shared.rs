//! What a stream's user and the thread of its endpoint share.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task;
use std::time::{Duration, Instant};

use farwrite::fabric::udp::ReadyEvent;
use farwrite::{QpWaker, QueuePair};

use crate::byte_stream;
use crate::error::Error;
use crate::receiver::StreamReceiver;
use crate::sender::StreamSender;

/// A stream, between its user's threads and the endpoint's.
pub(crate) struct Shared {
    pub(crate) sender: Half<StreamSender>,
    pub(crate) receiver: Half<StreamReceiver>,
    /// Makes the endpoint's thread run the task of the stream.
    pub(crate) waker: QpWaker,
}

/// A half, and who waits for it.
pub(crate) struct Half<T> {
    state: Mutex<HalfState<T>>,
    changed: Condvar,
}

pub(crate) struct HalfState<T> {
    pub(crate) half: T,
    /// The user has dropped its handle.
    pub(crate) is_dropped: bool,
    /// Both directions have ended, and the peer had time to learn of it.
    pub(crate) is_settled: bool,
    /// The number of threads that wait. Waking none would cost a system call.
    waiting: usize,
    /// When a thread has last waited.
    last_waited: Option<Instant>,
    /// The asynchronous task that waits.
    task: Option<task::Waker>,
    /// Whether a call would not wait.
    ready: ReadyEvent,
}

/// A half that tells programs that poll whether a call would not wait.
pub(crate) trait Ready {
    fn is_ready(&self) -> bool;
}

impl Ready for StreamReceiver {
    fn is_ready(&self) -> bool {
        self.is_readable()
    }
}

impl Ready for StreamSender {
    /// Whether a write would not wait, or, once the direction has ended, whether the peer has everything.
    fn is_ready(&self) -> bool {
        match self.is_open() {
            true => self.is_writable(),
            false => self.error().is_some() || self.is_delivered(),
        }
    }
}

impl<T: Ready> HalfState<T> {
    /// What a wait returns now; `None` while it goes on.
    fn ask<R>(
        &mut self,
        ready: &mut impl FnMut(&mut Self) -> Option<R>,
    ) -> Option<Result<R, Error>> {
        if let Some(answer) = ready(self) {
            self.follow();
            return Some(Ok(answer));
        }
        self.is_dropped.then_some(Err(Error::Closed))
    }

    /// Tells programs that poll of a change.
    fn follow(&mut self) {
        match self.is_dropped {
            true => self.ready.end(),
            false => self.ready.update(self.half.is_ready()),
        }
    }
}

impl<T: Ready> Half<T> {
    fn new(half: T) -> Self {
        let state = HalfState {
            half,
            is_dropped: false,
            is_settled: false,
            waiting: 0,
            last_waited: None,
            task: None,
            ready: ReadyEvent::default(),
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, HalfState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes who waits, after a change.
    pub(crate) fn notify(&self, mut state: MutexGuard<'_, HalfState<T>>) {
        let task = state.task.take();
        state.follow();
        let waiting = state.waiting;
        drop(state);
        if waiting > 0 {
            self.changed.notify_all();
        }
        if let Some(task) = task {
            task.wake();
        }
    }

    /// A descriptor that is readable while the half is ready.
    pub(crate) fn descriptor(&self) -> Result<Arc<OwnedFd>, Error> {
        let mut state = self.lock();
        let is_ready = state.half.is_ready();
        let descriptor = state.ready.descriptor(is_ready);
        Ok(descriptor.map_err(farwrite::Error::from)?)
    }

    /// Calls `ready` after every change, until it returns something. `None` for `at_most`: no limit. A thread that has
    /// waited shortly before polls the endpoint itself, if `waker` lets it.
    ///
    /// # Errors
    /// [`Error::TimedOut`]; [`Error::Closed`] if the user has given up the stream meanwhile.
    pub(crate) fn wait<R>(
        &self,
        waker: &QpWaker,
        at_most: Option<Duration>,
        mut ready: impl FnMut(&mut HalfState<T>) -> Option<R>,
    ) -> Result<R, Error> {
        let mut state = self.lock();
        if let Some(answer) = state.ask(&mut ready) {
            return answer;
        }
        let end = at_most.and_then(|at_most| Instant::now().checked_add(at_most));
        let left = || {
            end.map_or(Duration::MAX, |end| {
                end.saturating_duration_since(Instant::now())
            })
        };
        let repeated = waker.wait_again(state.last_waited);
        if let Some(repeated) = &repeated {
            drop(state);
            let mut answer = None;
            repeated.poll_until(left(), || {
                answer = self.lock().ask(&mut ready);
                answer.is_some()
            });
            state = self.lock();
            if let Some(answer) = answer {
                state.last_waited = Some(Instant::now());
                return answer;
            }
        }
        let answer = loop {
            if let Some(answer) = state.ask(&mut ready) {
                break answer;
            }
            let left = left();
            if left.is_zero() {
                break Err(Error::TimedOut);
            }
            state.waiting += 1;
            let waited = self.changed.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        };
        state.last_waited = Some(Instant::now());
        answer
    }

    /// Whether the half is ready. If not, `waker` is woken at a later change, at the latest when it is.
    pub(crate) fn is_ready(&self, waker: &task::Waker) -> bool {
        let mut state = self.lock();
        let is_ready = state.half.is_ready();
        if !is_ready {
            state.task = Some(waker.clone());
        }
        is_ready
    }

    /// Calls `ready` once. If it returns nothing, the task of `context` is woken when the half may be ready.
    #[cfg(feature = "tokio")]
    pub(crate) fn poll<R>(
        &self,
        context: &task::Context<'_>,
        ready: impl FnOnce(&mut T) -> Option<R>,
    ) -> task::Poll<R> {
        let mut state = self.lock();
        if let Some(answer) = ready(&mut state.half) {
            state.follow();
            return task::Poll::Ready(answer);
        }
        state.task = Some(context.waker().clone());
        task::Poll::Pending
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared(..)")
    }
}

impl Shared {
    pub(crate) fn new(sender: StreamSender, receiver: StreamReceiver, waker: QpWaker) -> Self {
        Self {
            sender: Half::new(sender),
            receiver: Half::new(receiver),
            waker,
        }
    }

    pub(crate) fn queue_pair(&self) -> QueuePair {
        self.sender.lock().half.qp
    }

    /// Ends the direction to the peer.
    pub(crate) fn finish(&self) {
        let mut sender = self.sender.lock();
        sender.half.finish();
        self.sender.notify(sender);
        self.waker.wake();
    }

    /// Gives the direction to the peer up.
    pub(crate) fn reset(&self, code: u32) {
        let mut sender = self.sender.lock();
        sender.half.reset(code);
        self.sender.notify(sender);
        self.waker.wake();
    }

    /// Reads no more.
    pub(crate) fn stop(&self, code: u32) {
        // The order in which all threads lock.
        let mut receiver = self.receiver.lock();
        let mut sender = self.sender.lock();
        byte_stream::stop(&mut sender.half, &mut receiver.half, code);
        self.sender.notify(sender);
        self.receiver.notify(receiver);
        self.waker.wake();
    }

    /// As if both halves were dropped, and wakes the calls that wait.
    pub(crate) fn close(&self) {
        self.receiver.lock().is_dropped = true;
        self.stop(0);
        self.sender.lock().is_dropped = true;
        self.finish();
    }

    /// Ends both halves.
    pub(crate) fn fail(&self, error: &Error) {
        let mut receiver = self.receiver.lock();
        receiver.half.fail(error.clone());
        self.receiver.notify(receiver);
        let mut sender = self.sender.lock();
        sender.half.cut(error.clone());
        sender.half.waits_for_cutover = false;
        self.sender.notify(sender);
    }
}
