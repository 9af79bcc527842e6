//! Critical ranges of a message (P5.9.6).

use std::ops::Range;

use farwrite_wire::control::{CriticalChunks, MAX_CRITICAL_RANGES};

/// Byte ranges of a message that are critical: with `best-effort+first` they leave before the rest,
/// with `best-effort+exact` they are also repeated until they have arrived. A message of
/// `best-effort+exact` whose critical bytes are not all there at its deadline fails.
///
/// A range counts for all chunks that it touches. A chunk has
/// [`packets_per_chunk`](crate::QpConfig::packets_per_chunk) packets of
/// [`mtu`](crate::QpConfig::mtu) bytes.
///
/// ```
/// use farwrite::CriticalRanges;
///
/// let ranges = CriticalRanges::new([4096..8192, 0..64])?;
/// assert_eq!(ranges.ranges().collect::<Vec<_>>(), [0..64, 4096..8192]);
/// # Ok::<(), farwrite::CriticalError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CriticalRanges {
    /// The first `len` entries are ranges, ascending, none empty, and none touching another.
    ranges: [(u64, u64); MAX_CRITICAL_RANGES],
    len: usize,
}

/// Why ranges cannot be critical.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CriticalError {
    /// A range has no bytes.
    #[error("critical range {0:?} has no bytes: leave it out")]
    Empty(Range<u64>),
    /// There are more ranges than a message can have.
    #[error(
        "{count} separate critical ranges are too many: a message can have {MAX_CRITICAL_RANGES}; \
         join neighbours, or put them next to each other in the message"
    )]
    TooMany {
        /// Number of ranges, of which none touches another.
        count: usize,
    },
    /// A range exceeds the message.
    #[error("critical range {range:?} leaves the message of {length} bytes")]
    OutOfBounds {
        /// The range.
        range: Range<u64>,
        /// Bytes of the message.
        length: u64,
    },
    /// The scheme of the message has no critical ranges.
    #[error(
        "scheme {scheme} has no critical ranges: send with best-effort+first or best-effort+exact"
    )]
    Scheme {
        /// Identifier of the scheme.
        scheme: u8,
    },
}

impl CriticalRanges {
    /// No range.
    pub const NONE: Self = Self {
        ranges: [(0, 0); MAX_CRITICAL_RANGES],
        len: 0,
    };

    /// These ranges, in any order. Ranges that touch or overlap become one.
    ///
    /// # Errors
    /// [`CriticalError::Empty`], [`CriticalError::TooMany`].
    pub fn new(ranges: impl IntoIterator<Item = Range<u64>>) -> Result<Self, CriticalError> {
        let mut sorted: Vec<Range<u64>> = ranges.into_iter().collect();
        if let Some(empty) = sorted.iter().find(|range| range.is_empty()) {
            return Err(CriticalError::Empty(empty.clone()));
        }
        sorted.sort_by_key(|range| range.start);
        sorted.dedup_by(|next, range| {
            let touches = next.start <= range.end;
            if touches {
                range.end = range.end.max(next.end);
            }
            touches
        });
        let count = sorted.len();
        let mut critical = Self::NONE;
        if count > critical.ranges.len() {
            return Err(CriticalError::TooMany { count });
        }
        for (place, range) in critical.ranges.iter_mut().zip(sorted) {
            *place = (range.start, range.end);
        }
        critical.len = count;
        Ok(critical)
    }

    /// The ranges, ascending.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let used = self.ranges.iter().take(self.len);
        used.map(|&(start, end)| start..end)
    }

    /// Returns whether there is no range.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The chunks that the ranges touch, in a message of `length` bytes.
    pub(crate) fn chunks(
        &self,
        length: u64,
        chunk_bytes: u64,
    ) -> Result<CriticalChunks, CriticalError> {
        let mut chunks: Vec<Range<u32>> = Vec::new();
        for range in self.ranges() {
            if range.end > length {
                return Err(CriticalError::OutOfBounds { range, length });
            }
            let number =
                |chunk: u64| u32::try_from(chunk).expect("messages have 2^32 chunks at most");
            let start = number(range.start / chunk_bytes);
            let end = number(range.end.div_ceil(chunk_bytes));
            match chunks.last_mut() {
                Some(last) if start <= last.end => last.end = end,
                _ => chunks.push(start..end),
            }
        }
        Ok(CriticalChunks::new(chunks).expect("ascending ranges that do not touch"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_rounded_to_chunks_and_joined() {
        let critical = CriticalRanges::new([300..301, 0..1, 99..150, 150..200]).unwrap();
        assert_eq!(
            critical.ranges().collect::<Vec<_>>(),
            [0..1, 99..200, 300..301]
        );
        let chunks = |chunk_bytes| critical.chunks(301, chunk_bytes).unwrap();
        assert_eq!(chunks(100).ranges().collect::<Vec<_>>(), [0..2, 3..4]);
        assert_eq!(
            chunks(10).ranges().collect::<Vec<_>>(),
            [0..1, 9..20, 30..31]
        );
        assert!(chunks(1000).ranges().eq(std::iter::once(0..1)));
        let (range, length) = (300..301, 300);
        let out_of_bounds = CriticalError::OutOfBounds { range, length };
        assert_eq!(critical.chunks(300, 100), Err(out_of_bounds));
    }

    #[test]
    fn ranges_that_no_message_can_have_are_refused() {
        let empty = CriticalRanges::new(std::iter::once(5..5));
        assert_eq!(empty, Err(CriticalError::Empty(5..5)));
        let many = |count: u64| CriticalRanges::new((0..count).map(|i| 2 * i..2 * i + 1));
        assert!(many(8).is_ok());
        assert_eq!(many(9), Err(CriticalError::TooMany { count: 9 }));
        assert!(CriticalRanges::new((0..20).map(|i| i..i + 1)).is_ok());
        assert!(CriticalRanges::NONE.is_empty());
    }
}
