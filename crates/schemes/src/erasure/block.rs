//! A superblock at the receiver: which of its groups are complete, and which can be rebuilt.

use core::ops::Range;

use alloc::vec;
use alloc::vec::Vec;
use farwrite_codes::{ChunkMask, Present};

use super::shape::Shape;
use crate::arrived::count;
use crate::chunk_set::words_of;
use crate::scheme::{Arrivals, MessageId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GroupState {
    /// More data or parity is expected.
    Open,
    /// Enough chunks have arrived. The endpoint is asked to rebuild the rest.
    Rebuilding,
    /// No more chunks are expected. The sender is asked for the missing ones.
    Failed,
    /// All data chunks are present.
    Whole,
}

#[derive(Debug)]
pub(super) struct Block {
    index: u32,
    states: Vec<GroupState>,
    /// Number of chunks that had arrived at the last look.
    data: u32,
    parity: u32,
}

impl Block {
    pub(super) fn new(shape: &Shape, index: u32) -> Self {
        Self {
            index,
            states: vec![GroupState::Open; shape.data.block(index).len()],
            data: 0,
            parity: 0,
        }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.states.iter().all(|state| *state == GroupState::Whole)
    }

    pub(super) fn state_mut(&mut self, shape: &Shape, group: u32) -> Option<&mut GroupState> {
        let first = shape.data.block(self.index).start;
        self.states.get_mut(group.checked_sub(first)? as usize)
    }

    pub(super) fn groups_mut(
        &mut self,
        shape: &Shape,
    ) -> impl Iterator<Item = (u32, &mut GroupState)> {
        shape.data.block(self.index).zip(&mut self.states)
    }

    /// Returns how many data chunks are new.
    pub(super) fn count_data(&mut self, shape: &Shape, arrivals: &dyn Arrivals) -> u32 {
        let range = shape.block_data(self.index);
        let before = self.data;
        self.data = count(arrivals, shape.number, range).max(before);
        self.data - before
    }

    /// Returns whether any parity chunks are new.
    pub(super) fn count_parity(&mut self, shape: &Shape, arrivals: &dyn Arrivals) -> bool {
        let range = shape.block_parity(self.index);
        let before = self.parity;
        self.parity = count(arrivals, shape.parity_id(), range).max(before);
        self.parity > before
    }

    /// Checks which groups have become whole, and which can now be rebuilt. Returns how many groups
    /// became whole.
    pub(super) fn examine(
        &mut self,
        shape: &Shape,
        arrivals: &dyn Arrivals,
        mut rebuild: impl FnMut(u32),
    ) -> u32 {
        let mut whole = 0;
        for (group, state) in self.groups_mut(shape) {
            if *state == GroupState::Whole {
                continue;
            }
            if is_whole(shape, arrivals, group) {
                *state = GroupState::Whole;
                whole += 1;
            } else if *state != GroupState::Rebuilding && is_recoverable(shape, arrivals, group) {
                *state = GroupState::Rebuilding;
                rebuild(group);
            }
        }
        whole
    }
}

/// Returns whether all data chunks of a group are present.
pub(super) fn is_whole(shape: &Shape, arrivals: &dyn Arrivals, group: u32) -> bool {
    let range = shape.data.of_group(group);
    count(arrivals, shape.number, range.clone()) == range.end - range.start
}

fn is_recoverable(shape: &Shape, arrivals: &dyn Arrivals, group: u32) -> bool {
    let (data, parity) = (shape.data.of_group(group), shape.parity.of_group(group));
    let parity_id = shape.parity_id();
    let data_there = count(arrivals, shape.number, data.clone());
    let parity_there = count(arrivals, parity_id, parity.clone());
    // No code can decode from fewer chunks, and computing masks takes longer.
    if data_there + parity_there < data.end - data.start {
        return false;
    }
    let present = Present {
        data: mask(arrivals, shape.data_id(), data.clone()),
        parity: mask(arrivals, parity_id, parity),
    };
    shape.code.recoverable(data.len(), &present)
}

/// A mask of the chunks of a group that are present, by their index in the group.
fn mask(arrivals: &dyn Arrivals, message: MessageId, range: Range<u32>) -> ChunkMask {
    let start = range.start;
    let words = words_of(range).map(|(word, mask)| (word, arrivals.word(message, word) & mask));
    let chunks = words.flat_map(|(word, bits)| {
        let set = (0..64).filter(move |bit| bits >> bit & 1 == 1);
        set.map(move |bit| word * 64 + bit)
    });
    chunks.map(|chunk| (chunk - start) as usize).collect()
}
