//! Conversion of byte offsets to indices.

use std::ops::Range;

/// The index for a byte offset in memory.
pub(crate) fn to_usize(place: u64) -> usize {
    usize::try_from(place).expect("places lie within memory")
}

/// The indices of a range of bytes.
pub(crate) fn to_range(range: &Range<u64>) -> Range<usize> {
    to_usize(range.start)..to_usize(range.end)
}
