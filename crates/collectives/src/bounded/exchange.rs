//! What ranks exchange in a phase of a bounded operation.

use std::ops::Range;

use super::hadamard::Encoding;
use crate::element::{ElementType, Reduction};

/// Which bytes go to which rank, and how received bytes are used.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    /// By rank: the bytes of the source that this rank sends to it.
    pub(crate) sends: Vec<Range<u64>>,
    /// By rank: where its bytes are placed in the working memory.
    pub(crate) receives: Vec<Range<u64>>,
    /// How received values are combined with the present values. With `None`, they replace them.
    pub(crate) reduction: Option<(ElementType, Reduction)>,
    /// How contributions are transformed before they are reduced.
    pub(crate) encoding: Option<Encoding>,
    pub(crate) rank: usize,
    pub(crate) packet_bytes: u64,
    pub(crate) segment_bytes: u64,
}

impl Exchange {
    /// The number of messages that carry the bytes of a range.
    pub(super) fn segments_of(&self, range: &Range<u64>) -> u64 {
        (range.end - range.start).div_ceil(self.segment_bytes)
    }
}
