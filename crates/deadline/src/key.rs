//! Which operations share a timeout.

use alloc::collections::BTreeMap;

use crate::cut_counts::CutCounts;
use crate::timeout::{Bounds, Policy, Timeout};

/// The kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Collective {
    /// Every member gets the reduction over all members.
    AllReduce,
    /// Every member gets the parts of all members.
    AllGather,
    /// Every member gets a part of the reduction.
    ReduceScatter,
    /// Every member gets a part from each member.
    AllToAll,
    /// Every member gets the data of one member.
    Broadcast,
    /// One member gets the reduction over all members.
    Reduce,
    /// One member gets the parts of all members.
    Gather,
    /// Every member gets a part of the data of one member.
    Scatter,
    /// One member sends to another.
    SendRecv,
}

/// Identifies operations that share a timeout: operations of one collective, one group and one size
/// class. Sizes in a class differ by less than a factor of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeoutKey {
    group: u64,
    collective: Collective,
    size_class: u32,
}

impl TimeoutKey {
    /// The key of an operation with `bytes` bytes in the group with this number.
    #[must_use]
    pub fn new(collective: Collective, bytes: u64, group: u64) -> Self {
        Self {
            group,
            collective,
            size_class: bytes.checked_ilog2().map_or(0, |log| log + 1),
        }
    }
}

/// A timeout for each collective, size class and group.
#[derive(Clone, Debug)]
pub struct Timeouts {
    /// The state of each timeout before its first operation.
    unused: Timeout,
    entries: BTreeMap<TimeoutKey, Timeout>,
}

impl Timeouts {
    /// No timeouts yet. All members of a group must have the same policy and bounds.
    #[must_use]
    pub fn new(policy: Policy, bounds: Bounds) -> Self {
        Self {
            unused: Timeout::new(policy, bounds),
            entries: BTreeMap::new(),
        }
    }

    /// The same for messages with at most `chunks` chunks: [`Timeout::with_message_chunks`].
    #[must_use]
    pub fn with_message_chunks(self, chunks: u32) -> Self {
        Self {
            unused: self.unused.with_message_chunks(chunks),
            ..self
        }
    }

    /// The same for operations whose scheme does not change: [`Timeout::with_fixed_scheme`].
    #[must_use]
    pub fn with_fixed_scheme(self) -> Self {
        Self {
            unused: self.unused.with_fixed_scheme(),
            ..self
        }
    }

    /// The timeout of these operations. It is created at its first use.
    pub fn get_mut(&mut self, key: TimeoutKey) -> &mut Timeout {
        let entry = self.entries.entry(key);
        entry.or_insert_with(|| self.unused.clone())
    }

    /// Removes the timeouts of a group that has ended.
    pub fn remove_group(&mut self, group: u64) {
        self.entries.retain(|key, _| key.group != group);
    }

    /// The sum over all timeouts.
    #[must_use]
    pub fn cut_counts(&self) -> CutCounts {
        let counts = self.entries.values().map(Timeout::cut_counts);
        counts.fold(CutCounts::default(), CutCounts::and)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Observation;

    #[test]
    fn collectives_sizes_and_groups_are_apart() {
        let key = |bytes, group| TimeoutKey::new(Collective::AllReduce, bytes, group);
        assert_eq!(key(1024, 1), key(2047, 1));
        assert_ne!(key(1023, 1), key(1024, 1));
        assert_ne!(key(1024, 1), key(1024, 2));
        assert_ne!(key(1024, 1), TimeoutKey::new(Collective::AllToAll, 1024, 1));
        assert_ne!(key(0, 1), key(1, 1));
    }

    #[test]
    fn a_group_that_is_removed_begins_again() {
        let bounds = Bounds {
            min_ns: 1,
            max_ns: 1 << 40,
        };
        let mut timeouts = Timeouts::new(Policy::Celeris, bounds);
        for group in [1, 2] {
            let timeout = timeouts.get_mut(TimeoutKey::new(Collective::Gather, 1 << 20, group));
            let proposal = timeout.propose(&Observation::whole(1_000_000, 1 << 20));
            timeout.agree(1 << 20, proposal.as_slice());
            timeout.propose(&Observation::whole(1_000_000, 1 << 20));
        }
        assert_eq!(timeouts.cut_counts().operations, 2);
        timeouts.remove_group(1);
        assert_eq!(timeouts.cut_counts().operations, 1);
        let again = timeouts.get_mut(TimeoutKey::new(Collective::Gather, 1 << 20, 1));
        assert_eq!(again.timeout_ns(1 << 20), None);
        let kept = timeouts.get_mut(TimeoutKey::new(Collective::Gather, 1 << 20, 2));
        assert_eq!(kept.timeout_ns(1 << 20), Some(1_300_000));
    }
}
