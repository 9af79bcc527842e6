//! Registered memory, as users of an endpoint refer to it.

use std::ops::Range;

use farwrite_fabric::contract::Lkey;

/// A registered memory region (MR). The value is only a name and can be copied. The endpoint holds
/// the bytes.
///
/// ```
/// use farwrite::{Endpoint, UdpConfig};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut endpoint = Endpoint::over_udp(&UdpConfig::new("127.0.0.1:0".parse()?))?;
/// let region = endpoint.register(vec![0; 1 << 20])?;
/// // Half of it goes as a message, or takes one in.
/// assert_eq!(region.slice(0..1 << 19).length(), 1 << 19);
/// assert_eq!(endpoint.memory(region)?.len(), 1 << 20);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRegion {
    pub(crate) lkey: Lkey,
    pub(crate) length: u64,
}

impl MemoryRegion {
    /// Returns the size of the region in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Returns the local key.
    #[must_use]
    pub fn lkey(&self) -> Lkey {
        self.lkey
    }

    /// Returns a slice of the whole region.
    #[must_use]
    pub fn whole(&self) -> MrSlice {
        self.slice(0..self.length)
    }

    /// Returns a slice of the region. A range that exceeds the region is refused when the slice is
    /// used.
    #[must_use]
    pub fn slice(&self, range: Range<u64>) -> MrSlice {
        MrSlice {
            region: *self,
            offset: range.start,
            length: range.end.saturating_sub(range.start),
        }
    }
}

/// A slice of a memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MrSlice {
    pub(crate) region: MemoryRegion,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

impl MrSlice {
    /// An empty slice of no region. Packets without payload are sent from it.
    pub(crate) const EMPTY: Self = Self {
        region: MemoryRegion {
            lkey: Lkey(0),
            length: 0,
        },
        offset: 0,
        length: 0,
    };

    /// Returns the size of the slice in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Returns `None` if the slice does not have these bytes.
    pub(crate) fn part(&self, offset: u64, length: u64) -> Option<Self> {
        let end = offset.checked_add(length)?;
        (end <= self.length).then(|| Self {
            region: self.region,
            offset: self.offset + offset,
            length,
        })
    }

    pub(crate) fn is_within_region(&self) -> bool {
        self.offset
            .checked_add(self.length)
            .is_some_and(|end| end <= self.region.length)
    }
}
