//! How an operation went.

use std::time::Duration;

/// How an operation went at this rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Number of the operation in the group, counted from 0.
    pub operation: u64,
    /// Bytes of its result at this rank.
    pub bytes: u64,
    /// Bytes of the result that lack the contribution of a rank. Of an exact operation none.
    pub missing_bytes: u64,
    /// From its start to its end.
    pub elapsed: Duration,
    /// How long it was allowed to take.
    pub timeout: Duration,
}
