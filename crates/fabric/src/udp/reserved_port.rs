//! A port that stays bound while no socket uses it.

use std::io;
use std::net::{SocketAddr, UdpSocket as StdSocket};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::net::sockopt;

use super::config::SocketConfig;
use super::error::SocketError;
use super::options;
use super::routing_table;
use super::shared_open::SharedOpen;
use super::socket::SharedSocket;

/// A UDP port that this process holds, so that no other program can bind it between two sockets that use
/// it. Sockets that are bound *beside* it ([`UdpSocket::bind_beside`](super::UdpSocket::bind_beside),
/// [`UdpFabric::bind_beside`](super::UdpFabric::bind_beside)) share the port. Several fabrics can use it at
/// once, at the same address too. Clones hold the same port.
///
/// The port itself receives nothing that belongs to these sockets. At a wildcard address, the kernel
/// prefers a socket with the exact address. The port then keeps at most some kilobytes of other
/// datagrams, and nobody reads them. At one address, the port is connected to itself, so the kernel
/// passes it no datagram of another sender.
#[derive(Clone, Debug)]
pub struct ReservedPort(Arc<Reserved>);

#[derive(Debug)]
struct Reserved {
    socket: StdSocket,
    local: SocketAddr,
    /// Locked while another socket may bind the port.
    sharing: Mutex<()>,
    /// The sockets of fabrics, one for each address in use.
    open: Mutex<Vec<Weak<SharedOpen>>>,
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
                sharing: Mutex::new(()),
                open: Mutex::default(),
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
        let mut sockets = self.0.open.lock().unwrap_or_else(PoisonError::into_inner);
        sockets.retain(|socket| socket.strong_count() > 0);
        let mut used = sockets.iter().filter_map(Weak::upgrade);
        if let Some(open) = used.find(|open| open.socket().local == bind) {
            return Ok(open);
        }
        let socket = SharedSocket::bind(config, Some(self))?;
        let open = Arc::new(SharedOpen::new(Arc::new(socket)));
        sockets.push(Arc::downgrade(&open));
        Ok(open)
    }

    /// Runs `bind`, which may bind sockets with `SO_REUSEADDR` to this port.
    ///
    /// Another program can bind the port only during this call, and only with the same option.
    pub(super) fn share<T>(&self, bind: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let sharing = self.0.sharing.lock();
        let _sharing = sharing.unwrap_or_else(PoisonError::into_inner);
        sockopt::set_socket_reuseaddr(self.0.socket.as_fd(), true)?;
        let bound = bind();
        sockopt::set_socket_reuseaddr(self.0.socket.as_fd(), false)?;
        bound
    }
}
