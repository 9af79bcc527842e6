//! Accepting connections.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use farwrite::ReservedPort;

use crate::connection::Connection;
use crate::driver::Driver;
use crate::error::Error;
use crate::handshake::{RefusalCounts, Responder};
use crate::keys::Keys;
use crate::node::{Node, bind};
use crate::options::ConnectionOptions;

/// A UDP port that accepts connections of peers that hold the right keys. A thread of its own answers
/// them. It keeps nothing for a source before that has proven a key, and verifies a bounded number of
/// requests in a second (P12.4).
pub struct Listener {
    node: Arc<Node>,
    /// The address at which the port is bound, if that is the unspecified address.
    wildcard: Option<IpAddr>,
}

impl Listener {
    /// Listens on an address, such as `[::]:4792`, which also takes IPv4. Port 0 selects a free port.
    ///
    /// # Errors
    /// [`Error::NoKeys`], [`Error::Bind`], [`Error::Randomness`], [`Error::Endpoint`].
    pub fn bind(
        addr: impl Into<SocketAddr>,
        keys: &Keys,
        options: &ConnectionOptions,
    ) -> Result<Self, Error> {
        Self::listen(addr.into(), None, keys, options)
    }

    /// As [`Listener::bind`], at a port that this process holds, beside other sockets at this port.
    ///
    /// # Errors
    /// As [`Listener::bind`].
    pub fn bind_beside(
        held: &ReservedPort,
        keys: &Keys,
        options: &ConnectionOptions,
    ) -> Result<Self, Error> {
        Self::listen(held.local_addr(), Some(held), keys, options)
    }

    fn listen(
        addr: SocketAddr,
        held: Option<&ReservedPort>,
        keys: &Keys,
        options: &ConnectionOptions,
    ) -> Result<Self, Error> {
        if keys.is_empty() {
            return Err(Error::NoKeys);
        }
        let mut secrets = [[0; 32]; 2];
        for secret in &mut secrets {
            getrandom::fill(secret).map_err(Error::Randomness)?;
        }
        let endpoint = bind(addr, held)?;
        if held.is_some() {
            // No stranger wakes an endpoint at a port that it shares, unless it awaits them.
            endpoint.fabric().await_strangers();
        }
        let responder = Responder::new(keys.clone(), secrets);
        let mut driver = Driver::new(options.clone());
        driver.listen(responder);
        let node = Arc::new(Node::start(endpoint, driver)?);
        let ip = addr.ip().to_canonical();
        let wildcard = Some(ip).filter(IpAddr::is_unspecified);
        Ok(Self { node, wildcard })
    }

    /// The address by which peers probably know this end, and the port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.node.local
    }

    /// The bound address and port. The address is unspecified if the listener takes all addresses of this machine.
    #[must_use]
    pub fn bound_addr(&self) -> SocketAddr {
        let local = self.node.local;
        let any = self.wildcard.map(|ip| SocketAddr::new(ip, local.port()));
        any.unwrap_or(local)
    }

    /// Waits for the next connection, at most for `limit`. Returns `None` after that.
    ///
    /// # Errors
    /// [`Error::Endpoint`] if the port has failed permanently, [`Error::NotListening`] after
    /// [`Listener::close`].
    pub fn accept(&self, limit: Duration) -> Result<Option<Connection>, Error> {
        let accepted = self.node.wait(limit, Driver::accept)?.transpose()?;
        Ok(accepted.map(|(session, peer)| Connection::new(Arc::clone(&self.node), session, peer)))
    }

    /// A descriptor that is readable while [`Listener::accept`] would not wait. Wait for it with `poll` or
    /// `epoll`, and do not read it. It stays open as long as the caller holds it.
    ///
    /// # Errors
    /// [`Error::Endpoint`] if the process has too many open files.
    pub fn accept_descriptor(&self) -> Result<Arc<OwnedFd>, Error> {
        self.node.driver().descriptor()
    }

    /// Accepts no more connections. Threads in [`Listener::accept`] return. Connections that were accepted go
    /// on. A listener that is dropped does the same.
    pub fn close(&self) {
        // A thread that has ended accepts nothing.
        let _ = self
            .node
            .call(|driver, endpoint| driver.stop_listening(endpoint));
    }

    /// Replaces the keys and the known peers. Connections of peers that are no longer known end
    /// ([`Ended::NoLongerKnown`](crate::Ended::NoLongerKnown)); the others go on.
    ///
    /// # Errors
    /// [`Error::NoKeys`], [`Error::Endpoint`].
    pub fn reload(&self, keys: &Keys) -> Result<(), Error> {
        if keys.is_empty() {
            return Err(Error::NoKeys);
        }
        let keys = keys.clone();
        self.node
            .call(move |driver, endpoint| driver.replace_keys(endpoint, &keys))
    }

    /// Whether a peer has used the code of the keys up, right or wrong.
    #[must_use]
    pub fn is_code_used(&self) -> bool {
        self.node.driver().is_code_used()
    }

    /// How many requests came to nothing, by reason.
    #[must_use]
    pub fn refusals(&self) -> RefusalCounts {
        self.node.driver().refusals()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Connections that were accepted keep the thread.
        self.close();
    }
}
