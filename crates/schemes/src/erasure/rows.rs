//! Interleaving: the groups of a superblock are sent row by row. A row has one chunk of each group.

use core::ops::Range;

/// The chunks of one kind, data or parity, in group order and in wire order.
///
/// Chunks are numbered group by group. The *rank* of a chunk is its position in wire order. The
/// groups form superblocks of nearly equal size. A superblock has the same chunks in either
/// numbering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rows {
    /// Number of chunks in every group except the last.
    per_group: u32,
    /// Number of chunks in the last group.
    last: u32,
    groups: u32,
    blocks: u32,
}

impl Rows {
    pub(super) fn new(per_group: u32, last: u32, groups: u32, blocks: u32) -> Self {
        Self {
            per_group,
            last,
            groups,
            blocks,
        }
    }

    pub(super) fn len(&self) -> u32 {
        self.groups_start(self.groups)
    }

    /// The chunks of a group.
    pub(super) fn of_group(&self, group: u32) -> Range<u32> {
        self.of_groups(group..group + 1)
    }

    pub(super) fn of_groups(&self, groups: Range<u32>) -> Range<u32> {
        self.groups_start(groups.start)..self.groups_start(groups.end)
    }

    /// The groups of a superblock.
    pub(super) fn block(&self, block: u32) -> Range<u32> {
        let start = |block| {
            let scaled = u64::from(block) * u64::from(self.groups);
            u32::try_from(scaled / u64::from(self.blocks.max(1))).unwrap_or(self.groups)
        };
        start(block)..start(block + 1)
    }

    pub(super) fn block_of(&self, group: u32) -> u32 {
        let scaled = (u64::from(group) + 1) * u64::from(self.blocks);
        let block = scaled.saturating_sub(1) / u64::from(self.groups.max(1));
        u32::try_from(block).unwrap_or(self.blocks)
    }

    /// The chunk with a rank below [`Self::len`].
    pub(super) fn at(&self, rank: u32) -> u32 {
        self.at_in(&self.block_around(rank), rank)
    }

    /// The chunk with a rank in the superblock of these groups. A caller that knows the superblock
    /// avoids the divisions that find it.
    pub(super) fn at_in(&self, groups: &Range<u32>, rank: u32) -> u32 {
        let (width, full) = self.shape(groups);
        let offset = rank - self.groups_start(groups.start);
        let (row, column) = match offset.checked_sub(full * width) {
            Some(beyond) if width > 1 => (full + beyond / (width - 1), beyond % (width - 1)),
            _ => (offset / width, offset % width),
        };
        self.groups_start(groups.start + column) + row
    }

    /// The rank of a chunk below [`Self::len`].
    pub(super) fn rank(&self, chunk: u32) -> u32 {
        let groups = self.block_around(chunk);
        let (width, full) = self.shape(&groups);
        let column = chunk / self.per_group.max(1) - groups.start;
        let row = chunk % self.per_group.max(1);
        let narrow = row.saturating_sub(full);
        self.groups_start(groups.start) + (row - narrow) * width + narrow * (width - 1) + column
    }

    /// Groups of the superblock that holds a chunk or a rank.
    fn block_around(&self, chunk: u32) -> Range<u32> {
        self.block(self.block_of(chunk / self.per_group.max(1)))
    }

    /// The number of groups of a superblock, and how many of its rows have a chunk of every group.
    /// The other rows lack a chunk of the last group.
    fn shape(&self, groups: &Range<u32>) -> (u32, u32) {
        let full = match groups.end == self.groups {
            true => self.last,
            false => self.per_group,
        };
        (groups.end - groups.start, full)
    }

    fn groups_start(&self, group: u32) -> u32 {
        match group == self.groups && group > 0 {
            true => (group - 1) * self.per_group + self.last,
            false => group * self.per_group,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    #[test]
    fn a_short_last_group_leaves_the_later_rows() {
        let rows = Rows::new(3, 1, 3, 1);
        let order: Vec<u32> = (0..rows.len()).map(|rank| rows.at(rank)).collect();
        assert_eq!(order, [0, 3, 6, 1, 4, 2, 5]);
        assert_eq!(Rows::new(5, 2, 1, 1).at(1), 1);
    }

    proptest! {
        #[test]
        fn ranks_and_chunks_lead_back_to_each_other(
            per_group in 1u32..20,
            last in 0u32..20,
            groups in 1u32..60,
            depth in 1u32..30,
        ) {
            let last = 1 + last % per_group;
            let rows = Rows::new(per_group, last, groups, groups.div_ceil(depth));
            let mut seen = BTreeSet::new();
            for rank in 0..rows.len() {
                let chunk = rows.at(rank);
                prop_assert!(chunk < rows.len() && seen.insert(chunk));
                prop_assert_eq!(rows.rank(chunk), rank);
                let block = rows.of_groups(rows.block(rows.block_of(chunk / per_group)));
                prop_assert!(block.contains(&chunk) && block.contains(&rank));
            }
            for block in 0..rows.blocks {
                prop_assert!(rows.block(block).len() <= depth as usize);
            }
        }

        #[test]
        fn a_burst_hits_no_group_more_than_its_share(
            per_group in 1u32..20,
            groups in 1u32..60,
            depth in 1u32..30,
            at in any::<u32>(),
            burst in 1u32..100,
        ) {
            let rows = Rows::new(per_group, per_group, groups, groups.div_ceil(depth));
            let start = at % rows.len();
            let end = rows.len().min(start + burst);
            let narrowest = (0..rows.blocks).map(|b| rows.block(b).len()).min();
            let share = burst.div_ceil(u32::try_from(narrowest.unwrap()).unwrap());
            for group in 0..groups {
                let hit = (start..end).filter(|rank| rows.of_group(group).contains(&rows.at(*rank)));
                prop_assert!(hit.count() <= share as usize);
            }
        }
    }
}
