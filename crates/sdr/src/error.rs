//! Why calls fail, and what a peer can do wrong.

use farwrite_wire::timing::Timing;

use crate::config::QpConfig;
use crate::info::InfoError;

/// The event that a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Awaited {
    /// A receive must be completed.
    #[error("a receive is posted in every message slot")]
    RecvSlot,
    /// A send must end.
    #[error("a message is in flight in every slot")]
    SendSlot,
    /// The peer must offer the last message of the slot.
    #[error("the last message of this slot is not offered yet")]
    LastOffer,
    /// The peer must offer the message.
    #[error("the message is not offered yet")]
    Offer,
    /// All fragments of the user immediate must arrive.
    #[error("the user immediate is not whole yet")]
    Immediate,
}

/// Why a call on a queue pair failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SdrError {
    /// The call is not possible at the moment. Try again after the awaited event.
    #[error("{0}: try again later")]
    Retry(#[from] Awaited),
    /// The queue pair has no peer yet.
    #[error("the queue pair is not connected: connect it first")]
    NotConnected,
    /// The queue pair was created without parity messages.
    #[error("this queue pair carries no parity: set `parity` in its configuration at both ends")]
    ParityOff,
    /// Memory for the parity of the message was posted before. Packets for it may be in flight.
    #[error("message {0} has memory for its parity: it is posted once a message")]
    ParityPosted(u64),
    /// There is no such message, or it has ended.
    #[error("message {0} is not in flight")]
    UnknownMessage(u64),
    /// The place is not the next one to post.
    #[error("message {place} cannot be posted now: the next is {next}")]
    StalePlace {
        /// The place's message.
        place: u64,
        /// The next message to post.
        next: u64,
    },
    /// A message or buffer is longer than the space for it.
    #[error("{length} bytes are more than the {max} that fit")]
    TooLong {
        /// Requested bytes.
        length: u64,
        /// The largest valid value.
        max: u64,
    },
    /// Critical chunks are not chunks of the message.
    #[error("critical chunks go up to {end}, but the message has {chunks} chunks")]
    CriticalOutOfRange {
        /// One past the last critical chunk.
        end: u32,
        /// Chunks of the message, 0 if its length is not known.
        chunks: u32,
    },
    /// The buffer's address range exceeds 64 bits.
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
    /// The length of a streaming send was already set to another value.
    #[error("message {message} already has {length} bytes")]
    LengthSet {
        /// The message.
        message: u64,
        /// Its length.
        length: u64,
    },
}

/// Why two queue pairs cannot be connected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// A value that must be the same at both ends differs.
    #[error("{field} is {theirs} at the peer and {ours} here: both ends need the same")]
    Mismatch {
        /// Field of [`QpConfig`].
        field: &'static str,
        /// The value at this end.
        ours: u64,
        /// The value at the peer.
        theirs: u64,
    },
    /// The two ends have different timing.
    #[error("timing is {theirs} at the peer and {ours} here: both ends need the same")]
    Timing {
        /// The timing at this end.
        ours: Timing,
        /// The timing at the peer.
        theirs: Timing,
    },
    /// The queue pair is connected already.
    #[error("the queue pair is connected already")]
    Connected,
    /// The information contradicts itself, or contains a value that is not valid.
    #[error(transparent)]
    Info(#[from] InfoError),
}

impl ConnectError {
    /// Compares two configurations. The error names the first field that differs.
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

/// A control message that the peer must not send. It changed nothing.
///
/// Copies that arrive late or twice are not violations.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A message number higher than the peer can have reached.
    #[error("message {message} lies beyond {limit}, the furthest that there can be")]
    MessageOutOfRange {
        /// The number.
        message: u64,
        /// One past the largest valid number.
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
    /// An offer whose critical chunks are not chunks of the message.
    #[error(
        "message {message} is offered with critical chunks up to {end}, but has {chunks} chunks"
    )]
    CriticalOutOfRange {
        /// The message.
        message: u64,
        /// One past the last critical chunk.
        end: u32,
        /// Chunks of the message, 0 if its length is not known.
        chunks: u32,
    },
    /// An offer that disagrees with an earlier one for the same message.
    #[error("message {0} is offered again with another length or scheme")]
    OfferChanged(u64),
    /// A read of more than the longest message of the queue pair.
    #[error("message {message} is requested with {length} bytes, the limit is {max}")]
    ReadTooLong {
        /// The message.
        message: u64,
        /// Bytes requested.
        length: u64,
        /// The queue pair's limit.
        max: u64,
    },
    /// A read that disagrees with an earlier request for the same message.
    #[error("message {0} is requested again with other bytes or another scheme")]
    ReadChanged(u64),
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
