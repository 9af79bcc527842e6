//! A batched UDP socket for packets that must not be fragmented.
//!
//! The sending socket is never connected. On an unconnected socket that forbids fragmentation, the
//! kernel gives packets the IPv4 id 0, and the packets of a GSO batch the ids 0, 1, 2, ... The ICRC
//! covers the id, so it must be known before the packet is sent.

use std::cell::Cell;
use std::io;
use std::net::{SocketAddr, UdpSocket as StdSocket};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

use super::config::{Granted, SocketConfig};
use super::datagram::{OutgoingBatch, ReceivedBatch};
use super::error::SocketError;
use super::options::{open, open_beside, open_connected, set_required, set_wanted};
use super::receiver::UdpReceiver;
use super::reserved_port::ReservedPort;
use super::routing_table;
use super::sender::UdpSender;
use super::sys;

/// A batched UDP socket.
#[derive(Debug)]
pub struct UdpSocket {
    sender: UdpSender,
    receiver: UdpReceiver,
}

#[derive(Debug)]
pub(super) struct SharedSocket {
    pub(super) socket: StdSocket,
    pub(super) local: SocketAddr,
    pub(super) v6: bool,
    granted: Granted,
    /// The current value of `granted.gso`, which can change.
    pub(super) gso: AtomicBool,
    pub(super) drops: AtomicU64,
    /// How often ICMP has said that nobody is at the port of the peer that this socket is connected to.
    pub(super) refusals: AtomicU64,
    /// Whether the last send was cut short.
    pub(super) full: AtomicBool,
    /// Whether packets of queue pairs that are too large for the interface count as lost.
    pub(super) loses_too_large: AtomicBool,
}

impl SharedSocket {
    /// A socket that is not connected.
    pub(super) fn bind(
        config: &SocketConfig,
        held: Option<&ReservedPort>,
    ) -> Result<Self, SocketError> {
        let bind = routing_table::canonical(config.bind);
        let v6 = bind.is_ipv6();
        let failed = |source| SocketError::Bind { addr: bind, source };
        let socket = match held {
            Some(held) => open_beside(bind, v6, held),
            None => open(bind, v6),
        };
        let socket = socket.map_err(failed)?;
        Self::new(socket, v6, config)
    }

    /// A socket that receives only from `peer`, at an address that another socket has bound and
    /// shares.
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
            refusals: AtomicU64::new(0),
            full: AtomicBool::new(false),
            loses_too_large: AtomicBool::new(false),
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
    /// Binds a socket.
    ///
    /// # Errors
    /// [`SocketError::Bind`] if the address cannot be bound. [`SocketError::Option`] if the system
    /// cannot forbid fragmentation or report destination addresses.
    pub fn bind(config: &SocketConfig) -> Result<Self, SocketError> {
        Self::bind_at(config, None)
    }

    /// Same as [`UdpSocket::bind`], at a port that this process holds. The address of the socket may be
    /// more exact than that of the port.
    ///
    /// # Errors
    /// As [`UdpSocket::bind`].
    pub fn bind_beside(config: &SocketConfig, held: &ReservedPort) -> Result<Self, SocketError> {
        Self::bind_at(config, Some(held))
    }

    fn bind_at(config: &SocketConfig, held: Option<&ReservedPort>) -> Result<Self, SocketError> {
        let shared = Arc::new(SharedSocket::bind(config, held)?);
        if let Some(held) = held {
            held.note(&shared);
        }
        Ok(Self {
            sender: UdpSender::new(Arc::clone(&shared)),
            receiver: UdpReceiver::new(shared),
        })
    }

    /// Splits the socket into its two halves, for two threads.
    #[must_use]
    pub fn split(self) -> (UdpSender, UdpReceiver) {
        (self.sender, self.receiver)
    }

    pub(super) fn shared(&self) -> &Arc<SharedSocket> {
        &self.sender.shared
    }

    /// The bound address; its IP address is unspecified for a wildcard.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.shared().local
    }

    /// Options that the system granted. `gso` becomes false once the system has refused a batch.
    #[must_use]
    pub fn granted(&self) -> Granted {
        self.shared().granted()
    }

    /// Datagrams that the system dropped because the socket buffer was full, as of the last
    /// [`Self::recv`] that returned a datagram.
    #[must_use]
    pub fn drops(&self) -> u64 {
        self.shared().drops.load(Ordering::Relaxed)
    }

    /// Same as [`UdpSender::unsent`].
    #[must_use]
    pub fn unsent(&self) -> u64 {
        self.sender.unsent()
    }

    /// Same as [`UdpReceiver::recv`].
    ///
    /// # Errors
    /// [`SocketError::Io`].
    pub fn recv(&mut self) -> Result<(impl Iterator<Item = ReceivedBatch<'_>>, bool), SocketError> {
        self.receiver.recv()
    }

    /// Same as [`UdpSender::send`].
    ///
    /// # Errors
    /// [`SocketError::TooLarge`], [`SocketError::Io`].
    pub fn send(&mut self, messages: &[OutgoingBatch<'_>]) -> Result<usize, SocketError> {
        self.sender.send(messages)
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared().socket.as_fd()
    }
}

impl AsFd for SharedSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Waits at most `timeout` until one of `sockets` can receive, or can send if its flag asks for
/// that. Returns whether one can. A signal ends the wait early.
///
/// # Errors
/// Those of the operating system.
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

/// Same as [`wait`], for the given descriptors and events.
pub(super) fn poll(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<bool> {
    wake_in_time();
    let timeout = timeout.map(|t| Timespec::try_from(t).unwrap_or(FOREVER));
    match rustix::event::poll(fds, timeout.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Makes sleeps of this thread end as early as the kernel can. By default, they end up to 50 us late, and several
/// milliseconds late where other threads compute on the same core. A paced sender then sends longer bursts, or less than
/// its pace. The settings hold for the thread, and for the threads and processes that it starts later.
fn wake_in_time() {
    thread_local! {
        static IS_SET: Cell<bool> = const { Cell::new(false) };
    }
    if !IS_SET.replace(true) {
        // If the system does not allow this, sleeps end later.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let _ = sys::shorten_slices();
    }
}

/// The longest timeout that ppoll accepts.
const FOREVER: Timespec = Timespec {
    tv_sec: i64::MAX,
    tv_nsec: 0,
};

/// Whether the datagram is lost for a local reason that may pass (a link that is down, a local
/// firewall). It could have been lost on the path as well, and the next datagram may get through.
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

/// Whether receiving failed only because of an ICMP message about an earlier datagram. A connected
/// socket returns such an error once, and then goes on to receive.
///
/// Anyone can forge ICMP, and a router that carries only smaller packets sends it too: EMSGSIZE. So
/// none of these ends anything. What the path carries is found by packets that carry a key.
pub(super) fn is_of_icmp(e: &io::Error) -> bool {
    is_passing(e)
        || matches!(
            e.raw_os_error(),
            Some(
                libc::EMSGSIZE
                    | libc::EPROTO
                    | libc::EACCES
                    | libc::ENOPROTOOPT
                    | libc::ENONET
                    | libc::EOPNOTSUPP
            )
        )
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use super::super::sys;
    use super::*;

    /// Kernels refuse to cut batches without a UDP checksum. This is the case on devices that
    /// cannot compute checksums.
    #[test]
    fn a_refused_batch_leaves_as_single_datagrams() {
        let any = SocketConfig::new(([127, 0, 0, 1], 0).into());
        let (mut tx, mut rx) = (
            UdpSocket::bind(&any).unwrap(),
            UdpSocket::bind(&any).unwrap(),
        );
        sys::set_option(tx.as_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).unwrap();
        let bytes = [7; 250];
        let message = OutgoingBatch {
            src: None,
            dst: rx.local_addr(),
            segment_bytes: 100,
            parts: &[IoSlice::new(&bytes)],
        };
        let single = OutgoingBatch {
            segment_bytes: 250,
            ..message
        };
        assert_eq!(tx.send(&[single, message, message]).unwrap(), 7);
        assert!(!tx.granted().gso);
        let mut sizes = Vec::new();
        loop {
            // Seven datagrams arrive, and no more.
            let seconds = if sizes.len() < 7 { 60.0 } else { 0.1 };
            if !wait([(&rx, false)], Some(Duration::from_secs_f64(seconds))).unwrap() {
                break;
            }
            for batch in rx.recv().unwrap().0 {
                sizes.extend(batch.segments().map(<[u8]>::len));
            }
        }
        assert_eq!(sizes, [250, 100, 100, 50, 100, 100, 50]);
    }
}
