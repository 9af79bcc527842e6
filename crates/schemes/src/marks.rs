//! How far the sender had advanced, and when: the ages of holes, without a record for each hole.

use alloc::collections::VecDeque;

use crate::scheme::PeerView;

/// A few marks "at this time, all up to here had been passed".
#[derive(Debug, Default)]
pub(crate) struct Marks(VecDeque<Mark>);

/// At `due_ns`, each missing chunk in `0..passed` has been a hole for a reordering window.
#[derive(Debug)]
struct Mark {
    opened_ns: u64,
    due_ns: u64,
    passed: u32,
}

impl Marks {
    /// Records that the sender has now passed `0..passed`.
    pub(crate) fn note(&mut self, view: &PeerView, passed: u32) {
        if self.0.back().is_some_and(|mark| passed <= mark.passed) {
            return;
        }
        let due_ns = view.now_ns.saturating_add(view.reordering_window_ns);
        let later = self.0.iter_mut().map(|m| &mut m.due_ns);
        advance(later.rev(), due_ns);
        match self.0.back_mut() {
            // There are at most eight marks per window. Chunks that were passed soon after each
            // other share the later time.
            Some(mark)
                if view.now_ns.saturating_sub(mark.opened_ns) < view.reordering_window_ns / 8 =>
            {
                mark.due_ns = due_ns;
                mark.passed = passed;
            }
            _ => self.0.push_back(Mark {
                opened_ns: view.now_ns,
                due_ns,
                passed,
            }),
        }
    }

    /// Removes the first mark whose window has ended, and returns how far the sender had advanced
    /// when that window began.
    pub(crate) fn pop_due(&mut self, now_ns: u64) -> Option<u32> {
        let due = self.0.front().is_some_and(|mark| mark.due_ns <= now_ns);
        let mark = due.then(|| self.0.pop_front()).flatten()?;
        Some(mark.passed)
    }

    /// When the next window ends.
    pub(crate) fn next_timeout(&self) -> Option<u64> {
        self.0.front().map(|mark| mark.due_ns)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Reduces times, the latest first, to at most `due_ns`. A mark can be due after a newer one if the
/// round trip has become shorter. This keeps the first mark in the queue the first one due.
pub(crate) fn advance<'a>(latest_first: impl Iterator<Item = &'a mut u64>, due_ns: u64) {
    latest_first
        .take_while(|at_ns| **at_ns > due_ns)
        .for_each(|at_ns| *at_ns = due_ns);
}
