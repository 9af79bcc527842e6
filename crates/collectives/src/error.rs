//! Why an operation, or a group, cannot go on.

use std::sync::Arc;
use std::time::Duration;

/// Why an operation failed, or could not begin.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CollectiveError {
    /// An argument that no operation can have. Nothing was sent: other ranks do not know of it.
    #[error("rank {rank}: {argument} = {value}: {expected}")]
    Argument {
        /// This rank.
        rank: usize,
        /// Which argument.
        argument: &'static str,
        /// Its value.
        value: String,
        /// What would do.
        expected: String,
    },
    /// Another rank runs another operation, or the same one on other data.
    #[error(
        "operation {operation}: rank {rank} has {argument} = {theirs}, this rank {ours}: all ranks \
         must start the same operations in the same order"
    )]
    Mismatch {
        /// Number of the operation in the group, counted from 0.
        operation: u64,
        /// The other rank.
        rank: usize,
        /// Which argument.
        argument: &'static str,
        /// What the other rank has.
        theirs: String,
        /// What this rank has.
        ours: String,
    },
    /// The information of another rank will not do.
    #[error("rank {rank}: {problem}")]
    Info {
        /// The rank.
        rank: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// The deadline of an operation came.
    #[error("operation {operation} ({name}) is not done after {after:?}: rank {rank} {state}")]
    Timeout {
        /// Number of the operation in the group, counted from 0.
        operation: u64,
        /// What it is.
        name: &'static str,
        /// How long it was allowed to take.
        after: Duration,
        /// The rank that it waits for.
        rank: usize,
        /// What is known of that rank.
        state: String,
    },
    /// A queue pair to a rank broke.
    #[error("the connection to rank {rank} is broken: {problem}")]
    Connection {
        /// The rank.
        rank: usize,
        /// How it ended.
        problem: String,
    },
    /// A rank ended the group: by [`Communicator::abort`](crate::Communicator::abort), or because
    /// an operation failed there.
    #[error("rank {rank} ended the group: {reason}")]
    Ended {
        /// The rank, which may be this one.
        rank: usize,
        /// Why.
        reason: String,
    },
    /// The group is not connected yet.
    #[error("the group is not connected: call connect with the information of all ranks first")]
    NotConnected,
    /// The wait is over, and the operation is not.
    #[error("the operation still runs")]
    StillRunning,
    /// The endpoint cannot go on.
    #[error(transparent)]
    Endpoint(Arc<farwrite::Error>),
}

impl CollectiveError {
    /// The operating system gives no thread.
    pub(crate) fn thread(source: std::io::Error) -> Self {
        Self::system("starting the thread of a communicator", source)
    }

    /// The operating system refuses something.
    pub(crate) fn system(what: &str, source: impl Into<std::io::Error>) -> Self {
        let (what, source) = (what.into(), source.into());
        farwrite::Error::from(farwrite::fabric::contract::FabricError::Io { what, source }).into()
    }

    /// A rank starts no more operations.
    pub(crate) fn left(rank: usize) -> Self {
        let reason = "it has left".into();
        Self::Ended { rank, reason }
    }

    /// The thread of the communicator has ended.
    pub(crate) fn stopped(rank: usize) -> Self {
        let reason = "its communicator has stopped".into();
        Self::Ended { rank, reason }
    }
}

impl From<farwrite::Error> for CollectiveError {
    fn from(error: farwrite::Error) -> Self {
        Self::Endpoint(Arc::new(error))
    }
}
