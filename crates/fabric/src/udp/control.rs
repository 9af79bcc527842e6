//! Control messages of a datagram: which addresses, which segment size, how many drops.
//!
//! Laid out as the kernel has them (cmsg(3)): a header of length, level and type, then the data,
//! each message aligned to a machine word.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::contract::Ecn;

const WORD: usize = size_of::<usize>();
/// `sizeof(struct cmsghdr)`.
const HEADER: usize = WORD + 8;
/// `struct in_pktinfo`: interface, local address, header address.
const PKTINFO_V4: usize = 12;
/// `struct in6_pktinfo`: address, interface.
const PKTINFO_V6: usize = 20;

/// Room for the control messages of one datagram.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct Control {
    bytes: [u8; Self::SIZE],
    len: usize,
}

/// What the kernel said beside a received datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    /// Destination address of the datagram.
    pub(super) dst: Option<IpAddr>,
    /// Size of the segments that were coalesced into it, where there was more than one.
    pub(super) segment_bytes: Option<usize>,
    /// Congestion bits of the IP header.
    pub(super) ecn: Ecn,
    /// Datagrams that the socket has dropped so far for want of room.
    pub(super) drops: Option<u32>,
}

impl Control {
    /// Enough for every message that we ask for, in both families.
    pub(super) const SIZE: usize = 160;

    pub(super) const EMPTY: Self = Self {
        bytes: [0; Self::SIZE],
        len: 0,
    };

    /// Bytes in use.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Says how many bytes the kernel wrote.
    pub(super) fn set_len(&mut self, len: usize) {
        self.len = len.min(Self::SIZE);
    }

    /// Where the kernel reads or writes.
    pub(super) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr()
    }

    /// Asks that the datagram leave from `src`.
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

    /// Asks that the datagram be cut into segments of `bytes` (UDP GSO).
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

    /// Reads what the kernel wrote. Unknown messages are passed over.
    pub(super) fn told(&self) -> Told {
        let mut told = Told::default();
        let mut rest = &self.bytes[..self.len];
        while let Some((len, level, kind)) = header(rest) {
            let data = &rest[HEADER..len];
            match (level, kind) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    // ipi_addr, the header's destination, not ipi_spec_dst.
                    told.dst = array(data, 8).map(|o| Ipv4Addr::from(o).into());
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    told.dst = array(data, 0).map(|o| Ipv6Addr::from(o).to_canonical());
                }
                // One byte for IPv4, an integer for IPv6.
                (libc::IPPROTO_IP, libc::IP_TOS) => {
                    told.ecn = Ecn::of_tos(data.first().copied().unwrap_or(0));
                }
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    let class = array(data, 0).map_or(0, i32::from_ne_bytes);
                    told.ecn = Ecn::of_tos(class.to_le_bytes()[0]);
                }
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    told.segment_bytes = array(data, 0)
                        .and_then(|b| usize::try_from(i32::from_ne_bytes(b)).ok())
                        .filter(|&bytes| bytes > 0);
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    told.drops = array(data, 0).map(u32::from_ne_bytes);
                }
                _ => {}
            }
            rest = rest.get(len.next_multiple_of(WORD)..).unwrap_or(&[]);
        }
        told
    }
}

/// Length (header included), level and type of the message that `bytes` begins with.
fn header(bytes: &[u8]) -> Option<(usize, i32, i32)> {
    let len = usize::from_ne_bytes(array(bytes, 0)?);
    let level = i32::from_ne_bytes(array(bytes, WORD)?);
    let kind = i32::from_ne_bytes(array(bytes, WORD + 4)?);
    (len >= HEADER && len <= bytes.len()).then_some((len, level, kind))
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_the_kernels() {
        let mut c = Control::EMPTY;
        c.push_source("192.0.2.1".parse().unwrap(), false);
        assert_eq!(c.len(), 32); // CMSG_SPACE(12)
        c.push_segment(4132);
        assert_eq!(c.len(), 32 + 24); // + CMSG_SPACE(2)
        c.push_source("2001:db8::1".parse().unwrap(), true);
        assert_eq!(c.len(), 56 + 40); // + CMSG_SPACE(20)
    }

    #[test]
    fn reads_messages_and_stops_at_nonsense() {
        let mut c = Control::EMPTY;
        c.push_source("192.0.2.1".parse().unwrap(), true);
        c.push(libc::SOL_UDP, libc::UDP_GRO, &1000_i32.to_ne_bytes());
        c.push(libc::IPPROTO_IP, libc::IP_TOS, &[0xFE]);
        c.push(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &7_u32.to_ne_bytes());
        let told = Told {
            dst: Some("192.0.2.1".parse().unwrap()),
            segment_bytes: Some(1000),
            ecn: Ecn::Ect0,
            drops: Some(7),
        };
        assert_eq!(c.told(), told);
        // Cut off in the last message: what came before it stands.
        c.set_len(c.len() - WORD);
        assert_eq!(
            c.told(),
            Told {
                drops: None,
                ..told
            }
        );
        // A length of zero must not loop.
        assert_eq!(Control::EMPTY.told(), Told::default());
        c.bytes = [0; Control::SIZE];
        c.set_len(Control::SIZE);
        assert_eq!(c.told(), Told::default());
    }
}
