//! Headers of a RoCEv2 packet: for each its length, its fields as named byte ranges, and a plain
//! struct that is read from, and written into, an array of exactly that length.
//!
//! The array is the checked view: whoever has one need not ask again whether the bytes are there.

mod aeth;
mod bth;
mod deth;
mod reth;

pub use aeth::Aeth;
pub(crate) use bth::CONGESTION;
pub use bth::{Bth, DEFAULT_PKEY};
pub use deth::Deth;
pub use reth::Reth;

use core::ops::Range;

/// Bytes of the immediate data header, ImmDt (IBTA 9.3.6, P2.4): one 32-bit number.
pub const IMMDT_BYTES: usize = 4;

/// Bytes of the invariant CRC at the end of a packet (IBTA 7.8, P2.5).
pub const ICRC_BYTES: usize = 4;

/// Copies one field out. The ranges are constants within the header, `N` bytes long.
pub(crate) fn field<const N: usize>(header: &[u8], range: Range<usize>) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&header[range]);
    bytes
}

/// A 24-bit number as it is sent.
fn from_u24([a, b, c]: [u8; 3]) -> u32 {
    u32::from_be_bytes([0, a, b, c])
}

/// A number's low 24 bits as they are sent.
fn to_u24(value: u32) -> [u8; 3] {
    let [_, a, b, c] = value.to_be_bytes();
    [a, b, c]
}
