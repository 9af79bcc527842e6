//! Why a call on an endpoint failed.

use std::sync::Arc;

use farwrite_fabric::contract::FabricError;
use farwrite_sdr::{ConfigError, ConnectError, SdrError};

use crate::options::RateControl;

/// Why a call on an [`Endpoint`](crate::Endpoint) failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// As many messages are in flight as the queue pair has slots, or as many receives are posted.
    /// Poll, and call again.
    #[error("all {slots} message slots of the queue pair are taken; poll and try again")]
    Retry {
        /// Slots of the queue pair.
        slots: u32,
    },
    /// The queue pair was destroyed, or belongs to another endpoint.
    #[error("queue pair {0} does not exist")]
    NoSuchQueuePair(u32),
    /// The queue pair could not go on, and its messages have failed. Other queue pairs are not
    /// affected.
    #[error("queue pair {queue_pair} is broken, destroy it: {reason}")]
    BrokenQueuePair {
        /// Its number.
        queue_pair: u32,
        /// What happened.
        reason: Arc<Error>,
    },
    /// The thread of the endpoint has ended.
    #[error("the endpoint's thread has ended{}", .0.as_ref().map(|why| format!(": {why}")).unwrap_or_default())]
    Stopped(Option<Arc<Error>>),
    /// The queue pair has no peer yet.
    #[error("queue pair {0} is not connected: call connect_qp with the peer's information first")]
    NotConnected(u32),
    /// Another queue pair to the same peer has another rate control. They share one path.
    #[error(
        "the path to the peer has rate control ({present}), and a queue pair with ({wanted}) cannot \
         share it: give all queue pairs to the peer the same"
    )]
    RateControl {
        /// What the path has.
        present: RateControl,
        /// What the queue pair wants.
        wanted: RateControl,
    },
    /// The message is over, or was never posted.
    #[error("message {0} is not open")]
    NoSuchMessage(u64),
    /// A slice leaves its region.
    #[error("bytes {offset}..{offset}+{length} leave their memory region of {region} bytes")]
    OutOfBounds {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
        /// Bytes of the region.
        region: u64,
    },
    /// A message or a receive larger than the queue pair was made for.
    #[error(
        "{length} bytes exceed the queue pair's largest message of {limit} bytes: split them, or raise max_message_bytes"
    )]
    TooLong {
        /// Bytes asked for.
        length: u64,
        /// Most bytes of a message.
        limit: u64,
    },
    /// No scheme answers to the identifier.
    #[error("no scheme has identifier {0}: register it with add_scheme")]
    UnknownScheme(u8),
    /// A streamed run of chunks does not start on a chunk, or is not open.
    #[error("{0}")]
    Stream(&'static str),
    /// The message cannot be.
    #[error(transparent)]
    Sdr(#[from] SdrError),
    /// A queue pair cannot be made so.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The peer's queue pair does not fit ours.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The fabric said no.
    #[error(transparent)]
    Fabric(#[from] FabricError),
}

impl Error {
    /// Whether the whole endpoint cannot go on, rather than one queue pair or one call.
    pub(crate) fn is_of_endpoint(&self) -> bool {
        matches!(self, Self::Fabric(FabricError::Io { .. }))
    }
}
