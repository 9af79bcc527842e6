//! The packets of a host as a capture file, which Wireshark, tshark and tcpdump read.

use farwrite_net::Frame;

/// The file has the first packets, up to this size. Packets are whole, because Wireshark reports
/// shortened ones as malformed.
pub(crate) const MAX_BYTES: usize = 256 << 20;
/// The longest IPv4 datagram, with an Ethernet header.
const MAX_PACKET_BYTES: usize = 14 + 65_535;
/// The number of a capture file whose times are in nanoseconds (draft-ietf-opsawg-pcap).
const MAGIC: u32 = 0xA1B2_3C4D;
const VERSION: [u16; 2] = [2, 4];
const ETHERNET: u32 = 1;
/// Before each packet: its time and twice its length, since it is whole.
const RECORD_BYTES: usize = 16;
const NS_PER_S: u64 = 1_000_000_000;

/// The packets that a host sent and received. A packet that was sent has the time at which its
/// first bit left, a packet that was received the time at which its last bit arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    file: Vec<u8>,
    packets: u64,
    left_out: u64,
}

impl Default for Capture {
    fn default() -> Self {
        let mut file = Vec::new();
        file.extend_from_slice(&MAGIC.to_le_bytes());
        for number in VERSION {
            file.extend_from_slice(&number.to_le_bytes());
        }
        // Time zone and accuracy are always 0.
        for number in [0, 0, length(MAX_PACKET_BYTES), ETHERNET] {
            file.extend_from_slice(&number.to_le_bytes());
        }
        Self {
            file,
            packets: 0,
            left_out: 0,
        }
    }
}

impl Capture {
    /// The bytes of the capture file.
    #[must_use]
    pub fn file(&self) -> &[u8] {
        &self.file
    }

    /// Number of packets in the file.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Number of later packets, for which the file, of at most 256 MiB, has no room.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    pub(crate) fn add(&mut self, at_ns: u64, frame: &Frame) {
        // Hosts send no frame that is longer than a datagram.
        let Ok(bytes) = frame.to_ethernet() else {
            return;
        };
        if self.left_out > 0 || self.file.len() + RECORD_BYTES + bytes.len() > MAX_BYTES {
            self.left_out += 1;
            return;
        }
        self.packets += 1;
        let length = length(bytes.len());
        let seconds = u32::try_from(at_ns / NS_PER_S).unwrap_or(u32::MAX);
        // Below 10^9.
        let nanoseconds = u32::try_from(at_ns % NS_PER_S).unwrap_or(0);
        for number in [seconds, nanoseconds, length, length] {
            self.file.extend_from_slice(&number.to_le_bytes());
        }
        self.file.extend_from_slice(&bytes);
    }
}

fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use farwrite_net::header::Header;
    use farwrite_net::{Ecn, NodeId, Payload};

    /// The file has a header of 24 bytes, and 16 bytes before each packet.
    #[test]
    fn packets_are_whole_and_later_packets_are_counted() {
        let frame = |bytes| Frame {
            src: NodeId(0),
            dst: NodeId(1),
            src_port: 49_152,
            dst_port: 4791,
            ipv4_id: 0,
            priority: 0,
            ecn: Ecn::Capable0,
            header: Header::Other([0; 12].into()),
            payload: Payload::Ghost(bytes),
            telemetry: None,
        };
        let mut capture = Capture::default();
        capture.add(1_000_000_002, &frame(4));
        capture.add(3, &frame(4096));
        assert_eq!(capture.file().len(), 24 + 16 + 58 + 16 + 54 + 4096);
        let words: Vec<_> = capture.file()[24..40]
            .chunks(4)
            .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
            .collect();
        assert_eq!(words, [1, 2, 58, 58]);
        capture.file.resize(MAX_BYTES - 73, 0);
        for at_ns in [4, 5] {
            capture.add(at_ns, &frame(4));
        }
        assert_eq!((capture.packets(), capture.left_out()), (2, 2));
    }
}
