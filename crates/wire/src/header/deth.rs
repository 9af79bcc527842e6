//! Datagram extended transport header (IBTA 9.3.2).

use super::{field, from_u24, to_u24};
use core::ops::Range;

const QKEY: Range<usize> = 0..4;
const RESERVED: usize = 4;
const SRC_QP: Range<usize> = 5..8;

/// The sender of a datagram, and the key that authorises it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deth {
    /// The receiving queue pair's key.
    pub qkey: u32,
    /// The sending queue pair, 24 bits.
    pub src_qp: u32,
}

impl Deth {
    /// Bytes of the header.
    pub const BYTES: usize = 8;

    /// Reads a header, and ignores the reserved byte.
    #[must_use]
    pub fn parse(header: &[u8; Self::BYTES]) -> Self {
        Self {
            qkey: u32::from_be_bytes(field(header, QKEY)),
            src_qp: from_u24(field(header, SRC_QP)),
        }
    }

    /// Writes the header, with the low 24 bits of `src_qp`.
    pub fn emit(&self, header: &mut [u8; Self::BYTES]) {
        header[QKEY].copy_from_slice(&self.qkey.to_be_bytes());
        header[RESERVED] = 0;
        header[SRC_QP].copy_from_slice(&to_u24(self.src_qp));
    }
}
