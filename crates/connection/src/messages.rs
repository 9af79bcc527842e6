//! Whole messages over an opened queue pair.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use farwrite::fabric::threads::lock;
use farwrite::{
    Endpoint, Outcome, QpOptions, QpWaker, QueuePair, RealTime, SendOptions, TaskState, UdpFabric,
    Waiters,
};

use crate::connection::{Connection, OpenedQueuePair};
use crate::cutover::{EndedMessages, GoesOn};
use crate::error::Error;
use crate::message_queue::{Buffers, MessageQueue};
use crate::ticket::{Ticket, TooLong};

/// How messages are received and sent.
#[derive(Clone, Copy, Debug)]
pub struct MessageOptions {
    /// The longest message that this end receives, in bytes. Longer ones fail at both ends.
    pub longest_bytes: usize,
    /// Buffers of this end at first, each for one message. The peer can send as many messages before this end
    /// has taken one.
    pub buffers: usize,
    /// The highest number of buffers. There are more than at first where more messages arrive in a round trip,
    /// and the program takes them.
    pub most_buffers: usize,
    /// The most bytes of messages that are queued or under way from this end. Beyond that,
    /// [`Messages::send`] waits, and [`Messages::try_send`] fails.
    pub unsent_bytes: u64,
    /// How each message is sent.
    pub send: SendOptions,
}

impl Default for MessageOptions {
    fn default() -> Self {
        Self {
            longest_bytes: 1 << 20,
            buffers: 8,
            most_buffers: 256,
            unsent_bytes: 64 << 20,
            send: SendOptions::default(),
        }
    }
}

/// Whole messages of both directions over one queue pair, in order.
///
/// A thread that sends or receives again and again may poll the endpoint itself, and so run tasks of the endpoint, calls
/// of other threads and wakers. So it should hold no lock that these take.
pub struct Messages {
    queue: Arc<Mutex<State>>,
    unsent_bytes: u64,
    waiters: Arc<Waiters>,
    waker: QpWaker,
    pair: OpenedQueuePair,
}

/// When the memory of a message that has ended is tried again.
const RELEASE_NS: u64 = 1_000_000;

struct State {
    queue: MessageQueue,
    failed: Option<Arc<farwrite::Error>>,
    /// Threads that wait for a message or for an outcome.
    waiters: Arc<Waiters>,
}

impl State {
    /// Follows each poll of the endpoint.
    fn poll(&mut self, endpoint: &mut Endpoint<UdpFabric>) -> TaskState {
        if self.failed.is_some() {
            return TaskState::Done;
        }
        let before = (self.queue.ended, self.queue.unsent_bytes);
        let polled = self.queue.poll(endpoint);
        if (self.queue.ended, self.queue.unsent_bytes) != before {
            self.waiters.wake();
        }
        match polled {
            Ok(true) => TaskState::Worked,
            // No event says when the fabric no longer holds the memory of a message that has ended.
            Ok(false) if self.queue.holds_memory() => {
                TaskState::Until(endpoint.fabric().now_ns().saturating_add(RELEASE_NS))
            }
            Ok(false) => TaskState::Idle,
            Err(error) => {
                // Its queue pair fails alone.
                self.fail(endpoint, Arc::new(error));
                TaskState::Done
            }
        }
    }

    fn fail(&mut self, endpoint: &mut Endpoint<UdpFabric>, why: Arc<farwrite::Error>) {
        self.failed.get_or_insert(why);
        self.queue.end(endpoint);
        self.waiters.wake();
    }
}

impl GoesOn for Arc<Mutex<State>> {
    fn cut(
        &mut self,
        endpoint: &mut Endpoint<UdpFabric>,
        options: &QpOptions,
    ) -> Result<(QueuePair, EndedMessages), farwrite::Error> {
        lock(self).queue.cut(endpoint, options.clone())
    }

    fn go_on(&mut self, endpoint: &mut Endpoint<UdpFabric>, theirs: &EndedMessages) -> bool {
        let mut state = lock(self);
        let gone_on = state.queue.go_on(endpoint, theirs);
        state.waiters.wake();
        let Err(error) = gone_on else {
            return true;
        };
        state.fail(endpoint, Arc::new(error));
        false
    }

    fn give_up(&mut self, endpoint: &mut Endpoint<UdpFabric>, why: Arc<farwrite::Error>) {
        lock(self).fail(endpoint, why);
    }
}

/// The state, as the endpoint's thread runs it.
struct MessagesTask(Arc<Mutex<State>>);

impl Drop for MessagesTask {
    fn drop(&mut self) {
        // If the thread has ended, those who wait learn it now.
        lock(&self.0).waiters.wake();
    }
}

impl Messages {
    pub(crate) fn new(pair: OpenedQueuePair, options: MessageOptions) -> Result<Self, Error> {
        let MessageOptions { buffers, send, .. } = options;
        let buffers = Buffers::new(options.longest_bytes, buffers, options.most_buffers);
        let queue =
            pair.call(move |endpoint, qp| MessageQueue::new(endpoint, qp, buffers, send))??;
        let waiters = Arc::<Waiters>::default();
        let queue = Arc::new(Mutex::new(State {
            queue,
            failed: None,
            waiters: Arc::clone(&waiters),
        }));
        let task = MessagesTask(Arc::clone(&queue));
        let run = move |endpoint: &mut Endpoint<UdpFabric>| {
            let MessagesTask(state) = &task;
            lock(state).poll(endpoint)
        };
        let thread = pair.connection().thread();
        thread.add_task_of(pair.queue_pair(), run)?;
        pair.set_user(Arc::clone(&queue))?;
        Ok(Self {
            queue,
            unsent_bytes: options.unsent_bytes,
            waiters,
            waker: thread.waker_of(pair.queue_pair()),
            pair,
        })
    }

    /// Queues a message. Waits for room while [`MessageOptions::unsent_bytes`] are queued or under way. A
    /// message that is longer than [`Messages::largest_message`], or than the peer's buffers, fails ([`TooLong`]).
    pub fn send(&self, message: impl Into<Vec<u8>>) -> SentMessage {
        let message = message.into();
        let thread = self.connection().thread();
        let has_room = || {
            self.has_room(&lock(&self.queue), message.len())
                .then_some(())
        };
        // If the thread has ended, there is nothing to wait for.
        let _ = thread.wait_or_poll(&self.waiters, Duration::MAX, has_room);
        self.queue(message)
    }

    /// Queues a message if there is room, and returns at once.
    ///
    /// # Errors
    /// The message, if there is no room.
    pub fn try_send(&self, message: impl Into<Vec<u8>>) -> Result<SentMessage, Vec<u8>> {
        let message = message.into();
        if self.has_room(&lock(&self.queue), message.len()) {
            Ok(self.queue(message))
        } else {
            Err(message)
        }
    }

    /// Whether a message of `bytes` may be queued. A message alone always may.
    fn has_room(&self, state: &State, bytes: usize) -> bool {
        let unsent_bytes = state.queue.unsent_bytes;
        let fits = unsent_bytes.saturating_add(bytes as u64) <= self.unsent_bytes;
        unsent_bytes == 0 || fits || state.failed.is_some()
    }

    fn queue(&self, message: Vec<u8>) -> SentMessage {
        let mut state = lock(&self.queue);
        let ticket = match state.failed {
            // Nothing polls the queue any more.
            Some(_) => Arc::new(Ticket::failed()),
            None => state.queue.send(message),
        };
        drop(state);
        self.waker.wake_or_poll();
        SentMessage {
            ticket,
            waiters: Arc::clone(&self.waiters),
            connection: self.connection().clone(),
        }
    }

    /// Bytes of the largest message that the path carries ([`Connection::largest_message`]). The peer's buffers
    /// may be smaller.
    #[must_use]
    pub fn largest_message(&self) -> u64 {
        self.pair.largest_message()
    }

    /// Waits for the next message, at most for `limit`, and returns `None` after that.
    ///
    /// # Errors
    /// [`Error::Over`] if the connection is over and each message has been taken, [`Error::Endpoint`] if
    /// the queue pair is broken.
    pub fn receive(&self, limit: Duration) -> Result<Option<Vec<u8>>, Error> {
        let thread = self.connection().thread();
        let came = thread.wait_or_poll(&self.waiters, limit, || {
            let mut state = lock(&self.queue);
            if let Some(message) = state.queue.take() {
                return Some(Ok(message));
            }
            let failed = state.failed.clone();
            drop(state);
            failed.map(|why| Err(self.why(why)))
        })?;
        if came.is_some() {
            // A buffer is free.
            self.waker.wake_or_poll();
        }
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
        let _ = self.pair.call(move |endpoint, _| {
            let qp = lock(&queue).queue.qp;
            if let Ok(()) = endpoint.destroy_qp(qp) {
                let why = Arc::new(farwrite::Error::Stopped(None));
                lock(&queue).fail(endpoint, why);
            }
        });
    }
}

/// A message that was sent with [`Messages::send`].
#[derive(Debug)]
pub struct SentMessage {
    ticket: Arc<Ticket>,
    waiters: Arc<Waiters>,
    connection: Connection,
}

impl SentMessage {
    /// How the message ended; `None` while it is under way.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        self.ticket.outcome()
    }

    /// Whether it has failed because it is too long, and for what.
    #[must_use]
    pub fn too_long(&self) -> Option<TooLong> {
        self.ticket.too_long()
    }

    /// Waits for the outcome, at most for `limit`, and returns `None` after that. A failed message was too long
    /// for this end or for the peer's buffer ([`SentMessage::too_long`], which may not know it), or the connection is
    /// over.
    ///
    /// # Errors
    /// [`Error::Endpoint`] if the port has failed permanently.
    pub fn wait(&self, limit: Duration) -> Result<Option<Outcome>, Error> {
        let thread = self.connection.thread();
        Ok(thread.wait_or_poll(&self.waiters, limit, || self.outcome())?)
    }
}
