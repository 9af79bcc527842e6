//! What crosses a cable.

use std::sync::Arc;

use farwrite_wire::header::Bth;
use farwrite_wire::request::pad_bytes;

use crate::NodeId;
use crate::header::{Header, Roce};

/// UDP destination port of RoCEv2 (IBTA annex A17).
pub const ROCE_PORT: u16 = 4791;
/// Bytes of the IPv4 header, without options, and of the UDP header.
const IP_AND_UDP_BYTES: u32 = 20 + 8;
/// Bytes of the ICRC behind a RoCEv2 packet.
const ICRC_BYTES: u32 = 4;

/// One frame. Its headers are parsed; [`to_datagram`](Self::to_datagram) makes the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The host that sends it.
    pub src: NodeId,
    /// The host that it is for. Switches look at nothing else to find the paths.
    pub dst: NodeId,
    /// UDP source port. It spreads flows between two hosts over equal paths.
    pub src_port: u16,
    /// UDP destination port; [`ROCE_PORT`] unless the receiver is a program with ports of its own.
    pub dst_port: u16,
    /// The IPv4 identification.
    pub ipv4_id: u16,
    /// Traffic class, 0 to 7; a higher number counts as 7. Ports serve higher classes first, unless
    /// they have weights.
    pub priority: u8,
    /// Explicit congestion notification.
    pub ecn: Ecn,
    /// What stands before the payload.
    pub header: Header,
    /// What it carries.
    pub payload: Payload,
}

/// The payload of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Real bytes, shared by copies of the frame.
    Bytes(Arc<[u8]>),
    /// A number of bytes without content. They take the same time as real ones.
    Ghost(u32),
    /// Nothing: a switch cut this number of bytes off.
    Trimmed(u32),
}

/// The ECN field of the IP header (RFC 3168).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Ecn {
    /// The ends do not react to marks: never marked.
    #[default]
    NotCapable = 0b00,
    /// ECT(1).
    Capable1 = 0b01,
    /// ECT(0), what RoCEv2 sends.
    Capable0 = 0b10,
    /// Congestion experienced: marked by a switch.
    Experienced = 0b11,
}

impl Ecn {
    /// The field of an IPv4 type of service.
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
    /// Bytes on the cable.
    #[must_use]
    pub fn carried_bytes(&self) -> u32 {
        match self {
            // An IPv4 datagram has at most 65,535 bytes.
            Self::Bytes(bytes) => u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            Self::Ghost(bytes) => *bytes,
            Self::Trimmed(_) => 0,
        }
    }

    /// Bytes as they were sent, before any switch cut them off.
    #[must_use]
    pub fn sent_bytes(&self) -> u32 {
        match self {
            Self::Trimmed(bytes) => *bytes,
            _ => self.carried_bytes(),
        }
    }
}

impl Frame {
    /// A RoCEv2 packet of priority 0 and ECT(0), with only a BTH before its payload.
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
        }
    }

    /// Bytes of the IP datagram that the frame carries. RoCEv2 packets include padding and ICRC,
    /// also when they are trimmed.
    #[must_use]
    pub fn ip_bytes(&self) -> u32 {
        let payload = self.payload.carried_bytes();
        let trailer = match self.header {
            Header::Roce(_) => u32::from(pad_bytes(payload)) + ICRC_BYTES,
            Header::Other(_) => 0,
        };
        IP_AND_UDP_BYTES
            .saturating_add(self.header.bytes())
            .saturating_add(payload)
            .saturating_add(trailer)
    }

    /// Cuts the payload off.
    pub(crate) fn trim(&mut self) {
        self.payload = Payload::Trimmed(self.payload.sent_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farwrite_wire::header::DEFAULT_PKEY;

    fn frame(payload: Payload) -> Frame {
        let bth = Bth {
            opcode: 0x07,
            solicited: false,
            migrated: true,
            pad_bytes: 0,
            version: 0,
            pkey: DEFAULT_PKEY,
            fecn: false,
            becn: false,
            dest_qp: 1,
            ack_request: false,
            psn: 0,
        };
        Frame::new(NodeId(0), NodeId(1), 49_152, bth, payload)
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
