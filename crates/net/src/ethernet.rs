//! Frames as the Ethernet bytes that a port puts on a cable.

use crate::bytes::BytesError;
use crate::{Frame, NodeId, Payload};

const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
/// Version 4, and a header of five 32-bit words.
const VERSION_AND_LENGTH: u8 = 0x45;
const IPV4_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
const DONT_FRAGMENT: [u8; 2] = [0x40, 0];
const TIME_TO_LIVE: u8 = 64;
const UDP_PROTOCOL: u8 = 17;

impl Frame {
    /// Makes the Ethernet frame, from the destination address to the end of the ICRC, without frame
    /// check sequence. The payload of a ghost is zeros. A frame that a switch trimmed becomes a
    /// packet without payload. The networks route by node, so the Ethernet addresses, which are
    /// locally administered, are those of the two hosts at any place of the path.
    ///
    /// # Errors
    /// [`BytesError`].
    pub fn to_ethernet(&self) -> Result<Vec<u8>, BytesError> {
        if let Payload::Trimmed(_) = self.payload {
            let rest = Self {
                payload: Payload::Ghost(0),
                ..self.clone()
            };
            return rest.to_ethernet();
        }
        let [from, to] = [self.src, self.dst].map(crate::address_of);
        let (from, to) = (from?.octets(), to?.octets());
        let datagram = self.to_datagram()?;
        let udp_bytes = UDP_BYTES + datagram.payload.len();
        let ip_bytes = IPV4_BYTES + udp_bytes;
        let too_long = BytesError::TooLong {
            ip_bytes: self.ip_bytes(),
        };
        let ip_length = u16::try_from(ip_bytes).map_err(|_| too_long)?;
        let mut bytes = Vec::with_capacity(14 + ip_bytes);
        for node in [self.dst, self.src] {
            bytes.extend_from_slice(&address(node));
        }
        bytes.extend_from_slice(&ETHERTYPE_IPV4);
        let ip = bytes.len();
        bytes.extend_from_slice(&[VERSION_AND_LENGTH, datagram.tos]);
        bytes.extend_from_slice(&ip_length.to_be_bytes());
        bytes.extend_from_slice(&datagram.id.to_be_bytes());
        bytes.extend_from_slice(&DONT_FRAGMENT);
        bytes.extend_from_slice(&[TIME_TO_LIVE, UDP_PROTOCOL, 0, 0]);
        bytes.extend_from_slice(&from);
        bytes.extend_from_slice(&to);
        let sum = checksum(0, &bytes[ip..]);
        bytes[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
        let udp_length = ip_length - 20;
        // RoCEv2 senders leave the UDP checksum at 0.
        for number in [self.src_port, self.dst_port, udp_length, 0] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        bytes.extend_from_slice(&datagram.payload);
        Ok(bytes)
    }
}

/// The Ethernet address of a node: 02:00, then its number.
fn address(node: NodeId) -> [u8; 6] {
    let [a, b, c, d] = node.0.to_be_bytes();
    [2, 0, a, b, c, d]
}

/// The Internet checksum (RFC 1071) of bytes, which starts from the sum `initial`.
#[must_use]
pub fn checksum(initial: u32, bytes: &[u8]) -> u16 {
    let mut sum = u64::from(initial);
    let mut pairs = bytes.chunks_exact(2);
    for pair in &mut pairs {
        sum += u64::from(u16::from_be_bytes([pair[0], pair[1]]));
    }
    if let [last] = pairs.remainder() {
        sum += u64::from(*last) << 8;
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use farwrite_wire::header::Bth;

    fn frame(payload: Payload) -> Frame {
        Frame::new(NodeId(0), NodeId(1), 49_152, Bth::new(0x07, 2, 5), payload)
    }

    #[test]
    fn the_header_checksum_makes_the_sum_of_all_words_zero() {
        let bytes = frame(Payload::Ghost(1000)).to_ethernet().unwrap();
        assert_eq!(bytes.len(), 14 + 1044);
        assert_eq!(bytes[..12], [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0]);
        assert_eq!(checksum(0, &bytes[14..34]), 0);
        assert_eq!(bytes[26..34], [10, 0, 0, 1, 10, 0, 0, 2]);
    }

    #[test]
    fn a_trimmed_frame_has_no_payload() {
        let mut frame = frame(Payload::Ghost(1000));
        frame.trim();
        assert_eq!(frame.to_ethernet().unwrap().len(), 14 + 44);
    }
}
