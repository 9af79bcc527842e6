//! Requests, completions and errors of a queue pair's user.

use farwrite_net::Payload;

use crate::Nak;

/// A request to the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Sends a message into the peer's next receive buffer.
    Send {
        /// The message.
        data: Payload,
        /// The immediate value.
        imm: Option<u32>,
    },
    /// Writes into the peer's memory. With an immediate, the WRITE also consumes the peer's next
    /// receive buffer, which stays empty.
    Write {
        /// The data to write.
        data: Payload,
        /// The destination.
        to: Remote,
        /// The immediate value.
        imm: Option<u32>,
    },
    /// Reads from the peer's memory.
    Read {
        /// The source.
        from: Remote,
        /// Number of bytes.
        bytes: u32,
    },
}

/// An address in the peer's [`Memory`](crate::Memory).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The key of the region.
    pub rkey: u32,
    /// The first address.
    pub addr: u64,
}

/// The outcome of a request or a receive buffer. Requests complete in the order of posting, and so
/// do receive buffers. `id` is the number that the user passed when posting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The peer acknowledged a SEND or a WRITE.
    Acknowledged {
        /// Id of the request.
        id: u64,
    },
    /// A READ is complete.
    Read {
        /// Id of the request.
        id: u64,
        /// The bytes read.
        data: Payload,
    },
    /// A request failed. The queue pair is broken.
    Failed {
        /// Id of the request.
        id: u64,
        /// The reason.
        error: RequestError,
    },
    /// A SEND of the peer arrived in a receive buffer.
    Received {
        /// Id of the receive buffer.
        id: u64,
        /// The message.
        data: Payload,
        /// Its immediate.
        imm: Option<u32>,
    },
    /// A WRITE of the peer with an immediate is complete. It consumed a receive buffer.
    Written {
        /// Id of the receive buffer.
        id: u64,
        /// Bytes written.
        bytes: u32,
        /// The immediate.
        imm: u32,
    },
    /// The queue pair broke before this receive buffer was completed.
    Unused {
        /// Id of the receive buffer.
        id: u64,
    },
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// Retransmissions after timeouts and sequence errors brought no progress.
    #[error(
        "no progress after sending {retries} more times; raise retry_limit or ack_timeout_ns if \
         the path is lossy, or see whether the peer is there"
    )]
    RetriesExhausted {
        /// The limit of retries.
        retries: u8,
    },
    /// The peer had no receive buffer.
    #[error(
        "the peer had no receive buffer, even after {retries} retries; post receives there, \
         or raise rnr_retry_limit"
    )]
    NotReady {
        /// The limit of retries.
        retries: u8,
    },
    /// The peer refused the request.
    #[error("the peer refused the request: {0:?}")]
    Refused(Nak),
    /// An earlier request failed, or this end refused a request of the peer.
    #[error("the queue pair broke before this request was done")]
    Flushed,
}

/// Why a request cannot be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// There is no such queue pair.
    #[error("queue pair {0} does not exist")]
    NoQueuePair(u32),
    /// The queue pair is broken.
    #[error("the queue pair is broken; connect another one")]
    Broken,
    /// The message is longer than the limit of 2^31 bytes (IBTA 9.7), or takes too many packets.
    #[error("a message of {bytes} bytes is too long; at most {max_bytes} are possible")]
    TooLong {
        /// Length of the message.
        bytes: u32,
        /// The limit at this MTU.
        max_bytes: u32,
    },
    /// A switch has cut off the payload.
    #[error("{bytes} bytes of payload were cut off, so nothing can be sent")]
    Trimmed {
        /// Number of bytes that were cut off.
        bytes: u32,
    },
}

impl Request {
    pub(crate) fn bytes(&self) -> u32 {
        match self {
            Self::Send { data, .. } | Self::Write { data, .. } => data.carried_bytes(),
            Self::Read { bytes, .. } => *bytes,
        }
    }

    pub(crate) fn is_read(&self) -> bool {
        matches!(self, Self::Read { .. })
    }
}
