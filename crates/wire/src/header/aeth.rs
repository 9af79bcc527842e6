//! ACK extended transport header (IBTA 9.3.5).

use super::{field, from_u24, to_u24};
use core::ops::Range;

const SYNDROME: usize = 0;
const MSN: Range<usize> = 1..4;

/// The answer of the receiver in a reliable connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// ACK, RNR NAK or NAK, with credits, a timer or a reason (IBTA 9.7.5).
    pub syndrome: u8,
    /// Messages completed, 24 bits.
    pub msn: u32,
}

impl Aeth {
    /// Bytes of the header.
    pub const BYTES: usize = 4;

    /// Reads a header.
    #[must_use]
    pub fn parse(header: &[u8; Self::BYTES]) -> Self {
        Self {
            syndrome: header[SYNDROME],
            msn: from_u24(field(header, MSN)),
        }
    }

    /// Writes the header, with the low 24 bits of `msn`.
    pub fn emit(&self, header: &mut [u8; Self::BYTES]) {
        header[SYNDROME] = self.syndrome;
        header[MSN].copy_from_slice(&to_u24(self.msn));
    }
}
