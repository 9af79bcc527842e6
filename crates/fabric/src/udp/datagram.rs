//! Outgoing and received datagrams: one, or a batch of equal size.

use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use crate::contract::Ecn;

/// Largest number of segments of one GSO batch (`UDP_MAX_SEGMENTS` of the oldest kernels that have
/// GSO).
pub const MAX_SEGMENTS: usize = 64;
/// Largest size of one GSO batch: the payload of the largest IPv4 datagram.
pub const MAX_BATCH_BYTES: usize = 65_507;
/// One datagram to send, or a batch of datagrams of equal size (the last may be shorter) to one
/// peer.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingBatch<'a> {
    /// Local address to send from; `None`: the choice of the routing table.
    pub src: Option<IpAddr>,
    /// The peer.
    pub dst: SocketAddr,
    /// UDP payload bytes of each datagram except the last.
    pub segment_bytes: usize,
    /// The payloads of all datagrams, one after the other, in parts.
    pub parts: &'a [IoSlice<'a>],
}

impl OutgoingBatch<'_> {
    pub(super) fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.len()).sum()
    }

    /// Number of datagrams.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.bytes().div_ceil(self.segment_bytes.max(1)).max(1)
    }
}

/// One received datagram, or a batch of datagrams of equal size (the last may be shorter) from one
/// peer, joined by the kernel.
#[derive(Debug)]
pub struct ReceivedBatch<'a> {
    /// The peer.
    pub src: SocketAddr,
    /// Destination address of the datagrams: the local address to which the peer sent them.
    pub dst: SocketAddr,
    /// The congestion marking.
    pub ecn: Ecn,
    /// When the kernel received the first datagram, in nanoseconds of its real-time clock; `None`
    /// if it does not say.
    pub received_ns: Option<u64>,
    /// UDP payload bytes of each datagram except the last; at least 1.
    pub segment_bytes: usize,
    /// The payloads of all datagrams, one after the other.
    pub bytes: &'a mut [u8],
}

impl ReceivedBatch<'_> {
    /// The payload of each datagram. There is at least one.
    pub fn segments(&self) -> impl Iterator<Item = &[u8]> {
        let empty = self.bytes.is_empty().then_some(&[][..]);
        self.bytes.chunks(self.segment_bytes).chain(empty)
    }

    /// The same, to change them.
    pub(super) fn segments_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let empty = self.bytes.is_empty().then(<&mut [u8]>::default);
        self.bytes.chunks_mut(self.segment_bytes).chain(empty)
    }
}

/// Appends the parts of each datagram of `message` to `parts`, and passes their range to `each`.
pub(super) fn split<'a>(
    message: &OutgoingBatch<'a>,
    parts: &mut Vec<IoSlice<'a>>,
    mut each: impl FnMut(Range<usize>),
) {
    let size = message.segment_bytes.max(1);
    let mut start = parts.len();
    let mut room = size;
    for part in message.parts {
        let mut part: &'a [u8] = part;
        while !part.is_empty() {
            if room == 0 {
                each(start..parts.len());
                (start, room) = (parts.len(), size);
            }
            let (head, tail) = part.split_at(part.len().min(room));
            parts.push(IoSlice::new(head));
            room -= head.len();
            part = tail;
        }
    }
    each(start..parts.len());
}
