//! The one thread that writes to the channel.
//!
//! Other threads queue messages in its [`Outbox`]. The speaker sends a sign of life four times a
//! second, so the peer gets one even if a disk or anything else blocks another thread. When the session
//! ends early, the last message overtakes the queue.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use farwrite_session::{Closer, Error as SessionError, Message, Text, Writer};

use crate::error::of_thread;
use crate::host::{CANCEL_PERIOD, Cancel};
use crate::pulse::Pulse;
use crate::{Error, ErrorKind};

/// The time between two signs of life (P7.6). The shortest time limit of a peer is a second, and one
/// late sign must not exceed it.
const HEARTBEAT: Duration = Duration::from_millis(250);
/// The time limit for the last message to a peer that may have stopped reading.
const LAST_MESSAGE: Duration = Duration::from_secs(1);
/// The maximum number of queued messages. A thread that queues more waits.
const QUEUED: usize = 64;

/// Owns the writing half of the channel, and ends it.
pub(crate) struct Speaker {
    thread: JoinHandle<Result<(), SessionError>>,
    outbox: Outbox,
    closer: Closer,
}

/// Queues messages for the peer.
#[derive(Clone)]
pub(crate) struct Outbox {
    queue: SyncSender<Message>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Overtakes the queue and ends the speaker.
    last: Mutex<Option<Message>>,
    /// Whether the peer accepted no bytes within the time limit.
    is_stuck: AtomicBool,
}

impl Shared {
    fn last(&self) -> MutexGuard<'_, Option<Message>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The channel has ended.
#[derive(Debug)]
pub(crate) struct Closed;

impl Speaker {
    /// Starts the thread. `timeout` applies to a peer that accepts no bytes.
    pub(crate) fn start(
        mut writer: Writer,
        closer: Closer,
        pulse: Arc<Pulse>,
        timeout: Duration,
    ) -> Result<(Self, Outbox), Error> {
        writer.set_timeout(Some(timeout));
        let (queue, queued) = sync_channel(QUEUED);
        let shared = Arc::new(Shared::default());
        let of_thread_too = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("speaker".into())
            .spawn(move || speak(writer, &queued, &of_thread_too, &pulse))
            .map_err(|error| of_thread(&error))?;
        let outbox = Outbox {
            queue,
            shared: Arc::clone(&shared),
        };
        let speaker = Self {
            thread,
            // As long as an outbox exists, the thread waits for messages.
            outbox: outbox.clone(),
            closer,
        };
        Ok((speaker, outbox))
    }

    /// Ends the channel, and with it the thread that reads from it. After a failure, the peer first
    /// receives the reason.
    pub(crate) fn end<T>(self, result: &Result<T, Error>) {
        if let Err(error) = result {
            *self.outbox.shared.last() = Some(Message::Abort {
                cause: error.cause(),
                reason: Text::new(error),
            });
            let start = Instant::now();
            while !self.thread.is_finished() && start.elapsed() < LAST_MESSAGE {
                thread::sleep(Duration::from_millis(5));
            }
        }
        self.closer.close();
    }
}

impl Outbox {
    /// Queues a message; waits while the queue is full.
    pub(crate) fn send(&self, message: Message) -> Result<(), Closed> {
        self.queue.send(message).map_err(|_| Closed)
    }

    /// Queues a message during the set-up; gives up waiting when the user cancels.
    pub(crate) fn send_or_cancel(&self, message: Message, cancel: &Cancel) -> Result<(), Error> {
        let mut message = message;
        loop {
            message = match self.queue.try_send(message) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(message)) => message,
                Err(TrySendError::Disconnected(_)) => {
                    self.check()?;
                    let over = SessionError::Closed;
                    return Err(Error::of_session("setting the transfer up", &over));
                }
            };
            cancel.check()?;
            self.check()?;
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Fails if the peer has stopped reading. Other failures of the channel appear when it is read.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.shared.is_stuck.load(Ordering::Relaxed) {
            let what = "the peer does not read what this end says on the channel";
            return Err(Error::new(ErrorKind::Unreachable, what));
        }
        Ok(())
    }
}

fn speak(
    mut writer: Writer,
    queued: &Receiver<Message>,
    shared: &Shared,
    pulse: &Pulse,
) -> Result<(), SessionError> {
    let spoken = speak_on(&mut writer, queued, shared, pulse);
    if let Err(SessionError::Timeout { .. }) = spoken {
        shared.is_stuck.store(true, Ordering::Relaxed);
    }
    spoken
}

fn speak_on(
    writer: &mut Writer,
    queued: &Receiver<Message>,
    shared: &Shared,
    pulse: &Pulse,
) -> Result<(), SessionError> {
    let mut heartbeat_at = Instant::now() + HEARTBEAT;
    loop {
        if let Some(last) = shared.last().take() {
            writer.set_timeout(Some(LAST_MESSAGE));
            return writer.send(&last);
        }
        // This is short enough that a last message does not wait for the heartbeat.
        let wait = heartbeat_at.saturating_duration_since(Instant::now());
        match queued.recv_timeout(wait.min(CANCEL_PERIOD)) {
            Ok(message) => writer.send(&message)?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        let now = Instant::now();
        if now >= heartbeat_at {
            writer.send(&Message::Progress(pulse.progress(now)))?;
            heartbeat_at = now + HEARTBEAT;
        }
    }
}
