//! The outcome of a message that was sent.

use std::sync::OnceLock;

use farwrite::Outcome;

/// A message is longer than [`Messages::largest_message`](crate::Messages::largest_message).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the message has {length} bytes, and the queue pair carries at most {limit} in one on this path: send it in pieces"
)]
pub struct TooLong {
    /// Bytes of the message.
    pub length: u64,
    /// Bytes of the largest message.
    pub limit: u64,
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
