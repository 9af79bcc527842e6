//! The critical chunks of a message (P5.9.6).

use core::ops::Range;

/// Most ranges of critical chunks that a message can have.
pub const MAX_CRITICAL_RANGES: usize = 8;

/// Ranges of chunks that a message of a scheme with critical ranges marks: at most
/// [`MAX_CRITICAL_RANGES`], ascending, none empty, and with at least one chunk between any two.
///
/// ```
/// use farwrite_wire::control::CriticalChunks;
///
/// let critical = CriticalChunks::new([0..2, 5..6]).unwrap();
/// assert_eq!((critical.count(), critical.end()), (3, 6));
/// assert_eq!(CriticalChunks::new([0..2, 2..6]), None);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CriticalChunks {
    /// First chunk, and one past the last, of the first `len` ranges. The others are zero.
    ranges: [(u32, u32); MAX_CRITICAL_RANGES],
    len: u8,
}

impl CriticalChunks {
    /// No chunk.
    pub const NONE: Self = Self {
        ranges: [(0, 0); MAX_CRITICAL_RANGES],
        len: 0,
    };

    /// These ranges. `None` if there are too many, one is empty, or one does not start behind the
    /// end of the one before it.
    pub fn new(ranges: impl IntoIterator<Item = Range<u32>>) -> Option<Self> {
        let mut critical = Self::NONE;
        for range in ranges {
            let is_behind = critical.len == 0 || range.start > critical.end();
            let place = critical.ranges.get_mut(usize::from(critical.len))?;
            if range.is_empty() || !is_behind {
                return None;
            }
            *place = (range.start, range.end);
            critical.len += 1;
        }
        Some(critical)
    }

    /// The ranges, ascending.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        let used = self.ranges.iter().take(usize::from(self.len));
        used.map(|&(start, end)| start..end)
    }

    /// Returns whether no chunk is critical.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of critical chunks.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.ranges().map(|range| range.end - range.start).sum()
    }

    /// One past the last critical chunk, or 0 if there is none.
    #[must_use]
    pub fn end(&self) -> u32 {
        self.ranges().last().map_or(0, |range| range.end)
    }
}
