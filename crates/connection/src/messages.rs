//! Whole messages over an opened queue pair.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farwrite::{Endpoint, Outcome, SendOptions, TaskState, UdpFabric};

use crate::connection::{Connection, OpenedQueuePair};
use crate::error::Error;
use crate::message_queue::MessageQueue;
use crate::ticket::Ticket;

/// How messages are received and sent.
#[derive(Clone, Copy, Debug)]
pub struct MessageOptions {
    /// The longest message that this end receives, in bytes. Longer ones fail at both ends.
    pub longest_bytes: usize,
    /// Buffers of this end, each for one message. The peer can send as many messages before this end has
    /// taken one.
    pub buffers: usize,
    /// How each message is sent.
    pub send: SendOptions,
}

impl Default for MessageOptions {
    fn default() -> Self {
        Self {
            longest_bytes: 1 << 20,
            buffers: 8,
            send: SendOptions::default(),
        }
    }
}

/// Whole messages of both directions over one queue pair, in order.
pub struct Messages {
    queue: Arc<Mutex<State>>,
    pair: OpenedQueuePair,
}

struct State {
    queue: MessageQueue,
    failed: Option<Arc<farwrite::Error>>,
}

impl State {
    /// Follows each poll of the endpoint.
    fn poll(&mut self, endpoint: &mut Endpoint<UdpFabric>) -> TaskState {
        if self.failed.is_some() {
            return TaskState::Done;
        }
        match self.queue.poll(endpoint) {
            Ok(true) => TaskState::Worked,
            Ok(false) => TaskState::Idle,
            Err(error) => {
                // Its queue pair fails alone.
                self.fail(endpoint, error);
                TaskState::Done
            }
        }
    }

    fn fail(&mut self, endpoint: &mut Endpoint<UdpFabric>, error: farwrite::Error) {
        self.failed = Some(Arc::new(error));
        self.queue.end(endpoint);
    }
}

impl Messages {
    pub(crate) fn new(pair: OpenedQueuePair, options: MessageOptions) -> Result<Self, Error> {
        let MessageOptions {
            longest_bytes,
            buffers,
            send,
        } = options;
        let queue = pair.call(move |endpoint, qp| {
            MessageQueue::new(endpoint, qp, buffers.max(1), longest_bytes, send)
        })??;
        let queue = Arc::new(Mutex::new(State {
            queue,
            failed: None,
        }));
        let of_task = Arc::clone(&queue);
        let task = move |endpoint: &mut Endpoint<UdpFabric>| lock(&of_task).poll(endpoint);
        pair.connection().thread().add_task(task)?;
        Ok(Self { queue, pair })
    }

    /// Queues a message, and returns at once.
    pub fn send(&self, message: impl Into<Vec<u8>>) -> SentMessage {
        let ticket = lock(&self.queue).queue.send(message.into());
        let connection = self.connection().clone();
        connection.thread().waker().wake();
        SentMessage { ticket, connection }
    }

    /// Waits for the next message, at most for `limit`, and returns `None` after that.
    ///
    /// # Errors
    /// [`Error::Over`] if the connection is over and each message has been taken, [`Error::Endpoint`] if
    /// the queue pair is broken.
    pub fn receive(&self, limit: Duration) -> Result<Option<Vec<u8>>, Error> {
        let thread = self.connection().thread();
        let came = thread.wait(limit, || {
            let mut state = lock(&self.queue);
            if let Some(message) = state.queue.take() {
                return Some(Ok(message));
            }
            let failed = state.failed.clone();
            drop(state);
            failed.map(|why| Err(self.why(why)))
        })?;
        // A buffer is free.
        thread.waker().wake();
        came.transpose()
    }

    /// The connection.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        self.pair.connection()
    }

    /// The end of the connection is a better reason than what it leads to.
    fn why(&self, failed: Arc<farwrite::Error>) -> Error {
        match self.connection().ended() {
            Some(ended) => Error::Over(ended),
            None => Error::Endpoint(failed),
        }
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        let queue = Arc::clone(&self.queue);
        // The task ends by itself. The buffers are returned after the queue pair is gone, so that no packet changes them.
        let _ = self.pair.call(move |endpoint, qp| {
            if let Ok(()) = endpoint.destroy_qp(qp) {
                lock(&queue).fail(endpoint, farwrite::Error::Stopped(None));
            }
        });
    }
}

/// A message that was sent with [`Messages::send`].
#[derive(Debug)]
pub struct SentMessage {
    ticket: Arc<Ticket>,
    connection: Connection,
}

impl SentMessage {
    /// How the message ended; `None` while it is under way.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        self.ticket.outcome().map(|(outcome, _)| outcome)
    }

    /// Waits for the outcome, at most for `limit`, and returns `None` after that. A failed message was
    /// longer than the peer's buffer, or the connection is over.
    ///
    /// # Errors
    /// [`Error::Endpoint`] if the port has failed permanently.
    pub fn wait(&self, limit: Duration) -> Result<Option<Outcome>, Error> {
        Ok(self.connection.thread().wait(limit, || self.outcome())?)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
