//! When to say something again (P3.8).

/// Shortest time between two sendings of the same thing.
const MIN_NS: u64 = 1_000_000;
/// Longest time between two sendings of a thing that waits for an answer.
pub(crate) const SLOW_NS: u64 = 250_000_000;

/// How long to wait before saying something for the second time: a quarter of the round trip, so
/// that a loss costs a fraction of it.
pub(crate) fn first_interval_ns(rtt_ns: u64) -> u64 {
    (rtt_ns / 4).max(MIN_NS)
}

/// How long to wait the next time, having waited `interval_ns`.
pub(crate) fn next_interval_ns(interval_ns: u64) -> u64 {
    interval_ns.saturating_mul(2).min(SLOW_NS.max(interval_ns))
}
