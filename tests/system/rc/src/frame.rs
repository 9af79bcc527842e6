//! Ethernet frames around the packets of an RDMA NIC.

use std::net::{IpAddr, SocketAddr};

use farwrite_link::Datagram;
use farwrite_net::{BytesError, Frame};

/// The headers before the IP header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ethernet {
    pub(crate) peer: [u8; 6],
    pub(crate) vlan: Option<u16>,
    pub(crate) priority: u8,
}

/// The content of a frame.
#[derive(Debug)]
pub(crate) enum Taken {
    Packet(Frame),
    /// A PFC frame that pauses the priority for this long, at 10 Gbit/s.
    Pause(u64),
    Other,
}

impl Ethernet {
    /// The bytes of a frame from `mac`.
    ///
    /// # Errors
    /// As [`Frame::to_datagram`].
    pub(crate) fn wrap(&self, mac: [u8; 6], frame: &Frame) -> Result<Vec<u8>, BytesError> {
        let datagram = frame.to_datagram()?;
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (datagram.src.ip(), datagram.dst.ip()) else {
            return Err(BytesError::Address(datagram.src));
        };
        let udp_bytes = u16::try_from(8 + datagram.payload.len()).unwrap_or(u16::MAX);
        let mut bytes = [self.peer, mac].concat();
        if let Some(vlan) = self.vlan {
            bytes.extend([0x81, 0x00]);
            bytes.extend((u16::from(self.priority) << 13 | vlan).to_be_bytes());
        }
        bytes.extend([0x08, 0x00]);
        let ip = bytes.len();
        bytes.extend([0x45, datagram.tos]);
        bytes.extend((udp_bytes + 20).to_be_bytes());
        bytes.extend(datagram.id.to_be_bytes());
        // Don't Fragment, time to live 64, UDP, no checksum yet.
        bytes.extend([0x40, 0, 64, 17, 0, 0]);
        bytes.extend(src.octets());
        bytes.extend(dst.octets());
        let sum = ipv4_checksum(&bytes[ip..]);
        bytes[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
        for number in [datagram.src.port(), datagram.dst.port(), udp_bytes, 0] {
            bytes.extend(number.to_be_bytes());
        }
        bytes.extend(&datagram.payload);
        Ok(bytes)
    }

    /// Looks at the bytes of a frame.
    pub(crate) fn take(&self, bytes: &[u8]) -> Taken {
        if bytes.get(12..16) == Some(&[0x88, 0x08, 0x01, 0x01]) {
            return self.pause(bytes).map_or(Taken::Other, Taken::Pause);
        }
        let tag = if self.vlan.is_some() { 4 } else { 0 };
        let ip = bytes.get(14 + tag..).unwrap_or_default();
        let is_ipv4 = bytes.get(12 + tag..14 + tag) == Some(&[0x08, 0x00]);
        match datagram(ip)
            .filter(|_| is_ipv4)
            .map(|d| Frame::from_datagram(&d))
        {
            Some(Ok(frame)) => Taken::Packet(frame),
            _ => Taken::Other,
        }
    }

    fn pause(&self, bytes: &[u8]) -> Option<u64> {
        let named = bytes.get(17)? >> self.priority & 1 == 1;
        let at = 18 + 2 * usize::from(self.priority);
        let quanta = u64::from(number(bytes, at)?);
        // 512 bit times each.
        named.then_some(quanta * 512 / 10)
    }
}

/// Returns the UDP datagram of an IPv4 packet without options, or `None` if a length is wrong.
fn datagram(ip: &[u8]) -> Option<Datagram> {
    let header: &[u8; 28] = ip.first_chunk()?;
    let address = |at: usize| -> [u8; 4] { [ip[at], ip[at + 1], ip[at + 2], ip[at + 3]] };
    let udp_bytes = usize::from(number(ip, 24)?);
    if header[0] != 0x45 || header[9] != 17 || ipv4_checksum(&ip[..20]) != 0 {
        return None;
    }
    Some(Datagram {
        src: SocketAddr::from((address(12), number(ip, 20)?)),
        dst: SocketAddr::from((address(16), number(ip, 22)?)),
        tos: header[1],
        id: number(ip, 4)?,
        payload: ip.get(28..20 + udp_bytes)?.to_vec(),
    })
}

fn number(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Returns the Internet checksum (RFC 1071) of a header whose checksum field is 0. If the field has
/// the right checksum, returns 0.
fn ipv4_checksum(header: &[u8]) -> u16 {
    let words = header.chunks_exact(2);
    let sum: u32 = words.map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    !u16::try_from((folded & 0xFFFF) + (folded >> 16)).unwrap_or(0)
}
