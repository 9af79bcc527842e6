//! Headers of a RoCEv2 packet. Each has its length, its fields as named byte ranges, and a plain
//! struct. The struct is read from, and written into, an array of exactly that length.
//!
//! The type of the array proves that it has all bytes of the header, so reading it cannot fail.

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

/// Converts a 24-bit number from network order.
fn from_u24([a, b, c]: [u8; 3]) -> u32 {
    u32::from_be_bytes([0, a, b, c])
}

/// Converts the low 24 bits of a number to network order.
fn to_u24(value: u32) -> [u8; 3] {
    let [_, a, b, c] = value.to_be_bytes();
    [a, b, c]
}
