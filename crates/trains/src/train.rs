//! Single IP packets, and trains of packets.
//!
//! GSO makes trains: one header, then the payloads of many TCP segments or UDP datagrams. This
//! module cuts them apart in the same way as `tcp_gso_segment` and `__udp_gso_segment` of the
//! kernel.

use std::ops::Range;
use std::sync::Arc;

use farwrite_link::Packet;

use crate::VNET_BYTES;
use crate::checksum::NEEDS_CSUM;

/// Limit of the IP, TCP and UDP headers of a train.
const MAX_HEADERS: usize = 256;
/// Length of the IPv4 and IPv6 headers without options.
const IPV4: usize = 20;
const IPV6: usize = 40;

const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP: u8 = 5;
/// The TCP flag CWR is set in the first segment.
const GSO_ECN: u8 = 0x80;

const FIN_PSH: u8 = 0x09;
const CWR: u8 = 0x80;

/// The data of one read from a device: a packet or a train.
#[derive(Debug)]
pub struct Train {
    vnet: [u8; VNET_BYTES],
    packet: Box<[u8]>,
    /// Length of the headers before the first payload. All segments share them.
    headers: usize,
    /// Payload bytes of each segment except the last.
    segment: usize,
    segments: usize,
    /// Offset of the TCP or UDP header. Only in trains.
    transport: usize,
}

impl Train {
    /// Parses a packet with the header of a device with offloads. A train that is not TCP or UDP,
    /// or has invalid headers, counts as one packet.
    #[must_use]
    pub fn new(vnet: [u8; VNET_BYTES], packet: &[u8]) -> Self {
        let (headers, segment, transport) = cut(&vnet, packet).unwrap_or((0, 0, 0));
        let payload = packet.len() - headers;
        Self {
            vnet,
            packet: packet.into(),
            headers,
            segment,
            segments: if segment > 0 {
                payload.div_ceil(segment)
            } else {
                1
            },
            transport,
        }
    }

    /// The packets of the train, in order.
    pub fn into_segments(self) -> impl Iterator<Item = Segment> {
        let train = Arc::new(self);
        (0..train.segments).map(move |index| Segment {
            train: Arc::clone(&train),
            index,
            marked: false,
        })
    }

    /// The payload of a range of segments; for a single packet, the whole packet.
    fn payload(&self, segments: &Range<usize>) -> &[u8] {
        if self.segments == 1 {
            return &self.packet;
        }
        let start = self.headers + segments.start * self.segment;
        let end = (self.headers + segments.end * self.segment).min(self.packet.len());
        &self.packet[start..end]
    }

    fn is_ipv4(&self) -> bool {
        is_ipv4(&self.packet)
    }

    fn is_ipv6(&self) -> bool {
        is_ipv6(&self.packet)
    }
}

/// The length of a train's headers, the payload bytes of its segments, and the offset of its TCP or
/// UDP header; `None` for a single packet.
fn cut(vnet: &[u8; VNET_BYTES], packet: &[u8]) -> Option<(usize, usize, usize)> {
    let kind = vnet[1] & !GSO_ECN;
    let version = packet.first()? >> 4;
    let minimum = match (kind, version) {
        (GSO_TCPV4 | GSO_UDP, 4) => IPV4,
        (GSO_TCPV6 | GSO_UDP, 6) => IPV6,
        _ => return None,
    };
    let segment = usize::from(u16::from_ne_bytes([vnet[4], vnet[5]]));
    let transport = usize::from(u16::from_ne_bytes([vnet[6], vnet[7]]));
    let transport_bytes = if kind == GSO_UDP {
        8
    } else {
        usize::from(packet.get(transport + 12)? >> 4) * 4
    };
    let headers = transport + transport_bytes;
    let sound = vnet[0] & NEEDS_CSUM != 0
        && transport >= minimum
        && (kind == GSO_UDP || transport_bytes >= 20)
        && headers <= MAX_HEADERS
        && segment > 0
        && packet.len() > headers + segment
        && packet.len() <= usize::from(u16::MAX) + IPV6;
    sound.then_some((headers, segment, transport))
}

/// One packet of a train.
#[derive(Clone, Debug)]
pub struct Segment {
    train: Arc<Train>,
    index: usize,
    marked: bool,
}

impl Packet for Segment {
    fn ip_bytes(&self) -> u64 {
        let payload = self.train.payload(&(self.index..self.index + 1)).len();
        let headers = if self.train.segments > 1 {
            self.train.headers
        } else {
            0
        };
        (headers + payload) as u64
    }

    /// Zero, so that the link never flips a bit of the segment.
    fn payload_bytes(&self) -> usize {
        0
    }

    fn flip(&mut self, _bit: usize) {}

    fn mark(&mut self) -> bool {
        let capable = takes_marks(&self.train.packet);
        self.marked |= capable;
        capable
    }
}

/// Consecutive segments of one train, which leave in one piece.
#[derive(Debug)]
pub struct SegmentRun {
    train: Arc<Train>,
    segments: Range<usize>,
    marked: bool,
}

impl SegmentRun {
    /// A run of one segment.
    #[must_use]
    pub fn new(segment: Segment) -> Self {
        Self {
            train: segment.train,
            segments: segment.index..segment.index + 1,
            marked: segment.marked,
        }
    }

    /// Appends the segment that directly follows this run.
    ///
    /// # Errors
    /// Returns any other segment.
    pub fn extend(&mut self, segment: Segment) -> Result<(), Segment> {
        let follows = Arc::ptr_eq(&segment.train, &self.train)
            && segment.index == self.segments.end
            && segment.marked == self.marked;
        if follows {
            self.segments.end += 1;
            Ok(())
        } else {
            Err(segment)
        }
    }

    /// The number of packets.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a run has at least one")]
    pub fn len(&self) -> u64 {
        self.segments.len() as u64
    }

    /// The bytes for the device: the header of devices with offloads, the headers of the packets
    /// (in `scratch`), and the payload.
    pub fn parts<'a>(&'a self, scratch: &'a mut Scratch) -> [&'a [u8]; 3] {
        let train = &*self.train;
        let payload = train.payload(&self.segments);
        // For a single packet, copy only the header that a mark changes.
        let headers = match train.segments {
            1 if train.is_ipv4() => IPV4,
            1 if train.is_ipv6() => IPV6,
            1 => 0,
            _ => train.headers,
        };
        let Scratch { vnet, bytes } = scratch;
        let bytes = &mut bytes[..headers];
        bytes.copy_from_slice(&train.packet[..headers]);
        *vnet = train.vnet;
        if self.marked {
            mark_congestion(bytes);
        }
        if train.segments == 1 {
            return [vnet, bytes, &payload[headers..]];
        }
        self.cut_vnet(vnet);
        self.cut_ip(bytes, payload.len());
        self.cut_transport(bytes, payload.len());
        [vnet, bytes, payload]
    }

    fn cut_vnet(&self, vnet: &mut [u8; VNET_BYTES]) {
        if self.segments.len() == 1 {
            vnet[1] = GSO_NONE;
            vnet[4..6].fill(0);
        } else if self.segments.start > 0 {
            vnet[1] &= !GSO_ECN;
        }
        // At most MAX_HEADERS.
        let headers = u16::try_from(self.train.headers).unwrap_or(0);
        vnet[2..4].copy_from_slice(&headers.to_ne_bytes());
    }

    fn cut_ip(&self, headers: &mut [u8], payload: usize) {
        let bytes = self.train.headers + payload;
        if self.train.is_ipv4() {
            replace(headers, 2, wrapped(bytes));
            // Each segment has the next identification, as if it had been sent separately.
            let id = word(headers, 4).wrapping_add(wrapped(self.segments.start));
            replace(headers, 4, id);
        } else {
            put(headers, 4, wrapped(bytes - IPV6));
        }
    }

    fn cut_transport(&self, headers: &mut [u8], payload: usize) {
        let train = &*self.train;
        let header = &mut headers[train.transport..];
        let bytes = |payload: usize| wrapped(train.headers - train.transport + payload);
        let (old, new) = (bytes(train.packet.len() - train.headers), bytes(payload));
        let checksum = if train.vnet[1] & !GSO_ECN == GSO_UDP {
            put(header, 4, new);
            6
        } else {
            let skipped = u32::try_from(self.segments.start * train.segment).unwrap_or(0);
            let sequence = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
            header[4..8].copy_from_slice(&sequence.wrapping_add(skipped).to_be_bytes());
            if self.segments.end < train.segments {
                header[13] &= !FIN_PSH;
            }
            if self.segments.start > 0 {
                header[13] &= !CWR;
            }
            16
        };
        // The incomplete checksum is the sum of the pseudo header, which contains the length.
        let sum = add(add(word(header, checksum), !old), new);
        put(header, checksum, sum);
    }
}

/// Buffer for the headers of a run.
pub struct Scratch {
    vnet: [u8; VNET_BYTES],
    bytes: [u8; MAX_HEADERS],
}

impl Default for Scratch {
    fn default() -> Self {
        Self {
            vnet: [0; VNET_BYTES],
            bytes: [0; MAX_HEADERS],
        }
    }
}

fn is_ipv4(packet: &[u8]) -> bool {
    packet.len() >= IPV4 && packet[0] >> 4 == 4
}

fn is_ipv6(packet: &[u8]) -> bool {
    packet.len() >= IPV6 && packet[0] >> 4 == 6
}

/// Whether the ECN field (RFC 3168) says that the ends react to marks.
fn takes_marks(packet: &[u8]) -> bool {
    let ecn = match packet {
        packet if is_ipv4(packet) => packet[1] & 3,
        packet if is_ipv6(packet) => packet[1] >> 4 & 3,
        _ => 0,
    };
    matches!(ecn, 0b01 | 0b10)
}

/// Sets the congestion experienced mark of an IP packet, or of its header alone. Returns whether
/// its ends react to marks; if they do not, the packet does not change.
pub fn mark_congestion(packet: &mut [u8]) -> bool {
    if !takes_marks(packet) {
        return false;
    }
    if is_ipv4(packet) {
        let first = word(packet, 0) | 3;
        replace(packet, 0, first);
    } else {
        packet[1] |= 3 << 4;
    }
    true
}

/// Lengths and identifications of trains are modulo 2^16, as in the kernel.
#[expect(clippy::cast_possible_truncation, reason = "this is the purpose")]
fn wrapped(value: usize) -> u16 {
    value as u16
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Replaces a word of an IPv4 header, and updates the checksum of the header (RFC 1624, equation
/// 3).
fn replace(header: &mut [u8], at: usize, value: u16) {
    let sum = add(add(!word(header, 10), !word(header, at)), value);
    put(header, at, value);
    put(header, 10, !sum);
}

/// The one's complement sum.
fn add(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    sum + u16::from(carry)
}

#[cfg(test)]
mod tests;
