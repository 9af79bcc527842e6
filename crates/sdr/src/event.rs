//! Events of a queue pair, for its owner.

use farwrite_wire::control::{CriticalChunks, MessageId, Outcome, SchemeTag, Withdrawal};

/// What the sender's offer says about a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offered {
    /// The message.
    pub message: u64,
    /// Its length in bytes; `None` while a streaming send is open.
    pub length: Option<u64>,
    /// The scheme that repairs it.
    pub scheme: SchemeTag,
    /// Its critical chunks, which lie within the message.
    pub critical: CriticalChunks,
    /// Whether the message carries a user immediate.
    pub has_immediate: bool,
}

/// Something that the peer caused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The offer for a posted receive has arrived.
    Offered(Offered),
    /// The length of a streaming send is now known.
    LengthKnown {
        /// The message.
        message: u64,
        /// Its bytes.
        length: u64,
    },
    /// The offer for a posted receive cannot be accepted. Complete the receive as failed.
    Refused {
        /// The message.
        message: u64,
        /// Why.
        refusal: Refusal,
    },
    /// The sender has ended a message whose receive is posted. Complete the receive.
    Withdrawn {
        /// The message.
        message: u64,
        /// Why the sender ended it.
        withdrawal: Withdrawal,
    },
    /// A started send, or its parity, may write: the peer's buffer is ready.
    ClearToSend {
        /// The message, or its parity.
        message: MessageId,
    },
    /// The message does not match the peer's buffer and terms, so it is never written there. Close
    /// the send as failed.
    SendRefused {
        /// The message.
        message: u64,
        /// What does not match.
        refusal: Refusal,
    },
    /// The peer completed the receive of a started send, so the send has ended.
    Closed {
        /// The message.
        message: u64,
        /// How it ended at the peer.
        outcome: Outcome,
    },
}

/// Why a message does not fit the receive that it matches. Both ends detect this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The message is longer than the posted buffer.
    #[error(
        "the message has {length} bytes, its buffer {capacity}: send it in pieces, or post a larger \
         buffer"
    )]
    TooLong {
        /// Bytes of the message.
        length: u64,
        /// Bytes of the buffer.
        capacity: u64,
    },
    /// The receiver requires another length ([`Terms::exact_length`](crate::Terms::exact_length)).
    #[error("the message has {offered} bytes, its receive was posted for exactly {expected}")]
    Length {
        /// Bytes of the message.
        offered: u64,
        /// Bytes that the receiver requires.
        expected: u64,
    },
    /// The receiver requires another scheme ([`Terms::scheme`](crate::Terms::scheme)).
    #[error(
        "the message has scheme {} with parameters {:?}, its receive was posted for scheme {} \
         with parameters {:?}",
        .offered.id, .offered.params, .expected.id, .expected.params
    )]
    Scheme {
        /// The scheme of the message.
        offered: SchemeTag,
        /// The scheme that the receiver requires.
        expected: SchemeTag,
    },
    /// The message carries a user immediate that the receiver does not expect, or lacks one that
    /// the receiver expects ([`Terms::immediate`](crate::Terms::immediate)).
    #[error(
        "the message carries {} user immediate, its receive was posted for {}",
        if *.offered { "a" } else { "no" },
        if *.offered { "none" } else { "one" }
    )]
    Immediate {
        /// Whether the message carries a user immediate.
        offered: bool,
    },
    /// The message answers a read and its receive was posted for a message, or the other way round
    /// ([`Terms::answers_read`](crate::Terms::answers_read)).
    #[error(
        "the message {} a read, its receive was posted for {}",
        if *.offered { "answers" } else { "does not answer" },
        if *.offered { "a message" } else { "the answer to one" }
    )]
    Read {
        /// Whether the message answers a read.
        offered: bool,
    },
    /// Packets have arrived that lie past the end of the offered message.
    #[error("the message has {packets} packets, but packet {seen} has arrived")]
    Contradicted {
        /// Packets of the message as offered.
        packets: u32,
        /// Number of packets up to the highest one that arrived.
        seen: u32,
    },
}
