//! Socket addresses in the kernel's format (`struct sockaddr_in`, `struct sockaddr_in6`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// `AF_INET` and `AF_INET6` as `sa_family_t`.
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// Buffer for one socket address of either family.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct KernelAddress {
    bytes: [u8; Self::SIZE as usize],
}

impl KernelAddress {
    /// `sizeof(struct sockaddr_in6)`, the longer of the two.
    pub(super) const SIZE: u32 = 28;
    /// `sizeof(struct sockaddr_in)`.
    const V4_SIZE: u32 = 16;

    pub(super) const EMPTY: Self = Self {
        bytes: [0; Self::SIZE as usize],
    };

    /// Encodes `addr` for an IPv6 socket if `v6`, otherwise for an IPv4 socket. An IPv6 socket gets
    /// IPv4 addresses in mapped form. Returns the address and its length.
    pub(super) fn encode(addr: SocketAddr, v6: bool) -> (Self, u32) {
        let mut name = Self::EMPTY;
        let b = &mut name.bytes;
        b[2..4].copy_from_slice(&addr.port().to_be_bytes());
        let addr = match addr {
            SocketAddr::V4(v4) if !v6 => {
                b[0..2].copy_from_slice(&AF_INET.to_ne_bytes());
                b[4..8].copy_from_slice(&v4.ip().octets());
                return (name, Self::V4_SIZE);
            }
            SocketAddr::V4(v4) => SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0),
            SocketAddr::V6(v6) => v6,
        };
        b[0..2].copy_from_slice(&AF_INET6.to_ne_bytes());
        b[8..24].copy_from_slice(&addr.ip().octets());
        b[24..28].copy_from_slice(&addr.scope_id().to_ne_bytes());
        (name, Self::SIZE)
    }

    /// Decodes the address. IPv4-mapped addresses become IPv4. `None` for another family.
    pub(super) fn decode(&self) -> Option<SocketAddr> {
        let b = &self.bytes;
        let family = u16::from_ne_bytes([b[0], b[1]]);
        let port = u16::from_be_bytes([b[2], b[3]]);
        if family == AF_INET {
            let ip = Ipv4Addr::new(b[4], b[5], b[6], b[7]);
            return Some(SocketAddr::from((ip, port)));
        }
        if family != AF_INET6 {
            return None;
        }
        let mut octets = [0; 16];
        octets.copy_from_slice(&b[8..24]);
        let ip = Ipv6Addr::from(octets);
        let scope = u32::from_ne_bytes([b[24], b[25], b[26], b[27]]);
        Some(match ip.to_ipv4_mapped() {
            Some(v4) => SocketAddr::from((IpAddr::V4(v4), port)),
            None => SocketAddr::V6(SocketAddrV6::new(ip, port, 0, scope)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_kernel_form() {
        let v4: SocketAddr = "192.0.2.7:4791".parse().unwrap();
        let v6 = SocketAddr::V6(SocketAddrV6::new("fe80::7".parse().unwrap(), 4791, 0, 3));
        assert_eq!(KernelAddress::encode(v4, false).0.decode(), Some(v4));
        assert_eq!(KernelAddress::encode(v4, true).0.decode(), Some(v4));
        assert_eq!(KernelAddress::encode(v6, true).0.decode(), Some(v6));
        assert_eq!(KernelAddress::encode(v4, false).1, 16);
        assert_eq!(KernelAddress::encode(v4, true).1, 28);
        assert_eq!(KernelAddress::EMPTY.decode(), None);
    }
}
