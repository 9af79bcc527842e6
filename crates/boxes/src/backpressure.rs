//! How a box slows its senders down.

/// How a box slows its senders when frames queue up in front of the path. A box sends more than it
/// receives: `LoWAR(r, c)` sends `(r + c) / r` packets for each data packet, and NetRT also sends
/// repeats. The box never drops data to make room for repair packets.
///
/// With either variant, NetRT also stops its senders with PFC frames while many packets wait to be
/// repeated ([`RateLimit`](crate::netrt::RateLimit)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backpressure {
    /// PFC frames stop the priorities of protected packets when more than `stop_bytes` are queued,
    /// and resume them when at most `resume_bytes` are queued.
    Pfc {
        /// Queue length above which senders stop.
        stop_bytes: u64,
        /// Queue length at which senders resume.
        resume_bytes: u64,
    },
    /// ECN-capable packets are marked while more than `mark_bytes` are queued. The ICRC does not
    /// cover the mark.
    Ecn {
        /// Queue length above which packets are marked.
        mark_bytes: u64,
    },
}

impl Default for Backpressure {
    /// PFC that stops at 64 KiB and resumes at 32 KiB.
    fn default() -> Self {
        Self::Pfc {
            stop_bytes: 64 << 10,
            resume_bytes: 32 << 10,
        }
    }
}
