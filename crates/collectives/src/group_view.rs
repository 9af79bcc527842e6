//! The group as one rank sees it.

use crate::bounded::Hadamard;
use crate::error::CollectiveError;
use crate::operation::Delivery;

/// A rank of a group, and the properties of the group that plans of operations depend on.
#[derive(Clone, Debug)]
pub(crate) struct GroupView {
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
    /// The size of the packets of bounded operations in bytes.
    pub(crate) packet_bytes: u32,
    pub(crate) packets_per_segment: u32,
    /// How contributions to bounded operations are transformed.
    pub(crate) hadamard: Option<Hadamard>,
    /// How the reduced parts of bounded all-reduces reach all ranks.
    pub(crate) parts: Delivery,
    /// The site of each rank. If it is empty, all ranks are near each other.
    pub(crate) sites: Vec<u32>,
}

impl GroupView {
    /// The error for an invalid argument.
    pub(crate) fn wrong(
        &self,
        argument: &'static str,
        value: impl ToString,
        expected: impl Into<String>,
    ) -> CollectiveError {
        CollectiveError::Argument {
            rank: self.rank,
            argument,
            value: value.to_string(),
            expected: expected.into(),
        }
    }
}
