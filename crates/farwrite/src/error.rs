//! Why a call on an endpoint failed.

use std::sync::Arc;

use farwrite_fabric::contract::FabricError;
use farwrite_sdr::{Awaited, ConfigError, ConnectError, SdrError};

use crate::critical::CriticalError;
use crate::options::RateControl;
use crate::reads::ExposedRegion;
#[cfg(target_os = "linux")]
use crate::routes::RouteError;

/// Why a call on an [`Endpoint`](crate::Endpoint) failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The next slot of the queue pair is not free yet. Poll, and call again.
    #[error("{}; poll and try again", not_free(*.slots, *.awaited))]
    Retry {
        /// Slots of the queue pair.
        slots: u32,
        /// The event that the call waits for.
        awaited: Awaited,
    },
    /// The queue pair was destroyed, or belongs to another endpoint.
    #[error("queue pair {0} does not exist")]
    NoSuchQueuePair(u32),
    /// The queue pair is broken, and its messages have failed. Other queue pairs are not affected.
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
    /// Another queue pair to the same peer has a different rate control. All queue pairs to
    /// a peer share one rate control.
    #[error(
        "the peer has rate control ({present}), and a queue pair with ({wanted}) cannot join: give all \
         queue pairs to the peer the same"
    )]
    RateControl {
        /// The rate control of the peer.
        present: Box<RateControl>,
        /// The rate control that the queue pair requests.
        wanted: Box<RateControl>,
    },
    /// Another queue pair under EQDS has a different line rate. All of them share the port of the
    /// endpoint.
    #[error(
        "queue pairs of this endpoint have rate control eqds at {present_bps} bit/s, and one at \
         {wanted_bps} bit/s cannot join them: give all of them the rate of the endpoint's port"
    )]
    LineRate {
        /// The line rate of the endpoint, in bits per second.
        present_bps: u64,
        /// The line rate that the queue pair requests.
        wanted_bps: u64,
    },
    /// The peer grants no credit, so a queue pair under EQDS could send nothing to it.
    #[error(
        "this end has rate control eqds, and the peer grants no credit: choose eqds at both ends, or \
         another rate control at this one"
    )]
    NoCredit,
    /// The two ends cannot agree on whether data packets are sealed.
    #[error(transparent)]
    Sealing(#[from] SealingError),
    /// There is no route to a peer, or none of use.
    #[cfg(target_os = "linux")]
    #[error(transparent)]
    Route(#[from] RouteError),
    /// The message has ended, or was never posted.
    #[error("message {0} is not open")]
    NoSuchMessage(u64),
    /// A slice exceeds the bounds of its region.
    #[error("bytes {offset}..{offset}+{length} leave their memory region of {region} bytes")]
    OutOfBounds {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
        /// Bytes of the region.
        region: u64,
    },
    /// A message or a receive is larger than the maximum of the queue pair.
    #[error(
        "{length} bytes exceed the queue pair's largest message of {limit} bytes: split them, or raise max_message_bytes"
    )]
    TooLong {
        /// Bytes asked for.
        length: u64,
        /// Maximum size of a message in bytes.
        limit: u64,
    },
    /// No known scheme has the identifier.
    #[error("no scheme has identifier {0}: register it with add_scheme")]
    UnknownScheme(u8),
    /// Messages and answers to reads cannot share a direction of a queue pair. The first use of the
    /// direction decides.
    #[error(
        "queue pair {queue_pair} carries {carried} in this direction, and cannot carry {wanted}: \
         use another queue pair for them"
    )]
    Direction {
        /// Its number.
        queue_pair: u32,
        /// What it carries.
        carried: &'static str,
        /// What it was asked to carry.
        wanted: &'static str,
    },
    /// The queue pair was created without this direction.
    #[error(
        "queue pair {queue_pair} was created with {switch} = false: create it with {switch} = true"
    )]
    SwitchedOff {
        /// Its number.
        queue_pair: u32,
        /// The field of [`QpOptions`](crate::QpOptions).
        switch: &'static str,
    },
    /// The peer is of a version that does not answer reads.
    #[error(
        "the peer of queue pair {0} does not answer reads: its version is older, update that end"
    )]
    NoReads(u32),
    /// The region is not exposed on the queue pair.
    #[error("{0} is not exposed on this queue pair: it was concealed, or belongs to another one")]
    NotExposed(ExposedRegion),
    /// A run of chunks of a stream cannot be sent.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The critical ranges of a message are not valid.
    #[error(transparent)]
    Critical(#[from] CriticalError),
    /// The message is not valid.
    #[error(transparent)]
    Sdr(#[from] SdrError),
    /// The configuration of a queue pair is not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The peer's queue pair is not compatible with ours.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The fabric returned an error.
    #[error(transparent)]
    Fabric(#[from] FabricError),
}

/// Why two queue pairs cannot be connected, as one of their ends requires sealed data packets (P2.7), or
/// as other queue pairs to the peer differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SealingError {
    /// This end requires sealed packets.
    #[error(
        "this end requires sealed data packets, and the peer does not seal: let the peer seal, update \
         it, or allow unsealed packets here"
    )]
    PeerDoesNot,
    /// The peer requires sealed packets.
    #[error(
        "the peer requires sealed data packets, and this end does not seal: let this end seal, or \
         allow unsealed packets at the peer"
    )]
    PeerRequires,
    /// The fabric cannot seal.
    #[error(
        "this end requires sealed data packets, and its fabric cannot seal: use the UDP fabric"
    )]
    Fabric,
    /// Other queue pairs to the peer differ. They share the count of bytes on the path.
    #[error(
        "the queue pairs to the peer are {}, and one that is {} cannot join them: give all the same \
         sealing", sealed(*.present), sealed(!*.present)
    )]
    Mixed {
        /// Whether the others are sealed.
        present: bool,
    },
}

fn sealed(is_sealed: bool) -> &'static str {
    match is_sealed {
        true => "sealed",
        false => "unsealed",
    }
}

/// Why a call on a stream is refused.
///
/// ```
/// use farwrite::StreamError;
///
/// let why = StreamError::EndsWithinChunk.to_string();
/// assert_eq!(why, "a run must end where a chunk ends, or the message");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The message has a scheme, and the scheme decides what is sent.
    #[error("the message has a scheme: start one with start_stream, and give that its chunks")]
    HasScheme,
    /// The message was not started as a stream, or has ended.
    #[error("the message is not a stream, or has ended")]
    NotOpen,
    /// The run has no bytes.
    #[error("a run of chunks must hold at least one byte")]
    EmptyRun,
    /// The run lies past the end of the stream.
    #[error("the stream ended before these chunks")]
    PastEnd,
    /// The run lies after a run whose last chunk is short. Only the last chunk of a message may be
    /// short.
    #[error("a run was added behind one that ended within a chunk")]
    BehindShortChunk,
    /// The run ends within a chunk that another run continues.
    #[error("a run must end where a chunk ends, or the message")]
    EndsWithinChunk,
    /// A message with a scheme begins at the first chunk of the peer's buffer.
    #[error(
        "first_chunk = {0}: a message with a scheme begins at chunk 0; send it without a scheme"
    )]
    OffsetWithScheme(u32),
    /// A message that leaves out the first chunks has too few packets for its immediate (P3.4).
    #[error(
        "a message of {packets} packets that begins at chunk {first_chunk} cannot carry an immediate, \
         which takes {parts} packets"
    )]
    TooShortForImmediate {
        /// Packets of the message.
        packets: u64,
        /// The chunk at which it begins.
        first_chunk: u32,
        /// Packets that carry a part of the immediate each.
        parts: u32,
    },
    /// A write reaches beyond the peer's buffer.
    #[error("the write ends at byte {end_bytes}, and the peer's window has {window_bytes} bytes")]
    OutsideWindow {
        /// One past the last byte of the write, counted from the start of the window.
        end_bytes: u64,
        /// Bytes of the window.
        window_bytes: u64,
    },
    /// The deadline of a write has passed before the call.
    #[error(
        "the deadline of the write, {deadline_ns} ns, is not after the last poll at {now_ns} ns"
    )]
    DeadlinePassed {
        /// The deadline.
        deadline_ns: u64,
        /// The time of the last poll.
        now_ns: u64,
    },
    /// Too many writes are open on the queue pair.
    #[error("{limit} writes are open on the queue pair: poll until one has ended")]
    TooManyWrites {
        /// Maximum number of open writes.
        limit: usize,
    },
}

/// Why the next slot is not free.
fn not_free(slots: u32, awaited: Awaited) -> String {
    match awaited {
        Awaited::RecvSlot | Awaited::SendSlot => {
            format!("all {slots} message slots of the queue pair are taken")
        }
        other => other.to_string(),
    }
}

impl Error {
    /// Returns whether the whole endpoint is broken, not only one queue pair or one call.
    pub(crate) fn is_of_endpoint(&self) -> bool {
        matches!(self, Self::Fabric(FabricError::Io { .. }))
    }
}
