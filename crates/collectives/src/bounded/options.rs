//! How bounded operations of a group work.

use farwrite::SchemeName;
use farwrite_deadline::{Bounds, Policy};

use crate::operation::{Algorithm, Delivery};

/// How bounded operations of a group work. All ranks must have the same options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundedOptions {
    /// The scheme that carries contributions: a scheme of [best effort](SchemeName::BOUNDED) without
    /// critical ranges. Its parity for a whole segment must be no longer than the segment. With
    /// `best-effort`, [`Policy::LossTarget`] switches to parity or repeats while the path drops more
    /// than the target, and back.
    pub scheme: SchemeName,
    /// How the timeout is computed from the durations of earlier operations.
    pub policy: Policy,
    /// How the contributions to an all-reduce travel. With [`Algorithm::Direct`], every rank sends them to the
    /// owners of the parts, so a lost packet costs one contribution. With [`Algorithm::Ring`], partial
    /// sums travel from rank to rank: each byte crosses the path between two ranks that follow each
    /// other once, and a lost packet costs the contributions of all ranks before. The ring is in the
    /// order of ranks. [`Algorithm::Auto`] selects the ring if more than two ranks are in several
    /// [`sites`](crate::GroupOptions::sites) and the ranks of each site follow each other, and
    /// otherwise the direct exchange. Other algorithms are invalid.
    pub algorithm: Algorithm,
    /// The minimum and the maximum timeout.
    pub bounds: Bounds,
    /// How contributions to sums and means of `F32`, `F16` and `Bf16` are transformed, so that a
    /// lost packet becomes a small error of many values. With `None`, they are not transformed, and
    /// the values of a lost packet lack a contribution.
    pub hadamard: Option<Hadamard>,
    /// How the reduced parts of an all-reduce reach all ranks. With [`Delivery::Exact`], the result
    /// is the same at all ranks, and the operation waits for all of them. With
    /// [`Delivery::Bounded`], the time of the operation covers this phase too. In place of what has
    /// not arrived by then, a rank uses its own contribution, so **results differ between ranks**.
    /// With [`BoundedOptions::hadamard`], it does so only for a group of blocks of which nothing has
    /// arrived, and scales up what has arrived of the others.
    pub parts: Delivery,
}

impl Default for BoundedOptions {
    /// No transform, exact parts, the algorithm by sites. The timeout is the shortest one that keeps missing
    /// bytes below 1%, from 1 ms to one minute.
    fn default() -> Self {
        Self {
            scheme: SchemeName::BestEffort,
            policy: Policy::LossTarget {
                target_ppm: 10_000,
                rtt_ns: 10_000_000,
            },
            algorithm: Algorithm::Auto,
            bounds: Bounds {
                min_ns: 1_000_000,
                max_ns: 60_000_000_000,
            },
            hadamard: None,
            parts: Delivery::Exact,
        }
    }
}

/// A block Hadamard transform with stride (OptiNIC, section 3.2).
///
/// A transformed value can be as large as the square root of [`Hadamard::block`] times the largest
/// value of the block. So `F16` values above 65504 divided by that root (2047 for blocks of 1024)
/// can become infinite. Then all values of their block are NaN or infinite. This limit applies to
/// sums too, because contributions are added in transformed form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hadamard {
    /// The number of values in a block: a power of two, at most 2^25.
    pub block: u32,
    /// The number of blocks that share a packet: a power of two, at most the number of values in a
    /// packet. 0 selects this maximum. The number of values in a packet is the largest power of two
    /// that fits [`GroupOptions::packet_bytes`](crate::GroupOptions::packet_bytes).
    pub stride: u32,
}

impl Default for Hadamard {
    /// Blocks of 1024 values. Each packet holds as few values of a block as possible.
    fn default() -> Self {
        Self {
            block: 1024,
            stride: 0,
        }
    }
}
