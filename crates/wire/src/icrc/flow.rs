//! The part of the ICRC that the addresses determine.

use super::poly::Field;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use crc32fast::Hasher;

/// Replaces the link header, which RoCE does not have (IBTA annex A17). All other bytes of ones
/// stand for fields that may change in transit.
const LINK_HEADER: [u8; 8] = [0xFF; 8];
const UDP_BYTES: u16 = 8;
const IPV4_BYTES: u16 = 20;
const UDP_PROTOCOL: u8 = 17;

// Before the BTH, three numbers differ from packet to packet. The CRC is linear, so each of them
// adds its own part to the CRC of the rest.
static IPV4_TOTAL_LENGTH: Field = Field::new(16 + 8);
static IPV4_ID: Field = Field::new(IPV4_AFTER_ID_BYTES);
static IPV6_PAYLOAD_LENGTH: Field = Field::new(34 + 8);
static UDP_LENGTH: Field = Field::new(2);

/// Bytes between the IPv4 identification and the BTH.
pub(super) const IPV4_AFTER_ID_BYTES: usize = 14 + 8;

/// The two addresses belong to different IP versions, so no packet can have both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{src} and {dst} are not of one IP version")]
pub struct MixedFamilies {
    /// Where packets come from.
    pub src: SocketAddr,
    /// Where they go.
    pub dst: SocketAddr,
}

/// One direction between two UDP sockets, with the part of the ICRC that their addresses determine.
///
/// The addresses must be those of the packets on the wire, not wildcards. An IPv4 address in IPv6
/// notation (`::ffff:192.0.2.1`) counts as the IPv4 address of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    src: SocketAddr,
    dst: SocketAddr,
    /// CRC of all bytes before the BTH, with lengths and IPv4 identification as zero.
    prefix_crc: u32,
}

impl Flow {
    /// A flow from `src` to `dst`.
    ///
    /// # Errors
    /// [`MixedFamilies`].
    pub fn new(src: SocketAddr, dst: SocketAddr) -> Result<Self, MixedFamilies> {
        let src = SocketAddr::new(src.ip().to_canonical(), src.port());
        let dst = SocketAddr::new(dst.ip().to_canonical(), dst.port());
        let mut crc = Hasher::new();
        crc.update(&LINK_HEADER);
        match (src.ip(), dst.ip()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => crc.update(&ipv4_header(src, dst)),
            (IpAddr::V6(src), IpAddr::V6(dst)) => crc.update(&ipv6_header(src, dst)),
            _ => return Err(MixedFamilies { src, dst }),
        }
        crc.update(&src.port().to_be_bytes());
        crc.update(&dst.port().to_be_bytes());
        crc.update(&[0, 0, 0xFF, 0xFF]);
        let prefix_crc = crc.finalize();
        Ok(Self {
            src,
            dst,
            prefix_crc,
        })
    }

    /// Where packets come from.
    #[must_use]
    pub fn src(&self) -> SocketAddr {
        self.src
    }

    /// Where packets go.
    #[must_use]
    pub fn dst(&self) -> SocketAddr {
        self.dst
    }

    /// Returns whether packets have an IPv4 header, and so an identification.
    pub(super) fn is_ipv4(&self) -> bool {
        self.src.is_ipv4()
    }

    /// CRC of all bytes before the BTH, for a packet with `udp_payload_bytes` after its UDP header.
    pub(super) fn prefix_crc(&self, ipv4_id: u16, udp_payload_bytes: u16) -> u32 {
        let udp_bytes = udp_payload_bytes.saturating_add(UDP_BYTES);
        let ip = if self.is_ipv4() {
            IPV4_TOTAL_LENGTH.of(udp_bytes.saturating_add(IPV4_BYTES)) ^ IPV4_ID.of(ipv4_id)
        } else {
            IPV6_PAYLOAD_LENGTH.of(udp_bytes)
        };
        self.prefix_crc ^ ip ^ UDP_LENGTH.of(udp_bytes)
    }
}

/// RFC 791 header with Don't Fragment set; type of service, time to live and checksum are ones.
fn ipv4_header(src: Ipv4Addr, dst: Ipv4Addr) -> [u8; 20] {
    let mut header = [0; 20];
    header[0..2].copy_from_slice(&[0x45, 0xFF]);
    header[6] = 0x40;
    header[8..12].copy_from_slice(&[0xFF, UDP_PROTOCOL, 0xFF, 0xFF]);
    header[12..16].copy_from_slice(&src.octets());
    header[16..20].copy_from_slice(&dst.octets());
    header
}

/// RFC 8200 header; traffic class, flow label and hop limit are ones.
fn ipv6_header(src: Ipv6Addr, dst: Ipv6Addr) -> [u8; 40] {
    let mut header = [0; 40];
    header[0..4].copy_from_slice(&[0x6F, 0xFF, 0xFF, 0xFF]);
    header[6..8].copy_from_slice(&[UDP_PROTOCOL, 0xFF]);
    header[8..24].copy_from_slice(&src.octets());
    header[24..40].copy_from_slice(&dst.octets());
    header
}
