//! Admits senders, one at a time.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use farwrite_session::{
    Cause, Channel, Error as SessionError, Listener, Message, Psk, Refusal, Text,
};

use crate::error::of_thread;
use crate::hooks::CANCEL_PERIOD;
use crate::setup::SETUP;
use crate::{Cancel, Error, ErrorKind, Event, Observer};

/// How long a sender waits for the previous one, which may be about to finish, before it is
/// rejected.
const WAIT: Duration = Duration::from_secs(3);
/// The maximum number of waiting senders. Each has proven that it holds the key.
const WAITING: usize = 16;
/// The time between two lines about failed connections.
const QUIET: Duration = Duration::from_secs(1);

type Admitted = Result<Channel, SessionError>;

/// Accepts connections in its own thread, which ends with the program.
pub struct Admission {
    senders: Receiver<Admitted>,
    lock: Arc<AdmissionLock>,
}

impl Admission {
    /// Starts to admit senders that hold the key.
    ///
    /// # Errors
    /// [`ErrorKind::Other`] if no thread can be started.
    pub fn start(
        mut listener: Listener,
        psk: Psk,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, Error> {
        let lock = Arc::new(AdmissionLock::default());
        let (admitted, senders) = channel();
        let of_thread_too = Arc::clone(&lock);
        thread::Builder::new()
            .name("admission".into())
            .spawn(move || serve(&mut listener, &psk, &of_thread_too, &admitted, &*observer))
            .map_err(|error| of_thread(&error))?;
        Ok(Self { senders, lock })
    }

    /// Waits for a sender. After this returns, other senders wait a short time and are then
    /// rejected, until [`Admission::free`] is called.
    ///
    /// # Errors
    /// [`ErrorKind::Interrupted`]; [`ErrorKind::Unreachable`] if the port fails.
    pub fn wait(&self, cancel: &Cancel) -> Result<Channel, Error> {
        loop {
            cancel.check()?;
            match self.senders.recv_timeout(CANCEL_PERIOD) {
                Ok(sender) => {
                    return sender.map_err(|error| Error::of_session("listening", &error));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::new(ErrorKind::Other, "the listening thread died"));
                }
            }
        }
    }

    /// Admits the next sender.
    pub fn free(&self) {
        self.lock.unlock();
    }
}

/// The lock that one sender holds at a time, and the senders that wait for it.
#[derive(Debug, Default)]
struct AdmissionLock {
    state: Mutex<AdmissionState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct AdmissionState {
    is_locked: bool,
    waiting: usize,
}

impl AdmissionLock {
    fn state(&self) -> MutexGuard<'_, AdmissionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock if it is free.
    fn try_lock(&self) -> bool {
        let mut state = self.state();
        !std::mem::replace(&mut state.is_locked, true)
    }

    /// Registers one more waiting sender, if there is room for it.
    fn try_queue(&self) -> bool {
        let mut state = self.state();
        let has_room = state.waiting < WAITING;
        state.waiting += usize::from(has_room);
        has_room
    }

    /// After [`AdmissionLock::try_queue`], takes the lock as soon as it is free, within `patience`.
    fn lock(&self, patience: Duration) -> bool {
        let is_locked = |state: &mut AdmissionState| state.is_locked;
        let waited = self
            .changed
            .wait_timeout_while(self.state(), patience, is_locked);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        !std::mem::replace(&mut state.is_locked, true)
    }

    fn unlock(&self) {
        self.state().is_locked = false;
        self.changed.notify_one();
    }
}

fn serve(
    listener: &mut Listener,
    psk: &Psk,
    lock: &Arc<AdmissionLock>,
    admitted: &Sender<Admitted>,
    observer: &dyn Observer,
) {
    let mut refusals = Refusals::default();
    loop {
        let accepted = listener.accept(psk, SETUP, None, |refusal| {
            if let Some(line) = refusals.line(Instant::now(), refusal) {
                observer.observe(Event::Warning(line));
            }
        });
        match accepted {
            Ok(channel) => admit(channel, lock, admitted),
            Err(error) => {
                let _ = admitted.send(Err(error));
                return;
            }
        }
    }
}

/// Admits a sender, or lets it wait in a separate thread, so that others can connect.
fn admit(channel: Channel, lock: &Arc<AdmissionLock>, admitted: &Sender<Admitted>) {
    if lock.try_lock() {
        // If no thread receives this, the program is ending.
        let _ = admitted.send(Ok(channel));
        return;
    }
    if !lock.try_queue() {
        refuse_as_busy(channel);
        return;
    }
    let (lock, admitted) = (Arc::clone(lock), admitted.clone());
    thread::spawn(move || {
        if lock.lock(WAIT) {
            let _ = admitted.send(Ok(channel));
        } else {
            refuse_as_busy(channel);
        }
    });
}

/// Asks a sender to try again later.
fn refuse_as_busy(mut channel: Channel) {
    let reason = Text::new("another transfer or probe is under way; try again later");
    // The sender notices the end of the channel in any case.
    let _ = channel.send(&Message::Abort {
        cause: Cause::Busy,
        reason,
    });
}

/// Limits the lines about failed connections, so that a person can read them.
#[derive(Debug, Default)]
struct Refusals {
    shown_at: Option<Instant>,
    not_shown: u64,
}

impl Refusals {
    fn line(&mut self, now: Instant, refusal: &Refusal) -> Option<String> {
        if self.shown_at.is_some_and(|at| now - at < QUIET) {
            self.not_shown += 1;
            return None;
        }
        self.shown_at = Some(now);
        let more = match std::mem::take(&mut self.not_shown) {
            0 => String::new(),
            more => format!(" (and {more} more before)"),
        };
        Some(format!("{refusal}{more}"))
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn a_flood_of_strangers_is_a_line_a_second() {
        let mut refusals = Refusals::default();
        let start = Instant::now();
        let refusal = Refusal::Peer {
            addr: SocketAddr::from(([192, 0, 2, 1], 5)),
            error: SessionError::KeysDiffer,
        };
        let mut line = |ms| refusals.line(start + Duration::from_millis(ms), &refusal);
        assert!(line(0).expect("the first").contains("192.0.2.1:5"));
        assert!((1..1000).all(|ms| line(ms).is_none()));
        assert!(line(1000).expect("a second later").contains("999 more"));
        assert!(!line(2000).expect("another").contains("more"));
    }

    #[test]
    fn one_sender_has_the_place_and_the_next_gets_it_in_time() {
        let lock = Arc::new(AdmissionLock::default());
        assert!(lock.try_lock());
        assert!(!lock.try_lock(), "one sender holds the lock");
        assert!(lock.try_queue());
        assert!(!lock.lock(Duration::from_millis(20)), "it is not free");
        assert!(lock.try_queue());
        let leaving = Arc::clone(&lock);
        let leave = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            leaving.unlock();
        });
        assert!(lock.lock(Duration::from_secs(60)), "it is free by then");
        assert!(!lock.try_lock());
        leave.join().expect("no panic");
        assert!((0..WAITING).all(|_| lock.try_queue()));
        assert!(!lock.try_queue(), "no more than these may wait");
    }
}
