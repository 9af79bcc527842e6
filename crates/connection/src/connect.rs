//! Connecting to a listener.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use farwrite::fabric::{threads, udp};
use farwrite_keys::HostPort;

use crate::connection::Connection;
use crate::driver::Driver;
use crate::error::{Error, list};
use crate::handshake::{Initiator, InitiatorKeys, Limits};
use crate::keys::{Keys, Peer};
use crate::node::{Node, bind, bind_any};
use crate::options::ConnectionOptions;
use crate::session::nanoseconds;

/// Connects to the listener at `addr` (`HOST:PORT`), which must prove that it is `peer`: the name of one
/// of the known peers of `keys`. If `peer` is not one of them, it must know the code, or hold the pre-shared key
/// if there is no code, and its name is not used.
///
/// A name with several addresses is tried as RFC 8305 says, so a dead one costs a quarter of a second.
/// The packets of the connection leave from one UDP port.
///
/// # Errors
/// [`Error`], with what to do.
pub fn connect(
    addr: &str,
    keys: &Keys,
    peer: &str,
    options: &ConnectionOptions,
) -> Result<Connection, Error> {
    // No port is taken for a peer that is not known.
    choose(keys, peer)?;
    Connector::bind(options)?.connect(addr, keys, peer)
}

/// As [`connect`], to the first of several addresses of the listener that answers. They are tried in this
/// order, a quarter of a second apart.
///
/// # Errors
/// As [`connect`].
pub fn connect_any(
    addresses: &[SocketAddr],
    keys: &Keys,
    peer: &str,
    options: &ConnectionOptions,
) -> Result<Connection, Error> {
    choose(keys, peer)?;
    Connector::bind(options)?.connect_any(addresses, keys, peer)
}

/// Makes any number of connections over one UDP port, with one thread for all of them: for programs with many
/// peers. [`connect`] takes a port and a thread for each connection, which is faster where several of them
/// move much data at the same time.
///
/// The connections outlive the connector. They have its options.
pub struct Connector {
    node: Arc<Node>,
    options: ConnectionOptions,
}

impl Connector {
    /// Binds the port, at [`ConnectionOptions::bind`].
    ///
    /// # Errors
    /// [`Error::Bind`], [`Error::Endpoint`].
    pub fn bind(options: &ConnectionOptions) -> Result<Self, Error> {
        let endpoint = match options.bind {
            Some(local) => bind(local, None)?,
            None => bind_any()?,
        };
        let node = Node::start(endpoint, Driver::new(options.clone()))?;
        Ok(Self {
            node: Arc::new(node),
            options: options.clone(),
        })
    }

    /// Gives up the connections that are being made, and closes the others. Waits until the peers know it, at most for
    /// `limit`. Calls of [`Connector::connect`] that wait in other threads may return only after their time limits.
    pub fn close(&self, limit: Duration) {
        let close = |driver: &mut Driver, endpoint: &mut _| driver.close_all(endpoint);
        // A thread that has ended has no connections.
        if self.node.call(close).is_ok() {
            self.node.wait_idle(limit);
        }
    }

    /// As [`connect`], over the port of this connector. Several threads may connect at the same time.
    ///
    /// # Errors
    /// As [`connect`].
    pub fn connect(&self, addr: &str, keys: &Keys, peer: &str) -> Result<Connection, Error> {
        // A name that this end does not know is told before the lookup.
        choose(keys, peer)?;
        let addresses = resolve(addr, self.options.connect_limit)?;
        self.connect_any(&addresses, keys, peer)
    }

    /// As [`connect_any`], over the port of this connector.
    ///
    /// # Errors
    /// As [`connect`].
    pub fn connect_any(
        &self,
        addresses: &[SocketAddr],
        keys: &Keys,
        peer: &str,
    ) -> Result<Connection, Error> {
        let is_cut_off = |addr: &SocketAddr| {
            let source = udp::source_for(*addr);
            source.is_err_and(|error| error.kind() == ErrorKind::NetworkUnreachable)
        };
        if !addresses.is_empty() && addresses.iter().all(is_cut_off) {
            let to = list(addresses);
            return Err(Error::NoRoute { to });
        }
        let (limit, busy_limit) = (self.options.connect_limit, self.options.busy_limit);
        let (keys, proven) = choose(keys, peer)?;
        let mut number = [0; 8];
        getrandom::fill(&mut number).map_err(Error::Randomness)?;
        let number = u64::from_ne_bytes(number);
        let now_ns = udp::now_ns();
        let limits = Limits {
            answer_ns: nanoseconds(limit),
            busy_ns: nanoseconds(busy_limit),
        };
        let initiator = Initiator::new(keys, addresses, number, now_ns, limits);
        let node = &self.node;
        let of_peer = proven.clone();
        let attempt = node.call(move |driver, _| driver.connect(initiator, of_peer, now_ns))?;
        // The handshake and the route have limits of their own, which name the cause.
        let wait = limit.saturating_mul(2).saturating_add(busy_limit) + Duration::from_secs(1);
        let ready = |driver: &mut Driver| driver.connected(attempt, udp::now_ns());
        match node.wait(wait, ready)? {
            Some(made) => Ok(Connection::new(Arc::clone(node), made?, proven)),
            None => {
                node.call(move |driver, endpoint| driver.give_up(endpoint, attempt))?;
                Err(Error::Timeout {
                    what: format!("connecting to {}", list(addresses)),
                    within: wait,
                })
            }
        }
    }
}

/// The keys of the handshake with a peer, and what the peer has proven then.
pub(crate) fn choose(keys: &Keys, name: &str) -> Result<(InitiatorKeys, Peer), Error> {
    if let Some((own, known)) = &keys.identity
        && let Some(key) = known.key(name)
    {
        let own = own.clone();
        let keys = InitiatorKeys::Identities { own, peer: key };
        return Ok((keys, Peer::known(name, key)));
    }
    match (&keys.code, &keys.psk) {
        (Some(code), _) if code.is_used() => Err(Error::CodeUsed),
        (Some(code), _) => Ok((InitiatorKeys::Code(Arc::clone(code)), Peer::CODE)),
        (None, Some(psk)) => Ok((InitiatorKeys::PreShared(psk.clone()), Peer::PRE_SHARED)),
        (None, None) => Err(Error::UnknownPeer { name: name.into() }),
    }
}

/// The addresses in the order in which they are tried. The operating system's lookup cannot be
/// interrupted, so it has a thread of its own.
fn resolve(addr: &str, limit: Duration) -> Result<Vec<SocketAddr>, Error> {
    let host: HostPort = addr.parse()?;
    let (found, lookup) = channel();
    threads::spawn("lookup", move || found.send(host.resolve()))
        .map_err(|error| Error::Noise(format!("starting a thread: {error}")))?;
    let found = lookup.recv_timeout(limit).map_err(|_| Error::Timeout {
        what: format!("looking up {addr}"),
        within: limit,
    })?;
    let addresses = found.map_err(|error| Error::Resolve(Arc::new(error)))?;
    Ok(alternate(&addresses))
}

/// Returns the addresses in the order in which they are tried: the families alternate, and begin with the
/// family of the first address (RFC 8305 section 4).
fn alternate(addrs: &[SocketAddr]) -> Vec<SocketAddr> {
    let starts_with_v6 = addrs.first().is_some_and(SocketAddr::is_ipv6);
    let is_first = |addr: &SocketAddr| addr.is_ipv6() == starts_with_v6;
    let (first, second): (Vec<_>, Vec<_>) = addrs.iter().copied().partition(is_first);
    let pairs = (0..addrs.len()).map(|place| [first.get(place), second.get(place)]);
    pairs.flatten().flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_alternate_from_the_first_on() {
        let addrs = |texts: &[&str]| -> Vec<SocketAddr> {
            let parse = |text: &&str| format!("{text}:1").parse().expect("an address");
            texts.iter().map(parse).collect()
        };
        for (found, order) in [
            (
                &["[::1]", "[::2]", "1.1.1.1"][..],
                &["[::1]", "1.1.1.1", "[::2]"][..],
            ),
            (
                &["1.1.1.1", "[::1]", "[::2]"],
                &["1.1.1.1", "[::1]", "[::2]"],
            ),
            (&["1.1.1.1", "2.2.2.2"], &["1.1.1.1", "2.2.2.2"]),
            (&[], &[]),
        ] {
            assert_eq!(alternate(&addrs(found)), addrs(order), "{found:?}");
        }
    }
}
