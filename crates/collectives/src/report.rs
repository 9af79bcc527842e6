//! The report of an operation.

use std::ops::Range;
use std::time::Duration;

use farwrite::SchemeName;
use farwrite_deadline::RepairChoice;

/// The report of an operation at this rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Number of the collective operation in the group, counted from 0. Sends and receives match by rank
    /// and tag, and are counted separately.
    pub operation: u64,
    /// For a receive: the rank that has sent.
    pub source: Option<usize>,
    /// The size of the result at this rank in bytes.
    pub bytes: u64,
    /// The number of bytes of the result that lack the contribution of a rank. It is the sum of the
    /// lengths of the ranges in `missing`, and 0 for an exact operation.
    pub missing_bytes: u64,
    /// The time from the start of the operation to its end.
    pub elapsed: Duration,
    /// How long the operation was allowed to take.
    pub timeout: Duration,
    /// For a bounded operation: how long the phases that have a deadline took at most: the whole
    /// operation, except for an all-reduce with exact parts. `None` for the warm-up, which has no
    /// such limit, and where no rank receives contributions.
    pub limit: Option<Duration>,
    /// For a bounded operation: whether the limit ended a phase at this rank before everything had
    /// arrived here. Bytes that the path dropped before do not count: without a cut,
    /// they are missing too. [`Communicator::cut_counts`](crate::Communicator::cut_counts) sums this up.
    pub was_cut: bool,
    /// The bytes of the result that lack contributions, in order; empty for an exact operation. If
    /// contributions are transformed
    /// ([`BoundedOptions::hadamard`](crate::BoundedOptions::hadamard)), these are bytes of the
    /// transformed result, and each block that they belong to is inexact.
    pub missing: Vec<Missing>,
    /// For a bounded operation: the scheme that carried the contributions of this rank, and the
    /// repair that the loss target chose for the path.
    pub repair: Option<(SchemeName, RepairChoice)>,
    /// The schemes of the exact segments that this rank sent, in the order of their first use. With
    /// [`SchemeSetting::Auto`](farwrite_choice::SchemeSetting::Auto), there can be several.
    pub schemes: Vec<SchemeName>,
    /// When exact segments of other ranks arrived, in the order of ranks. The operation waited longest
    /// for the rank with the latest `last`. If its `first` is late too, that rank started late, or
    /// waited itself.
    pub arrivals: Vec<Arrival>,
    /// What this rank has measured of the ranks that it exchanged exact segments with, in the order
    /// of ranks; of all ranks for a bounded operation without an exact phase.
    pub peers: Vec<PeerReport>,
}

/// When exact segments of a rank arrived, from the start of the operation at this rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The rank that sent them.
    pub rank: usize,
    /// When the first one was processed.
    pub first: Duration,
    /// When the last one was processed.
    pub last: Duration,
}

/// What a rank has measured of another one when an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerReport {
    /// The other rank.
    pub rank: usize,
    /// The smoothed round trip; [`GroupOptions::initial_rtt`](crate::GroupOptions::initial_rtt) until
    /// the first measurement.
    pub rtt: Duration,
    /// The rate that the path to the rank carries, in bits per second on the wire, as far as it is
    /// known; otherwise the rate at which packets are paced.
    pub rate_bps: u64,
    /// The number of chunks to the rank of which it is known whether they arrived, since the group
    /// began. Sends and receives are counted separately from collective operations.
    /// Contributions to bounded operations are not counted.
    pub judged_chunks: u64,
    /// The number of them that were lost.
    pub lost_chunks: u64,
}

/// Bytes of a result that lack the contributions of some ranks. If nothing is reduced, they are
/// zero, because the data of the rank has not arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The bytes of the result.
    pub range: Range<u64>,
    /// The ranks whose contributions are missing, in ascending order.
    pub ranks: Vec<usize>,
}
