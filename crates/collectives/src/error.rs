//! Why an operation, or a group, cannot continue.

use std::sync::Arc;
use std::time::Duration;

use farwrite::routes::RouteError;

/// Why an operation failed, or could not begin.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CollectiveError {
    /// An argument that is invalid for every operation. Nothing was sent. A rank that waits for the
    /// operation asks this one, and fails with [`CollectiveError::Refused`] if the operation was not
    /// started with valid arguments in the meantime.
    #[error("rank {rank}: {argument} = {value}: {expected}")]
    Argument {
        /// This rank.
        rank: usize,
        /// The name of the argument.
        argument: &'static str,
        /// Its value.
        value: String,
        /// The values that are valid.
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
        /// The name of the argument.
        argument: &'static str,
        /// The value at the other rank.
        theirs: String,
        /// The value at this rank.
        ours: String,
    },
    /// The operation cannot start at another rank: its arguments are invalid there.
    #[error("operation {operation} cannot start at rank {rank}: {reason}")]
    Refused {
        /// Number of the operation in the group, counted from 0.
        operation: u64,
        /// The other rank.
        rank: usize,
        /// The error at that rank.
        reason: String,
    },
    /// The information of another rank is invalid.
    #[error("rank {rank}: {problem}")]
    Info {
        /// The rank.
        rank: usize,
        /// The problem with the information.
        problem: String,
    },
    /// There is no path to another rank, or its path carries only smaller packets than before.
    #[error("the path to rank {rank}: {problem}")]
    Route {
        /// The rank.
        rank: usize,
        /// What is wrong with the path.
        problem: RouteError,
    },
    /// The timeout of an operation has passed.
    #[error(
        "{} is not done after {after:?}: rank {rank} {state}{}",
        operation_name(.operation.as_ref(), .name),
        list(.others)
    )]
    Timeout {
        /// Number of the collective operation in the group, counted from 0. `None` for a send and a
        /// receive.
        operation: Option<u64>,
        /// The name of the operation.
        name: &'static str,
        /// How long it was allowed to take.
        after: Duration,
        /// The rank that it waits for.
        rank: usize,
        /// What this rank knows about that rank.
        state: RankState,
        /// The other ranks that do not answer, or that have not started the operation.
        others: Vec<(usize, RankState)>,
    },
    /// A rank has not answered for so long that it counts as dead.
    #[error("rank {rank} does not answer: {}; the limit is {limit:?}", last_heard(.heard.as_ref()))]
    Silent {
        /// The rank.
        rank: usize,
        /// How long ago a message of it arrived; `None` if none has.
        heard: Option<Duration>,
        /// [`GroupOptions::dead_after`](crate::GroupOptions::dead_after).
        limit: Duration,
    },
    /// The host of a rank says by ICMP that nobody is at its port, and the rank does not answer.
    #[error("rank {rank} does not answer: {}; its host says that its process has ended", last_heard(.heard.as_ref()))]
    Gone {
        /// The rank.
        rank: usize,
        /// How long ago a message of it arrived; `None` if none has.
        heard: Option<Duration>,
    },
    /// A rank is so far behind that its records of ended bounded operations no longer fit memory.
    #[error(
        "rank {rank} {state}: its record of operation {operation} ({name}) is missing, and \
         {operations} later bounded operations have ended without it"
    )]
    Behind {
        /// The rank.
        rank: usize,
        /// What this rank knows about that rank.
        state: RankState,
        /// Number of the first operation without its record, counted from 0.
        operation: u64,
        /// The name of the operation.
        name: &'static str,
        /// The number of later bounded operations that have ended at this rank.
        operations: usize,
    },
    /// A queue pair to a rank broke.
    #[error("the connection to rank {rank} is broken: {problem}")]
    Connection {
        /// The rank.
        rank: usize,
        /// How the queue pair ended.
        problem: String,
    },
    /// A rank ended the group: by [`Communicator::abort`](crate::Communicator::abort), or because
    /// an operation failed at that rank.
    #[error("rank {rank} ended the group: {reason}")]
    Ended {
        /// The rank, which may be this one.
        rank: usize,
        /// The reason.
        reason: String,
    },
    /// The group is not connected yet.
    #[error("the group is not connected: call connect with the information of all ranks first")]
    NotConnected,
    /// The wait timed out while the operation still runs.
    #[error("the operation still runs")]
    StillRunning,
    /// The endpoint cannot continue.
    #[error(transparent)]
    Endpoint(Arc<farwrite::Error>),
}

/// Why an operation waits for another rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RankState {
    /// The rank does not answer questions.
    #[error("does not answer")]
    NoAnswer,
    /// The rank answers, and has not started the operation.
    #[error("has not started it")]
    NotStarted,
    /// Data to or from the rank is missing.
    #[error("has not sent or taken all of its data")]
    DataMissing,
}

/// An operation in an error message. Sends and receives have no number in the group.
fn operation_name(operation: Option<&u64>, name: &str) -> String {
    match operation {
        Some(number) => format!("operation {number} ({name})"),
        None => format!("a {name}"),
    }
}

/// Further ranks and their states in an error message.
fn list(others: &[(usize, RankState)]) -> String {
    let others = others.iter();
    others
        .map(|(rank, state)| format!(", rank {rank} {state}"))
        .collect()
}

/// When a rank was last heard, in an error message.
fn last_heard(ago: Option<&Duration>) -> String {
    match ago {
        Some(ago) => format!("it was last heard {:.1} s ago", ago.as_secs_f64()),
        None => "it was never heard".into(),
    }
}

impl CollectiveError {
    /// The operating system cannot create a thread.
    pub(crate) fn thread(source: std::io::Error) -> Self {
        Self::system("starting the thread of a communicator", source)
    }

    /// The operating system refuses something.
    pub(crate) fn system(what: &str, source: impl Into<std::io::Error>) -> Self {
        let (what, source) = (what.into(), source.into());
        farwrite::Error::from(farwrite::fabric::contract::FabricError::Io { what, source }).into()
    }

    /// The rank starts no more operations.
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
