//! What a queue pair tells its owner.

use farwrite_wire::control::{Outcome, SchemeTag, Withdrawal};

/// Something that happened through the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A posted receive has its offer.
    Offered {
        /// The message.
        message: u64,
        /// Its bytes; `None` while a streaming send is open.
        length: Option<u64>,
        /// The scheme that repairs it.
        scheme: SchemeTag,
        /// Whether a user immediate comes with it.
        has_immediate: bool,
    },
    /// A streaming send whose length was open has one now.
    LengthKnown {
        /// The message.
        message: u64,
        /// Its bytes.
        length: u64,
    },
    /// The offer for a posted receive cannot be taken; the receive should be completed as failed.
    Refused {
        /// The message.
        message: u64,
        /// Why.
        refusal: Refusal,
    },
    /// The sender has ended a message whose receive is posted; the receive should be completed.
    Withdrawn {
        /// The message.
        message: u64,
        /// Why the sender ended it.
        withdrawal: Withdrawal,
    },
    /// A started send may write: its buffer is there.
    ClearToSend {
        /// The message.
        message: u64,
    },
    /// The message is not what the peer's buffer and terms ask for, so it is never going to be
    /// cleared; the send should be closed as failed.
    SendRefused {
        /// The message.
        message: u64,
        /// What does not fit.
        refusal: Refusal,
    },
    /// The peer completed the receive of a started send, which is over with that.
    Closed {
        /// The message.
        message: u64,
        /// How it ended at the peer.
        outcome: Outcome,
    },
}

/// Why a message cannot go into the receive that it meets. Both ends find this out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The message is longer than the posted buffer.
    #[error("the message has {length} bytes, its buffer {capacity}")]
    TooLong {
        /// Bytes of the message.
        length: u64,
        /// Bytes of the buffer.
        capacity: u64,
    },
    /// The receiver demands another length ([`Terms::exact_length`](crate::Terms::exact_length)).
    #[error("the message has {offered} bytes, its receive was posted for exactly {expected}")]
    Length {
        /// Bytes of the message.
        offered: u64,
        /// Bytes that the receiver demands.
        expected: u64,
    },
    /// The receiver demands another scheme ([`Terms::scheme`](crate::Terms::scheme)).
    #[error(
        "the message has scheme {} with parameters {:?}, its receive was posted for scheme {} \
         with parameters {:?}",
        .offered.id, .offered.params, .expected.id, .expected.params
    )]
    Scheme {
        /// The scheme of the message.
        offered: SchemeTag,
        /// The scheme that the receiver demands.
        expected: SchemeTag,
    },
    /// The message carries a user immediate that the receiver does not expect, or lacks one that
    /// it expects ([`Terms::immediate`](crate::Terms::immediate)).
    #[error(
        "the message carries {} user immediate, its receive was posted for {}",
        if *.offered { "a" } else { "no" },
        if *.offered { "none" } else { "one" }
    )]
    Immediate {
        /// Whether the message carries one.
        offered: bool,
    },
    /// Packets have arrived that the message, as offered, does not have.
    #[error("the message has {packets} packets, but packet {seen} has arrived")]
    Contradicted {
        /// Packets of the message as offered.
        packets: u32,
        /// Packets up to the last that arrived.
        seen: u32,
    },
}
