//! Which queue pairs may use a registered region.

use std::collections::BTreeSet;

use farwrite_fabric::contract::Lkey;

/// The queue pairs, by index, that have had a message, a read or an exposure in each region. So
/// deregistering a region asks these, and not all queue pairs of the endpoint.
///
/// A queue pair stays noted until the region is deregistered, also if it has long ended: its index is
/// that of a newer one then. So a region has no more entries than the endpoint had queue pairs at once.
#[derive(Debug, Default)]
pub(crate) struct RegionUsers(BTreeSet<(Lkey, u32)>);

impl RegionUsers {
    /// Notes that a queue pair may use a region from now on.
    pub(crate) fn note(&mut self, lkey: Lkey, index: u32) {
        self.0.insert((lkey, index));
    }

    /// Returns the queue pairs that may use a region.
    pub(crate) fn of(&self, lkey: Lkey) -> impl Iterator<Item = u32> {
        let range = self.0.range((lkey, 0)..=(lkey, u32::MAX));
        range.map(|&(_, index)| index)
    }

    pub(crate) fn forget(&mut self, lkey: Lkey) {
        let range = (lkey, 0)..=(lkey, u32::MAX);
        while let Some(&user) = self.0.range(range.clone()).next() {
            self.0.remove(&user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_has_the_queue_pairs_that_were_noted_for_it() {
        let mut users = RegionUsers::default();
        for (lkey, index) in [(5, 2), (4, u32::MAX), (5, 0), (5, 2), (6, 0)] {
            users.note(Lkey(lkey), index);
        }
        assert!(users.of(Lkey(5)).eq([0, 2]));
        users.forget(Lkey(5));
        assert!(users.of(Lkey(5)).eq([]));
        assert!(users.of(Lkey(4)).eq([u32::MAX]));
        assert!(users.of(Lkey(6)).eq([0]));
    }
}
