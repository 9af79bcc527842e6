//! A port that stays bound while no socket uses it.

use std::io;
use std::net::{SocketAddr, UdpSocket as StdSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use rustix::net::sockopt;

use super::config::SocketConfig;
use super::datagram::ReceivedBatch;
use super::error::SocketError;
use super::options;
use super::routing_table;
use super::shared_open::{Inbox, SharedOpen};
use super::socket::SharedSocket;
use crate::threads::lock;

/// A UDP port that this process holds, so that no other program can bind it between two sockets that use
/// it. Sockets that are bound *beside* it ([`UdpSocket::bind_beside`](super::UdpSocket::bind_beside),
/// [`UdpFabric::bind_beside`](super::UdpFabric::bind_beside)) share the port. Several fabrics can use it at
/// once, at the same address too. Clones hold the same port.
///
/// The port itself receives nothing that belongs to these sockets. The kernel prefers a socket that is
/// connected to the source of a datagram, then one with the exact address, and of equal ones the one that was
/// bound last. A port at a wildcard address keeps at most some kilobytes of other datagrams, and nobody reads
/// them. At one address, the port is connected to itself, so the kernel passes it no datagram of another
/// sender.
///
/// So of several sockets at the port, one receives the datagrams of strangers. It passes those that may be for
/// the fabrics beside it ([`ReservedPort::pass`]); fabrics do so themselves.
#[derive(Clone, Debug)]
pub struct ReservedPort(Arc<Reserved>);

#[derive(Debug)]
struct Reserved {
    socket: StdSocket,
    local: SocketAddr,
    /// The sockets that were bound beside the port. Locked while another socket may bind the port.
    beside: Mutex<Vec<Weak<SharedSocket>>>,
    /// The sockets of fabrics, one for each address in use.
    open: Mutex<Vec<Weak<SharedOpen>>>,
    /// How many of them there have been.
    opens: AtomicU64,
}

impl ReservedPort {
    /// Binds a port. Port 0 selects a free port. `[::]` also holds the port of IPv4.
    ///
    /// # Errors
    /// [`SocketError::Bind`].
    pub fn bind(addr: SocketAddr) -> Result<Self, SocketError> {
        let addr = routing_table::canonical(addr);
        let failed = |source| SocketError::Bind { addr, source };
        let hold = || -> io::Result<Reserved> {
            let socket = options::open(addr, addr.is_ipv6())?;
            // The kernel uses its minimum, about 2 kB.
            sockopt::set_socket_recv_buffer_size(&socket, 0)?;
            let local = socket.local_addr()?;
            if !local.ip().is_unspecified() {
                rustix::net::connect(&socket, &local)?;
            }
            Ok(Reserved {
                socket,
                local,
                beside: Mutex::default(),
                open: Mutex::default(),
                opens: AtomicU64::new(0),
            })
        };
        Ok(Self(Arc::new(hold().map_err(failed)?)))
    }

    /// The bound address; its IP address is unspecified for a wildcard.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.0.local
    }

    /// The open socket at this address, which all fabrics at this address share.
    pub(super) fn open(&self, config: &SocketConfig) -> Result<Arc<SharedOpen>, SocketError> {
        let bind = routing_table::canonical(config.bind);
        let mut sockets = lock(&self.0.open);
        sockets.retain(|socket| socket.strong_count() > 0);
        let mut used = sockets.iter().filter_map(Weak::upgrade);
        if let Some(open) = used.find(|open| open.socket().local == bind) {
            return Ok(open);
        }
        let socket = Arc::new(SharedSocket::bind(config, Some(self))?);
        self.note(&socket);
        let open = Arc::new(SharedOpen::new(socket, Some(self.clone())));
        sockets.push(Arc::downgrade(&open));
        self.0.opens.fetch_add(1, Ordering::Release);
        for other in sockets.iter().filter_map(Weak::upgrade) {
            other.wake_listeners();
        }
        Ok(open)
    }

    pub(super) fn opens(&self) -> u64 {
        self.0.opens.load(Ordering::Acquire)
    }

    pub(super) fn open_besides(&self, one: &Arc<SharedOpen>) -> Vec<Arc<SharedOpen>> {
        let sockets = lock(&self.0.open);
        let used = sockets.iter().filter_map(Weak::upgrade);
        used.filter(|open| !Arc::ptr_eq(open, one)).collect()
    }

    /// Remembers a socket that was bound beside the port: further ones can be bound at its address.
    pub(super) fn note(&self, socket: &Arc<SharedSocket>) {
        let mut beside = lock(&self.0.beside);
        beside.retain(|socket| socket.strong_count() > 0);
        beside.push(Arc::downgrade(socket));
    }

    /// Gives datagrams that a socket of this port has received, and that are not its own, to the fabrics beside
    /// it that the sender may mean. They take only packets for their owners: route packets, and packets of
    /// handshakes.
    pub fn pass(&self, batch: &ReceivedBatch<'_>) {
        self.pass_from(None, batch, None);
    }

    /// As [`ReservedPort::pass`]; `from` has received the datagrams, and needs them no more, and neither does `reader`.
    pub(super) fn pass_from(
        &self,
        from: Option<&SharedOpen>,
        batch: &ReceivedBatch<'_>,
        reader: Option<&Arc<Inbox>>,
    ) {
        for open in lock(&self.0.open).iter().filter_map(Weak::upgrade) {
            let ip = open.socket().local.ip();
            let is_meant = ip.is_unspecified() || ip == batch.dst.ip();
            if is_meant && from.is_none_or(|from| !std::ptr::eq(from, &*open)) {
                open.take_in(batch, reader);
            }
        }
    }

    /// Runs `bind`, which may bind sockets with `SO_REUSEADDR` to this port.
    ///
    /// Another program can bind the port only during this call, and only with the same option.
    pub(super) fn share<T>(&self, bind: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let beside = lock(&self.0.beside);
        let used: Vec<_> = beside.iter().filter_map(Weak::upgrade).collect();
        let share = |on| -> io::Result<()> {
            let sockets = used.iter().map(|socket| socket.as_fd());
            for socket in sockets.chain([self.0.socket.as_fd()]) {
                sockopt::set_socket_reuseaddr(socket, on)?;
            }
            Ok(())
        };
        share(true)?;
        let bound = bind();
        share(false)?;
        bound
    }
}
