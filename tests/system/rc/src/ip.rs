//! IP and UDP headers of the packets of an RDMA NIC.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use farwrite_link::Datagram;
use farwrite_net::checksum;

const UDP: u8 = 17;
const UDP_BYTES: usize = 8;
const TIME_TO_LIVE: u8 = 64;

/// Appends the headers of a datagram, and its payload.
pub(crate) fn append(datagram: &Datagram, bytes: &mut Vec<u8>) {
    let udp_bytes = u16::try_from(UDP_BYTES + datagram.payload.len()).unwrap_or(u16::MAX);
    let ip = bytes.len();
    match (datagram.src.ip(), datagram.dst.ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            bytes.extend([0x45, datagram.tos]);
            bytes.extend((udp_bytes + 20).to_be_bytes());
            bytes.extend(datagram.id.to_be_bytes());
            // Don't Fragment; no checksum yet.
            bytes.extend([0x40, 0, TIME_TO_LIVE, UDP, 0, 0]);
            bytes.extend(src.octets());
            bytes.extend(dst.octets());
            let sum = checksum(0, &bytes[ip..]);
            bytes[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
        }
        (src, dst) => {
            bytes.extend([0x60 | datagram.tos >> 4, datagram.tos << 4, 0, 0]);
            bytes.extend(udp_bytes.to_be_bytes());
            bytes.extend([UDP, TIME_TO_LIVE]);
            for address in [src, dst] {
                let IpAddr::V6(address) = address else {
                    continue;
                };
                bytes.extend(address.octets());
            }
        }
    }
    let udp = bytes.len();
    for number in [datagram.src.port(), datagram.dst.port(), udp_bytes, 0] {
        bytes.extend(number.to_be_bytes());
    }
    bytes.extend(&datagram.payload);
    // RoCEv2 packets over IPv4 have no UDP checksum.
    if datagram.src.is_ipv6() {
        // 0 means that there is no checksum.
        let sum = match udp_sum(&bytes[ip + 8..], udp_bytes) {
            0 => u16::MAX,
            sum => sum,
        };
        bytes[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Returns the UDP datagram of an IP packet without options, and whether its UDP checksum is right.
/// `None` if a length, a protocol or the checksum of an IPv4 header is wrong.
pub(crate) fn parse(ip: &[u8]) -> Option<(Datagram, bool)> {
    match ip.first()? >> 4 {
        4 => Some((parse_ipv4(ip)?, true)),
        6 => parse_ipv6(ip),
        _ => None,
    }
}

fn parse_ipv4(ip: &[u8]) -> Option<Datagram> {
    let header: &[u8; 20] = ip.first_chunk()?;
    if header[0] != 0x45 || header[9] != UDP || checksum(0, header) != 0 {
        return None;
    }
    let address = |at: usize| -> [u8; 4] { [ip[at], ip[at + 1], ip[at + 2], ip[at + 3]] };
    let (ports, payload) = parse_udp(ip.get(20..)?)?;
    Some(Datagram {
        src: SocketAddr::from((address(12), ports[0])),
        dst: SocketAddr::from((address(16), ports[1])),
        tos: header[1],
        id: number(ip, 4)?,
        payload,
    })
}

fn parse_ipv6(ip: &[u8]) -> Option<(Datagram, bool)> {
    let header: &[u8; 40] = ip.first_chunk()?;
    if header[6] != UDP {
        return None;
    }
    let address = |at: usize| Some(Ipv6Addr::from(*ip.get(at..)?.first_chunk::<16>()?));
    let udp_bytes = number(ip, 4)?;
    let covered = ip.get(8..40 + usize::from(udp_bytes))?;
    let (ports, payload) = parse_udp(&covered[32..])?;
    let datagram = Datagram {
        src: SocketAddr::from((address(8)?, ports[0])),
        dst: SocketAddr::from((address(24)?, ports[1])),
        tos: header[0] << 4 | header[1] >> 4,
        id: 0,
        payload,
    };
    Some((datagram, udp_sum(covered, udp_bytes) == 0))
}

fn parse_udp(udp: &[u8]) -> Option<([u16; 2], Vec<u8>)> {
    let ports = [number(udp, 0)?, number(udp, 2)?];
    let payload = udp.get(UDP_BYTES..usize::from(number(udp, 4)?))?;
    Some((ports, payload.to_vec()))
}

/// The checksum of a UDP datagram over IPv6 (RFC 8200, 8.1): of both addresses and the datagram. If
/// the datagram has the right checksum, returns 0.
fn udp_sum(addresses_and_datagram: &[u8], udp_bytes: u16) -> u16 {
    checksum(
        u32::from(udp_bytes) + u32::from(UDP),
        addresses_and_datagram,
    )
}

fn number(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}
