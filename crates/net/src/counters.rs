//! Counters of ports.

use std::ops::AddAssign;

/// Why a frame was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FrameDrop {
    /// The shared buffer, or the egress queue's share of it, was full. Counted at the egress port.
    Buffer,
    /// The headroom of a lossless priority was full, so the headroom is too small for the cable.
    /// Counted at the egress port.
    Headroom,
    /// The cable lost the frame, or its policer dropped it. Counted at the port that sent it.
    Cable,
    /// The cable was down, or went down while the frame was on it. Counted at the port that sent
    /// it.
    CableDown,
    /// No path leads to the destination. Counted at the ingress port.
    NoRoute,
}

impl FrameDrop {
    /// All reasons, in the order of [`PortCounters::dropped`].
    pub const ALL: [Self; 5] = [
        Self::Buffer,
        Self::Headroom,
        Self::Cable,
        Self::CableDown,
        Self::NoRoute,
    ];
}

/// Counters of a port, in frames unless the name says otherwise. PFC frames count only in
/// `pauses_sent` and `pauses_received`.
///
/// Three equations hold at any time:
///
/// - `queued = transmitted` + frames in the port's queues;
/// - `transmitted` = `received` of the port at the other end + drops here for [`FrameDrop::Cable`]
///   and [`FrameDrop::CableDown`] + frames in flight on the cable;
/// - over all ports of a switch, `received = queued` + drops for the other reasons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Frames received.
    pub received: u64,
    /// Frames put into one of the port's queues.
    pub queued: u64,
    /// Frames sent.
    pub transmitted: u64,
    /// Bytes of the frames sent, framing included.
    pub transmitted_bytes: u64,
    /// Frames marked with congestion experienced.
    pub marked: u64,
    /// Frames queued without their payload.
    pub trimmed: u64,
    /// PFC frames sent.
    pub pauses_sent: u64,
    /// PFC frames received.
    pub pauses_received: u64,
    /// Nanoseconds for which the peer has stopped at least one priority of the port.
    pub stopped_ns: u64,
    /// Frames for which the switch chose this port although the previous frame of the same flow
    /// took another one. Frames that the buffer then drops count too.
    pub path_changes: u64,
    /// Largest number of bytes that the port's queues held together.
    pub peak_queued_bytes: u64,
    /// Frames dropped, by reason, in the order of [`FrameDrop::ALL`].
    pub dropped: [u64; FrameDrop::ALL.len()],
}

impl PortCounters {
    /// Frames dropped for one reason.
    #[must_use]
    pub fn dropped_for(&self, reason: FrameDrop) -> u64 {
        self.dropped[reason as usize]
    }

    /// Frames dropped for any reason.
    #[must_use]
    pub fn all_dropped(&self) -> u64 {
        self.dropped.iter().sum()
    }
}

impl AddAssign for PortCounters {
    /// Adds the counts, and keeps the higher of the two peaks.
    fn add_assign(&mut self, other: Self) {
        self.received += other.received;
        self.queued += other.queued;
        self.transmitted += other.transmitted;
        self.transmitted_bytes += other.transmitted_bytes;
        self.marked += other.marked;
        self.trimmed += other.trimmed;
        self.pauses_sent += other.pauses_sent;
        self.pauses_received += other.pauses_received;
        self.stopped_ns += other.stopped_ns;
        self.path_changes += other.path_changes;
        self.peak_queued_bytes = self.peak_queued_bytes.max(other.peak_queued_bytes);
        for (sum, more) in self.dropped.iter_mut().zip(other.dropped) {
            *sum += more;
        }
    }
}
