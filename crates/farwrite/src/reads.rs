//! Reads, as their users see them (P3.13).

use std::fmt;

use farwrite_schemes::registry::SchemeName;
use farwrite_wire::control::{ReadRefusal, SchemeTag};

/// Memory that an end exposes on a queue pair, so that its peer may read it.
///
/// The number is the same at both ends. The first region that is exposed on a queue pair has number
/// 0, the next one number 1. Numbers are not used again. So the reader can know the number of a
/// region by agreement, or learn it in any way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExposedRegion(pub u64);

impl fmt::Display for ExposedRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exposed region {}", self.0)
    }
}

/// Options of a read.
#[derive(Clone, Copy, Debug)]
pub struct ReadOptions {
    /// The scheme that the peer sends with. The default is selective repeat with NACKs. A read must
    /// have a scheme.
    pub scheme: SchemeTag,
    /// The deadline of the read, by the clock of [`Endpoint::poll`](crate::Endpoint::poll). The
    /// first poll at or after that time ends the read: as whole if all has arrived, otherwise as
    /// partial. The request carries the time that remains, so that the peer stops sending then.
    pub deadline_ns: Option<u64>,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            scheme: SchemeName::SrNack.tag(),
            deadline_ns: None,
        }
    }
}

/// A read that the peer refused.
///
/// ```
/// use farwrite::{ExposedRegion, ReadRefusal, ReadRefused};
///
/// let refused = ReadRefused {
///     region: ExposedRegion(2),
///     offset: 4096,
///     length: 100,
///     reason: ReadRefusal::OutOfRange,
/// };
/// assert_eq!(
///     refused.to_string(),
///     "the peer refused to send 100 bytes from offset 4096 of exposed region 2: the bytes do not \
///      lie within the region"
/// );
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer refused to send {length} bytes from offset {offset} of {region}: {reason}")]
pub struct ReadRefused {
    /// The region that was read.
    pub region: ExposedRegion,
    /// First byte in the region.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Why.
    pub reason: ReadRefusal,
}
