//! Counters of an emulator.

use farwrite_link::LinkCounters;

/// Counters of an emulator since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UdpEmulatorCounters {
    /// From end A to end B.
    pub forward: DirectionCounters,
    /// From end B to end A.
    pub backward: DirectionCounters,
}

/// Counters of one direction, in packets unless a line says otherwise.
///
/// An emulator that keeps up has `late`, `socket_drops` and `unsent` at 0. Lateness counts from the
/// time at which the emulator read the packet from its socket: if it reads more slowly than packets
/// arrive, the socket overflows instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionCounters {
    /// Counters of the link.
    pub link: LinkCounters,
    /// Packets that arrived with a wrong ICRC. They are relayed with a wrong ICRC.
    pub bad_icrc: u64,
    /// Packets from an unknown address. They are dropped.
    pub strangers: u64,
    /// Packets that arrived before the address of the other end was known. They are dropped.
    pub no_end: u64,
    /// Packets longer than the link carries
    /// ([`UdpEmulator::set_most_bytes`](super::UdpEmulator::set_most_bytes)). They are dropped.
    pub too_long: u64,
    /// Packets that the kernel dropped because the emulator's receive buffer was full.
    pub socket_drops: u64,
    /// Packets that were due, but that the kernel refused to send. They are lost.
    pub unsent: u64,
    /// Packets delivered more than 1 ms after they were due.
    pub late: u64,
    /// Longest delay from the due time of a packet to its delivery, in nanoseconds.
    pub worst_lateness_ns: u64,
}
