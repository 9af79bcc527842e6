//! Frames: the packets that cross cables.

use std::sync::Arc;

use farwrite_wire::header::Bth;
use farwrite_wire::request::pad_bytes;

use crate::NodeId;
use crate::header::{Header, Roce};
use crate::telemetry::Telemetry;

/// UDP destination port of RoCEv2 (IBTA annex A17).
pub const ROCE_PORT: u16 = 4791;
/// Bytes of the IPv4 header, without options, and of the UDP header.
const IP_AND_UDP_BYTES: u32 = 20 + 8;
/// Bytes of the ICRC after a RoCEv2 packet.
const ICRC_BYTES: u32 = 4;

/// One frame. Its headers are stored in parsed form; [`to_datagram`](Self::to_datagram) makes the
/// bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The sending host.
    pub src: NodeId,
    /// The destination host. Switches route by this field.
    pub dst: NodeId,
    /// UDP source port. ECMP hashes it, so it spreads the flows between two hosts over equal paths.
    pub src_port: u16,
    /// UDP destination port: [`ROCE_PORT`], unless the receiver is a program with its own ports.
    pub dst_port: u16,
    /// IPv4 identification field.
    pub ipv4_id: u16,
    /// Traffic class, 0 to 7; a higher number counts as 7. Ports serve higher classes first unless
    /// the classes have weights.
    pub priority: u8,
    /// Explicit congestion notification.
    pub ecn: Ecn,
    /// Headers between UDP and the payload.
    pub header: Header,
    /// The payload.
    pub payload: Payload,
    /// Room for telemetry of the switches, if the sender asks for it. Datagrams as bytes do not have it.
    pub telemetry: Option<Box<Telemetry>>,
}

/// The payload of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Real bytes, shared by all copies of the frame.
    Bytes(Arc<[u8]>),
    /// A length without content (a *ghost*). It takes the same transmission time as real bytes.
    Ghost(u32),
    /// Trimmed: a switch cut off this number of bytes.
    Trimmed(u32),
}

/// The ECN field of the IP header (RFC 3168).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Ecn {
    /// Not ECN-capable: switches never mark the frame.
    #[default]
    NotCapable = 0b00,
    /// ECT(1).
    Capable1 = 0b01,
    /// ECT(0), which RoCEv2 senders set.
    Capable0 = 0b10,
    /// Congestion experienced: marked by a switch.
    Experienced = 0b11,
}

impl Ecn {
    /// The ECN field of an IPv4 type-of-service byte.
    #[must_use]
    pub fn of_tos(tos: u8) -> Self {
        match tos & 0b11 {
            0b00 => Self::NotCapable,
            0b01 => Self::Capable1,
            0b10 => Self::Capable0,
            _ => Self::Experienced,
        }
    }
}

impl Payload {
    /// Bytes that the payload takes on a cable.
    #[must_use]
    pub fn carried_bytes(&self) -> u32 {
        match self {
            // An IPv4 datagram has at most 65,535 bytes.
            Self::Bytes(bytes) => u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            Self::Ghost(bytes) => *bytes,
            Self::Trimmed(_) => 0,
        }
    }

    /// Bytes of the payload as the sender sent it, before any trimming.
    #[must_use]
    pub fn sent_bytes(&self) -> u32 {
        match self {
            Self::Trimmed(bytes) => *bytes,
            _ => self.carried_bytes(),
        }
    }
}

impl Frame {
    /// A RoCEv2 packet of priority 0 with ECT(0), whose only header is a BTH.
    #[must_use]
    pub fn new(src: NodeId, dst: NodeId, src_port: u16, bth: Bth, payload: Payload) -> Self {
        Self {
            src,
            dst,
            src_port,
            dst_port: ROCE_PORT,
            ipv4_id: 0,
            priority: 0,
            ecn: Ecn::Capable0,
            header: Header::Roce(Roce::new(bth)),
            payload,
            telemetry: None,
        }
    }

    /// Bytes of the IP datagram in the frame. Padding, ICRC of RoCEv2 packets, and telemetry, count, also
    /// when the packet is trimmed.
    #[must_use]
    pub fn ip_bytes(&self) -> u32 {
        let payload = self.payload.carried_bytes();
        let trailer = match self.header {
            Header::Roce(_) => u32::from(pad_bytes(payload)) + ICRC_BYTES,
            Header::Other(_) => 0,
        };
        let telemetry = self.telemetry.as_ref().map_or(0, |_| Telemetry::BYTES);
        IP_AND_UDP_BYTES
            .saturating_add(self.header.bytes())
            .saturating_add(payload)
            .saturating_add(trailer)
            .saturating_add(telemetry)
    }

    /// Cuts the payload off.
    pub(crate) fn trim(&mut self) {
        self.payload = Payload::Trimmed(self.payload.sent_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(payload: Payload) -> Frame {
        Frame::new(NodeId(0), NodeId(1), 49_152, Bth::new(0x07, 1, 0), payload)
    }

    /// 20 of IPv4, 8 of UDP, 12 of BTH, 4 of ICRC.
    #[test]
    fn sizes_count_headers_padding_and_icrc() {
        for (payload, want) in [(0, 44), (1, 48), (1000, 1044), (1023, 1068)] {
            assert_eq!(frame(Payload::Ghost(payload)).ip_bytes(), want);
            let bytes = vec![0; payload as usize].into();
            assert_eq!(frame(Payload::Bytes(bytes)).ip_bytes(), want);
        }
    }

    #[test]
    fn a_trimmed_frame_is_its_header_and_knows_what_it_was() {
        let mut frame = frame(Payload::Ghost(1000));
        frame.trim();
        frame.trim();
        assert_eq!(frame.payload, Payload::Trimmed(1000));
        assert_eq!((frame.ip_bytes(), frame.payload.sent_bytes()), (44, 1000));
    }
}
