//! The receiving half of a socket.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::datagram::ReceivedBatch;
use super::error::SocketError;
use super::socket::{SharedSocket, is_of_icmp};
use super::sys::{self, BATCH, RecvItem};

/// Size of a receive buffer: room for the largest datagram and for the largest batch that GRO
/// makes.
const RECV_STRIDE: usize = 65_536;

/// The receiving half of a [`UdpSocket`](super::UdpSocket).
#[derive(Debug)]
pub struct UdpReceiver {
    pub(super) shared: Arc<SharedSocket>,
    buffers: Buffers,
}

/// Receive buffers, usable with any number of sockets.
pub(super) struct Buffers {
    items: Box<[RecvItem; BATCH]>,
    slab: Vec<u8>,
}

impl std::fmt::Debug for Buffers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} x {RECV_STRIDE} bytes", self.items.len())
    }
}

impl UdpReceiver {
    pub(super) fn new(shared: Arc<SharedSocket>) -> Self {
        Self {
            shared,
            buffers: Buffers::new(),
        }
    }

    /// Receives up to 16 datagrams or batches. Returns them, and whether more may be waiting. The
    /// iterator is empty if nothing waits.
    ///
    /// # Errors
    /// [`SocketError::Io`].
    pub fn recv(&mut self) -> Result<(impl Iterator<Item = ReceivedBatch<'_>>, bool), SocketError> {
        self.buffers.recv(&self.shared)
    }
}

impl Buffers {
    pub(super) fn new() -> Self {
        Self {
            items: Box::new([RecvItem::EMPTY; BATCH]),
            slab: vec![0; BATCH * RECV_STRIDE],
        }
    }

    /// Same as [`UdpReceiver::recv`], from any socket.
    pub(super) fn recv(
        &mut self,
        shared: &SharedSocket,
    ) -> Result<(impl Iterator<Item = ReceivedBatch<'_>>, bool), SocketError> {
        let Self { items, slab } = self;
        let got = loop {
            match sys::recv_many(shared.socket.as_fd(), &mut items[..], slab, RECV_STRIDE) {
                Ok(got) => break got,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break 0,
                // Returning an error of ICMP has cleared it.
                Err(e) if is_of_icmp(&e) || e.kind() == io::ErrorKind::Interrupted => {
                    let is_refusal = e.kind() == io::ErrorKind::ConnectionRefused;
                    shared
                        .refusals
                        .fetch_add(is_refusal.into(), Ordering::Relaxed);
                }
                Err(source) => {
                    let what = format!("receiving on UDP {}", shared.local);
                    return Err(SocketError::Io { what, source });
                }
            }
        };
        let items = &items[..got];
        // The kernel's counter has 32 bits and wraps.
        let mut drops = shared.drops.load(Ordering::Relaxed);
        for info in items.iter().filter_map(|item| item.control.parse().drops) {
            #[allow(clippy::cast_possible_truncation)]
            let more = info.wrapping_sub(drops as u32);
            drops += u64::from(more);
        }
        shared.drops.store(drops, Ordering::Relaxed);
        let local = shared.local;
        let datagrams = items
            .iter()
            .zip(slab.chunks_exact_mut(RECV_STRIDE))
            .filter_map(move |(item, buffer)| received(item, buffer, local));
        Ok((datagrams, got == BATCH))
    }
}

fn received<'a>(
    item: &RecvItem,
    buffer: &'a mut [u8],
    local: SocketAddr,
) -> Option<ReceivedBatch<'a>> {
    let info = item.control.parse();
    let bytes = buffer.get_mut(..item.len).filter(|_| !item.truncated)?;
    let ip = info.dst.unwrap_or(local.ip());
    Some(ReceivedBatch {
        src: item.name.decode()?,
        dst: SocketAddr::new(ip, local.port()),
        ecn: info.ecn,
        received_ns: info.received_ns,
        segment_bytes: info.segment_bytes.unwrap_or(bytes.len()).max(1),
        bytes,
    })
}
