//! The timers of streams.

use alloc::collections::BTreeSet;

use crate::streams::StreamKey;

/// Timers of streams, ordered by time. Each stream stores its own time in an `Option`, which
/// [`set`](Self::set) uses to find the old entry.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    times: BTreeSet<(u64, StreamKey)>,
}

impl Timers {
    /// Replaces the timer of a stream.
    pub(crate) fn set(&mut self, key: StreamKey, timer: &mut Option<u64>, at_ns: Option<u64>) {
        if *timer == at_ns {
            return;
        }
        if let Some(old_ns) = core::mem::replace(timer, at_ns) {
            self.times.remove(&(old_ns, key));
        }
        self.times.extend(at_ns.map(|at_ns| (at_ns, key)));
    }

    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.times.first().map(|(at_ns, _)| *at_ns)
    }

    /// The caller must clear the time that the stream stores.
    pub(crate) fn pop_due(&mut self, now_ns: u64) -> Option<StreamKey> {
        if self.next_ns()? > now_ns {
            return None;
        }
        self.times.pop_first().map(|(_, key)| key)
    }
}
