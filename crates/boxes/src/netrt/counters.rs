//! The counters of a NetRT box.

/// Counts since the box started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets copied to the duplicate pool.
    pub copied: u64,
    /// Highest number of bytes in the duplicate pool.
    pub peak_pool_bytes: u64,
    /// Starts sent: a flow began, or its sender went back or skipped PSNs.
    pub starts_sent: u64,
    /// Marks sent.
    pub marks_sent: u64,
    /// Requests received.
    pub requests_received: u64,
    /// Packets repeated.
    pub repeated: u64,
    /// Notices sent: answers to requests for packets without a copy.
    pub notices_sent: u64,
    /// How often the sender was paused because many packets waited to be repeated.
    pub pauses: u64,
    /// Requests sent.
    pub requests_sent: u64,
    /// Notices received about the expected packet of a flow.
    pub notices_received: u64,
    /// Missing packets that arrived as repeats, and were delivered to the NIC.
    pub recovered: u64,
    /// Duplicates of packets that had arrived before. They were dropped.
    pub copies_dropped: u64,
    /// Frames that were held back.
    pub held: u64,
    /// Highest number of frames held at a time.
    pub peak_held: u64,
    /// Highest number of bytes held at a time.
    pub peak_held_bytes: u64,
    /// How often a flow forwarded its held packets although one was missing. The NICs repair this
    /// loss.
    pub given_up: u64,
    /// Of `given_up`: because the hold time ended.
    pub hold_ended: u64,
    /// Of `given_up`: because the reordering buffer was full.
    pub held_full: u64,
    /// RoCEv2 packets that arrived damaged. They passed unchanged.
    pub damaged: u64,
    /// Packets and messages of connections for which the table had no room.
    pub connections_full: u64,
}
