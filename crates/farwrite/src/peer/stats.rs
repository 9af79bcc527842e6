//! Statistics of a peer.

use farwrite_rate::{Phase, Start};

/// What is known of a peer: another endpoint instance. All queue pairs to it share this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerStats {
    /// Smoothed round-trip time in nanoseconds, measured with control packets. The configured value
    /// until the first measurement.
    pub rtt_ns: u64,
    /// Shortest round-trip time of a data packet in nanoseconds, as with empty queues. `None` until
    /// the first measurement, and with another controller than
    /// [`RateControl::Adaptive`](crate::RateControl::Adaptive).
    pub base_rtt_ns: Option<u64>,
    /// Rate at which packets are paced, in bits per second on the wire.
    pub pace_bps: u64,
    /// Bytes of a data packet on the wire other than the payload
    /// ([`packet_overhead_bytes`](crate::packet_overhead_bytes)).
    pub overhead_bytes: u32,
    /// Maximum number of bytes in flight. `None`: no limit.
    pub window_bytes: Option<u64>,
    /// Bytes sent that were neither reported nor given up.
    pub in_flight_bytes: u64,
    /// What keeps the sender from sending faster.
    pub limit: SendLimit,
    /// What the adaptive controller is doing.
    pub phase: Option<Phase>,
    /// What a later connection to this peer can start with
    /// ([`RateControl::Adaptive`](crate::RateControl::Adaptive)). `None` until the rate is
    /// measured.
    pub learned: Option<Start>,
    /// Data packets sent, repeats included, and their bytes: whole IP packets without padding.
    pub sent_packets: u64,
    /// See `sent_packets`.
    pub sent_bytes: u64,
    /// Bytes sent up to the newest packet that the peer has reported, repeats included.
    pub reported_bytes: u64,
    /// How many of these bytes arrived. The rest was lost, or is late.
    pub delivered_bytes: u64,
    /// Packets that arrived at the peer with a congestion mark (ECN CE).
    pub marked_packets: u64,
    /// Packets that arrived at the peer and brought no new data: repeats that were not needed, parity
    /// after its message, and copies, also those of an attacker who repeats packets. 0 if the peer
    /// does not count them.
    pub stale_packets: u64,
    /// Packets for which the peer's sockets had no room, as the peer estimated (P5.5.5).
    pub peer_socket_drops: u64,
    /// What the path does to the ECN field of packets on the way to the peer.
    pub ecn_to_peer: EcnField,
    /// What the path does to the ECN field of packets on the way from the peer.
    pub ecn_from_peer: EcnField,
    /// Reports and credits of the peer that cannot be true. None of them was used.
    pub refused_feedback: u64,
    /// Reports of the peer that count more packets or bytes than were sent and not counted before. No
    /// more bytes than were sent count as delivered (P5.5.4). The cause is a
    /// network that copies packets, an attacker who repeats packets, a peer that has counted since
    /// before this end opened its state of the peer, or a peer that lies.
    pub excess_feedback: u64,
}

/// What limits the rate to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendLimit {
    /// There is nothing to send.
    Nothing,
    /// The path has no more capacity.
    Path,
    /// The receiver cannot process more.
    Receiver,
    /// The configured rate, or the configured maximum.
    Configured,
}

/// What a path does to the ECN field (RFC 3168) of data packets, which leave with ECT(0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EcnField {
    /// Too few packets have arrived to determine this.
    Unknown,
    /// The field arrives unchanged: congestion marks are visible.
    Kept,
    /// Something on the way clears the field, or the receiver's fabric cannot read it.
    Cleared,
}

/// Packets without ECT after which the field counts as cleared.
const ENOUGH_PACKETS: u64 = 16;

impl EcnField {
    /// Determines the state from `ect_packets` of `packets` packets, which had ECT or CE.
    pub(super) fn of(packets: u64, ect_packets: u64) -> Self {
        match ect_packets {
            0 if packets < ENOUGH_PACKETS => Self::Unknown,
            0 => Self::Cleared,
            _ => Self::Kept,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_cleared_when_no_packet_of_many_has_it() {
        assert_eq!(EcnField::of(15, 0), EcnField::Unknown);
        assert_eq!(EcnField::of(16, 0), EcnField::Cleared);
        assert_eq!(EcnField::of(1, 1), EcnField::Kept);
        assert_eq!(EcnField::of(1_000, 1), EcnField::Kept);
    }
}
