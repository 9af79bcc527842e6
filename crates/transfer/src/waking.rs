//! Queues from other threads to the thread of an endpoint, which sleeps until a packet or one of them wakes it.

use std::sync::Arc;
use std::sync::mpsc::{SendError, Sender, SyncSender};
use std::task::{Wake, Waker as TaskWaker};
use std::time::Duration;

use farwrite::fabric::contract::Waker;

/// The shortest time between two checks of everything that is not urgent. Where nothing happens, it is longer.
pub(crate) const HOUSEKEEPING: Duration = Duration::from_millis(10);

/// A queue to the thread of an endpoint. Each send ends the sleep of that thread.
pub(crate) struct Waking<Q> {
    queue: Q,
    waker: Waker,
}

impl<Q> Waking<Q> {
    pub(crate) fn new(queue: Q, waker: &Waker) -> Self {
        Self {
            queue,
            waker: waker.clone(),
        }
    }
}

impl<T> Waking<Sender<T>> {
    /// As [`Sender::send`].
    pub(crate) fn send(&self, item: T) -> Result<(), SendError<T>> {
        let sent = self.queue.send(item);
        self.waker.wake();
        sent
    }
}

impl<T> Waking<SyncSender<T>> {
    /// As [`SyncSender::send`].
    pub(crate) fn send(&self, item: T) -> Result<(), SendError<T>> {
        let sent = self.queue.send(item);
        self.waker.wake();
        sent
    }
}

impl<Q: Clone> Clone for Waking<Q> {
    fn clone(&self) -> Self {
        Self::new(self.queue.clone(), &self.waker)
    }
}

/// Wakes the thread of an endpoint, as a stream wakes a task.
struct OfEndpoint(Waker);

impl Wake for OfEndpoint {
    fn wake(self: Arc<Self>) {
        self.0.wake();
    }
}

/// What a stream wakes at its next change, so that the thread of an endpoint sees it.
pub(crate) fn task_waker(waker: Waker) -> TaskWaker {
    Arc::new(OfEndpoint(waker)).into()
}
