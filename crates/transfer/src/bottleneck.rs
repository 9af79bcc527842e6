//! What limits the speed of a transfer.

use farwrite::SendLimit;
use farwrite_units::show::real;
use serde::{Serialize, Serializer};

use crate::shape::Shape;

/// Something that limits the rate of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bottleneck {
    /// The path has no more capacity.
    Path,
    /// The maximum rate of `--rate`.
    Rate,
    /// Neither the path nor a maximum rate limits the sender: its processor cannot send more.
    Processor,
    /// The receiver's processor or sockets cannot process more.
    Receiver,
    /// The receiver has no free buffers, since its disk is slower than the path.
    ReceiverDisk,
    /// No data has been read that could be sent.
    SenderDisk,
    /// All buffers that `--memory` allows are in use.
    Memory,
    /// Nothing is heard of the receiver.
    Silence,
}

/// The state of the stream at one instant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamState {
    /// What bounds the rate, as the endpoint knows, and its bytes in flight.
    pub(crate) bound: SendLimit,
    pub(crate) in_flight_bytes: u64,
    /// Messages in flight, and their maximum number.
    pub(crate) in_flight: usize,
    pub(crate) window: usize,
    /// All bytes have been read.
    pub(crate) is_read: bool,
    pub(crate) has_max_rate: bool,
    /// Nothing has been heard of the receiver for some time.
    pub(crate) is_silent: bool,
}

/// How often each bottleneck was seen, at regular intervals. In JSON, the share of each; all 0 if none was seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bottlenecks {
    seen: [u64; Bottleneck::ALL.len()],
}

impl Bottleneck {
    /// Each in the order of the variants, with its name in JSON, and its name for people.
    const ALL: [(Self, &'static str, &'static str); 8] = [
        (Self::Path, "path", "the path"),
        (Self::Rate, "rate", "--rate"),
        (Self::Processor, "processor", "this machine's processor"),
        (Self::Receiver, "receiver", "the receiver"),
        (Self::ReceiverDisk, "receiver_disk", "the receiver's disk"),
        (Self::SenderDisk, "sender_disk", "this machine's disk"),
        (Self::Memory, "memory", "--memory"),
        (Self::Silence, "silence", "a silent receiver"),
    ];

    /// The name in JSON.
    pub(crate) fn key(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// The name for people.
    pub(crate) fn name(self) -> &'static str {
        Self::ALL[self as usize].2
    }

    /// Returns what limits the rate now; `None` at the end, when everything has been sent, unless the receiver is silent.
    pub(crate) fn of(shape: &Shape, state: StreamState) -> Option<Self> {
        // What the endpoint knows is from before the silence.
        if state.is_silent {
            return Some(Self::Silence);
        }
        match state.bound {
            SendLimit::Path => return Some(Self::Path),
            SendLimit::Receiver => return Some(Self::Receiver),
            SendLimit::Configured if state.has_max_rate => return Some(Self::Rate),
            SendLimit::Configured => return Some(Self::Processor),
            SendLimit::Nothing => {}
        }
        // The endpoint has sent everything that it has and may send.
        if state.in_flight < state.window {
            return (!state.is_read).then_some(Self::SenderDisk);
        }
        // These messages are either on their way, or they wait for buffers at the receiver.
        let under_way = u64::from(shape.slots) * shape.segment_bytes / 2;
        Some(if state.in_flight_bytes >= under_way {
            Self::Memory
        } else {
            Self::ReceiverDisk
        })
    }
}

impl Bottlenecks {
    /// Counts what was seen.
    pub(crate) fn add(&mut self, bottleneck: Option<Bottleneck>) {
        if let Some(bottleneck) = bottleneck {
            self.seen[bottleneck as usize] += 1;
        }
    }

    /// The bottleneck that was seen most; `None` if none was seen.
    pub(crate) fn main(&self) -> Option<Bottleneck> {
        let seen = Bottleneck::ALL.into_iter().zip(self.seen);
        let ((most, ..), times) = seen.max_by_key(|(_, seen)| *seen)?;
        (times > 0).then_some(most)
    }
}

impl Serialize for Bottlenecks {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let all: u64 = self.seen.iter().sum();
        let seen = Bottleneck::ALL.into_iter().zip(self.seen);
        serializer.collect_map(seen.map(|((_, key, _), seen)| (key, real(seen) / real(all.max(1)))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For a stream with up to 128 messages of 1 MiB in flight.
    fn bottleneck(state: StreamState) -> Option<Bottleneck> {
        let shape = Shape {
            mtu: 1024,
            packets_per_chunk: 1,
            segment_bytes: 1 << 20,
            parity_bytes: 0,
            slots: 128,
            stream_bytes: 1 << 30,
        };
        Bottleneck::of(&shape, state)
    }

    #[test]
    fn names_are_in_the_order_of_the_variants() {
        let places = Bottleneck::ALL.map(|(it, ..)| it as usize);
        assert!(places.into_iter().eq(0..Bottleneck::ALL.len()));
    }

    #[test]
    fn each_state_names_its_bottleneck() {
        let usual = StreamState {
            bound: SendLimit::Nothing,
            in_flight_bytes: 0,
            in_flight: 128,
            window: 128,
            is_read: false,
            has_max_rate: false,
            is_silent: false,
        };
        let bound = |bound| StreamState { bound, ..usual };
        let limited = StreamState {
            has_max_rate: true,
            ..bound(SendLimit::Configured)
        };
        let silent = StreamState {
            is_silent: true,
            ..bound(SendLimit::Path)
        };
        let empty = StreamState {
            in_flight: 100,
            ..usual
        };
        let read = StreamState {
            is_read: true,
            ..empty
        };
        let full = StreamState {
            in_flight_bytes: 64 << 20,
            ..usual
        };
        for (state, expected) in [
            (bound(SendLimit::Path), Some(Bottleneck::Path)),
            (silent, Some(Bottleneck::Silence)),
            (bound(SendLimit::Receiver), Some(Bottleneck::Receiver)),
            (limited, Some(Bottleneck::Rate)),
            // Nobody gave a maximum, and the path carries more than this machine sends.
            (bound(SendLimit::Configured), Some(Bottleneck::Processor)),
            (empty, Some(Bottleneck::SenderDisk)),
            (read, None),
            (full, Some(Bottleneck::Memory)),
            (usual, Some(Bottleneck::ReceiverDisk)),
        ] {
            assert_eq!(bottleneck(state), expected, "{state:?}");
        }
    }
}
