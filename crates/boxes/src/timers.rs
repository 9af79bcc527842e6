//! When streams want to be woken.

use alloc::collections::BTreeSet;

use crate::streams::Key;

/// Times at which streams want to be woken. A stream keeps its own time in an `Option`, which is
/// how its entry is found again.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    times: BTreeSet<(u64, Key)>,
}

impl Timers {
    /// Replaces the time of a stream.
    pub(crate) fn set(&mut self, key: Key, timer: &mut Option<u64>, at_ns: Option<u64>) {
        if *timer == at_ns {
            return;
        }
        if let Some(old_ns) = core::mem::replace(timer, at_ns) {
            self.times.remove(&(old_ns, key));
        }
        self.times.extend(at_ns.map(|at_ns| (at_ns, key)));
    }

    /// The first time.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.times.first().map(|(at_ns, _)| *at_ns)
    }

    /// Removes the first time that has come, and returns its stream. The stream's own timer has to
    /// be cleared.
    pub(crate) fn pop_due(&mut self, now_ns: u64) -> Option<Key> {
        if self.next_ns()? > now_ns {
            return None;
        }
        self.times.pop_first().map(|(_, key)| key)
    }
}
