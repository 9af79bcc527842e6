//! Base transport header (IBTA 9.2, P2.2).

use super::{field, from_u24, to_u24};
use core::ops::Range;

/// The default partition key, full member (IBTA 10.9.1.2); the only one RoCE uses.
pub const DEFAULT_PKEY: u16 = 0xFFFF;

const OPCODE: usize = 0;
/// Solicited event, migration state, pad count (2 bits), header version (4 bits).
const FLAGS: usize = 1;
const PKEY: Range<usize> = 2..4;
/// FECN, BECN, six reserved bits. The ICRC counts this byte as 0xFF.
pub(crate) const CONGESTION: usize = 4;
const DEST_QP: Range<usize> = 5..8;
/// Acknowledge request, seven reserved bits.
const ACK: usize = 8;
const PSN: Range<usize> = 9..12;

/// The header that every packet starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bth {
    /// The type of the packet; see [`crate::opcode::lookup`].
    pub opcode: u8,
    /// Whether the receiver raises an event.
    pub solicited: bool,
    /// The migration state bit; set in all packets of a queue pair without an alternate path
    /// (IBTA 17.2.8).
    pub migrated: bool,
    /// Zero bytes between the payload and the ICRC, 0 to 3.
    pub pad_bytes: u8,
    /// Version of the header, 0 to 15. Only version 0 exists.
    pub version: u8,
    /// Partition.
    pub pkey: u16,
    /// Congestion occurred on the way to the receiver.
    pub fecn: bool,
    /// Congestion occurred in the opposite direction.
    pub becn: bool,
    /// The queue pair that the packet is for, 24 bits.
    pub dest_qp: u32,
    /// Whether the sender wants an acknowledgement (reliable services only).
    pub ack_request: bool,
    /// Packet sequence number, 24 bits.
    pub psn: u32,
}

impl Bth {
    /// Bytes of the header.
    pub const BYTES: usize = 12;

    /// A header without flags, for a queue pair in the default partition. There is no alternate
    /// path, so the migration state is set.
    #[must_use]
    pub const fn new(opcode: u8, dest_qp: u32, psn: u32) -> Self {
        Self {
            opcode,
            solicited: false,
            migrated: true,
            pad_bytes: 0,
            version: 0,
            pkey: DEFAULT_PKEY,
            fecn: false,
            becn: false,
            dest_qp,
            ack_request: false,
            psn,
        }
    }

    /// Reads a header, and ignores reserved bits.
    #[must_use]
    pub fn parse(header: &[u8; Self::BYTES]) -> Self {
        let flags = header[FLAGS];
        let congestion = header[CONGESTION];
        Self {
            opcode: header[OPCODE],
            solicited: flags & 0x80 != 0,
            migrated: flags & 0x40 != 0,
            pad_bytes: flags >> 4 & 0b11,
            version: flags & 0x0F,
            pkey: u16::from_be_bytes(field(header, PKEY)),
            fecn: congestion & 0x80 != 0,
            becn: congestion & 0x40 != 0,
            dest_qp: from_u24(field(header, DEST_QP)),
            ack_request: header[ACK] & 0x80 != 0,
            psn: from_u24(field(header, PSN)),
        }
    }

    /// Writes the header, with reserved bits zero. For a number that is too wide for its field,
    /// this writes the low bits.
    pub fn emit(&self, header: &mut [u8; Self::BYTES]) {
        header[OPCODE] = self.opcode;
        header[FLAGS] = u8::from(self.solicited) << 7
            | u8::from(self.migrated) << 6
            | (self.pad_bytes & 0b11) << 4
            | self.version & 0x0F;
        header[PKEY].copy_from_slice(&self.pkey.to_be_bytes());
        header[CONGESTION] = u8::from(self.fecn) << 7 | u8::from(self.becn) << 6;
        header[DEST_QP].copy_from_slice(&to_u24(self.dest_qp));
        header[ACK] = u8::from(self.ack_request) << 7;
        header[PSN].copy_from_slice(&to_u24(self.psn));
    }
}
