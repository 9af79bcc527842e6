//! What an emulator has done.

use farwrite_link::LinkCounters;

/// What an emulator has relayed since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EmulatorCounters {
    /// From end A to end B.
    pub forward: DirectionCounters,
    /// From end B to end A.
    pub backward: DirectionCounters,
}

/// What an emulator has relayed in one direction, in packets unless said.
///
/// An emulator that keeps up has `late`, `socket_drops` and `unsent` at 0. Lateness is counted from
/// when the emulator took the packet out of its socket: one that cannot take packets out as fast
/// as they come lets that socket overflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionCounters {
    /// What the link did.
    pub link: LinkCounters,
    /// Came with a wrong ICRC, and were relayed so.
    pub bad_icrc: u64,
    /// Came from another address than the end's, and were dropped.
    pub strangers: u64,
    /// Came while the other end was not known yet, and were dropped.
    pub no_end: u64,
    /// Longer than the link carries
    /// ([`LinkEmulator::set_most_bytes`](super::LinkEmulator::set_most_bytes)), and dropped.
    pub too_long: u64,
    /// Dropped by the kernel because the emulator's receive buffer was full.
    pub socket_drops: u64,
    /// Due, but refused by the kernel, and so lost.
    pub unsent: u64,
    /// Delivered more than 1 ms after they were due.
    pub late: u64,
    /// Longest time between a packet's being due and its delivery, in nanoseconds.
    pub worst_lateness_ns: u64,
}

impl DirectionCounters {
    const LATE_NS: u64 = 1_000_000;

    /// A packet leaves this long after it was due.
    pub(super) fn note_lateness(&mut self, lateness_ns: u64) {
        self.late += u64::from(lateness_ns > Self::LATE_NS);
        self.worst_lateness_ns = self.worst_lateness_ns.max(lateness_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_late_after_a_millisecond() {
        let mut counters = DirectionCounters::default();
        for lateness_ns in [0, 1_000_000, 1_000_001, 7_000_000, 2] {
            counters.note_lateness(lateness_ns);
        }
        assert_eq!((counters.late, counters.worst_lateness_ns), (2, 7_000_000));
    }
}
