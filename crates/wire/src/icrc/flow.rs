//! The part of the ICRC that the addresses determine.

use core::net::{IpAddr, SocketAddr};
use core::ops::Range;

/// The link header that InfiniBand has and RoCE has not (IBTA A17.3.4): 8 bytes of ones.
const LINK_HEADER_BYTES: usize = 8;
const UDP_BYTES: usize = 8;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const UDP_PROTOCOL: u8 = 17;
/// Don't Fragment set, fragment offset 0.
const DONT_FRAGMENT: [u8; 2] = [0x40, 0];

const V4_TOTAL_LENGTH: Range<usize> = 10..12;
const V4_ID: Range<usize> = 12..14;
const V4_UDP_LENGTH: Range<usize> = 32..34;
const V6_PAYLOAD_LENGTH: Range<usize> = 12..14;
const V6_UDP_LENGTH: Range<usize> = 52..54;

/// Why two addresses are not the two ends of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{src} and {dst} are not of one IP version")]
pub struct MixedFamilies {
    /// Where packets come from.
    pub src: SocketAddr,
    /// Where they go.
    pub dst: SocketAddr,
}

/// One direction between two UDP sockets, with what their addresses put under the ICRC.
///
/// Addresses must be those that the packets have on the wire, no wildcards. An IPv4 address in IPv6
/// notation (`::ffff:192.0.2.1`) is taken as the IPv4 address that the packet has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    src: SocketAddr,
    dst: SocketAddr,
    /// Link, IP and UDP header as the ICRC sees them, lengths and IPv4 identification zero.
    prefix: [u8; LINK_HEADER_BYTES + IPV6_BYTES + UDP_BYTES],
}

impl Flow {
    /// A flow from `src` to `dst`.
    ///
    /// # Errors
    /// [`MixedFamilies`].
    pub fn new(src: SocketAddr, dst: SocketAddr) -> Result<Self, MixedFamilies> {
        let src = SocketAddr::new(src.ip().to_canonical(), src.port());
        let dst = SocketAddr::new(dst.ip().to_canonical(), dst.port());
        // Ones are what the ICRC takes for every field that may change on the way (IBTA A17.3.4).
        let mut prefix = [0xFF; LINK_HEADER_BYTES + IPV6_BYTES + UDP_BYTES];
        let (_, rest) = prefix.split_at_mut(LINK_HEADER_BYTES);
        let udp = match (src.ip(), dst.ip()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let (ip, udp) = rest.split_at_mut(IPV4_BYTES);
                ip[0] = 0x45;
                ip[2..6].fill(0);
                ip[6..8].copy_from_slice(&DONT_FRAGMENT);
                ip[9] = UDP_PROTOCOL;
                ip[12..16].copy_from_slice(&src.octets());
                ip[16..20].copy_from_slice(&dst.octets());
                udp
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let (ip, udp) = rest.split_at_mut(IPV6_BYTES);
                ip[0] = 0x6F;
                ip[4..6].fill(0);
                ip[6] = UDP_PROTOCOL;
                ip[8..24].copy_from_slice(&src.octets());
                ip[24..40].copy_from_slice(&dst.octets());
                udp
            }
            _ => return Err(MixedFamilies { src, dst }),
        };
        udp[0..2].copy_from_slice(&src.port().to_be_bytes());
        udp[2..4].copy_from_slice(&dst.port().to_be_bytes());
        udp[4..6].fill(0);
        Ok(Self { src, dst, prefix })
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

    /// Whether packets have an IPv4 header, and so an identification.
    pub(super) fn is_ipv4(&self) -> bool {
        self.src.is_ipv4()
    }

    /// CRC of everything before the BTH of a packet with `udp_payload_bytes` after its UDP header.
    pub(super) fn prefix_crc(&self, ipv4_id: u16, udp_payload_bytes: u16) -> u32 {
        let mut prefix = self.prefix;
        let udp_bytes = udp_payload_bytes.saturating_add(8);
        let used = if self.is_ipv4() {
            let ip_bytes = udp_bytes.saturating_add(20);
            prefix[V4_TOTAL_LENGTH].copy_from_slice(&ip_bytes.to_be_bytes());
            prefix[V4_ID].copy_from_slice(&ipv4_id.to_be_bytes());
            prefix[V4_UDP_LENGTH].copy_from_slice(&udp_bytes.to_be_bytes());
            &prefix[..V4_UDP_LENGTH.end + 2]
        } else {
            prefix[V6_PAYLOAD_LENGTH].copy_from_slice(&udp_bytes.to_be_bytes());
            prefix[V6_UDP_LENGTH].copy_from_slice(&udp_bytes.to_be_bytes());
            &prefix[..]
        };
        crc32fast::hash(used)
    }
}
