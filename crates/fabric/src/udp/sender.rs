//! The sending half of a socket.

use std::io;
use std::net::{SocketAddr, UdpSocket as StdSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::control::ControlBuffer;
use super::datagram::{MAX_BATCH_BYTES, MAX_SEGMENTS, OutgoingBatch, split};
use super::error::SocketError;
use super::kernel_address::KernelAddress;
use super::routing_table;
use super::socket::{SharedSocket, is_passing};
use super::sys::{self, BATCH, SendItem};

/// The sending half of a [`UdpSocket`](super::UdpSocket).
#[derive(Debug)]
pub struct UdpSender {
    pub(super) shared: Arc<SharedSocket>,
    unsent: u64,
}

impl UdpSender {
    pub(super) fn new(shared: Arc<SharedSocket>) -> Self {
        Self { shared, unsent: 0 }
    }

    /// Whether the kernel cuts batches into packets. Becomes false once it has refused a batch.
    #[must_use]
    pub fn gso(&self) -> bool {
        self.shared.gso.load(Ordering::Relaxed)
    }

    /// Datagrams that [`Self::send`] gave up because the network was down or unreachable, the
    /// source address did not exist, or a local firewall blocked them; and packets that were too
    /// large, where these count as lost ([`UdpFabric::lose_too_large`](super::UdpFabric)).
    #[must_use]
    pub fn unsent(&self) -> u64 {
        self.unsent
    }

    pub(super) fn give_up(&mut self, datagrams: usize) {
        self.unsent += datagrams as u64;
    }

    /// Whether a packet with this error counts as lost on the path
    /// ([`UdpFabric::lose_too_large`](super::UdpFabric)).
    pub(super) fn loses(&self, error: &SocketError) -> bool {
        let loses_too_large = self.shared.loses_too_large.load(Ordering::Relaxed);
        loses_too_large && matches!(error, SocketError::TooLarge { .. })
    }

    /// Sends `messages` in order, and returns the number of datagrams that the system accepted.
    /// Fewer than all means that it is full at the moment. A message is accepted as a whole, unless
    /// the system cannot send batches; then the accepted part may end within a message.
    ///
    /// # Errors
    /// [`SocketError::TooLarge`], [`SocketError::Refused`] or [`SocketError::Io`]
    /// for the first datagram. If a later one
    /// fails, the datagrams before it are reported as sent.
    pub fn send(&mut self, messages: &[OutgoingBatch<'_>]) -> Result<usize, SocketError> {
        let whole =
            |m: &OutgoingBatch<'_>| m.segments() <= MAX_SEGMENTS && m.bytes() <= MAX_BATCH_BYTES;
        let mut taken = 0;
        let mut rest = messages;
        let had_gso = self.gso();
        if had_gso && messages.iter().all(whole) {
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
                        self.shared.gso.store(false, Ordering::Relaxed);
                        break;
                    }
                    Err(_) if taken > 0 => return Ok(taken),
                    Err(e) => return Err(self.explain(e, &rest[0])),
                }
            }
        }
        match self.send_singly(rest) {
            Ok(datagrams) => Ok(taken + datagrams),
            Err(e) => {
                if matches!(e, SocketError::TooLarge { .. }) {
                    // The reason was the size and not the batch: some kernels return the same error.
                    self.shared.gso.store(had_gso, Ordering::Relaxed);
                }
                if taken > 0 { Ok(taken) } else { Err(e) }
            }
        }
    }

    fn send_singly(&mut self, messages: &[OutgoingBatch<'_>]) -> Result<usize, SocketError> {
        let mut parts = Vec::new();
        let mut datagrams = Vec::new();
        for message in messages {
            split(message, &mut parts, |range| {
                datagrams.push((message, range));
            });
        }
        let singles: Vec<_> = datagrams
            .into_iter()
            .map(|(message, range)| OutgoingBatch {
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

    /// Makes one system call. Returns the number of messages and of datagrams that the system
    /// accepted. (0, 0) means that it is full.
    fn send_batch(&mut self, messages: &[OutgoingBatch<'_>]) -> io::Result<(usize, usize)> {
        let batch = &messages[..messages.len().min(BATCH)];
        let Some(first) = batch.first() else {
            return Ok((0, 0));
        };
        let mut items: [SendItem<'_>; BATCH] =
            std::array::from_fn(|i| send_item(batch.get(i), self.shared.v6));
        // The caller sends the packets of a refused batch one by one, and each is repeated then.
        let most_repeats = if first.segments() > 1 { 2 } else { 8 };
        let mut repeats = 0;
        loop {
            let sent = sys::send_many(self.shared.socket.as_fd(), &mut items[..batch.len()]);
            match sent {
                Ok(n) => {
                    let datagrams = batch[..n].iter().map(OutgoingBatch::segments).sum();
                    return Ok((n, datagrams));
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if is_full(&e) => return Ok((0, 0)),
                Err(e) if is_passing(&e) || may_lack_source(&e, first) && lacks_source(first) => {
                    let lost = first.segments();
                    self.unsent += lost as u64;
                    return Ok((1, lost));
                }
                // The source address may have come back since the system call, and may go again.
                Err(e) if repeats < most_repeats && may_lack_source(&e, first) => repeats += 1,
                Err(e) => return Err(e),
            }
        }
    }

    fn explain(&self, source: io::Error, message: &OutgoingBatch<'_>) -> SocketError {
        let dst = message.dst;
        if source.raw_os_error() == Some(libc::EMSGSIZE) {
            return SocketError::TooLarge {
                bytes: message.bytes().min(message.segment_bytes),
                dst,
                path_mtu: routing_table::path_mtu(dst).unwrap_or(0),
            };
        }
        let local = self.shared.local;
        if refuses_destination(&source) {
            return SocketError::Refused { local, dst, source };
        }
        let what = format!("sending from UDP {local} to {dst}");
        SocketError::Io { what, source }
    }
}

fn send_item<'a>(message: Option<&OutgoingBatch<'a>>, v6: bool) -> SendItem<'a> {
    let mut item = SendItem {
        name: KernelAddress::EMPTY,
        name_len: 0,
        control: ControlBuffer::EMPTY,
        parts: &[],
    };
    let Some(message) = message else {
        return item;
    };
    (item.name, item.name_len) = KernelAddress::encode(message.dst, v6);
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

/// Whether the system has no room now: a full socket buffer, or a full device queue.
fn is_full(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::WouldBlock || e.raw_os_error() == Some(libc::ENOBUFS)
}

/// Whether `e` may say that the source address does not belong to this machine: kernels return
/// EINVAL for it, and for other reasons.
fn may_lack_source(e: &io::Error, message: &OutgoingBatch<'_>) -> bool {
    message.src.is_some() && e.raw_os_error() == Some(libc::EINVAL)
}

/// Whether the source address does not belong to this machine now. It may come back: IPv6 addresses
/// disappear while their interface is down.
fn lacks_source(message: &OutgoingBatch<'_>) -> bool {
    let Some(src) = message.src else {
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

/// Whether the system refuses the destination. Kernels return EINVAL if a loopback address cannot send to it,
/// and EACCES if it is a broadcast address or a route prohibits it.
fn refuses_destination(e: &io::Error) -> bool {
    matches!(
        e.raw_os_error(),
        Some(libc::EINVAL | libc::EACCES | libc::EADDRNOTAVAIL | libc::EAFNOSUPPORT)
    )
}

/// Whether GSO does not work on the path to the peer. Kernels return EIO for a device without
/// checksum offload, and EINVAL for a batch that they cannot cut.
fn refuses_batch(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EIO | libc::EINVAL))
}
