//! The receiving half of a socket.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::datagram::Received;
use super::error::SocketError;
use super::socket::{Shared, is_passing};
use super::sys::{self, BATCH, RecvItem};

/// A receive buffer holds the largest datagram and the largest batch that GRO makes.
const RECV_STRIDE: usize = 65_536;

/// The receiving half of a [`UdpSocket`](super::UdpSocket).
#[derive(Debug)]
pub struct UdpReceiver {
    pub(super) shared: Arc<Shared>,
    buffers: Buffers,
}

/// Where datagrams are received, of any number of sockets.
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
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            buffers: Buffers::new(),
        }
    }

    /// Takes in up to 16 datagrams or coalesced batches, and returns them with whether more
    /// may be waiting. Empty where nothing waits.
    ///
    /// # Errors
    /// [`SocketError::Io`].
    pub fn recv(&mut self) -> Result<(impl Iterator<Item = Received<'_>>, bool), SocketError> {
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

    /// [`UdpReceiver::recv`] from any socket.
    pub(super) fn recv(
        &mut self,
        shared: &Shared,
    ) -> Result<(impl Iterator<Item = Received<'_>>, bool), SocketError> {
        let Self { items, slab } = self;
        let got = loop {
            match sys::recv_many(shared.socket.as_fd(), &mut items[..], slab, RECV_STRIDE) {
                Ok(got) => break got,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break 0,
                // An ICMP answer to something sent earlier: read away by having been returned.
                Err(e) if is_passing(&e) || e.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => {
                    let what = format!("receiving on UDP {}", shared.local);
                    return Err(SocketError::Io { what, source });
                }
            }
        };
        let items = &items[..got];
        // The kernel's counter is 32 bits wide and wraps.
        let mut drops = shared.drops.load(Ordering::Relaxed);
        for told in items.iter().filter_map(|item| item.control.told().drops) {
            #[allow(clippy::cast_possible_truncation)]
            let more = told.wrapping_sub(drops as u32);
            drops += u64::from(more);
        }
        shared.drops.store(drops, Ordering::Relaxed);
        let local = shared.local;
        let datagrams = items
            .iter()
            .zip(slab.chunks_exact(RECV_STRIDE))
            .filter_map(move |(item, buffer)| received(item, buffer, local));
        Ok((datagrams, got == BATCH))
    }
}

fn received<'a>(item: &RecvItem, buffer: &'a [u8], local: SocketAddr) -> Option<Received<'a>> {
    let told = item.control.told();
    let bytes = buffer.get(..item.len).filter(|_| !item.truncated)?;
    let ip = told.dst.unwrap_or(local.ip());
    Some(Received {
        src: item.name.decode()?,
        dst: SocketAddr::new(ip, local.port()),
        ecn: told.ecn,
        segment_bytes: told.segment_bytes.unwrap_or(bytes.len()).max(1),
        bytes,
    })
}
