//! The two UDP ports of a device: one at which peers connect, and one from which this end connects to peers.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farwrite_connection::{Connection, ConnectionOptions, Connector, Keys, Listener, Purpose};
use farwrite_keys::{Identity, KnownPeers, PublicKey};

use crate::comm::{Comm, Direction, queue_pair};
use crate::devices::Device;
use crate::failure::Failure;
use crate::handle::Handle;
use crate::settings::{Secret, Settings};

/// After which silence a peer counts as dead.
const SILENCE: Duration = Duration::from_secs(7);
/// How long a rank waits for another one that starts later, or has no room.
const PATIENCE: Duration = Duration::from_secs(600);
/// Connections of peers that were accepted, and whose queue pair has not come yet.
const MOST_PENDING: usize = 1024;
/// The identity of all ranks that connect without a secret. It is public, so it proves nothing.
const ANYONE: &str =
    "farwrite-identity-1:cktkbg3chd42g44rbrkhazzrbqzqmpj377ekcypbeagtgj5sfjd44hm7qi";
/// What the identity of a listener is called.
const LISTENER: &str = "listener";

/// The ports of a device.
pub(crate) struct Ports {
    connector: Connector,
    options: ConnectionOptions,
    /// Where peers connect, with port 0 for a free one.
    at: SocketAddr,
    settings: Settings,
    inbox: Mutex<Inbox>,
}

/// What comes from peers.
#[derive(Default)]
struct Inbox {
    /// Opened when NCCL listens first.
    listening: Option<Listening>,
    pending: Vec<Connection>,
    /// Connections for each number that NCCL listens at.
    arrived: HashMap<u64, VecDeque<Comm>>,
}

struct Listening {
    listener: Listener,
    key: PublicKey,
    /// What peers are told.
    addresses: Vec<SocketAddr>,
}

impl Ports {
    /// Opens the port from which this end connects. `number` is that of the device.
    pub(crate) fn open(
        device: &Device,
        settings: &Settings,
        number: usize,
    ) -> Result<Self, Failure> {
        if let Secret::Missing = settings.secret {
            return Err(Settings::no_secret());
        }
        let options = ConnectionOptions {
            bind: Some(device.address),
            purpose: Purpose::PROGRAM,
            connect_limit: Duration::from_secs(20),
            busy_limit: PATIENCE,
            silence_limit: SILENCE,
            backlog: MOST_PENDING,
            ..ConnectionOptions::default()
        };
        let mut at = device.address;
        // The port of the settings belongs to the first device. The others have free ones.
        at.set_port(if number == 0 { settings.port } else { 0 });
        Ok(Self {
            connector: Connector::bind(&options).map_err(system)?,
            options,
            at,
            settings: settings.clone(),
            inbox: Mutex::default(),
        })
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_listening(&self) -> Result<Listening, Failure> {
        let identity = Identity::generate().map_err(system)?;
        let key = identity.public();
        let keys = keys_of_listener(&self.settings.secret, identity)?;
        let listener = Listener::bind(self.at, &keys, &self.options).map_err(system)?;
        let addresses = match &self.settings.addresses[..] {
            [] => vec![SocketAddr::new(self.at.ip(), listener.local_addr().port())],
            told => told.to_vec(),
        };
        Ok(Listening {
            listener,
            key,
            addresses,
        })
    }

    /// Takes connections for `number` from now on.
    pub(crate) fn listen(&self, number: u64) -> Result<Handle, Failure> {
        let inbox = &mut *self.inbox();
        let listening = match inbox.listening.take() {
            Some(listening) => listening,
            None => self.start_listening()?,
        };
        let handle = Handle {
            number,
            key: listening.key,
            addresses: listening.addresses.clone(),
        };
        inbox.listening = Some(listening);
        inbox.arrived.entry(number).or_default();
        Ok(handle)
    }

    /// Takes no more connections for `number`.
    pub(crate) fn stop_listening(&self, number: u64) {
        let removed = self.inbox().arrived.remove(&number);
        for comm in removed.into_iter().flatten() {
            comm.leave();
        }
    }

    /// The next connection for `number`, if there is one.
    pub(crate) fn accept(&self, number: u64) -> Result<Option<Comm>, Failure> {
        let inbox = &mut *self.inbox();
        let Some(Listening { listener, .. }) = &inbox.listening else {
            return Ok(None);
        };
        while let Some(connection) = listener.accept(Duration::ZERO).map_err(system)? {
            if inbox.pending.len() < MOST_PENDING {
                inbox.pending.push(connection);
            } else {
                connection.refuse_as_busy("too many connections wait for their queue pairs");
            }
        }
        let arrived = &mut inbox.arrived;
        inbox
            .pending
            .retain(|connection| self.takes(connection, arrived));
        Ok(arrived.get_mut(&number).and_then(VecDeque::pop_front))
    }

    /// Takes the queue pair of a connection. Returns false when nothing more is to be done with the connection.
    fn takes(&self, connection: &Connection, arrived: &mut HashMap<u64, VecDeque<Comm>>) -> bool {
        let options = queue_pair(connection, self.settings.scheme);
        let pair = match connection.accept_queue_pair(None, &options, Duration::ZERO) {
            Ok(None) => return true,
            Ok(Some(pair)) => pair,
            // The peer is told why.
            Err(_) => return false,
        };
        let number = pair.name().parse().ok();
        if let Some(places) = number.and_then(|number: u64| arrived.get_mut(&number)) {
            let comm = Comm::new(Direction::Receive, pair, &options, self.settings.scheme);
            // If it has failed, the peer notices that the connection is over.
            places.extend(comm.ok());
        }
        false
    }

    /// Connects to a listener. Waits until the peer has accepted, so it has a thread of its own.
    pub(crate) fn connect(&self, handle: &Handle) -> Result<Comm, Failure> {
        let keys = keys_for(&self.settings.secret, handle.key)?;
        let failed = |why: farwrite_connection::Error| Failure::remote(why.to_string());
        let connection = self
            .connector
            .connect_any(&handle.addresses, &keys, LISTENER)
            .map_err(failed)?;
        let options = queue_pair(&connection, self.settings.scheme);
        let name = handle.number.to_string();
        let pair = connection
            .open_queue_pair(&name, options.clone(), PATIENCE)
            .map_err(failed)?;
        Comm::new(Direction::Send, pair, &options, self.settings.scheme)
    }

    /// Gives up what is being connected.
    pub(crate) fn close(&self) {
        self.connector.close(Duration::from_secs(1));
    }
}

fn system(why: impl std::fmt::Display) -> Failure {
    Failure::system(why.to_string())
}

/// The key of handshakes with one listener, which follows from the secret of all ranks. So a rank with the secret does
/// not take another listener for the one that its handle names.
fn purpose(key: PublicKey) -> String {
    format!("farwrite nccl 1 pre-shared key of listener {key}")
}

fn keys_of_listener(secret: &Secret, identity: Identity) -> Result<Keys, Failure> {
    match secret {
        Secret::Psk(psk) => Ok(Keys::of_psk(&psk.derived(&purpose(identity.public())))),
        Secret::None => Ok(Keys::of_identity(
            identity,
            known("anyone", anyone()?.public())?,
        )),
        Secret::Missing => Err(Settings::no_secret()),
    }
}

fn keys_for(secret: &Secret, key: PublicKey) -> Result<Keys, Failure> {
    match secret {
        Secret::Psk(psk) => Ok(Keys::of_psk(&psk.derived(&purpose(key)))),
        Secret::None => Ok(Keys::of_identity(anyone()?, known(LISTENER, key)?)),
        Secret::Missing => Err(Settings::no_secret()),
    }
}

fn anyone() -> Result<Identity, Failure> {
    ANYONE
        .parse()
        .map_err(|why: farwrite_keys::KeyError| Failure::internal(why.to_string()))
}

fn known(name: &str, key: PublicKey) -> Result<KnownPeers, Failure> {
    let mut peers = KnownPeers::default();
    let added = peers.add(name, key);
    added.map_err(|why| Failure::argument(format!("the key of the handle: {why}")))?;
    Ok(peers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_of_anyone_is_valid() {
        anyone().expect("valid");
    }
}
