//! Packets of a connection, and how messages are cut into packets and joined again.

use alloc::vec::Vec;

use farwrite_net::Payload;
use farwrite_net::header::Roce;
use farwrite_wire::header::Bth;
use farwrite_wire::request::pad_bytes;

use crate::replies::aeth;
use crate::syndrome::Syndrome;
use crate::{opcode, psn};

/// A packet: parsed headers and a payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The headers from the BTH on.
    pub header: Roce,
    /// The payload after the headers.
    pub payload: Payload,
}

impl Packet {
    /// Bytes of the packet's IP datagram.
    pub(crate) fn ip_bytes(&self) -> u64 {
        let payload = self.payload.carried_bytes();
        let padding = u64::from(pad_bytes(payload));
        // IPv4, UDP and ICRC.
        let fixed = 20 + 8 + 4;
        u64::from(self.header.bytes()) + u64::from(payload) + padding + fixed
    }
}

/// A credit grant, with the total of packets granted so far.
pub(crate) fn grant(peer_qpn: u32, granted_packets: u64) -> Packet {
    let mut header = header(opcode::ACKNOWLEDGE, peer_qpn, 0, false);
    header.aeth = Some(aeth(Syndrome::Ack, psn::of(granted_packets)));
    let payload = Payload::Bytes([].into());
    Packet { header, payload }
}

/// The total of a credit grant, modulo 2^24; `None` for other packets.
pub(crate) fn granted(packet: &Packet) -> Option<u32> {
    let is_ack = packet.header.bth.opcode == opcode::ACKNOWLEDGE;
    Some(packet.header.aeth.filter(|_| is_ack)?.msn)
}

/// A congestion notification packet (IBTA A17.9.3): BECN is set, and 16 bytes of zeros follow.
pub(crate) fn notification(peer_qpn: u32) -> Packet {
    let mut header = header(opcode::NOTIFICATION, peer_qpn, 0, false);
    header.bth.migrated = false;
    header.bth.becn = true;
    let payload = Payload::Bytes([0; 16].into());
    Packet { header, payload }
}

/// Headers of a packet that has only a BTH.
pub(crate) fn header(opcode: u8, dest_qp: u32, count: u64, ack_request: bool) -> Roce {
    Roce::new(Bth {
        ack_request,
        ..Bth::new(opcode, dest_qp, psn::of(count))
    })
}

/// The part of a payload that begins at `offset` and has `bytes` bytes. The part must lie within
/// the payload.
pub(crate) fn piece(data: &Payload, offset: u32, bytes: u32) -> Payload {
    match data {
        Payload::Bytes(all) => {
            let piece = all
                .get(offset as usize..)
                .and_then(|b| b.get(..bytes as usize));
            Payload::Bytes(piece.unwrap_or_default().into())
        }
        Payload::Ghost(_) | Payload::Trimmed(_) => Payload::Ghost(bytes),
    }
}

/// Number of packets of a message; one if the message is empty.
pub(crate) fn packets(bytes: u32, mtu_bytes: u32) -> u32 {
    bytes.div_ceil(mtu_bytes).max(1)
}

/// A message that is assembled from payloads. It becomes a ghost as soon as one of its payloads is
/// a ghost.
#[derive(Clone, Debug)]
pub(crate) struct Assembly {
    bytes: Option<Vec<u8>>,
    length: u32,
}

impl Assembly {
    pub(crate) fn new() -> Self {
        Self {
            bytes: Some(Vec::new()),
            length: 0,
        }
    }

    pub(crate) fn length(&self) -> u32 {
        self.length
    }

    pub(crate) fn push(&mut self, payload: &Payload) {
        self.length = self.length.saturating_add(payload.carried_bytes());
        match (payload, &mut self.bytes) {
            (Payload::Bytes(piece), Some(bytes)) => bytes.extend_from_slice(piece),
            _ => self.bytes = None,
        }
    }

    pub(crate) fn finish(self) -> Payload {
        match self.bytes {
            Some(bytes) => Payload::Bytes(bytes.into()),
            None => Payload::Ghost(self.length),
        }
    }
}
