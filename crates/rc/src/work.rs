//! What users ask of a queue pair, and what comes of it.

use farwrite_net::Payload;

use crate::Nak;

/// A request to the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Puts a message into the peer's next receive buffer.
    Send {
        /// The message.
        data: Payload,
        /// The immediate.
        imm: Option<u32>,
    },
    /// Writes into the peer's memory. With an immediate, it takes the peer's next receive buffer,
    /// and leaves it empty.
    Write {
        /// What.
        data: Payload,
        /// Where.
        to: Remote,
        /// The immediate.
        imm: Option<u32>,
    },
    /// Reads from the peer's memory.
    Read {
        /// From where.
        from: Remote,
        /// How many bytes.
        bytes: u32,
    },
}

/// A place in the peer's [`Memory`](crate::Memory).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The key of the region.
    pub rkey: u32,
    /// The first address.
    pub addr: u64,
}

/// The outcome of a request or a receive buffer. Those of a kind come in the order in which they
/// were posted. `id` is the number that the user gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The peer acknowledged a SEND or a WRITE.
    Acknowledged {
        /// Which.
        id: u64,
    },
    /// A READ is done.
    Read {
        /// Which.
        id: u64,
        /// What was read.
        data: Payload,
    },
    /// A request failed. The queue pair is broken.
    Failed {
        /// Which.
        id: u64,
        /// Why.
        error: RequestError,
    },
    /// A SEND of the peer came into a receive buffer.
    Received {
        /// Which buffer.
        id: u64,
        /// The message.
        data: Payload,
        /// Its immediate.
        imm: Option<u32>,
    },
    /// A WRITE of the peer with an immediate is done. It took a receive buffer.
    Written {
        /// Which buffer.
        id: u64,
        /// Bytes written.
        bytes: u32,
        /// The immediate.
        imm: u32,
    },
    /// The queue pair broke before this receive buffer was used in full.
    Unused {
        /// Which buffer.
        id: u64,
    },
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// There was no progress through timeouts and sequence errors.
    #[error(
        "no progress after sending {retries} more times; raise retry_limit or ack_timeout_ns if \
         the path is lossy, or see whether the peer is there"
    )]
    RetriesExhausted {
        /// The limit.
        retries: u8,
    },
    /// The peer had no receive buffer.
    #[error(
        "the peer had no receive buffer, also after {retries} more attempts; post receives there, \
         or raise rnr_retry_limit"
    )]
    NotReady {
        /// The limit.
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
pub enum PostError {
    /// There is no such queue pair.
    #[error("queue pair {0} does not exist")]
    NoQueuePair(u32),
    /// The queue pair is broken.
    #[error("the queue pair is broken; connect another one")]
    Broken,
    /// The message has more bytes than the limit of 2^31 (IBTA 9.7) or takes too many packets.
    #[error("a message of {bytes} bytes is too long; at most {max_bytes} are possible")]
    TooLong {
        /// Its bytes.
        bytes: u32,
        /// The most with this MTU.
        max_bytes: u32,
    },
    /// The payload was cut off by a switch.
    #[error("{bytes} bytes of payload were cut off, so nothing can be sent")]
    Trimmed {
        /// Its bytes.
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
