//! The queue before the bottleneck: first in, first out, with a limit.

use crate::Serialiser;

/// Datagrams that wait for the bottleneck, and the one that is being sent. They are counted, not
/// kept: when each is out follows from the rate as soon as it is offered.
#[derive(Clone, Debug)]
pub struct Queue {
    serialiser: Serialiser,
    limit_bytes: Option<u64>,
}

impl Queue {
    /// An empty queue. `rate_bps` is as for [`Serialiser::new`], `limit_bytes` as
    /// [`LinkConfig::queue_bytes`](crate::LinkConfig::queue_bytes).
    #[must_use]
    pub fn new(rate_bps: u64, limit_bytes: Option<u64>) -> Self {
        Self {
            serialiser: Serialiser::new(rate_bps),
            limit_bytes,
        }
    }

    /// Takes `bytes` in and returns when the last of them is out; `None` if they do not fit.
    pub fn offer(&mut self, now_ns: u64, bytes: u64) -> Option<u64> {
        if let Some(limit) = self.limit_bytes {
            let backlog = self.backlog_bytes(now_ns);
            if backlog > 0 && backlog.saturating_add(bytes) > limit {
                return None;
            }
        }
        Some(self.serialiser.accept(now_ns, bytes))
    }

    /// Bytes taken in that are not out yet, a started one counted whole.
    #[must_use]
    pub fn backlog_bytes(&self, now_ns: u64) -> u64 {
        self.serialiser.backlog_bytes(now_ns)
    }

    /// Empties the queue.
    pub fn clear(&mut self) {
        self.serialiser.clear();
    }
}
