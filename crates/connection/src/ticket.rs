//! The outcome of a message that was sent.

use std::sync::OnceLock;

use farwrite::{Outcome, Refusal};

/// How a message ended, once it has ended.
#[derive(Debug, Default)]
pub(crate) struct Ticket(OnceLock<(Outcome, Option<Refusal>)>);

impl Ticket {
    /// The first outcome stays.
    pub(crate) fn finish(&self, outcome: Outcome, refusal: Option<Refusal>) {
        let _ = self.0.set((outcome, refusal));
    }

    pub(crate) fn outcome(&self) -> Option<(Outcome, Option<Refusal>)> {
        self.0.get().copied()
    }
}
