//! Repair of losses by rules that other crates define.

use alloc::boxed::Box;
use core::fmt;
use core::ops::Range;

/// Rules by which a sender of a reliable connection repairs losses, with [`Recovery::Own`](crate::Recovery::Own). The
/// receiver keeps packets after a gap, and names each of them as it arrives, as with IRN.
///
/// Packets are counted from 0, in the order in which they were sent first. Of the ranges that a rule returns, the
/// NIC repeats what was sent and is not known to have arrived. It repeats a packet once for each range that has it.
pub trait Repair: Send {
    /// A packet has arrived after a gap, and others before it have not. Returns the packets to repeat now.
    fn on_arrived(&mut self, packet: u64, sent: &Unacknowledged) -> Range<u64>;

    /// Nothing has arrived for [`timeout_ns`](Self::timeout_ns). Returns the packets to repeat now. The NIC also
    /// repeats the oldest one.
    fn on_timeout(&mut self, sent: &Unacknowledged) -> Range<u64>;

    /// How long to wait for news of packets in flight, in nanoseconds; 0 counts as 1.
    fn timeout_ns(&self, sent: &Unacknowledged) -> u64;
}

/// The packets that a sender has sent, and that are not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unacknowledged {
    /// The current time in nanoseconds.
    pub now_ns: u64,
    /// The oldest of them: all packets before it have arrived.
    pub oldest: u64,
    /// The end (exclusive) of the packets that were sent.
    pub sent_end: u64,
}

/// The rules of a queue pair.
pub(crate) struct OwnRepair(pub(crate) Box<dyn Repair>);

impl fmt::Debug for OwnRepair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnRepair")
    }
}
