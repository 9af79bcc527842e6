//! What a link has done.

/// What a [`Link`](crate::Link) has done since it was made, in datagrams unless said.
///
/// At any time `offered + duplicated = delivered + lost + queue_dropped`, plus those in flight
/// ([`Link::in_flight`](crate::Link::in_flight)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Handed to [`Link::send`](crate::Link::send).
    pub offered: u64,
    /// Handed out by [`Link::poll`](crate::Link::poll), copies included.
    pub delivered: u64,
    /// Lost on the way, or because the link was down.
    pub lost: u64,
    /// Dropped because the queue was full.
    pub queue_dropped: u64,
    /// Taken in with an ECN mark.
    pub marked: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Sent on with one bit flipped.
    pub corrupted: u64,
    /// Held back so that later ones overtake.
    pub reordered: u64,
    /// Bytes of the IP datagrams delivered.
    pub delivered_bytes: u64,
}
