//! Connects to a receiver.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use farwrite_session::{Channel, HostPort, Psk};

use crate::hooks::{Cancel, Event, Observer};
use crate::{Error, SETUP};

/// Connects to the receiver at `to` and completes the handshake. Waits up to `patience` for the
/// receiver to listen, and reports the wait once.
///
/// # Errors
/// [`crate::ErrorKind::Unreachable`], [`crate::ErrorKind::Mismatch`] for another key or version,
/// and [`crate::ErrorKind::Interrupted`].
pub fn connect(
    to: &HostPort,
    psk: &Psk,
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
    Channel::connect(to, psk, patience, is_cancelled)
        .map_err(|error| Error::of_session(format_args!("connecting to {to}"), &error))
}

/// Completes the handshake over a TCP connection to a receiver.
///
/// # Errors
/// As [`connect`].
pub fn connect_over(stream: TcpStream, psk: &Psk) -> Result<Channel, Error> {
    let connected = Channel::initiate(stream, psk, SETUP);
    connected.map_err(|error| Error::of_session("connecting to the receiver", &error))
}
