//! A queue pair of a NIC, of either kind.

use alloc::boxed::Box;

use farwrite_net::Telemetry;

use crate::echo::PathNote;
use crate::{Memory, Packet, QueuePair, xp};

/// A reliable connection, or XP.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are of the large kind, and each is in a box of its own"
)]
pub(crate) enum End {
    Reliable(QueuePair),
    Xp(xp::QueuePair),
}

impl End {
    pub(crate) fn reliable(&self) -> Option<&QueuePair> {
        match self {
            Self::Reliable(pair) => Some(pair),
            Self::Xp(_) => None,
        }
    }

    pub(crate) fn reliable_mut(&mut self) -> Option<&mut QueuePair> {
        match self {
            Self::Reliable(pair) => Some(pair),
            Self::Xp(_) => None,
        }
    }

    pub(crate) fn xp_mut(&mut self) -> Option<&mut xp::QueuePair> {
        match self {
            Self::Reliable(_) => None,
            Self::Xp(pair) => Some(pair),
        }
    }

    pub(crate) fn has_ack(&self) -> bool {
        match self {
            Self::Reliable(pair) => pair.has_ack(),
            Self::Xp(pair) => pair.has_notification() || pair.has_grant(),
        }
    }

    pub(crate) fn has_data(&self) -> bool {
        match self {
            Self::Reliable(pair) => pair.has_data(),
            Self::Xp(pair) => pair.next_send_ns().is_some(),
        }
    }

    pub(crate) fn has_completion(&self) -> bool {
        match self {
            Self::Reliable(pair) => pair.has_completion(),
            Self::Xp(pair) => pair.has_completion(),
        }
    }

    pub(crate) fn next_timeout(&self, now_ns: u64) -> Option<u64> {
        match self {
            Self::Reliable(pair) => pair.next_timeout(),
            Self::Xp(pair) => pair.next_timeout(now_ns),
        }
    }

    pub(crate) fn next_send_ns(&mut self, now_ns: u64) -> u64 {
        match self {
            Self::Reliable(pair) => pair.next_send_ns(now_ns),
            Self::Xp(pair) => pair.next_send_ns().unwrap_or(0),
        }
    }

    /// Notes what a packet brought with it. XP reads nothing but notifications.
    pub(crate) fn note_path(&mut self, note: PathNote) {
        if let Self::Reliable(pair) = self {
            pair.note_path(note);
        }
    }

    /// The telemetry of the packet that was polled last: room for that of a request, or that which an acknowledgement
    /// returns.
    pub(crate) fn telemetry_of(&mut self, packet: &Packet) -> Option<Box<Telemetry>> {
        match self {
            Self::Reliable(pair) if pair.collects_telemetry(packet) => Some(Box::default()),
            Self::Reliable(pair) => pair.take_telemetry(),
            Self::Xp(_) => None,
        }
    }

    pub(crate) fn handle_packet(&mut self, now_ns: u64, packet: &Packet, memory: &mut Memory) {
        match self {
            Self::Reliable(pair) => pair.handle_packet(now_ns, packet, memory),
            Self::Xp(pair) => pair.handle_packet(now_ns, packet, memory),
        }
    }

    pub(crate) fn handle_timeout(&mut self, now_ns: u64, memory: &mut Memory) {
        match self {
            Self::Reliable(pair) => pair.handle_timeout(now_ns, memory),
            Self::Xp(pair) => pair.handle_timeout(now_ns),
        }
    }

    pub(crate) fn notify_congestion(&mut self) {
        match self {
            Self::Reliable(pair) => pair.notify_congestion(),
            Self::Xp(pair) => pair.notify_congestion(),
        }
    }

    pub(crate) fn grant(&mut self, granted_packets: u64) {
        match self {
            Self::Reliable(pair) => pair.grant(granted_packets),
            Self::Xp(pair) => pair.grant(granted_packets),
        }
    }

    pub(crate) fn poll_ack(&mut self) -> Option<Packet> {
        match self {
            Self::Reliable(pair) => pair.poll_ack(),
            Self::Xp(pair) => pair.poll_notification().or_else(|| pair.poll_grant()),
        }
    }

    pub(crate) fn poll_data(&mut self, now_ns: u64, memory: &Memory) -> Option<Packet> {
        match self {
            Self::Reliable(pair) => pair.poll_data(now_ns, memory),
            Self::Xp(pair) => pair.poll_transmit(now_ns),
        }
    }
}
