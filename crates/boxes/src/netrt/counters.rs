//! What a box has done.

/// Counts since the box started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets of which a copy was kept.
    pub copied: u64,
    /// Most bytes in the duplicate pool.
    pub peak_pool_bytes: u64,
    /// Starts sent: a flow begins, or its sender went back or on.
    pub starts_sent: u64,
    /// Marks sent.
    pub marks_sent: u64,
    /// Requests received.
    pub requests_received: u64,
    /// Packets repeated.
    pub repeated: u64,
    /// Requests that could not be fulfilled, and were answered by a notice.
    pub notices_sent: u64,
    /// How often the sender was paused because much was requested.
    pub pauses: u64,
    /// Requests sent.
    pub requests_sent: u64,
    /// Notices received about the packet that a flow waited for.
    pub notices_received: u64,
    /// Repeated packets that were missing, and went to the NIC.
    pub recovered: u64,
    /// Copies of packets that were there already. They were dropped.
    pub copies_dropped: u64,
    /// Frames that were held back.
    pub held: u64,
    /// Most frames that were held at a time.
    pub peak_held: u64,
    /// Most bytes that were held at a time.
    pub peak_held_bytes: u64,
    /// How often a flow went on with a packet missing, so that the NICs repair it.
    pub given_up: u64,
    /// Of these, because the hold time ended.
    pub hold_ended: u64,
    /// Of these, because the reordering buffer was full.
    pub held_full: u64,
    /// RoCEv2 packets that came damaged. They passed as they were.
    pub damaged: u64,
    /// Packets and messages of flows for which the table had no room.
    pub flows_full: u64,
}
