//! Connects to a receiver.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use farwrite::fabric::threads::lock;
use farwrite_connection::{
    Connection, ConnectionOptions, Connector, Error as ConnectionError, Keys, Purpose,
};
use farwrite_keys::{HostPort, Key, KnownPeers};

use crate::channel::{Channel, ChannelError, LAST_MESSAGE};
use crate::hooks::{Cancel, Event, Observer};
use crate::{Error, ErrorKind, SETUP};

/// What this end calls the receiver.
pub const RECEIVER: &str = "receiver";
/// The delay before the user learns that nothing answers.
const NOTE_AFTER: Duration = Duration::from_secs(3);
/// The pause before a name is looked up again that no server could look up, and before a busy receiver is asked again.
/// That one keeps a sender waiting for some seconds before it answers.
const TRY_AGAIN: Duration = Duration::from_millis(500);
/// The silence that ends the connection of a transfer. The transfer has limits of its own, which are shorter.
const SILENCE: Duration = Duration::from_secs(2 * 3600);

/// The options of connections for files, at both ends. `patience` limits how long the other end may be silent while
/// they are made.
#[must_use]
pub fn connection_options(patience: Duration) -> ConnectionOptions {
    ConnectionOptions {
        purpose: Purpose::FILES,
        connect_limit: patience,
        busy_limit: patience,
        silence_limit: SILENCE,
        largest_mtu: Some(Channel::MTU),
        // A trace of a transfer shows its data.
        reports_events: false,
        first: Some(Channel::first()),
        ..ConnectionOptions::default()
    }
}

/// The keys with which an end connects to the receiver ([`RECEIVER`]).
///
/// # Errors
/// [`ErrorKind::Settings`] if the public key of the receiver cannot be one.
pub fn keys_of(key: &Key) -> Result<Keys, Error> {
    Ok(match key {
        Key::PreShared(psk) => Keys::of_psk(psk),
        Key::Code(code) => Keys::of_code(code.clone()),
        Key::Identity { own, peer } => {
            let mut known = KnownPeers::default();
            let added = known.add(RECEIVER, *peer);
            added.map_err(|error| {
                Error::caused(ErrorKind::Settings, "the keys of the two ends", &error)
            })?;
            Keys::of_identity(own.clone(), known)
        }
    })
}

/// Connects to the receiver at `to`, and opens the channel. Waits up to `patience` for the
/// receiver to listen, and to have a place for this end. Reports each of the two waits once.
///
/// # Errors
/// [`ErrorKind::Unreachable`], [`ErrorKind::Mismatch`] for another key, version or program, [`ErrorKind::Busy`],
/// and [`ErrorKind::Interrupted`].
pub fn connect(
    to: &HostPort,
    key: &Key,
    patience: Duration,
    cancel: &Cancel,
    observer: &dyn Observer,
) -> Result<Channel, Error> {
    Waiting::new(to.clone(), key, patience).connect(cancel, observer)
}

/// Waits for a receiver that does not listen yet, or is busy with others. At the receiver, `admission.rs` refuses a
/// sender that finds no place, and the set-up one that finds no memory.
pub struct Waiting<'a> {
    to: HostPort,
    key: &'a Key,
    /// What the user starts there.
    program: &'static str,
    start: Instant,
    patience: Duration,
    /// Since when the receiver has answered, so that this end waits because it is busy.
    met_at: Arc<Mutex<Option<Instant>>>,
    /// What was noted: that nothing answers, and that the receiver is busy.
    noted: [Cell<bool>; 2],
}

impl<'a> Waiting<'a> {
    /// Waits at most `patience` from now on.
    #[must_use]
    pub fn new(to: HostPort, key: &'a Key, patience: Duration) -> Self {
        Self {
            to,
            key,
            program: "farwrite recv",
            start: Instant::now(),
            patience,
            met_at: Arc::default(),
            noted: [Cell::new(false), Cell::new(false)],
        }
    }

    /// Names what the user starts at the other end, if it is not `farwrite recv`.
    #[must_use]
    pub fn for_program(self, program: &'static str) -> Self {
        Self { program, ..self }
    }

    /// As [`connect`].
    fn connect(&self, cancel: &Cancel, observer: &dyn Observer) -> Result<Channel, Error> {
        let opened = self.open(
            connection_options,
            |connection: &Connection| Channel::open(connection, SETUP),
            ChannelError::of_connection,
            (cancel, observer),
        )?;
        let what = format_args!("connecting to {}", self.to);
        opened.map_err(|error| Error::of_channel(what, &error))
    }

    /// Connects to the receiver, and opens what the caller needs over the connection. `options` gets the time that is
    /// left. `of_connection` returns the error of the connection, if an error of `open` is one. The user is told once
    /// that this end waits.
    ///
    /// # Errors
    /// [`ErrorKind::Settings`] if the public key of the receiver cannot be one, and [`ErrorKind::Interrupted`].
    pub fn open<T: Send + 'static, E: From<ConnectionError> + Send + 'static>(
        &self,
        options: impl Fn(Duration) -> ConnectionOptions,
        open: impl Fn(&Connection) -> Result<T, E> + Clone + Send + 'static,
        of_connection: impl Fn(&E) -> Option<ConnectionError>,
        (cancel, observer): (&Cancel, &dyn Observer),
    ) -> Result<Result<T, E>, Error> {
        let keys = keys_of(self.key)?;
        loop {
            let left = self.patience.saturating_sub(self.start.elapsed());
            let (to, keys, met_at) = (self.to.to_string(), keys.clone(), Arc::clone(&self.met_at));
            let open = open.clone();
            let work = move |connector: &Connector| {
                let connected = connector.connect(&to, &keys, RECEIVER);
                note_meeting(&met_at, connected.is_ok());
                open(&connected?)
            };
            let opened = with_connector(&options(left), work, cancel, || self.note(observer))?;
            let is_worth_it = |error: ConnectionError| match is_passing(&error) {
                true => self.has_time(),
                false => error.is_busy() && self.may_ask_again(),
            };
            match opened {
                Err(error) if of_connection(&error).is_some_and(is_worth_it) => {
                    self.pause(cancel, observer)?;
                }
                opened => return Ok(opened),
            }
        }
    }

    /// Connects to a receiver that was busy when it had answered, after a pause.
    pub(crate) fn connect_again(
        &self,
        cancel: &Cancel,
        observer: &dyn Observer,
    ) -> Result<Channel, Error> {
        note_meeting(&self.met_at, true);
        self.pause(cancel, observer)?;
        self.connect(cancel, observer)
    }

    /// Whether a busy receiver may be asked again, after a pause. A code serves one connection.
    pub(crate) fn may_ask_again(&self) -> bool {
        self.has_time() && !matches!(self.key, Key::Code(_))
    }

    fn has_time(&self) -> bool {
        self.start.elapsed() + TRY_AGAIN <= self.patience
    }

    fn pause(&self, cancel: &Cancel, observer: &dyn Observer) -> Result<(), Error> {
        let note = || {
            self.note(observer);
            Ok(())
        };
        cancel.run_watched(|| thread::sleep(TRY_AGAIN), note)
    }

    /// The user learns why this end waits, after `NOTE_AFTER`, and once for each reason.
    fn note(&self, observer: &dyn Observer) {
        let met_at = *lock(&self.met_at);
        let is_met = met_at.is_some();
        let waited = met_at.unwrap_or(self.start).elapsed();
        if waited <= NOTE_AFTER || self.noted[usize::from(is_met)].replace(true) {
            return;
        }
        let seconds = self.patience.as_secs();
        observer.observe(Event::Note(match is_met {
            true => format!(
                "the receiver is busy with others: waiting for it, at most {seconds} s"
            ),
            false => format!(
                "nothing answers at {} yet: does `{}` run there, is this its address, and do firewalls pass UDP \
                 to this port? Waiting, at most {seconds} s",
                self.to, self.program
            ),
        }));
    }
}

/// Keeps when the receiver answered first.
fn note_meeting(met_at: &Mutex<Option<Instant>>, is_met: bool) {
    let mut met_at = lock(met_at);
    *met_at = is_met.then(|| met_at.unwrap_or_else(Instant::now));
}

/// Connects to the first of a receiver's addresses that answers, and opens the channel.
///
/// # Errors
/// As [`connect`].
pub fn connect_first(
    addrs: &[SocketAddr],
    key: &Key,
    patience: Duration,
    cancel: &Cancel,
) -> Result<Channel, Error> {
    let (keys, addrs) = (keys_of(key)?, addrs.to_vec());
    let open = move |connector: &Connector| {
        let connection = connector.connect_any(&addrs, &keys, RECEIVER)?;
        Channel::open(&connection, SETUP)
    };
    let opened = with_connector(&connection_options(patience), open, cancel, || {})?;
    opened.map_err(|error| Error::of_channel("connecting to the receiver", &error))
}

/// Runs `work`, which connects, in a thread of its own, and calls `each` meanwhile. When the user cancels, a peer that
/// knows of the connection learns that it ends, so that it does not keep a place for it.
///
/// # Errors
/// As [`Cancel::run`].
pub fn with_connector<T: Send + 'static, E: From<ConnectionError> + Send + 'static>(
    options: &ConnectionOptions,
    work: impl FnOnce(&Connector) -> Result<T, E> + Send + 'static,
    cancel: &Cancel,
    mut each: impl FnMut(),
) -> Result<Result<T, E>, Error> {
    let connector = match Connector::bind(options) {
        Ok(connector) => Arc::new(connector),
        Err(error) => return Ok(Err(error.into())),
    };
    let of_thread = Arc::clone(&connector);
    let watch = || {
        each();
        Ok(())
    };
    let worked = cancel.run_watched(move || work(&of_thread), watch);
    if worked.is_err() {
        connector.close(LAST_MESSAGE);
    }
    worked
}

/// Whether no name server has answered.
fn is_passing(error: &ConnectionError) -> bool {
    let ConnectionError::Resolve(error) = error else {
        return false;
    };
    matches!(
        **error,
        farwrite_keys::Error::Resolve {
            is_temporary: true,
            ..
        }
    )
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use super::*;

    #[test]
    fn only_a_lookup_without_a_name_server_is_tried_again() {
        for is_temporary in [true, false] {
            let error = farwrite_keys::Error::Resolve {
                host: "far.invalid:4792".into(),
                is_temporary,
                source: io::ErrorKind::Other.into(),
            };
            let error = ConnectionError::Resolve(Arc::new(error));
            assert_eq!(is_passing(&error), is_temporary);
        }
    }
}
