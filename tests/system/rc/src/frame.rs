//! Ethernet frames around the packets of an RDMA NIC.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use farwrite_link::Datagram;
use farwrite_net::{BytesError, Frame};
use farwrite_wire::icrc::{Flow, Icrc, IdRange, verify};

use crate::ip;

const ICRC_BYTES: usize = 4;
/// The network of IPv6 addresses. The last 32 bits of an address are the node's IPv4 address.
const IPV6_NETWORK: u128 = 0xFD77 << 112;

/// The headers before the UDP header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ethernet {
    pub(crate) peer: [u8; 6],
    pub(crate) vlan: Option<u16>,
    pub(crate) priority: u8,
    pub(crate) ipv6: bool,
}

/// The content of a frame.
#[derive(Debug)]
pub(crate) enum Taken {
    Packet(Frame),
    /// A packet whose UDP checksum or ICRC is wrong.
    Damaged,
    /// A PFC frame that pauses the priority for this long, at 10 Gbit/s.
    Pause(u64),
    Other,
}

impl Ethernet {
    /// The bytes of a frame from `mac`.
    ///
    /// # Errors
    /// As [`Frame::to_datagram`].
    pub(crate) fn wrap(&self, mac: [u8; 6], frame: &Frame) -> Result<Vec<u8>, Box<dyn Error>> {
        let mut datagram = frame.to_datagram()?;
        if self.ipv6 {
            datagram = over_ipv6(datagram)?;
        }
        let mut bytes = [self.peer, mac].concat();
        if let Some(vlan) = self.vlan {
            bytes.extend([0x81, 0x00]);
            bytes.extend((u16::from(self.priority) << 13 | vlan).to_be_bytes());
        }
        bytes.extend(self.ethertype());
        ip::append(&datagram, &mut bytes);
        Ok(bytes)
    }

    /// Looks at the bytes of a frame.
    pub(crate) fn take(&self, bytes: &[u8]) -> Taken {
        if bytes.get(12..16) == Some(&[0x88, 0x08, 0x01, 0x01]) {
            return self.pause(bytes).map_or(Taken::Other, Taken::Pause);
        }
        let tag = if self.vlan.is_some() { 4 } else { 0 };
        if bytes.get(12 + tag..14 + tag) != Some(&self.ethertype()) {
            return Taken::Other;
        }
        match ip::parse(&bytes[14 + tag..]) {
            Some((_, false)) => Taken::Damaged,
            Some((datagram, true)) => packet(datagram),
            None => Taken::Other,
        }
    }

    fn ethertype(&self) -> [u8; 2] {
        if self.ipv6 {
            [0x86, 0xDD]
        } else {
            [0x08, 0x00]
        }
    }

    fn pause(&self, bytes: &[u8]) -> Option<u64> {
        let named = bytes.get(17)? >> self.priority & 1 == 1;
        let at = 18 + 2 * usize::from(self.priority);
        let quanta = u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?);
        // 512 bit times each.
        named.then_some(u64::from(quanta) * 512 / 10)
    }
}

/// The RoCEv2 packet of a datagram.
fn packet(mut datagram: Datagram) -> Taken {
    let is_sealed = Flow::new(datagram.src, datagram.dst).is_ok_and(|flow| {
        let id = datagram.id;
        verify(&flow, &datagram.payload, id, IdRange::SOFTWARE) == Ok(id)
    });
    if !is_sealed {
        return Taken::Damaged;
    }
    datagram.src = of_node(datagram.src);
    datagram.dst = of_node(datagram.dst);
    Frame::from_datagram(&datagram).map_or(Taken::Other, Taken::Packet)
}

/// The datagram between the IPv6 addresses of the same nodes, with its ICRC.
fn over_ipv6(datagram: Datagram) -> Result<Datagram, Box<dyn Error>> {
    let moved = |address: SocketAddr| match address.ip() {
        IpAddr::V4(ip) => {
            let ip = Ipv6Addr::from(IPV6_NETWORK | u128::from(ip.to_bits()));
            Ok(SocketAddr::from((ip, address.port())))
        }
        IpAddr::V6(_) => Err(BytesError::Address(address)),
    };
    let (src, dst) = (moved(datagram.src)?, moved(datagram.dst)?);
    let mut payload = datagram.payload;
    let bytes = payload.len();
    payload.truncate(bytes - ICRC_BYTES);
    let icrc = Icrc::new(&Flow::new(src, dst)?, 0, bytes);
    let icrc = icrc.update(&payload).finish();
    payload.extend(icrc.to_le_bytes());
    Ok(Datagram {
        src,
        dst,
        payload,
        ..datagram
    })
}

/// The IPv4 address of the node with an IPv6 address of [`over_ipv6`]. Other addresses stay.
fn of_node(address: SocketAddr) -> SocketAddr {
    let IpAddr::V6(ip) = address.ip() else {
        return address;
    };
    match u32::try_from(ip.to_bits() ^ IPV6_NETWORK) {
        Ok(bits) => SocketAddr::from((Ipv4Addr::from_bits(bits), address.port())),
        Err(_) => address,
    }
}
