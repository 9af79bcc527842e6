//! What limits the speed of a transfer.

use farwrite::{PeerStats, SendLimit};
use serde::Serialize;

use crate::shape::Shape;

/// Something that limits the rate of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// The path has no more capacity.
    Path,
    /// The limit of `--rate`, or the highest rate that a transfer can have.
    Rate,
    /// The receiver's processor or sockets cannot process more.
    Receiver,
    /// The receiver has no free buffers, since its disk is slower than the path.
    ReceiverDisk,
    /// No data has been read that could be sent.
    SenderDisk,
    /// All buffers that `--memory` allows are in use.
    Memory,
}

/// The state of the stream at one instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    /// Messages in flight, and their maximum number.
    pub(super) in_flight: usize,
    pub(super) window: usize,
    /// All bytes have been read.
    pub(super) is_read: bool,
}

/// How often each limit was seen, at regular intervals.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    seen: [u64; Limit::ALL.len()],
}

/// Shares of the time of a transfer, by the limit of its rate at that time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Shares {
    path: f64,
    rate: f64,
    receiver: f64,
    receiver_disk: f64,
    sender_disk: f64,
    memory: f64,
}

impl Limit {
    const ALL: [Self; 6] = [
        Self::Path,
        Self::Rate,
        Self::Receiver,
        Self::ReceiverDisk,
        Self::SenderDisk,
        Self::Memory,
    ];

    /// The name for people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Path => "the path",
            Self::Rate => "the maximum rate (--rate)",
            Self::Receiver => "the receiver",
            Self::ReceiverDisk => "the receiver's disk",
            Self::SenderDisk => "this machine's disk",
            Self::Memory => "--memory",
        }
    }

    /// Returns what limits the rate now; `None` at the end, when everything has been sent.
    pub(super) fn of(peer: &PeerStats, shape: &Shape, standing: Standing) -> Option<Self> {
        match peer.limit {
            SendLimit::Path => return Some(Self::Path),
            SendLimit::Receiver => return Some(Self::Receiver),
            SendLimit::Configured => return Some(Self::Rate),
            SendLimit::Nothing => {}
        }
        // The endpoint has sent everything that it has and may send.
        if standing.in_flight < standing.window {
            return (!standing.is_read).then_some(Self::SenderDisk);
        }
        // These messages are either on their way, or they wait for buffers at the receiver.
        let under_way = u64::from(shape.slots) * shape.segment_bytes / 2;
        Some(if peer.in_flight_bytes >= under_way {
            Self::Memory
        } else {
            Self::ReceiverDisk
        })
    }
}

impl Limits {
    /// Counts what was seen.
    pub(super) fn add(&mut self, limit: Option<Limit>) {
        if let Some(limit) = limit {
            self.seen[limit as usize] += 1;
        }
    }

    /// The limit that was seen most; `None` if none was seen.
    pub(crate) fn main(&self) -> Option<Limit> {
        let seen = Limit::ALL.into_iter().zip(self.seen);
        let most = seen.max_by_key(|(_, seen)| *seen)?;
        (most.1 > 0).then_some(most.0)
    }

    /// The share of each limit; all 0 if none was seen.
    pub(crate) fn shares(&self) -> Shares {
        let all: u64 = self.seen.iter().sum();
        let share = |limit: Limit| {
            farwrite_units::show::real(self.seen[limit as usize])
                / farwrite_units::show::real(all.max(1))
        };
        Shares {
            path: share(Limit::Path),
            rate: share(Limit::Rate),
            receiver: share(Limit::Receiver),
            receiver_disk: share(Limit::ReceiverDisk),
            sender_disk: share(Limit::SenderDisk),
            memory: share(Limit::Memory),
        }
    }
}
