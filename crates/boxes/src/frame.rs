//! Ethernet frames with RoCEv2 packets: parsed in place, and built.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::ops::Range;

use farwrite_net::checksum;
use farwrite_wire::icrc::{Flow, IdRange, verify};

/// UDP destination port of RoCEv2 (IBTA annex A17).
pub(crate) const ROCE_PORT: u16 = 4791;

const MACS_BYTES: usize = 12;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;
const UDP_PROTOCOL: u8 = 17;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86DD;
/// IEEE 802.1Q and 802.1ad. A frame has at most two tags.
const ETHERTYPE_TAGS: [u16; 2] = [0x8100, 0x88A8];
const MAX_TAGS: usize = 2;

/// A view of a frame with a UDP datagram to the RoCEv2 port. Frames that do not parse: fragments,
/// frames with IP options or extension headers, with more than two VLAN tags, or with inconsistent
/// lengths.
#[derive(Clone, Debug)]
pub(crate) struct View<'a> {
    frame: &'a [u8],
    /// Where the IP header begins.
    ip: usize,
    payload: Range<usize>,
    pub(crate) src: SocketAddr,
    pub(crate) dst: SocketAddr,
    /// 0 for IPv6.
    pub(crate) ipv4_id: u16,
    /// The identifiers of the VLAN tags, 12 bits each.
    pub(crate) vlans: u32,
    /// The priority in the outer VLAN tag (PCP, IEEE 802.1Q).
    pub(crate) tag_priority: Option<u8>,
}

impl<'a> View<'a> {
    pub(crate) fn parse(frame: &'a [u8]) -> Option<Self> {
        let mut at = MACS_BYTES;
        let mut vlans = 0;
        let mut tag_priority = None;
        let mut ethertype = u16_at(frame, at)?;
        for _ in 0..MAX_TAGS {
            if !ETHERTYPE_TAGS.contains(&ethertype) {
                break;
            }
            let tag = u16_at(frame, at + 2)?;
            vlans = vlans << 12 | u32::from(tag & 0xFFF);
            tag_priority = tag_priority.or(Some(tag.to_be_bytes()[0] >> 5));
            at += 4;
            ethertype = u16_at(frame, at)?;
        }
        let ip = at + 2;
        let (addresses, udp, end, ipv4_id) = match ethertype {
            ETHERTYPE_IPV4 => parse_ipv4(frame, ip)?,
            ETHERTYPE_IPV6 => parse_ipv6(frame, ip)?,
            _ => return None,
        };
        let ports = [u16_at(frame, udp)?, u16_at(frame, udp + 2)?];
        let udp_bytes = usize::from(u16_at(frame, udp + 4)?);
        // Bytes after the IP datagram may be Ethernet padding, but the IP and UDP lengths must
        // agree.
        let agrees = udp_bytes >= UDP_BYTES && udp + udp_bytes == end && end <= frame.len();
        (ports[1] == ROCE_PORT && agrees).then(|| Self {
            frame,
            ip,
            payload: udp + UDP_BYTES..end,
            src: SocketAddr::new(addresses[0], ports[0]),
            dst: SocketAddr::new(addresses[1], ports[1]),
            ipv4_id,
            vlans,
            tag_priority,
        })
    }

    /// The Ethernet address that sent the frame.
    pub(crate) fn station(&self) -> [u8; 6] {
        let source = self.frame.get(6..).and_then(<[u8]>::first_chunk);
        source.copied().unwrap_or_default()
    }

    /// The UDP payload.
    pub(crate) fn payload(&self) -> &'a [u8] {
        &self.frame[self.payload.clone()]
    }

    /// Length of an IP datagram with the headers of this one and a UDP payload of this length.
    pub(crate) fn ip_bytes(&self, payload_bytes: usize) -> usize {
        self.payload.start - self.ip + payload_bytes
    }

    /// The differentiated services code point (RFC 2474).
    pub(crate) fn dscp(&self) -> u8 {
        let [first, second, ..] = self.frame[self.ip..] else {
            return 0;
        };
        if first >> 4 == 4 {
            second >> 2
        } else {
            first << 4 >> 2 | second >> 6
        }
    }

    pub(crate) fn with_dscp(&self, dscp: u8) -> Vec<u8> {
        let envelope = self.envelope().with_dscp(dscp);
        envelope.wrap(self.ipv4_id, self.payload())
    }

    pub(crate) fn icrc_holds(&self) -> bool {
        self.flow().is_some_and(|flow| {
            let payload = self.payload();
            verify(&flow, payload, self.ipv4_id, IdRange::SOFTWARE) == Ok(self.ipv4_id)
        })
    }

    pub(crate) fn flow(&self) -> Option<Flow> {
        Flow::new(self.src, self.dst).ok()
    }

    /// The headers of the frame, for other payloads.
    pub(crate) fn envelope(&self) -> Envelope {
        Envelope {
            headers: self.frame[..self.payload.start].to_vec(),
            ip: self.ip,
        }
    }
}

type Parsed = ([IpAddr; 2], usize, usize, u16);

/// Returns the addresses, the offset of the UDP header, the end of the datagram, and the
/// identification.
fn parse_ipv4(frame: &[u8], ip: usize) -> Option<Parsed> {
    let header: &[u8; IPV4_BYTES] = frame.get(ip..)?.first_chunk()?;
    // The More Fragments flag, or a fragment offset.
    let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3FFF != 0;
    if header[0] != 0x45 || header[9] != UDP_PROTOCOL || fragment {
        return None;
    }
    let address = |at: usize| {
        let bytes = [header[at], header[at + 1], header[at + 2], header[at + 3]];
        IpAddr::V4(Ipv4Addr::from(bytes))
    };
    let end = ip + usize::from(u16::from_be_bytes([header[2], header[3]]));
    let id = u16::from_be_bytes([header[4], header[5]]);
    Some(([address(12), address(16)], ip + IPV4_BYTES, end, id))
}

fn parse_ipv6(frame: &[u8], ip: usize) -> Option<Parsed> {
    let header: &[u8; IPV6_BYTES] = frame.get(ip..)?.first_chunk()?;
    if header[0] >> 4 != 6 || header[6] != UDP_PROTOCOL {
        return None;
    }
    let address = |at: usize| {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&header[at..at + 16]);
        Ipv6Addr::from(bytes)
    };
    let addresses = [address(8), address(24)];
    // IPv4-mapped addresses must not occur on the wire. Their packets would have the same ICRCs as
    // IPv4 packets.
    if addresses.iter().any(|a| a.to_ipv4_mapped().is_some()) {
        return None;
    }
    let udp = ip + IPV6_BYTES;
    let end = udp + usize::from(u16::from_be_bytes([header[4], header[5]]));
    Some((addresses.map(IpAddr::V6), udp, end, 0))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let pair = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*pair))
}

/// Ethernet, IP and UDP headers of a frame, to send another payload with.
#[derive(Clone, Debug)]
pub(crate) struct Envelope {
    headers: Vec<u8>,
    ip: usize,
}

impl Envelope {
    /// The headers of the opposite direction. The UDP ports stay: the destination port identifies
    /// RoCEv2, and the source port belongs to the stream.
    pub(crate) fn reversed(&self) -> Self {
        let mut reversed = self.clone();
        let (ip, headers) = (self.ip, &mut reversed.headers);
        swap(headers, 0, 6);
        if headers[ip] >> 4 == 4 {
            swap(headers, ip + 12, 4);
        } else {
            swap(headers, ip + 8, 16);
        }
        reversed
    }

    pub(crate) fn with_dscp(mut self, dscp: u8) -> Self {
        let ip = &mut self.headers[self.ip..];
        if ip[0] >> 4 == 4 {
            ip[1] = dscp << 2 | ip[1] & 0b11;
        } else {
            ip[0] = ip[0] & 0xF0 | dscp >> 2 & 0x0F;
            ip[1] = dscp << 6 | ip[1] & 0x3F;
        }
        self
    }

    /// A frame with this payload of at most 65,487 bytes.
    pub(crate) fn wrap(&self, ipv4_id: u16, payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::with_capacity(self.headers.len() + payload.len());
        frame.extend_from_slice(&self.headers);
        frame.extend_from_slice(payload);
        let (ip, udp) = (self.ip, self.headers.len() - UDP_BYTES);
        let length = |from: usize| u16::try_from(frame.len() - from).unwrap_or(u16::MAX);
        let (ip_bytes, udp_bytes) = (length(ip), length(udp));
        put(&mut frame, udp + 4, udp_bytes);
        put(&mut frame, udp + 6, 0);
        if frame[ip] >> 4 == 4 {
            put(&mut frame, ip + 2, ip_bytes);
            put(&mut frame, ip + 4, ipv4_id);
            put(&mut frame, ip + 10, 0);
            let sum = checksum(0, &frame[ip..ip + IPV4_BYTES]);
            put(&mut frame, ip + 10, sum);
        } else {
            put(&mut frame, ip + 4, udp_bytes);
            // UDP over IPv6 requires a checksum, which also covers the addresses (RFC 8200, 8.1).
            let pseudo = u32::from(udp_bytes) + u32::from(UDP_PROTOCOL);
            let sum = checksum(pseudo, &frame[ip + 8..]);
            put(&mut frame, udp + 6, if sum == 0 { 0xFFFF } else { sum });
        }
        frame
    }
}

fn put(frame: &mut [u8], at: usize, value: u16) {
    frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

fn swap(bytes: &mut [u8], at: usize, length: usize) {
    let (first, second) = bytes[at..at + 2 * length].split_at_mut(length);
    first.swap_with_slice(second);
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// Returns a frame with 8 bytes of UDP payload.
    fn frame(ethertype: u16, ip: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; MACS_BYTES];
        frame.extend_from_slice(&ethertype.to_be_bytes());
        frame.extend_from_slice(ip);
        for number in [50_000, ROCE_PORT, 16, 0] {
            frame.extend_from_slice(&number.to_be_bytes());
        }
        frame.extend_from_slice(b"payload.");
        frame
    }

    #[test]
    fn a_code_point_is_replaced_and_nothing_else() {
        let mut ipv4 = vec![0x45, 0x6A, 0, 36, 0, 7, 0x40, 0, 64, 17, 0, 0];
        ipv4.extend_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        let mut ipv6 = vec![0x66, 0xA0, 1, 2, 0, 16, 17, 64];
        ipv6.extend_from_slice(&[0x20; 32]);
        for frame in [frame(ETHERTYPE_IPV4, &ipv4), frame(ETHERTYPE_IPV6, &ipv6)] {
            let view = View::parse(&frame).unwrap();
            assert_eq!(view.dscp(), 0x1A);
            let changed = view.with_dscp(0x30);
            let view = View::parse(&changed).unwrap();
            assert_eq!((view.dscp(), view.payload()), (0x30, &b"payload."[..]));
            let back = view.with_dscp(0x1A);
            // The frames above have no checksums, so do not compare these fields.
            let compared = |at: &usize| !(24..26).contains(at) && *at < frame.len() - 10;
            for at in (0..frame.len()).filter(compared) {
                assert_eq!(back[at], frame[at], "byte {at}");
            }
        }
    }
}
