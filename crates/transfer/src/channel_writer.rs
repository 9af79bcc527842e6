//! The one thread that writes to the channel.
//!
//! Other threads queue messages in its [`Outbox`]. Four times a second, or less often at a low rate, the thread also sends
//! a sign of life, as a notice, so the peer gets one whatever the channel has to carry, and even if a disk or anything
//! else blocks another thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use farwrite::fabric::contract::Waker;
use farwrite::fabric::threads::lock;
use farwrite_files::Message;

use crate::channel::{Channel, ChannelError, CloseHandle, LAST_MESSAGE, Reader, Writer};
use crate::hooks::{CANCEL_PERIOD, Cancel};
use crate::notices::Notices;
use crate::progress_counts::OwnCounts;
use crate::threads::{start_thread, wait_until};
use crate::{Error, ErrorKind};

/// The time between two signs of life (P8.13). A peer may give up after a second of silence.
const HEARTBEAT_PERIOD: Duration = Duration::from_millis(250);
/// The same at the lowest rates. Two signs leave in each second, although one is enough (P8.13), so that a peer that gives
/// up after a second of silence can miss one of them.
const LONGEST_HEARTBEAT_PERIOD: Duration = Duration::from_millis(450);
/// Signs of life take one part in this number of the rate, at most, where the longest period allows it.
const HEARTBEAT_SHARE: u64 = 10;
/// Bytes of a sign of life on the wire, about: its packet, and its offers over a round trip of 100 ms. What the peer
/// answers does not count.
const HEARTBEAT_BYTES: u64 = 640;
/// The maximum number of queued messages. A thread that queues more waits.
const QUEUED: usize = 64;

/// Owns the writing half of the channel, and ends it.
pub(crate) struct ChannelWriter {
    thread: JoinHandle<Result<Writer, ChannelError>>,
    outbox: Outbox,
    close_handle: CloseHandle,
}

/// Queues messages for the peer.
#[derive(Clone)]
pub(crate) struct Outbox {
    queue: SyncSender<Message>,
    shared: Arc<Shared>,
}

struct Shared {
    notices: Notices,
    /// Whether this end gives up: its reason is its last notice.
    is_ending: Mutex<bool>,
    /// The time within which the channel must accept a message, for [`Outbox::check`].
    timeout: Duration,
    /// Since when the current message has waited for room on the channel.
    waits_since: Mutex<Option<Instant>>,
    /// Whether the peer has [`Message::Done`].
    is_done_there: AtomicBool,
    /// Wakes who waits for that.
    when_done: OnceLock<Waker>,
}

/// The channel has ended.
#[derive(Debug)]
pub(crate) struct Closed;

impl ChannelWriter {
    /// Splits the channel, and starts the thread that writes to it. The thread also sends the counts of `heartbeat`.
    /// [`Outbox::check`] fails if the channel does not accept a message within `timeout`. The thread waits for longer: a
    /// receiver with a slow disk stops reading, and continues later.
    pub(crate) fn start(
        channel: Channel,
        heartbeat: &Arc<OwnCounts>,
        timeout: Duration,
    ) -> Result<(Self, Reader, Outbox), Error> {
        let close_handle = channel.close_handle();
        let (reader, writer) = channel.split();
        let (queue, queued) = sync_channel(QUEUED);
        let shared = Arc::new(Shared {
            notices: close_handle.notices(),
            is_ending: Mutex::new(false),
            timeout,
            waits_since: Mutex::new(None),
            is_done_there: AtomicBool::new(false),
            when_done: OnceLock::new(),
        });
        let (of_thread_too, own) = (Arc::clone(&shared), Arc::clone(heartbeat));
        let write = move || write_messages(writer, &queued, &of_thread_too, &own);
        let thread = start_thread("channel-writer", write)?;
        let outbox = Outbox { queue, shared };
        let channel_writer = Self {
            thread,
            // As long as an outbox exists, the thread waits for messages.
            outbox: outbox.clone(),
            close_handle,
        };
        Ok((channel_writer, reader, outbox))
    }

    /// Ends the channel, and with it the thread that reads from it. After a failure, the peer first
    /// learns the reason. After a success, each end knows it, and does not wait for the other.
    pub(crate) fn end<T>(self, result: &Result<T, Error>) {
        let Err(error) = result else {
            return self.close_handle.depart();
        };
        let shared = &self.outbox.shared;
        // A peer that has given up reads nothing more.
        if shared.notices.abort().is_none() {
            *lock(&shared.is_ending) = true;
            wait_until(|| self.thread.is_finished(), LAST_MESSAGE);
            // If this fails, the peer notices the end of the channel.
            let _ = shared.notices.notify(&error.abort());
        }
        self.close_handle.close();
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
                    let over = ChannelError::Closed;
                    return Err(Error::of_channel("setting the transfer up", &over));
                }
            };
            cancel.check()?;
            self.check()?;
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether the peer has [`Message::Done`]. Nothing else is sent to it then.
    pub(crate) fn is_done_there(&self) -> bool {
        self.shared.is_done_there.load(Ordering::Acquire)
    }

    /// Wakes a thread as soon as [`Outbox::is_done_there`].
    pub(crate) fn wake_when_done(&self, waker: Waker) {
        // There is one such thread.
        let _ = self.shared.when_done.set(waker);
    }

    /// Fails if the peer has given up or stopped reading. Other failures of the channel appear when it is read.
    /// [`Outbox::send_or_cancel`] uses this. In the rest of a transfer,
    /// [`Liveness`](crate::liveness::Liveness) decides whether the peer is alive.
    fn check(&self) -> Result<(), Error> {
        if let Some(abort) = self.shared.notices.abort() {
            return Err(Error::of_message("setting the transfer up", &abort));
        }
        let since = *lock(&self.shared.waits_since);
        if since.is_some_and(|since| since.elapsed() >= self.shared.timeout) {
            let what = "the peer does not read what this end says on the channel";
            return Err(Error::new(ErrorKind::Unreachable, what));
        }
        Ok(())
    }
}

/// Sends a sign of life when it is due.
struct SignsOfLife<'a> {
    shared: &'a Shared,
    own: &'a OwnCounts,
    due: Instant,
}

impl SignsOfLife<'_> {
    fn give(&mut self) {
        let now = Instant::now();
        let is_ending = lock(&self.shared.is_ending);
        if now >= self.due && !*is_ending {
            self.due = now + heartbeat_period(self.own.rate_bps.get());
            let sign = Message::Progress(self.own.progress(now));
            // A notice fits.
            let _ = self.shared.notices.notify(&sign);
        }
    }
}

/// The time between two signs of life of an end that may send at this rate; 0: nobody knows the rate.
fn heartbeat_period(rate_bps: u64) -> Duration {
    let bits = HEARTBEAT_BYTES * 8 * HEARTBEAT_SHARE;
    let period = (bits * 1_000_000_000).checked_div(rate_bps);
    Duration::from_nanos(period.unwrap_or(0)).clamp(HEARTBEAT_PERIOD, LONGEST_HEARTBEAT_PERIOD)
}

/// Writes until this end gives up. Returns the writer, because without it the stream ends before the peer knows why.
fn write_messages(
    mut writer: Writer,
    queued: &Receiver<Message>,
    shared: &Shared,
    own: &OwnCounts,
) -> Result<Writer, ChannelError> {
    let mut signs = SignsOfLife {
        shared,
        own,
        due: Instant::now() + HEARTBEAT_PERIOD,
    };
    loop {
        if *lock(&shared.is_ending) {
            // What was queued says which files have arrived.
            let mut queued = queued.try_iter().take(QUEUED);
            queued.try_for_each(|message| writer.send(&message, || {}))?;
            writer.wait_delivered(|| {})?;
            return Ok(writer);
        }
        match queued.recv_timeout(CANCEL_PERIOD) {
            Ok(message) => {
                *lock(&shared.waits_since) = Some(Instant::now());
                let sent = writer.send(&message, || signs.give());
                *lock(&shared.waits_since) = None;
                sent?;
                if matches!(message, Message::Done) {
                    writer.wait_delivered(|| signs.give())?;
                    shared.is_done_there.store(true, Ordering::Release);
                    if let Some(waker) = shared.when_done.get() {
                        waker.wake();
                    }
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(writer),
        }
        signs.give();
    }
}

#[cfg(test)]
mod tests {
    use farwrite_files::Cause;
    use farwrite_keys::Text;

    use super::*;
    use crate::tests::Meeting;

    const TIMEOUT: Duration = Duration::from_millis(200);

    #[test]
    fn signs_of_life_take_a_tenth_of_the_rate_and_two_leave_each_second() {
        let bits_a_second = |rate_bps| {
            let period = heartbeat_period(rate_bps);
            let longest = Duration::from_millis(500);
            assert!((HEARTBEAT_PERIOD..longest).contains(&period));
            u128::from(HEARTBEAT_BYTES * 8) * 1_000_000_000 / period.as_nanos()
        };
        let most = bits_a_second(0);
        for rate_bps in [128_000, 160_000, 200_000] {
            assert_eq!(bits_a_second(rate_bps), u128::from(rate_bps / 10));
        }
        assert_eq!(bits_a_second(8_000), bits_a_second(1));
        assert_eq!(bits_a_second(1_000_000), most);
        assert_eq!(bits_a_second(u64::MAX), most);
    }

    /// A receiver with a slow disk stops reading for longer than the time limit, and continues.
    #[test]
    fn a_peer_that_stops_reading_gets_everything_later() {
        // More than the buffers of both ends hold.
        const MESSAGES: usize = 20_000;
        let meeting = Meeting::new();
        let [peer, channel] = meeting.channels(|| meeting.connect());
        let (mut reader, _writer) = peer.split();
        thread::scope(|scope| {
            let started = ChannelWriter::start(channel, &Arc::default(), TIMEOUT);
            let (channel_writer, _reader, outbox) = started.expect("a thread");
            let of_thread_too = outbox.clone();
            let sending = scope.spawn(move || {
                for _ in 0..MESSAGES {
                    let message = Message::Abort {
                        cause: Cause::Other,
                        reason: Text::new("x".repeat(500)),
                    };
                    of_thread_too.send(message).expect("the thread runs");
                }
            });
            let start = Instant::now();
            while outbox.check().is_ok() {
                assert!(start.elapsed() < 100 * TIMEOUT, "the channel is never full");
                thread::sleep(TIMEOUT / 10);
            }
            let mut messages = 0;
            while messages < MESSAGES {
                let message: Message = reader.recv().expect("the channel works");
                messages += usize::from(matches!(message, Message::Abort { .. }));
            }
            sending.join().expect("no panic");
            outbox.check().expect("the peer reads");
            channel_writer.end(&Ok(()));
        });
    }
}
