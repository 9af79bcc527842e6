//! Writes into the window of a stream, as their users see them (P3.14).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// How a write into the window of a stream ended
/// ([`Endpoint::write`](crate::Endpoint::write)).
///
/// Only the bitmap of the receiver shows what arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteOutcome {
    /// All packets of the write have left.
    Sent,
    /// The deadline came first. The write was cut: the packets that had not left never leave.
    Expired,
    /// The peer's window is shorter than the write assumes. Nothing of it has left.
    OutsideWindow,
    /// The stream or its queue pair ended first. What had not left never leaves.
    Closed,
}

/// State shared by the endpoint and the holder of a write.
#[derive(Debug, Default)]
pub(crate) struct WriteShared {
    outcome: OnceLock<WriteOutcome>,
    sent_bytes: AtomicU64,
}

impl WriteShared {
    /// Call this before [`WriteShared::finish`].
    pub(crate) fn note_sent(&self, bytes: u64) {
        self.sent_bytes.fetch_add(bytes, Ordering::Release);
    }

    pub(crate) fn finish(&self, outcome: WriteOutcome) {
        // A write ends once.
        let _ = self.outcome.set(outcome);
    }
}

/// A write into the window of a stream.
#[derive(Clone, Debug)]
pub struct WriteHandle {
    pub(crate) shared: Arc<WriteShared>,
}

impl WriteHandle {
    /// Returns how the write ended. Returns `None` while packets of it wait, or while the fabric
    /// holds some. Once there is an outcome, the memory of the write may change.
    #[must_use]
    pub fn outcome(&self) -> Option<WriteOutcome> {
        self.shared.outcome.get().copied()
    }

    /// Returns how many bytes of the write have left. The packets of a write leave in their order,
    /// so these are its first bytes. The number is final once there is an outcome. If the queue
    /// pair ended while the fabric held packets, some of these packets may have left and are not
    /// counted.
    #[must_use]
    pub fn sent_bytes(&self) -> u64 {
        self.shared.sent_bytes.load(Ordering::Acquire)
    }
}
