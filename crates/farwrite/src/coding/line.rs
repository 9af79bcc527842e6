//! Queue pairs that wait for room, the longest wait first.

use std::collections::{BTreeSet, VecDeque};

/// A queue in which each queue pair stands at most once.
#[derive(Debug, Default)]
pub(super) struct Line {
    order: VecDeque<u32>,
    members: BTreeSet<u32>,
}

impl Line {
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Adds a queue pair at the end, unless it waits already.
    pub(super) fn join(&mut self, pair: u32) {
        if self.members.insert(pair) {
            self.order.push_back(pair);
        }
    }

    /// Takes the first queue pairs out, at most `most`.
    pub(super) fn leave(&mut self, most: usize) -> impl Iterator<Item = u32> {
        let count = most.min(self.order.len());
        self.order.drain(..count).inspect(|pair| {
            self.members.remove(pair);
        })
    }
}
