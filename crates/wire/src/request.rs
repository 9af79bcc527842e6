//! The two packets that Farwrite sends, built in place (P2).
//!
//! A packet is the header made here, the payload, [`pad_bytes`] zeros, and the ICRC. They can be at
//! separate places in memory.

use crate::header::{Bth, ICRC_BYTES, IMMDT_BYTES, Reth};
use crate::opcode;

/// Zero bytes that follow a payload so that the packet is a multiple of 4 bytes long (IBTA 9.2,
/// P2.4).
///
/// ```
/// use farwrite_wire::request::pad_bytes;
///
/// assert_eq!([4096, 4097, 4099].map(pad_bytes), [0, 3, 1]);
/// ```
#[must_use]
pub const fn pad_bytes(payload_bytes: u32) -> u8 {
    // At most 3, so the cast loses nothing.
    (payload_bytes.wrapping_neg() & 0b11) as u8
}

/// UC RDMA WRITE Only with Immediate, opcode 0x2B.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteImm {
    /// The peer's queue pair, 24 bits.
    pub dest_qp: u32,
    /// Packet sequence number, 24 bits.
    pub psn: u32,
    /// Where the payload goes, under `rkey`.
    pub remote_addr: u64,
    /// The peer's key.
    pub rkey: u32,
    /// The immediate.
    pub imm: u32,
    /// Bytes of the payload, without padding.
    pub payload_bytes: u32,
}

const _: () = assert!(WriteImm::OVERHEAD_BYTES as usize == WriteImm::HEADER_BYTES + ICRC_BYTES);

impl WriteImm {
    /// Bytes before the payload: BTH, RETH, ImmDt.
    pub const HEADER_BYTES: usize = Bth::BYTES + Reth::BYTES + IMMDT_BYTES;
    /// Bytes around the payload: the header and the ICRC.
    pub const OVERHEAD_BYTES: u32 = 36;

    /// The base transport header.
    #[must_use]
    pub fn bth(&self) -> Bth {
        let opcode = opcode::UC_WRITE_ONLY_WITH_IMM;
        bth(opcode, self.dest_qp, self.psn, self.payload_bytes)
    }

    /// The RDMA header.
    #[must_use]
    pub fn reth(&self) -> Reth {
        Reth {
            remote_addr: self.remote_addr,
            rkey: self.rkey,
            dma_bytes: self.payload_bytes,
        }
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> [u8; Self::HEADER_BYTES] {
        let mut reth = [0; Reth::BYTES];
        self.reth().emit(&mut reth);
        let mut header = [0; Self::HEADER_BYTES];
        header[..Bth::BYTES].copy_from_slice(&emitted(&self.bth()));
        header[Bth::BYTES..][..Reth::BYTES].copy_from_slice(&reth);
        header[Bth::BYTES + Reth::BYTES..].copy_from_slice(&self.imm.to_be_bytes());
        header
    }
}

/// UC SEND Only, opcode 0x24.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendOnly {
    /// The peer's queue pair, 24 bits.
    pub dest_qp: u32,
    /// Packet sequence number, 24 bits.
    pub psn: u32,
    /// Bytes of the payload, without padding.
    pub payload_bytes: u32,
}

impl SendOnly {
    /// Bytes before the payload: the BTH.
    pub const HEADER_BYTES: usize = Bth::BYTES;

    /// The header.
    #[must_use]
    pub fn header(&self) -> [u8; Self::HEADER_BYTES] {
        let opcode = opcode::UC_SEND_ONLY;
        emitted(&bth(opcode, self.dest_qp, self.psn, self.payload_bytes))
    }
}

fn bth(opcode: u8, dest_qp: u32, psn: u32, payload_bytes: u32) -> Bth {
    Bth {
        pad_bytes: pad_bytes(payload_bytes),
        ..Bth::new(opcode, dest_qp, psn)
    }
}

fn emitted(bth: &Bth) -> [u8; Bth::BYTES] {
    let mut header = [0; Bth::BYTES];
    bth.emit(&mut header);
    header
}
