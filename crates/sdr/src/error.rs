//! Why calls fail, and what a peer can do wrong.

use farwrite_wire::timing::Timing;

use crate::config::QpConfig;
use crate::info::InfoError;

/// Why a call on a queue pair failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SdrError {
    /// Not possible at the moment: try again once something has happened.
    #[error("{0}: try again later")]
    Retry(&'static str),
    /// The queue pair has no peer yet.
    #[error("the queue pair is not connected: connect it first")]
    NotConnected,
    /// The queue pair was made without parity messages.
    #[error("this queue pair carries no parity: set `parity` in its configuration at both ends")]
    ParityOff,
    /// Memory for the parity of the message was posted before. Packets may be on their way there.
    #[error("message {0} has memory for its parity: it is posted once a message")]
    ParityPosted(u64),
    /// There is no such message, or it is over.
    #[error("message {0} is not in flight")]
    UnknownMessage(u64),
    /// The place is not the one to be posted next.
    #[error("message {place} cannot be posted now: the next is {next}")]
    StalePlace {
        /// The place's message.
        place: u64,
        /// The message to be posted next.
        next: u64,
    },
    /// A message or buffer is longer than what is there for it.
    #[error("{length} bytes are more than the {max} that fit")]
    TooLong {
        /// Bytes asked for.
        length: u64,
        /// Bytes that would do.
        max: u64,
    },
    /// The buffer's addresses leave the 64-bit range.
    #[error("{length} bytes from address {base:#x} on leave the 64-bit range")]
    BadTarget {
        /// First address.
        base: u64,
        /// Bytes.
        length: u64,
    },
    /// The message carries no user immediate.
    #[error("message {0} carries no user immediate")]
    NoImmediate(u64),
    /// The split leaves no bits for user immediates.
    #[error("this queue pair carries no user immediates: its split gives them 0 bits")]
    ImmediatesOff,
    /// The length of a streaming send was set before, to something else.
    #[error("message {message} already has {length} bytes")]
    LengthSet {
        /// The message.
        message: u64,
        /// Its length.
        length: u64,
    },
}

/// Why two queue pairs cannot be joined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// A number that must be the same at both ends is not.
    #[error("{field} is {theirs} at the peer and {ours} here: both ends need the same")]
    Mismatch {
        /// Field of [`QpConfig`].
        field: &'static str,
        /// This end's.
        ours: u64,
        /// The peer's.
        theirs: u64,
    },
    /// The two ends wait for different times.
    #[error("timing is {theirs} at the peer and {ours} here: both ends need the same")]
    Timing {
        /// This end's.
        ours: Timing,
        /// The peer's.
        theirs: Timing,
    },
    /// The queue pair is connected already.
    #[error("the queue pair is connected already")]
    Connected,
    /// The information contradicts itself, or names what cannot be.
    #[error(transparent)]
    Info(#[from] InfoError),
}

impl ConnectError {
    /// The first field in which two configurations differ.
    pub(crate) fn compare(ours: &QpConfig, theirs: &QpConfig) -> Result<(), Self> {
        let fields = |c: &QpConfig| -> [(&'static str, u64); 10] {
            [
                ("mtu", c.mtu.into()),
                ("packets_per_chunk", c.packets_per_chunk.into()),
                ("split.id_bits", c.split.id_bits.into()),
                ("split.offset_bits", c.split.offset_bits.into()),
                ("split.user_bits", c.split.user_bits.into()),
                ("slots", c.slots.into()),
                ("parity", c.parity.into()),
                ("max_message_bytes", c.max_message_bytes),
                ("generations", c.generations.into()),
                ("channels", c.channels.into()),
            ]
        };
        for ((field, ours), (_, theirs)) in fields(ours).into_iter().zip(fields(theirs)) {
            if ours != theirs {
                return Err(Self::Mismatch {
                    field,
                    ours,
                    theirs,
                });
            }
        }
        Ok(())
    }

    /// Whether both ends have the same timing.
    pub(crate) fn compare_timing(ours: &Timing, theirs: &Timing) -> Result<(), Self> {
        if ours == theirs {
            return Ok(());
        }
        Err(Self::Timing {
            ours: *ours,
            theirs: *theirs,
        })
    }
}

/// What a peer said that it must not say. Nothing was changed by it.
///
/// Copies that arrive late or twice are no violations.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A message number beyond what the peer can have reached.
    #[error("message {message} lies beyond {limit}, the furthest that there can be")]
    MessageOutOfRange {
        /// The number.
        message: u64,
        /// One past the largest that would do.
        limit: u64,
    },
    /// An offer longer than the longest message of the queue pair.
    #[error("message {message} is offered with {length} bytes, the limit is {max}")]
    OfferTooLong {
        /// The message.
        message: u64,
        /// Its length.
        length: u64,
        /// The queue pair's limit.
        max: u64,
    },
    /// An offer that disagrees with an earlier one for the same message.
    #[error("message {0} is offered again with another length or scheme")]
    OfferChanged(u64),
    /// An offer of a user immediate on a queue pair that carries none.
    #[error("message {0} is offered with a user immediate, which this queue pair does not carry")]
    ImmediatesOff(u64),
    /// A clearance that no receiver of this queue pair's shape can give.
    #[error(
        "message {message} is cleared for generation {generation}, {length} bytes from {base:#x} on, which cannot be"
    )]
    BadClearance {
        /// The message.
        message: u64,
        /// Its generation.
        generation: u8,
        /// First address.
        base: u64,
        /// Bytes.
        length: u64,
    },
}
