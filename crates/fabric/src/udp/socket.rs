//! A batched UDP socket for packets that must not be fragmented.
//!
//! What sends is never connected: the kernel gives the packets of an unconnected socket that forbids
//! fragmentation the IPv4 id 0, and a GSO batch the ids 0, 1, 2, ... The ICRC covers the id, so it
//! has to be known before the packet leaves.

use std::io;
use std::net::{SocketAddr, UdpSocket as StdSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

use super::config::{Granted, SocketConfig};
use super::datagram::{Outgoing, Received};
use super::error::SocketError;
use super::options::{open, open_connected, set_required, set_wanted};
use super::path;
use super::receiver::UdpReceiver;
use super::sender::UdpSender;

/// A batched UDP socket.
#[derive(Debug)]
pub struct UdpSocket {
    sender: UdpSender,
    receiver: UdpReceiver,
}

/// What the halves of a socket share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) socket: StdSocket,
    pub(super) local: SocketAddr,
    pub(super) v6: bool,
    granted: Granted,
    /// Of `granted`, the part that can change.
    pub(super) gso: AtomicBool,
    pub(super) drops: AtomicU64,
    /// The last send was cut short.
    pub(super) full: AtomicBool,
}

impl Shared {
    /// A socket that is not connected.
    fn bind(config: &SocketConfig) -> Result<Self, SocketError> {
        let bind = path::canonical(config.bind);
        let v6 = bind.is_ipv6();
        let failed = |source| SocketError::Bind { addr: bind, source };
        let socket = open(bind, v6).map_err(failed)?;
        Self::new(socket, v6, config)
    }

    /// A socket that receives from `peer` alone, at an address that another has bound and shares.
    pub(super) fn connect(config: &SocketConfig, peer: SocketAddr) -> Result<Self, SocketError> {
        let v6 = config.bind.is_ipv6();
        let failed = |source| SocketError::Io {
            what: format!("connecting a socket of UDP {} to {peer}", config.bind),
            source,
        };
        let socket = open_connected(config.bind, peer, v6).map_err(failed)?;
        Self::new(socket, v6, config)
    }

    fn new(socket: StdSocket, v6: bool, config: &SocketConfig) -> Result<Self, SocketError> {
        let local = socket.local_addr().map_err(|source| SocketError::Bind {
            addr: config.bind,
            source,
        })?;
        set_required(socket.as_fd(), v6).map_err(|(option, source)| SocketError::Option {
            option,
            addr: local,
            source,
        })?;
        let granted = set_wanted(socket.as_fd(), config);
        Ok(Self {
            socket,
            local,
            v6,
            gso: AtomicBool::new(granted.gso),
            granted,
            drops: AtomicU64::new(0),
            full: AtomicBool::new(false),
        })
    }

    pub(super) fn granted(&self) -> Granted {
        Granted {
            gso: self.gso.load(Ordering::Relaxed),
            ..self.granted
        }
    }
}

impl UdpSocket {
    /// Makes a socket.
    ///
    /// # Errors
    /// [`SocketError::Bind`] where the address cannot be had, [`SocketError::Option`] where the
    /// system cannot forbid fragmentation or tell destination addresses.
    pub fn bind(config: &SocketConfig) -> Result<Self, SocketError> {
        let shared = Arc::new(Shared::bind(config)?);
        Ok(Self {
            sender: UdpSender::new(Arc::clone(&shared)),
            receiver: UdpReceiver::new(shared),
        })
    }

    /// The two halves, for two threads.
    #[must_use]
    pub fn split(self) -> (UdpSender, UdpReceiver) {
        (self.sender, self.receiver)
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.sender.shared
    }

    /// The bound address; its IP is unspecified for a wildcard.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.shared().local
    }

    /// What the system granted. `gso` becomes false once the system has refused a batch.
    #[must_use]
    pub fn granted(&self) -> Granted {
        self.shared().granted()
    }

    /// Datagrams that arrived and found no room in the socket, as of the last [`Self::recv`] that
    /// brought something.
    #[must_use]
    pub fn drops(&self) -> u64 {
        self.shared().drops.load(Ordering::Relaxed)
    }

    /// [`UdpSender::unsent`].
    #[must_use]
    pub fn unsent(&self) -> u64 {
        self.sender.unsent()
    }

    /// [`UdpReceiver::recv`].
    ///
    /// # Errors
    /// [`SocketError::Io`].
    pub fn recv(&mut self) -> Result<(impl Iterator<Item = Received<'_>>, bool), SocketError> {
        self.receiver.recv()
    }

    /// [`UdpSender::send`].
    ///
    /// # Errors
    /// [`SocketError::TooLarge`], [`SocketError::Io`].
    pub fn send(&mut self, messages: &[Outgoing<'_>]) -> Result<usize, SocketError> {
        self.sender.send(messages)
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared().socket.as_fd()
    }
}

impl AsFd for Shared {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Waits until one of `sockets` can receive, or send where that is asked for beside it, at most
/// `timeout`; returns whether one can. A signal ends the wait early.
///
/// # Errors
/// The operating system's.
pub fn wait<'a, S: AsFd + 'a>(
    sockets: impl IntoIterator<Item = (&'a S, bool)>,
    timeout: Option<Duration>,
) -> io::Result<bool> {
    let wanted = |(socket, writable)| {
        let mut wanted = PollFlags::IN;
        wanted.set(PollFlags::OUT, writable);
        PollFd::new(socket, wanted)
    };
    let mut fds: Vec<_> = sockets.into_iter().map(wanted).collect();
    poll(&mut fds, timeout)
}

/// [`wait`] for what `fds` say.
pub(super) fn poll(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<bool> {
    let timeout = timeout.map(|t| Timespec::try_from(t).unwrap_or(FOREVER));
    match rustix::event::poll(fds, timeout.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// The longest timeout that ppoll takes.
const FOREVER: Timespec = Timespec {
    tv_sec: i64::MAX,
    tv_nsec: 0,
};

/// The datagram is lost, as it could have been further on (a link that is down, a local firewall);
/// the next may pass.
pub(super) fn is_passing(e: &io::Error) -> bool {
    matches!(
        e.raw_os_error(),
        Some(
            libc::ECONNREFUSED
                | libc::ENETUNREACH
                | libc::EHOSTUNREACH
                | libc::ENETDOWN
                | libc::EHOSTDOWN
                | libc::EPERM
        )
    )
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use super::super::sys;
    use super::*;

    /// Kernels refuse to cut batches that go without a UDP checksum, as they do on devices that
    /// cannot have one computed.
    #[test]
    fn a_refused_batch_leaves_as_single_datagrams() {
        let any = SocketConfig::new(([127, 0, 0, 1], 0).into());
        let (mut tx, mut rx) = (
            UdpSocket::bind(&any).unwrap(),
            UdpSocket::bind(&any).unwrap(),
        );
        sys::set_option(tx.as_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).unwrap();
        let bytes = [7; 250];
        let message = Outgoing {
            src: None,
            dst: rx.local_addr(),
            segment_bytes: 100,
            parts: &[IoSlice::new(&bytes)],
        };
        let single = Outgoing {
            segment_bytes: 250,
            ..message
        };
        assert_eq!(tx.send(&[single, message, message]).unwrap(), 7);
        assert!(!tx.granted().gso);
        let mut sizes = Vec::new();
        while wait([(&rx, false)], Some(Duration::from_millis(100))).unwrap() {
            for batch in rx.recv().unwrap().0 {
                sizes.extend(batch.segments().map(<[u8]>::len));
            }
        }
        assert_eq!(sizes, [250, 100, 100, 50, 100, 100, 50]);
    }
}
