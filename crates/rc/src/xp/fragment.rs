//! Packets of XP.

use farwrite_net::Payload;
use farwrite_wire::header::Reth;
use farwrite_wire::opcode::UC_WRITE_ONLY_WITH_IMM;

use crate::packet::{Packet, header};

const UC_WRITE_ONLY: u8 = 0x2A;

/// A part of a message, with the place of its payload in the peer's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fragment {
    /// Number of the message, 24 bits.
    pub(super) seq: u32,
    pub(super) rkey: u32,
    pub(super) addr: u64,
    /// Bytes of the whole message.
    pub(super) message_bytes: u32,
    /// The immediate, in the last fragment.
    pub(super) imm: Option<u32>,
    pub(super) payload: Payload,
}

impl Fragment {
    pub(super) fn packet(self, peer_qpn: u32) -> Packet {
        let opcode = match self.imm {
            Some(_) => UC_WRITE_ONLY_WITH_IMM,
            None => UC_WRITE_ONLY,
        };
        let mut header = header(opcode, peer_qpn, self.seq.into(), false);
        header.imm = self.imm;
        header.reth = Some(Reth {
            remote_addr: self.addr,
            rkey: self.rkey,
            dma_bytes: self.message_bytes,
        });
        let payload = self.payload;
        Packet { header, payload }
    }

    /// Bytes of the IP datagram of a full fragment without immediate.
    pub(super) fn full_bytes(mtu_bytes: u32) -> u64 {
        let full = Self {
            seq: 0,
            rkey: 0,
            addr: 0,
            message_bytes: 0,
            imm: None,
            payload: Payload::Ghost(mtu_bytes),
        };
        full.packet(0).ip_bytes()
    }

    /// The fragment in a packet; `None` if the packet has none.
    pub(super) fn of(packet: &Packet) -> Option<Self> {
        let header = &packet.header;
        let imm = match header.bth.opcode {
            UC_WRITE_ONLY => None,
            UC_WRITE_ONLY_WITH_IMM => Some(header.imm?),
            _ => return None,
        };
        let reth = header.reth?;
        Some(Self {
            seq: header.bth.psn,
            rkey: reth.rkey,
            addr: reth.remote_addr,
            message_bytes: reth.dma_bytes,
            imm,
            payload: packet.payload.clone(),
        })
    }
}

/// Whether a packet may have a fragment.
pub(crate) fn is_data(packet: &Packet) -> bool {
    matches!(
        packet.header.bth.opcode,
        UC_WRITE_ONLY | UC_WRITE_ONLY_WITH_IMM
    )
}
