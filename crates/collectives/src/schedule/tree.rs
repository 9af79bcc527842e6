//! Binomial trees: the number of rounds is the binary logarithm of the number of ranks, rounded up.
//!
//! Ranks are numbered starting at the root. Rank v communicates with ranks that differ from it in
//! one bit: its parent has the lowest set bit of v cleared, and its children are v + 1, v + 2, v +
//! 4 and so on, below that bit.

use std::ops::Range;

use super::{Action, Step};

/// After this schedule, every rank has the data of the root.
#[must_use]
pub fn tree_broadcast(rank: usize, ranks: usize, root: usize, range: &Range<u64>) -> Vec<Step> {
    let mut steps = Vec::new();
    if let Some(parent) = parent(rank, ranks, root) {
        steps.push(Step::new(parent, Action::Copy, range));
    }
    // The child with the most descendants comes first.
    let children = children(rank, ranks, root).into_iter().rev();
    steps.extend(children.map(|child| Step::new(child, Action::Send, range)));
    steps
}

/// After this schedule, the root has the reduction of the memory of all ranks. The memory of other
/// ranks that have children is overwritten.
///
/// A rank adds the results of its children to its own values, in ascending order. With 8 ranks and
/// root 0, the result is `(((x0 + x1) + (x2 + x3)) + ((x4 + x5) + (x6 + x7)))`.
#[must_use]
pub fn tree_reduce(rank: usize, ranks: usize, root: usize, range: &Range<u64>) -> Vec<Step> {
    let children = children(rank, ranks, root);
    let final_child = children.last().copied().filter(|_| rank == root);
    let reduce = |child| {
        let last = Some(child) == final_child;
        Step::new(child, Action::Reduce { last }, range)
    };
    let mut steps: Vec<Step> = children.into_iter().map(reduce).collect();
    if let Some(parent) = parent(rank, ranks, root) {
        steps.push(Step::new(parent, Action::Send, range));
    }
    steps
}

fn parent(rank: usize, ranks: usize, root: usize) -> Option<usize> {
    let place = (rank + ranks - root) % ranks;
    // Clears the lowest set bit.
    (place > 0).then(|| ((place & (place - 1)) + root) % ranks)
}

fn children(rank: usize, ranks: usize, root: usize) -> Vec<usize> {
    let place = (rank + ranks - root) % ranks;
    let bits = (0..usize::BITS).map(|bit| 1_usize << bit);
    let below = bits.take_while(|&bit| place & bit == 0 && place + bit < ranks);
    below.map(|bit| (place + bit + root) % ranks).collect()
}
