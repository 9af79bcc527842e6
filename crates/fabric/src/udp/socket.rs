//! A batched UDP socket for packets that must not be fragmented.
//!
//! Never connected: the kernel gives the packets of an unconnected socket that forbids
//! fragmentation the IPv4 id 0, and a GSO batch the ids 0, 1, 2, ... The ICRC covers the id, so it
//! has to be known before the packet leaves.

use std::io;
use std::net::{SocketAddr, UdpSocket as StdSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

use super::config::{Granted, SocketConfig};
use super::control::Control;
use super::datagram::{MAX_BATCH_BYTES, MAX_SEGMENTS, Outgoing, Received, split};
use super::error::SocketError;
use super::name::Name;
use super::options::{open, set_required, set_wanted};
use super::path;
use super::sys::{self, BATCH, RecvItem, SendItem};

/// A receive buffer holds the largest datagram and the largest batch that GRO makes.
const RECV_STRIDE: usize = 65_536;

/// A batched UDP socket.
#[derive(Debug)]
pub struct UdpSocket {
    socket: StdSocket,
    local: SocketAddr,
    v6: bool,
    granted: Granted,
    drops: u64,
    unsent: u64,
    buffers: Buffers,
}

/// Where datagrams are received.
struct Buffers {
    items: Box<[RecvItem; BATCH]>,
    slab: Vec<u8>,
}

impl std::fmt::Debug for Buffers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} x {RECV_STRIDE} bytes", self.items.len())
    }
}

impl UdpSocket {
    /// Makes a socket.
    ///
    /// # Errors
    /// [`SocketError::Bind`] where the address cannot be had, [`SocketError::Option`] where the
    /// system cannot forbid fragmentation or tell destination addresses.
    pub fn bind(config: &SocketConfig) -> Result<Self, SocketError> {
        let bind = path::canonical(config.bind);
        let v6 = bind.is_ipv6();
        let socket = open(bind, v6).map_err(|source| SocketError::Bind { addr: bind, source })?;
        let local = socket
            .local_addr()
            .map_err(|source| SocketError::Bind { addr: bind, source })?;
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
            granted,
            drops: 0,
            unsent: 0,
            buffers: Buffers {
                items: Box::new([RecvItem::EMPTY; BATCH]),
                slab: vec![0; BATCH * RECV_STRIDE],
            },
        })
    }

    /// The bound address; its IP is unspecified for a wildcard.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// What the system granted. `gso` becomes false once the system has refused a batch.
    #[must_use]
    pub fn granted(&self) -> Granted {
        self.granted
    }

    /// Datagrams that arrived and found no room in the socket, as of the last [`Self::recv`] that
    /// brought something.
    #[must_use]
    pub fn drops(&self) -> u64 {
        self.drops
    }

    /// Datagrams that [`Self::send`] gave up because the network was down or unreachable, the
    /// address to send from was not there, or a local firewall forbade them.
    #[must_use]
    pub fn unsent(&self) -> u64 {
        self.unsent
    }

    /// Takes in up to 16 datagrams or coalesced batches, and returns them with whether more
    /// may be waiting. Empty where nothing waits.
    ///
    /// # Errors
    /// [`SocketError::Io`].
    pub fn recv(&mut self) -> Result<(impl Iterator<Item = Received<'_>>, bool), SocketError> {
        let Buffers { items, slab } = &mut self.buffers;
        let got = loop {
            match sys::recv_many(self.socket.as_fd(), &mut items[..], slab, RECV_STRIDE) {
                Ok(got) => break got,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break 0,
                // An ICMP answer to something sent earlier: read away by having been returned.
                Err(e) if is_passing(&e) || e.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => {
                    let what = format!("receiving on UDP {}", self.local);
                    return Err(SocketError::Io { what, source });
                }
            }
        };
        let items = &items[..got];
        // The counter is 32 bits wide and wraps.
        for drops in items.iter().filter_map(|item| item.control.told().drops) {
            #[allow(clippy::cast_possible_truncation)]
            let more = drops.wrapping_sub(self.drops as u32);
            self.drops += u64::from(more);
        }
        let local = self.local;
        let datagrams = items
            .iter()
            .zip(slab.chunks_exact(RECV_STRIDE))
            .filter_map(move |(item, buffer)| received(item, buffer, local));
        Ok((datagrams, got == BATCH))
    }

    /// Sends `messages` in order and returns how many datagrams the system took: fewer than all
    /// means that it is full for the moment. A message is taken whole, unless the system cannot
    /// send batches; what it then took may end within a message.
    ///
    /// # Errors
    /// [`SocketError::TooLarge`], [`SocketError::Io`], for the first datagram; where a later one
    /// fails the ones before it are reported as sent.
    pub fn send(&mut self, messages: &[Outgoing<'_>]) -> Result<usize, SocketError> {
        let whole = |m: &Outgoing<'_>| m.segments() <= MAX_SEGMENTS && m.bytes() <= MAX_BATCH_BYTES;
        let mut taken = 0;
        let mut rest = messages;
        if self.granted.gso && messages.iter().all(whole) {
            loop {
                match self.send_batch(rest) {
                    Ok((n, datagrams)) => {
                        taken += datagrams;
                        rest = &rest[n..];
                        if n == 0 || rest.is_empty() {
                            return Ok(taken);
                        }
                    }
                    Err(e) if refuses_batch(&e) && rest[0].segments() > 1 => {
                        self.granted.gso = false;
                        break;
                    }
                    Err(_) if taken > 0 => return Ok(taken),
                    Err(e) => return Err(self.explain(e, &rest[0])),
                }
            }
        }
        match self.send_singly(rest) {
            Ok(datagrams) => Ok(taken + datagrams),
            Err(_) if taken > 0 => Ok(taken),
            Err(e) => Err(e),
        }
    }

    /// Sends every datagram of `messages` as one of its own.
    fn send_singly(&mut self, messages: &[Outgoing<'_>]) -> Result<usize, SocketError> {
        let mut parts = Vec::new();
        let mut datagrams = Vec::new();
        for message in messages {
            split(message, &mut parts, |range| {
                datagrams.push((message, range));
            });
        }
        let singles: Vec<_> = datagrams
            .into_iter()
            .map(|(message, range)| Outgoing {
                segment_bytes: usize::MAX,
                parts: &parts[range],
                ..*message
            })
            .collect();
        let mut rest = &singles[..];
        while let Some(first) = rest.first() {
            match self.send_batch(rest) {
                Ok((0, _)) => break,
                Ok((n, _)) => rest = &rest[n..],
                Err(_) if rest.len() < singles.len() => break,
                Err(e) => return Err(self.explain(e, first)),
            }
        }
        Ok(singles.len() - rest.len())
    }

    /// One call: returns how many messages, and how many datagrams, the system took. None means
    /// that it is full.
    fn send_batch(&mut self, messages: &[Outgoing<'_>]) -> io::Result<(usize, usize)> {
        let batch = &messages[..messages.len().min(BATCH)];
        let Some(first) = batch.first() else {
            return Ok((0, 0));
        };
        let mut items: [SendItem<'_>; BATCH] =
            std::array::from_fn(|i| send_item(batch.get(i), self.v6));
        loop {
            match sys::send_many(self.socket.as_fd(), &mut items[..batch.len()]) {
                Ok(n) => {
                    let datagrams = batch[..n].iter().map(Outgoing::segments).sum();
                    return Ok((n, datagrams));
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if is_full(&e) => return Ok((0, 0)),
                Err(e) if is_passing(&e) || has_lost_source(&e, first) => {
                    let lost = first.segments();
                    self.unsent += lost as u64;
                    return Ok((1, lost));
                }
                Err(e) => return Err(e),
            }
        }
    }

    fn explain(&self, source: io::Error, message: &Outgoing<'_>) -> SocketError {
        let dst = message.dst;
        if source.raw_os_error() == Some(libc::EMSGSIZE) {
            return SocketError::TooLarge {
                bytes: message.bytes().min(message.segment_bytes),
                dst,
                path_mtu: path::path_mtu(dst).unwrap_or(0),
            };
        }
        let what = format!("sending from UDP {} to {dst}", self.local);
        SocketError::Io { what, source }
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Waits until one of `sockets` can receive, or send where that is asked for beside it, at most
/// `timeout`; returns whether one can. A signal ends the wait early.
///
/// # Errors
/// The operating system's.
pub fn wait<'a>(
    sockets: impl IntoIterator<Item = (&'a UdpSocket, bool)>,
    timeout: Option<Duration>,
) -> io::Result<bool> {
    let poll = |(socket, writable)| {
        let mut wanted = PollFlags::IN;
        wanted.set(PollFlags::OUT, writable);
        PollFd::new(socket, wanted)
    };
    let mut fds: Vec<_> = sockets.into_iter().map(poll).collect();
    let timeout = timeout.map(|t| Timespec::try_from(t).unwrap_or(FOREVER));
    match rustix::event::poll(&mut fds, timeout.as_ref()) {
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

fn send_item<'a>(message: Option<&Outgoing<'a>>, v6: bool) -> SendItem<'a> {
    let mut item = SendItem {
        name: Name::EMPTY,
        name_len: 0,
        control: Control::EMPTY,
        parts: &[],
    };
    let Some(message) = message else {
        return item;
    };
    (item.name, item.name_len) = Name::encode(message.dst, v6);
    item.parts = message.parts;
    if let Some(src) = message.src {
        item.control.push_source(src, v6);
    }
    if let Ok(bytes) = u16::try_from(message.segment_bytes)
        && message.segments() > 1
    {
        item.control.push_segment(bytes);
    }
    item
}

fn received<'a>(item: &RecvItem, buffer: &'a [u8], local: SocketAddr) -> Option<Received<'a>> {
    let told = item.control.told();
    let bytes = buffer.get(..item.len).filter(|_| !item.truncated)?;
    let ip = told.dst.unwrap_or(local.ip());
    Some(Received {
        src: item.name.decode()?,
        dst: SocketAddr::new(ip, local.port()),
        segment_bytes: told.segment_bytes.unwrap_or(bytes.len()).max(1),
        bytes,
    })
}

/// The system has no room now: a full socket buffer, or a full device queue.
fn is_full(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::WouldBlock || e.raw_os_error() == Some(libc::ENOBUFS)
}

/// The datagram is lost, as it could have been further on (a link that is down, a local firewall);
/// the next may pass.
fn is_passing(e: &io::Error) -> bool {
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

/// The address to send from is not this machine's now, which kernels answer with EINVAL. It may come
/// back: IPv6 addresses go when their interface goes down.
fn has_lost_source(e: &io::Error, message: &Outgoing<'_>) -> bool {
    let Some(src) = message
        .src
        .filter(|_| e.raw_os_error() == Some(libc::EINVAL))
    else {
        return false;
    };
    let scope = match message.dst {
        SocketAddr::V6(dst) => dst.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    let mut addr = SocketAddr::new(src, 0);
    if let SocketAddr::V6(addr) = &mut addr {
        addr.set_scope_id(scope);
    }
    StdSocket::bind(addr).is_err_and(|e| e.kind() == io::ErrorKind::AddrNotAvailable)
}

/// What kernels answer where GSO does not work on the way to the peer: EIO from a device without
/// checksum offload, EINVAL for a batch that they cannot cut.
fn refuses_batch(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EIO | libc::EINVAL))
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

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
