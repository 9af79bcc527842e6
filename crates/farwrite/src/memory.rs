//! Registered memory, as the user of an endpoint names it.

use std::ops::Range;

use farwrite_fabric::contract::Lkey;

/// A registered memory region (MR). Copyable: it is a name, the endpoint holds the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRegion {
    pub(crate) lkey: Lkey,
    pub(crate) length: u64,
}

impl MemoryRegion {
    /// Bytes of the region.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The local key.
    #[must_use]
    pub fn lkey(&self) -> Lkey {
        self.lkey
    }

    /// The whole region.
    #[must_use]
    pub fn whole(&self) -> MrSlice {
        self.slice(0..self.length)
    }

    /// Some bytes of the region. A range that leaves the region is refused where it is used.
    #[must_use]
    pub fn slice(&self, range: Range<u64>) -> MrSlice {
        MrSlice {
            region: *self,
            offset: range.start,
            length: range.end.saturating_sub(range.start),
        }
    }
}

/// Some bytes of a memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MrSlice {
    pub(crate) region: MemoryRegion,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

impl MrSlice {
    /// No bytes of no region: what packets without payload are sent from.
    pub(crate) const EMPTY: Self = Self {
        region: MemoryRegion {
            lkey: Lkey(0),
            length: 0,
        },
        offset: 0,
        length: 0,
    };

    /// Bytes of the slice.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    pub(crate) fn is_within_region(&self) -> bool {
        self.offset
            .checked_add(self.length)
            .is_some_and(|end| end <= self.region.length)
    }
}
