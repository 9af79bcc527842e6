//! What a queue pair tells its owner.

use farwrite_wire::control::{Outcome, SchemeTag};

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
    /// The sender has given up a message whose receive is posted; the receive should be completed.
    Withdrawn {
        /// The message.
        message: u64,
    },
    /// A started send may write: its buffer is there.
    ClearToSend {
        /// The message.
        message: u64,
    },
    /// The buffer at the peer is shorter than the message, which is never going to be cleared; the
    /// send should be closed as failed.
    SendTooLong {
        /// The message.
        message: u64,
        /// Its bytes.
        length: u64,
        /// Bytes of the peer's buffer.
        capacity: u64,
    },
    /// The peer completed the receive of a started send, which is over with that.
    Closed {
        /// The message.
        message: u64,
        /// How it ended at the peer.
        outcome: Outcome,
    },
}

/// Why an offer cannot be taken.
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
    /// Packets have arrived that the message, as offered, does not have.
    #[error("the message has {packets} packets, but packet {seen} has arrived")]
    Contradicted {
        /// Packets of the message as offered.
        packets: u32,
        /// Packets up to the last that arrived.
        seen: u32,
    },
}
