//! The header of a segment, which precedes the bytes of a step on the network.
//!
//! ```text
//!  0  u64  number of the operation in the group, counted from 0
//!  8  u64  offset of the first byte from the first byte of the step
//! 16  u64  bytes of the operation; with all-to-all, of the step
//! 24  u32  root, or 0
//! 28  u8   operation
//! 29  u8   element type, or 0
//! 30  u8   reduction, or 0
//! 31  u8   algorithm; plus 128 if the operation is bounded
//! ```
//!
//! All numbers are big-endian. The bytes of the step follow.

/// The size of a header in bytes.
pub(crate) const HEADER_BYTES: usize = 32;

/// The properties of an operation that must be equal at all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) bytes: u64,
    pub(crate) root: u32,
    pub(crate) operation: u8,
    pub(crate) element: u8,
    pub(crate) reduction: u8,
    pub(crate) algorithm: u8,
    pub(crate) is_bounded: bool,
}

/// The bit that marks bounded operations, in the byte of the algorithm.
const BOUNDED: u8 = 0x80;

/// The header before the bytes of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) number: u64,
    pub(crate) offset: u64,
    pub(crate) descriptor: Descriptor,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        let descriptor = &self.descriptor;
        out[..8].copy_from_slice(&self.number.to_be_bytes());
        out[8..16].copy_from_slice(&self.offset.to_be_bytes());
        out[16..24].copy_from_slice(&descriptor.bytes.to_be_bytes());
        out[24..28].copy_from_slice(&descriptor.root.to_be_bytes());
        out[28] = descriptor.operation;
        out[29] = descriptor.element;
        out[30] = descriptor.reduction;
        out[31] = descriptor.algorithm | if descriptor.is_bounded { BOUNDED } else { 0 };
        out
    }

    /// Reads a header from arbitrary bytes; `None` if there are too few bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (number, bytes) = bytes.split_first_chunk()?;
        let (offset, bytes) = bytes.split_first_chunk()?;
        let (operation_bytes, bytes) = bytes.split_first_chunk()?;
        let (root, bytes) = bytes.split_first_chunk()?;
        let &[operation, element, reduction, algorithm] = bytes.first_chunk()?;
        Some(Self {
            number: u64::from_be_bytes(*number),
            offset: u64::from_be_bytes(*offset),
            descriptor: Descriptor {
                bytes: u64::from_be_bytes(*operation_bytes),
                root: u32::from_be_bytes(*root),
                operation,
                element,
                reduction,
                algorithm: algorithm & !BOUNDED,
                is_bounded: algorithm & BOUNDED != 0,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn headers_come_back(bytes: [u8; HEADER_BYTES], more in 0..9_usize) {
            let header = Header::decode(&[&bytes[..], &[7].repeat(more)].concat()).unwrap();
            prop_assert_eq!(header.encode(), bytes);
            prop_assert_eq!(Header::decode(&bytes[more + 1..]), None);
        }
    }
}
