//! Which rank sends which bytes to which rank: algorithms as plain lists of steps.
//!
//! Each rank has a list. The meaning of a list is the effect of its steps in sequence. Steps that
//! access different bytes may run at the same time, and a step may begin with the bytes that
//! earlier steps have finished. Between two ranks, sends and receives match in the order of the
//! lists.

mod direct;
mod halving;
mod hierarchy;
mod ring;
mod tree;

use std::ops::Range;

pub use direct::{all_to_all, direct_gather, direct_reduce_scatter, gather, scatter};
pub use halving::{halving_all_reduce, halving_parts};
pub use hierarchy::site_all_reduce;
pub use ring::{ring_all_gather, ring_reduce_scatter};
pub use tree::{tree_broadcast, tree_reduce};

/// One step of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The other rank.
    pub peer: usize,
    /// The action of the step.
    pub action: Action,
    /// The range in the memory of this rank.
    pub range: Range<u64>,
}

/// The action of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Sends bytes of the working memory.
    Send,
    /// Sends bytes of the input, which no step changes.
    SendInput,
    /// Receives bytes, which replace those of the range.
    Copy,
    /// Receives bytes, and reduces them with those of the range.
    Reduce {
        /// Whether the range has the contributions of all ranks after this step.
        last: bool,
    },
}

impl Action {
    /// Whether the step sends bytes.
    #[must_use]
    pub fn is_send(self) -> bool {
        matches!(self, Self::Send | Self::SendInput)
    }
}

impl Step {
    pub(crate) fn new(peer: usize, action: Action, range: &Range<u64>) -> Self {
        let range = range.clone();
        Self {
            peer,
            action,
            range,
        }
    }
}

/// Cuts `count` elements of `element_bytes` bytes into `parts` parts, as ranges of bytes. Parts
/// differ by at most one element.
#[must_use]
pub fn cut(count: u64, element_bytes: u64, parts: usize) -> Vec<Range<u64>> {
    let parts = parts as u64;
    let (each, longer) = (count / parts, count % parts);
    let begin = |part: u64| (part * each + part.min(longer)) * element_bytes;
    (0..parts)
        .map(|part| begin(part)..begin(part + 1))
        .collect()
}
