//! Connects to a receiver.

use std::io::ErrorKind::ConnectionRefused;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use farwrite_session::{Channel, Error as SessionError, HostPort, Key};

use crate::Error;
use crate::hooks::{Cancel, Event, Observer};

/// What the user may have started at a port without TCP.
const NO_TCP: &str =
    "no receiver of files listens there (`farwrite recv -` receives a pipe, over UDP only)";

/// Connects to the receiver at `to` and completes the handshake. Waits up to `patience` for the
/// receiver to listen, and reports the wait once.
///
/// # Errors
/// [`crate::ErrorKind::Unreachable`], [`crate::ErrorKind::Mismatch`] for another key or version,
/// and [`crate::ErrorKind::Interrupted`].
pub fn connect(
    to: &HostPort,
    key: &Key,
    patience: Duration,
    cancel: &Cancel,
    observer: &dyn Observer,
) -> Result<Channel, Error> {
    /// The delay before the user sees that this waits.
    const NOTE_AFTER: Duration = Duration::from_secs(1);
    let (start, noted) = (Instant::now(), std::cell::Cell::new(false));
    let is_cancelled = || {
        if start.elapsed() > NOTE_AFTER && !noted.replace(true) {
            observer.observe(Event::Note(format!("waiting for {to} to answer")));
        }
        cancel.is_set()
    };
    let connected = Channel::connect(to, key, patience, is_cancelled);
    connected.map_err(|error| {
        let told = Error::of_session(format_args!("connecting to {to}"), &error);
        match error {
            SessionError::Connect { source, .. } if source.kind() == ConnectionRefused => {
                Error::new(told.kind(), format_args!("{told}; {NO_TCP}"))
            }
            _ => told,
        }
    })
}

/// Connects to the first of a receiver's addresses that answers, and completes the handshake. It does not
/// wait for a receiver that does not listen yet.
///
/// # Errors
/// As [`connect`].
pub fn connect_first(
    addrs: &[SocketAddr],
    key: &Key,
    patience: Duration,
    cancel: &Cancel,
) -> Result<Channel, Error> {
    let connected = Channel::connect_first(addrs, key, patience, || cancel.is_set());
    connected.map_err(|error| Error::of_session("connecting to the receiver", &error))
}
