//! Who sends which bytes to whom: algorithms as plain lists of steps.
//!
//! Each rank has a list. What a list means is what happens if its steps are done one after the
//! other. Steps that touch different bytes may be done at the same time, and a step may begin with
//! the bytes that earlier steps are done with. Between two ranks, sends and receives match in the
//! order of the lists.

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
    /// What is done.
    pub action: Action,
    /// Which bytes of the rank's own memory.
    pub range: Range<u64>,
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Sends bytes of the working memory.
    Send,
    /// Sends bytes of the input, which no step changes.
    SendInput,
    /// Receives bytes in place of those that are there.
    Copy,
    /// Receives bytes and reduces them into those that are there.
    Reduce {
        /// Whether the bytes then have the contributions of all ranks.
        last: bool,
    },
}

impl Action {
    /// Whether bytes leave.
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
