//! The counters of a LoWAR box.

/// Counts since the box started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Data packets that were added to a block.
    pub coded: u64,
    /// Bytes that both halves combined into coding units by XOR, for blocks that have ended.
    pub xored_bytes: u64,
    /// Repair packets sent.
    pub repairs_sent: u64,
    /// Packets that passed unprotected because a repair packet for them would be longer than the path
    /// MTU.
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
    /// Repair packets that did not fit the data packets of their block. They had no effect.
    pub not_verified: u64,
    /// Blocks whose packets were forwarded although some were missing.
    pub given_up: u64,
    /// Of `given_up`: blocks whose hold time ended.
    pub hold_ended: u64,
    /// Frames that were held back.
    pub held: u64,
    /// Highest number of frames held at a time.
    pub peak_held: u64,
    /// Highest numbers of coding units in use at a time in both halves, added up.
    pub peak_units: u64,
    /// RoCEv2 packets that arrived damaged. They passed unchanged.
    pub damaged: u64,
    /// Packets that passed unprotected because the table of connections was full.
    pub connections_full: u64,
    /// Packets that passed unprotected because too few coding units were free.
    pub units_full: u64,
    /// Frames that found the reordering buffer full. Their block was given up.
    pub held_full: u64,
}
