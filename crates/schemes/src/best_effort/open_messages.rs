//! When a message ends because nothing more of it is expected (P5.9.3).

use alloc::collections::{BTreeMap, BTreeSet};

use crate::scheme::PeerView;

/// The open messages of a receiving half. A message has a time to end once its sender has finished
/// with it.
#[derive(Debug, Default)]
pub(super) struct OpenMessages {
    /// When each open message ends; `None` while the sender may send more of it.
    open: BTreeMap<u64, Option<u64>>,
    /// The same times, the earliest first.
    due: BTreeSet<(u64, u64)>,
    /// The sender has finished with all messages before this one.
    newest: u64,
}

impl OpenMessages {
    /// Returns whether the message was not open before.
    pub(super) fn start(&mut self, view: &PeerView, message: u64) -> bool {
        let is_new = !self.open.contains_key(&message);
        if is_new {
            self.open.insert(message, None);
            if message < self.newest {
                self.expect_no_more(view, message);
            }
        }
        is_new
    }

    pub(super) fn is_open(&self, message: u64) -> bool {
        self.open.contains_key(&message)
    }

    /// Handles a packet of a message: its sender has finished with all older messages.
    pub(super) fn pass(&mut self, view: &PeerView, message: u64) {
        if message <= self.newest {
            return;
        }
        let older = self.newest..message;
        self.newest = message;
        // Messages before `newest` have been passed, and already have a time to end.
        let passed = self.open.range(older).map(|(number, _)| *number);
        let passed: alloc::vec::Vec<u64> = passed.collect();
        for number in passed {
            self.expect_no_more(view, number);
        }
    }

    /// The sender has finished with a message. It ends when packets in flight have had time to
    /// arrive.
    pub(super) fn expect_no_more(&mut self, view: &PeerView, message: u64) {
        if let Some(ends_ns) = self.open.get_mut(&message)
            && ends_ns.is_none()
        {
            let at_ns = view.now_ns.saturating_add(view.reordering_window_ns);
            *ends_ns = Some(at_ns);
            self.due.insert((at_ns, message));
        }
    }

    pub(super) fn take_due(&mut self, now_ns: u64) -> Option<u64> {
        let &(_, message) = self.due.first().filter(|(at_ns, _)| *at_ns <= now_ns)?;
        self.forget(message);
        Some(message)
    }

    pub(super) fn forget(&mut self, message: u64) {
        if let Some(Some(at_ns)) = self.open.remove(&message) {
            self.due.remove(&(at_ns, message));
        }
    }

    /// When the next message ends.
    pub(super) fn next_timeout(&self) -> Option<u64> {
        self.due.first().map(|(at_ns, _)| *at_ns)
    }
}
