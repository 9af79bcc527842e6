//! Converts frames of a network in virtual time to Ethernet bytes, and back.

use alloc::vec::Vec;

use farwrite_link::Datagram;
use farwrite_net::header::Header;
use farwrite_net::{Ecn, Frame, Payload};

use crate::frame::View;

const ETHERNET_BYTES: usize = 14;

/// Converts a frame to Ethernet bytes. Returns `None` if a switch trimmed the frame.
pub(crate) fn to_bytes(frame: &Frame) -> Option<Vec<u8>> {
    if let Payload::Trimmed(_) = frame.payload {
        return None;
    }
    frame.to_ethernet().ok()
}

/// Converts Ethernet bytes to a frame between two nodes. A datagram that is not a RoCEv2 packet
/// with a valid ICRC becomes a frame with an opaque header and no payload, which a NIC drops.
pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Frame> {
    let view = View::parse(bytes)?;
    let tos = bytes[ETHERNET_BYTES + 1];
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
