//! What a box has done.

/// Counts since the box started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Data packets that were added to a block.
    pub coded: u64,
    /// Repair packets sent.
    pub repairs_sent: u64,
    /// Repair packets that were longer than the path MTU, and not sent.
    pub repairs_too_long: u64,
    /// Probes and announcements sent.
    pub questions_sent: u64,
    /// Reports sent.
    pub reports_sent: u64,
    /// Reports received.
    pub reports_received: u64,
    /// Repair packets received.
    pub repairs_received: u64,
    /// Packets recovered, and sent to the NIC.
    pub recovered: u64,
    /// Packets that were put together and did not verify. They were dropped.
    pub not_verified: u64,
    /// Blocks that passed with packets missing.
    pub given_up: u64,
    /// Of these, the ones whose hold time ended.
    pub hold_ended: u64,
    /// Frames that were held back.
    pub held: u64,
    /// Most frames that were held at a time.
    pub peak_held: u64,
    /// RoCEv2 packets that came damaged. They passed as they were.
    pub damaged: u64,
    /// Packets that passed unprotected because all streams were in use.
    pub streams_full: u64,
    /// Packets that passed unprotected because too few coding units were free.
    pub units_full: u64,
    /// Blocks that passed because the reordering buffer was full.
    pub held_full: u64,
}
