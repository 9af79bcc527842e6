//! How an operation went.

use std::ops::Range;
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
    /// Of a bounded operation: how long contributions were waited for at most; `None`: it was the
    /// warm-up, which has no such limit.
    pub limit: Option<Duration>,
    /// Which bytes of the result lack contributions, in order; nothing of an exact operation.
    pub missing: Vec<Missing>,
}

/// Bytes of a result that are the reduction of all ranks but some; where nothing is reduced, zeros,
/// because what the rank sent has not come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Bytes of the result.
    pub range: Range<u64>,
    /// Ranks that they lack, in ascending order.
    pub ranks: Vec<usize>,
}
