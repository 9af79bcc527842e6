//! Connects to a receiver.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use farwrite_connection::{
    Connection, ConnectionOptions, Connector, Error as ConnectionError, Keys, Purpose,
};
use farwrite_keys::{HostPort, Key, KnownPeers};

use crate::channel::{Channel, ChannelError, LAST_MESSAGE};
use crate::hooks::{CANCEL_PERIOD, Cancel, Event, Observer};
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
    let (keys, mut options) = (keys_of(key)?, connection_options(patience));
    let start = Instant::now();
    let has_met = Arc::new(AtomicBool::new(false));
    // What was noted: that nothing answers, and that the receiver is busy.
    let noted = [Cell::new(false), Cell::new(false)];
    let note = || {
        let is_met = has_met.load(Ordering::Relaxed);
        if start.elapsed() > NOTE_AFTER && !noted[usize::from(is_met)].replace(true) {
            observer.observe(Event::Note(match is_met {
                true => busy_note(patience),
                false => format!(
                    "nothing answers at {to} yet: does `farwrite recv` run there, is this its address, and do \
                     firewalls pass UDP to this port? Waiting, at most {} s",
                    patience.as_secs()
                ),
            }));
        }
    };
    let (at, met) = (to.to_string(), Arc::clone(&has_met));
    // A code serves one connection.
    let may_ask_again = !matches!(key, Key::Code(_));
    let connect = move |under_way: &UnderWay| loop {
        let connected = under_way.begin(&options);
        let connected = connected.and_then(|it| it.connect(&at, &keys, RECEIVER));
        let is_passing = connected.as_ref().is_err_and(is_passing);
        met.store(connected.is_ok(), Ordering::Relaxed);
        let opened = open(connected);
        let is_busy = matches!(&opened, Err(error) if may_ask_again && error.is_busy());
        if !(is_passing || is_busy) || start.elapsed() + TRY_AGAIN > patience {
            return opened;
        }
        std::thread::sleep(TRY_AGAIN);
        let left = patience.saturating_sub(start.elapsed());
        (options.connect_limit, options.busy_limit) = (left, left);
    };
    let connected = run(connect, cancel, note)?;
    connected.map_err(|error| Error::of_channel(format_args!("connecting to {to}"), &error))
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
    let (keys, options) = (keys_of(key)?, connection_options(patience));
    let addrs = addrs.to_vec();
    let connect = move |under_way: &UnderWay| {
        let connected = under_way.begin(&options);
        open(connected.and_then(|it| it.connect_any(&addrs, &keys, RECEIVER)))
    };
    let connected = run(connect, cancel, || {})?;
    connected.map_err(|error| Error::of_channel("connecting to the receiver", &error))
}

/// The connector of a thread that connects.
#[derive(Clone, Default)]
struct UnderWay(Arc<Mutex<Option<Arc<Connector>>>>);

impl UnderWay {
    /// Makes a connector, which takes the place of the one before.
    fn begin(&self, options: &ConnectionOptions) -> Result<Arc<Connector>, ConnectionError> {
        let connector = Arc::new(Connector::bind(options)?);
        let before = self.lock().replace(Arc::clone(&connector));
        drop(before);
        Ok(connector)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Connector>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connects in a thread of its own, and calls `each` meanwhile. When the user cancels, a receiver that knows of the
/// connection learns that it ends, so that it does not keep a place for it.
fn run<T: Send + 'static>(
    connect: impl FnOnce(&UnderWay) -> T + Send + 'static,
    cancel: &Cancel,
    each: impl FnMut(),
) -> Result<T, Error> {
    let under_way = UnderWay::default();
    let of_thread = under_way.clone();
    let connect = move || {
        let connected = connect(&of_thread);
        let connector = of_thread.lock().take();
        drop(connector);
        connected
    };
    let connected = cancel.run_while(connect, each);
    let connector = under_way.lock().take();
    if let (Err(_), Some(connector)) = (&connected, connector) {
        connector.close(LAST_MESSAGE);
    }
    connected
}

/// What the user learns while the receiver has no place for this end.
pub(crate) fn busy_note(patience: Duration) -> String {
    format!(
        "the receiver is busy with another transfer or probe: waiting for it, at most {} s",
        patience.as_secs()
    )
}

fn open(connected: Result<Connection, ConnectionError>) -> Result<Channel, ChannelError> {
    Channel::open(&connected?, SETUP)
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

/// Waits for the channel of a peer that has connected, at most for [`SETUP`].
pub(crate) fn accept(connection: &Connection, cancel: &Cancel) -> Result<Channel, Error> {
    let start = Instant::now();
    loop {
        cancel.check()?;
        let accepted = Channel::accept(connection, CANCEL_PERIOD);
        let failed = |error| Error::of_channel("setting the transfer up", &error);
        if let Some(channel) = accepted.map_err(failed)? {
            return Ok(channel);
        }
        if start.elapsed() >= SETUP {
            return Err(failed(ChannelError::Timeout { after: SETUP }));
        }
    }
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
