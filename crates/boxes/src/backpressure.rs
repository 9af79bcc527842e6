//! How a box slows its senders down.

/// A box beside a NIC sends more than it receives: `LoWAR(r, c)` sends `(r + c) / r` of it, and NetRT
/// sends repeats too. When this queues up before the path, the box slows the sender. It never drops
/// data to make room for repair packets.
///
/// With either choice, NetRT also stops its senders by PFC frames while it repeats much
/// ([`RateLimit`](crate::netrt::RateLimit)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backpressure {
    /// PFC frames stop the priorities of protected packets when `stop_bytes` wait, and resume them
    /// at `resume_bytes`.
    Pfc {
        /// The queue that stops senders.
        stop_bytes: u64,
        /// The queue that lets them go on.
        resume_bytes: u64,
    },
    /// Packets whose ends support ECN are marked while more than `mark_bytes` wait. The ICRC does
    /// not cover the mark.
    Ecn {
        /// The queue from which on packets are marked.
        mark_bytes: u64,
    },
}

impl Default for Backpressure {
    /// PFC from 64 KiB down to 32 KiB.
    fn default() -> Self {
        Self::Pfc {
            stop_bytes: 64 << 10,
            resume_bytes: 32 << 10,
        }
    }
}
