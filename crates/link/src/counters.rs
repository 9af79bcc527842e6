//! The counters of a link.

/// Counters of a [`Link`](crate::Link) since its creation, in datagrams unless noted.
///
/// At any time `offered + duplicated = delivered + lost + queue_dropped + policed`, plus those in
/// flight ([`Link::in_flight`](crate::Link::in_flight)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Passed to [`Link::send`](crate::Link::send).
    pub offered: u64,
    /// Returned by [`Link::poll`](crate::Link::poll), including copies.
    pub delivered: u64,
    /// Lost on the wire, or because the link was down.
    pub lost: u64,
    /// Dropped because the queue was full.
    pub queue_dropped: u64,
    /// Dropped by the policer.
    pub policed: u64,
    /// Accepted with an ECN mark.
    pub marked: u64,
    /// Copies created.
    pub duplicated: u64,
    /// Forwarded with one bit flipped.
    pub corrupted: u64,
    /// Held back, so that later ones overtake them.
    pub reordered: u64,
    /// Bytes of the IP datagrams delivered.
    pub delivered_bytes: u64,
}
