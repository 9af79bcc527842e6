//! A port that stays bound while no socket uses it.

use std::io;
use std::net::{SocketAddr, UdpSocket as StdSocket};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::net::sockopt;

use super::error::SocketError;
use super::options;
use super::routing_table;

/// A UDP port that this process holds, so that no other program can bind it between two sockets that use
/// it. Sockets that are bound *beside* it ([`UdpSocket::bind_beside`](super::UdpSocket::bind_beside),
/// [`UdpFabric::bind_beside`](super::UdpFabric::bind_beside)) share the port. Clones hold the same port.
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
            })
        };
        Ok(Self(Arc::new(hold().map_err(failed)?)))
    }

    /// The bound address; its IP address is unspecified for a wildcard.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.0.local
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
