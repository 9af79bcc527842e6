//! The outcome of a message that was sent.

use std::sync::OnceLock;

use farwrite::Outcome;

/// Why a message is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooLong {
    /// It is longer than [`Messages::largest_message`](crate::Messages::largest_message).
    #[error(
        "the message has {length} bytes, and the queue pair carries at most {limit} in one on this path: send it in pieces"
    )]
    ForPath {
        /// Bytes of the message.
        length: u64,
        /// Bytes of the largest message.
        limit: u64,
    },
    /// It is longer than the buffer that the peer has posted for it.
    #[error(
        "the message has {length} bytes, and the peer receives at most {limit} in one: send it in pieces, or raise \
         longest_bytes of the peer's MessageOptions"
    )]
    ForPeer {
        /// Bytes of the message.
        length: u64,
        /// Bytes of the buffer.
        limit: u64,
    },
}

/// How a message ended, once it has ended.
#[derive(Debug, Default)]
pub(crate) struct Ticket(OnceLock<(Outcome, Option<TooLong>)>);

impl Ticket {
    pub(crate) fn failed() -> Self {
        Self(OnceLock::from((Outcome::Failed, None)))
    }

    /// The first outcome stays.
    pub(crate) fn finish(&self, outcome: Outcome) {
        let _ = self.0.set((outcome, None));
    }

    pub(crate) fn fail(&self, too_long: TooLong) {
        let _ = self.0.set((Outcome::Failed, Some(too_long)));
    }

    pub(crate) fn outcome(&self) -> Option<Outcome> {
        self.0.get().map(|(outcome, _)| *outcome)
    }

    pub(crate) fn too_long(&self) -> Option<TooLong> {
        self.0.get().and_then(|(_, too_long)| *too_long)
    }
}
