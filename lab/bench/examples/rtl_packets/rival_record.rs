//! The file of packets for the rivals of XP. `lab/rtl/sim/rivals.cpp` reads it.
//!
//! After a record of a packet comes its payload, and after a record of memory all regions.

use std::io::{self, Write};

// Kinds of records.
pub(crate) const CREATE: u32 = 0;
pub(crate) const PACKET: u32 = 1;
pub(crate) const MEMORY: u32 = 2;

// Flags of packets and answers.
pub(crate) const FIRST: u32 = 1;
pub(crate) const LAST: u32 = 2;
pub(crate) const ACK_REQUEST: u32 = 4;
pub(crate) const HAS_IMM: u32 = 8;
pub(crate) const ANSWERS: u32 = 16;
pub(crate) const IS_NAK: u32 = 32;
pub(crate) const IS_ERROR: u32 = 64;
pub(crate) const IS_IRN: u32 = 128;

/// What enters the hardware, and what has to come out.
#[derive(Clone, Copy, Default)]
pub(crate) struct Record {
    pub(crate) addr: u64,
    pub(crate) kind: u32,
    pub(crate) flags: u32,
    pub(crate) seq: u32,
    pub(crate) rkey: u32,
    pub(crate) bytes: u32,
    pub(crate) imm: u32,
    pub(crate) payload_bytes: u32,
    pub(crate) mtu_log: u32,
    pub(crate) psn: u32,
    pub(crate) msn: u32,
    pub(crate) after_gap: u32,
    pub(crate) ends: u32,
    pub(crate) end_imm: u32,
}

impl Record {
    pub(crate) fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&self.addr.to_le_bytes())?;
        let words = [
            self.kind,
            self.flags,
            self.seq,
            self.rkey,
            self.bytes,
            self.imm,
            self.payload_bytes,
            self.mtu_log,
            self.psn,
            self.msn,
            self.after_gap,
            self.ends,
            self.end_imm,
            0,
        ];
        words
            .iter()
            .try_for_each(|word| out.write_all(&word.to_le_bytes()))
    }
}
