//! Control messages of a datagram: local address, segment size, ECN bits, drop counter, arrival.
//!
//! The layout is that of the kernel (cmsg(3)): a header with length, level and type, then the data.
//! Each message is aligned to a machine word.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::contract::Ecn;

const WORD: usize = size_of::<usize>();
/// `sizeof(struct cmsghdr)`.
const HEADER: usize = WORD + 8;
/// `struct in_pktinfo`: interface, local address, header address.
const PKTINFO_V4: usize = 12;
/// `struct in6_pktinfo`: address, interface.
const PKTINFO_V6: usize = 20;

/// Buffer for the control messages of one datagram.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct ControlBuffer {
    bytes: [u8; Self::SIZE],
    len: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ControlInfo {
    pub(super) dst: Option<IpAddr>,
    /// Size of the segments that the kernel joined into it, if there was more than one.
    pub(super) segment_bytes: Option<usize>,
    pub(super) ecn: Ecn,
    /// Number of datagrams that the socket has dropped so far because its buffer was full.
    pub(super) drops: Option<u32>,
    /// When the kernel received the datagram, in nanoseconds of its real-time clock.
    pub(super) received_ns: Option<u64>,
}

impl ControlBuffer {
    /// Enough for all requested messages, in both address families.
    pub(super) const SIZE: usize = 192;

    pub(super) const EMPTY: Self = Self {
        bytes: [0; Self::SIZE],
        len: 0,
    };

    /// Bytes in use.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Sets the number of bytes that the kernel wrote.
    pub(super) fn set_len(&mut self, len: usize) {
        self.len = len.min(Self::SIZE);
    }

    /// Pointer for the kernel to read or write.
    pub(super) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr()
    }

    /// Requests that the datagram is sent from `src`.
    pub(super) fn push_source(&mut self, src: IpAddr, v6_socket: bool) {
        let v6 = match src {
            IpAddr::V4(v4) if !v6_socket => {
                let mut info = [0; PKTINFO_V4];
                info[4..8].copy_from_slice(&v4.octets());
                return self.push(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
            }
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        let mut info = [0; PKTINFO_V6];
        info[..16].copy_from_slice(&v6.octets());
        self.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
    }

    /// Requests that the datagram is cut into segments of `bytes` (UDP GSO).
    pub(super) fn push_segment(&mut self, bytes: u16) {
        self.push(libc::SOL_UDP, libc::UDP_SEGMENT, &bytes.to_ne_bytes());
    }

    fn push(&mut self, level: i32, kind: i32, data: &[u8]) {
        let b = &mut self.bytes[self.len..];
        b[..WORD].copy_from_slice(&(HEADER + data.len()).to_ne_bytes());
        b[WORD..WORD + 4].copy_from_slice(&level.to_ne_bytes());
        b[WORD + 4..HEADER].copy_from_slice(&kind.to_ne_bytes());
        b[HEADER..HEADER + data.len()].copy_from_slice(data);
        self.len += HEADER + data.len().next_multiple_of(WORD);
    }

    /// Parses the messages that the kernel wrote. Skips unknown ones.
    pub(super) fn parse(&self) -> ControlInfo {
        let mut info = ControlInfo::default();
        let mut rest = &self.bytes[..self.len];
        while let Some((len, level, kind)) = header(rest) {
            let data = &rest[HEADER..len];
            match (level, kind) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    // ipi_addr, the destination in the header, and not ipi_spec_dst.
                    info.dst = array(data, 8).map(|o| Ipv4Addr::from(o).into());
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    info.dst = array(data, 0).map(|o| Ipv6Addr::from(o).to_canonical());
                }
                // The kernel passes one byte for IPv4, and an integer for IPv6.
                (libc::IPPROTO_IP, libc::IP_TOS) => {
                    info.ecn = Ecn::of_tos(data.first().copied().unwrap_or(0));
                }
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    let class = array(data, 0).map_or(0, i32::from_ne_bytes);
                    info.ecn = Ecn::of_tos(class.to_le_bytes()[0]);
                }
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    info.segment_bytes = array(data, 0)
                        .and_then(|b| usize::try_from(i32::from_ne_bytes(b)).ok())
                        .filter(|&bytes| bytes > 0);
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    info.drops = array(data, 0).map(u32::from_ne_bytes);
                }
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => info.received_ns = time_ns(data),
                _ => {}
            }
            rest = rest.get(len.next_multiple_of(WORD)..).unwrap_or(&[]);
        }
        info
    }
}

/// Length (header included), level and type of the first message in `bytes`.
fn header(bytes: &[u8]) -> Option<(usize, i32, i32)> {
    let len = usize::from_ne_bytes(array(bytes, 0)?);
    let level = i32::from_ne_bytes(array(bytes, WORD)?);
    let kind = i32::from_ne_bytes(array(bytes, WORD + 4)?);
    (len >= HEADER && len <= bytes.len()).then_some((len, level, kind))
}

/// Nanoseconds of a `struct timespec` with 64-bit fields.
fn time_ns(data: &[u8]) -> Option<u64> {
    let seconds = u64::try_from(i64::from_ne_bytes(array(data, 0)?)).ok()?;
    let ns = u64::try_from(i64::from_ne_bytes(array(data, 8)?)).ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(ns)
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_the_kernels() {
        let mut c = ControlBuffer::EMPTY;
        c.push_source("192.0.2.1".parse().unwrap(), false);
        assert_eq!(c.len(), 32); // CMSG_SPACE(12)
        c.push_segment(4132);
        assert_eq!(c.len(), 32 + 24); // + CMSG_SPACE(2)
        c.push_source("2001:db8::1".parse().unwrap(), true);
        assert_eq!(c.len(), 56 + 40); // + CMSG_SPACE(20)
    }

    #[test]
    fn reads_messages_and_stops_at_nonsense() {
        let mut c = ControlBuffer::EMPTY;
        c.push_source("192.0.2.1".parse().unwrap(), true);
        c.push(libc::SOL_UDP, libc::UDP_GRO, &1000_i32.to_ne_bytes());
        c.push(libc::IPPROTO_IP, libc::IP_TOS, &[0xFE]);
        let time = [2_i64.to_ne_bytes(), 5_i64.to_ne_bytes()].concat();
        c.push(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &time);
        c.push(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &7_u32.to_ne_bytes());
        let info = ControlInfo {
            dst: Some("192.0.2.1".parse().unwrap()),
            segment_bytes: Some(1000),
            ecn: Ecn::Ect0,
            drops: Some(7),
            received_ns: Some(2_000_000_005),
        };
        assert_eq!(c.parse(), info);
        // The last message is cut off; the messages before it are still parsed.
        c.set_len(c.len() - WORD);
        assert_eq!(
            c.parse(),
            ControlInfo {
                drops: None,
                ..info
            }
        );
        // A length of zero must not cause an endless loop.
        assert_eq!(ControlBuffer::EMPTY.parse(), ControlInfo::default());
        c.bytes = [0; ControlBuffer::SIZE];
        c.set_len(ControlBuffer::SIZE);
        assert_eq!(c.parse(), ControlInfo::default());
    }
}
