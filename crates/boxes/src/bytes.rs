//! Converts frames of a network in virtual time to Ethernet bytes, and back.

use alloc::vec::Vec;

use farwrite_link::Datagram;
use farwrite_net::header::Header;
use farwrite_net::{Ecn, Frame, Payload};

use crate::frame::View;

/// An Ethernet header: two locally administered addresses, and the Ethernet type of IPv4. The
/// simulated networks ignore Ethernet addresses.
const ETHERNET: [u8; 14] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00];
const UDP_PROTOCOL: u8 = 17;

/// Converts a frame to Ethernet bytes. Returns `None` if a switch trimmed the frame, or if it is
/// not an IPv4 datagram.
pub(crate) fn to_bytes(frame: &Frame) -> Option<Vec<u8>> {
    let datagram = frame.to_datagram().ok()?;
    let (src, dst) = (datagram.src, datagram.dst);
    let (core::net::IpAddr::V4(from), core::net::IpAddr::V4(to)) = (src.ip(), dst.ip()) else {
        return None;
    };
    let udp_bytes = u16::try_from(8 + datagram.payload.len()).ok()?;
    let ip_bytes = udp_bytes.checked_add(20)?;
    let mut bytes = Vec::with_capacity(ETHERNET.len() + usize::from(ip_bytes));
    bytes.extend_from_slice(&ETHERNET);
    bytes.extend_from_slice(&[0x45, datagram.tos]);
    bytes.extend_from_slice(&ip_bytes.to_be_bytes());
    bytes.extend_from_slice(&datagram.id.to_be_bytes());
    // Don't Fragment, time to live 64. The envelope computes the checksum.
    bytes.extend_from_slice(&[0x40, 0, 64, UDP_PROTOCOL, 0, 0]);
    bytes.extend_from_slice(&from.octets());
    bytes.extend_from_slice(&to.octets());
    for number in [src.port(), dst.port(), udp_bytes, 0] {
        bytes.extend_from_slice(&number.to_be_bytes());
    }
    bytes.extend_from_slice(&datagram.payload);
    Some(bytes)
}

/// Converts Ethernet bytes to a frame between two nodes. A datagram that is not a RoCEv2 packet
/// with a valid ICRC becomes a frame with an opaque header and no payload, which a NIC drops.
pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Frame> {
    let view = View::parse(bytes)?;
    let tos = bytes[ETHERNET.len() + 1];
    let datagram = |payload: Vec<u8>| Datagram {
        src: view.src,
        dst: view.dst,
        tos,
        id: view.ipv4_id,
        payload,
    };
    if view.icrc_holds()
        && let Ok(frame) = Frame::from_datagram(&datagram(view.payload().into()))
    {
        return Some(frame);
    }
    // The addresses of any packet say which nodes these are.
    let mut frame = Frame::from_datagram(&datagram(PLAIN.into())).ok()?;
    frame.header = Header::Other(view.payload().into());
    frame.payload = Payload::Bytes([].into());
    frame.ecn = Ecn::of_tos(tos);
    Some(frame)
}

/// An RC SEND Middle packet without payload, and four bytes in place of the ICRC, which is not
/// checked.
const PLAIN: [u8; 16] = [1, 0x40, 0xFF, 0xFF, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];

#[cfg(test)]
mod tests {
    use super::*;
    use farwrite_net::NodeId;
    use farwrite_wire::header::Bth;

    /// Otherwise, a NIC behind a box would accept a packet that was damaged on the path.
    #[test]
    fn a_damaged_packet_stays_bytes() {
        let payload = Payload::Bytes([3; 64].into());
        let bth = Bth::new(0x07, 2, 5);
        let frame = Frame::new(NodeId(0), NodeId(1), 49_152, bth, payload);
        let mut bytes = to_bytes(&frame).unwrap();
        assert_eq!(from_bytes(&bytes), Some(frame));
        bytes[80] ^= 1;
        let damaged = from_bytes(&bytes).unwrap();
        assert!(matches!(damaged.header, Header::Other(_)));
        assert_eq!(to_bytes(&damaged), Some(bytes));
    }
}
