//! The process of a group. A process that is forked from it has none of the threads of the group.

use pyo3::prelude::*;

use crate::communicator::CollectiveError;

/// The process that has made a group.
#[derive(Clone, Copy)]
pub(crate) struct Owner {
    rank: usize,
    process: u32,
}

impl Owner {
    /// Returns this process, which makes a group as `rank`.
    pub(crate) fn current(rank: usize) -> Self {
        let process = std::process::id();
        Self { rank, process }
    }

    /// Raises `CollectiveError` in a process that was forked from the one that has made the group.
    pub(crate) fn check(self) -> PyResult<()> {
        if self.process == std::process::id() {
            return Ok(());
        }
        Err(CollectiveError::new_err(format!(
            "rank {}: this process was forked from process {}, which has made the group: only that process \
             can use the group",
            self.rank, self.process
        )))
    }
}
