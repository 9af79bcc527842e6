//! Admits senders, as many at a time as there are places.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use farwrite_connection::{Connection, Listener, Purpose, RefusalCounts};
use farwrite_keys::shown;
use farwrite_units::show::Count;

use crate::hooks::CANCEL_PERIOD;
use crate::places::{BUSY, Place, Places, WAIT};
use crate::setup::SETUP;
use crate::threads::start_thread;
use crate::{Cancel, Error, ErrorKind, Event, Observer};

/// The time between two lines about attempts to connect without a key that is accepted.
const QUIET: Duration = Duration::from_secs(1);

type Admitted = Result<(Connection, Place), Error>;

/// Accepts connections in its own thread, which ends with this value. Then the listener is closed.
pub struct Admission {
    senders: Receiver<Admitted>,
    others: Receiver<Connection>,
    listener: Arc<Listener>,
    is_over: Arc<AtomicBool>,
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.listener.close();
    }
}

impl Admission {
    /// Starts to admit senders, within `places` at once.
    ///
    /// # Errors
    /// [`ErrorKind::Other`] if no thread can be started.
    pub fn start(
        listener: &Arc<Listener>,
        places: &Arc<Places>,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, Error> {
        let (admitted, senders) = mpsc::channel();
        let (other, others) = mpsc::channel();
        let admission = Self {
            senders,
            others,
            listener: Arc::clone(listener),
            is_over: Arc::default(),
        };
        let accepting = Accepting {
            listener: Arc::clone(listener),
            places: Arc::clone(places),
            refused: Refused::new(Arc::clone(&observer)),
            observer,
            is_over: Arc::clone(&admission.is_over),
            admitted,
            other,
        };
        start_thread("admission", move || accepting.run())?;
        Ok(admission)
    }

    /// Waits for a sender. While all places are taken, other senders wait a short time and are then
    /// rejected.
    ///
    /// # Errors
    /// [`ErrorKind::Interrupted`]; [`ErrorKind::Unreachable`] if the port fails; [`ErrorKind::Mismatch`] if a code
    /// is used up, and nobody can come any more.
    pub fn wait(&self, cancel: &Cancel) -> Result<(Connection, Place), Error> {
        self.wait_while(cancel, || Ok(()))
    }

    /// As [`Admission::wait`]. Meanwhile calls `each` about 20 times a second, and ends with its error.
    ///
    /// # Errors
    /// As [`Admission::wait`].
    pub fn wait_while(
        &self,
        cancel: &Cancel,
        mut each: impl FnMut() -> Result<(), Error>,
    ) -> Result<(Connection, Place), Error> {
        loop {
            cancel.check()?;
            each()?;
            match self.senders.recv_timeout(CANCEL_PERIOD) {
                Ok(sender) => return sender,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::new(ErrorKind::Other, "the listening thread died"));
                }
            }
        }
    }

    /// Connections of this listener that are for neither files nor pipes. A second call gets none.
    #[must_use]
    pub fn take_others(&mut self) -> Receiver<Connection> {
        std::mem::replace(&mut self.others, mpsc::channel().1)
    }
}

/// What the thread needs.
struct Accepting {
    listener: Arc<Listener>,
    places: Arc<Places>,
    refused: Refused,
    observer: Arc<dyn Observer>,
    is_over: Arc<AtomicBool>,
    admitted: Sender<Admitted>,
    other: Sender<Connection>,
}

impl Accepting {
    fn run(mut self) {
        while !self.is_over.load(Ordering::Relaxed) {
            let accepted = self.listener.accept(CANCEL_PERIOD);
            let accepted = accepted.map_err(|error| Error::of_connection("listening", &error));
            let looked = self.refused.look(&self.listener, Instant::now());
            match looked.and(accepted) {
                Ok(Some(connection)) if takes_place(connection.purpose()) => {
                    self.refused.has_come();
                    admit(connection, &self.places, &self.admitted, &self.observer);
                }
                // If no thread receives this, nobody serves it.
                Ok(Some(connection)) => drop(self.other.send(connection)),
                Ok(None) => {}
                Err(error) => {
                    let _ = self.admitted.send(Err(error));
                    return;
                }
            }
        }
    }
}

/// Whether who connects for this purpose sends something to keep.
fn takes_place(purpose: Purpose) -> bool {
    purpose == Purpose::FILES || purpose == Purpose::PIPE
}

/// Admits a sender, or lets it wait in a separate thread, so that others can connect.
fn admit(
    connection: Connection,
    places: &Arc<Places>,
    admitted: &Sender<Admitted>,
    observer: &Arc<dyn Observer>,
) {
    let proof = connection.peer().proof();
    if let Some(place) = places.try_take(proof) {
        // If no thread receives this, the program is ending.
        let _ = admitted.send(Ok((connection, place)));
        return;
    }
    if !places.try_queue(proof) {
        refuse(&connection, places.refusal(proof), &**observer);
        return;
    }
    let waiting = connection.clone();
    let (of_thread_too, admitted) = (Arc::clone(places), admitted.clone());
    let told = Arc::clone(observer);
    let wait = move || match of_thread_too.take(WAIT, proof) {
        Some(place) => drop(admitted.send(Ok((waiting, place)))),
        None => refuse(&waiting, of_thread_too.refusal(proof), &*told),
    };
    if let Err(error) = start_thread("waiting", wait) {
        places.leave_queue(proof);
        refuse(&connection, format!("{BUSY} ({error})"), &**observer);
    }
}

/// Refuses a sender because this end is busy. The sender learns the reason, and the observer gets an event.
fn refuse(connection: &Connection, reason: String, observer: &dyn Observer) {
    connection.refuse_as_busy(&reason);
    let address = connection.peer_addr();
    observer.observe(Event::Busy {
        peer: connection.peer().name().map(str::to_owned),
        address: address.map_or_else(String::new, |address| shown(&address).to_string()),
        reason,
    });
}

/// Warns the user about peers that were refused, at most once a second.
pub struct Refused {
    observer: Arc<dyn Observer>,
    told: u64,
    told_at: Option<Instant>,
    /// Since when a code is used up, and nobody has come.
    used_at: Option<Instant>,
    has_come: bool,
}

impl Refused {
    /// `observer` gets the warnings ([`Event::Warning`]).
    #[must_use]
    pub fn new(observer: Arc<dyn Observer>) -> Self {
        Self {
            observer,
            told: 0,
            told_at: None,
            used_at: None,
            has_come: false,
        }
    }

    /// A peer has connected and does what it should, so a code has served its purpose.
    pub fn has_come(&mut self) {
        self.has_come = true;
    }

    /// Warns about the peers that `listener` has refused since the last call.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`] if a code is used up, and nobody has come by it.
    pub fn look(&mut self, listener: &Listener, now: Instant) -> Result<(), Error> {
        let counts = listener.refusals();
        if let Some(line) = self.line(&counts, now) {
            self.observer.observe(Event::Warning(line));
        }
        if self.has_come || !listener.is_code_used() {
            // It is used again after a sender that found no room.
            self.used_at = None;
            return Ok(());
        }
        let is_wrong = counts.wrong_codes > 0;
        let since = *self.used_at.get_or_insert(now);
        if !is_wrong && now.saturating_duration_since(since) < SETUP {
            return Ok(());
        }
        let how = match is_wrong {
            true => "a wrong code",
            false => "the code, and sent nothing",
        };
        let what = format!(
            "the code is used up: a sender has tried {how}; start this program again for a new code"
        );
        Err(Error::new(ErrorKind::Mismatch, what))
    }

    fn line(&mut self, counts: &RefusalCounts, now: Instant) -> Option<String> {
        let all = counts.other_keys + counts.unknown_peers;
        let is_time = self.told_at.is_none_or(|at| now - at >= QUIET);
        if all == self.told || !is_time {
            return None;
        }
        let attempts = Count(all - self.told, "attempt");
        (self.told, self.told_at) = (all, Some(now));
        let from = counts.latest.map_or(String::new(), |addr| {
            format!(", the last from {}", shown(&addr))
        });
        let unknown = counts.latest_unknown.map_or(String::new(), |key| {
            format!("; the public key of the last peer that is not known: {key}")
        });
        Some(format!(
            "{attempts} to connect without a key that is accepted{from}{unknown}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    struct Nobody;

    impl Observer for Nobody {
        fn observe(&self, _: Event) {}
    }

    #[test]
    fn a_flood_of_strangers_is_a_line_a_second() {
        let mut refused = Refused::new(Arc::new(Nobody));
        let start = Instant::now();
        let mut line = |ms, other_keys| {
            let counts = RefusalCounts {
                other_keys,
                latest: Some(SocketAddr::from(([192, 0, 2, 1], 5))),
                ..RefusalCounts::default()
            };
            refused.line(&counts, start + Duration::from_millis(ms))
        };
        assert!(line(0, 0).is_none(), "nobody has come");
        let first = line(0, 1).expect("the first");
        assert!(
            first.starts_with("1 attempt to") && first.contains("192.0.2.1:5"),
            "{first}"
        );
        assert!((1..1000).all(|ms| line(ms, 1 + ms).is_none()));
        assert!(
            line(1000, 1000)
                .expect("a second later")
                .contains("999 attempts")
        );
        assert!(line(3000, 1000).is_none(), "nobody more");
    }
}
