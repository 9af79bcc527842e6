//! One message at its sender.

use farwrite_wire::control::{Clearance, Place, SchemeTag, Withdrawal, is_parity};

/// What to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendSpec {
    /// Bytes of the message; `None` for a streaming send whose end is not known yet.
    pub length: Option<u64>,
    /// A user immediate for the receiver.
    pub immediate: Option<u32>,
    /// The scheme that the receiver shall run.
    pub scheme: SchemeTag,
    /// Bytes of the parity message that goes with it; 0 for none.
    pub parity_bytes: u64,
    /// Whether its scheme lets it end as partial, whatever the peer's terms say (P5.9).
    pub is_bounded: bool,
}

/// How far a send is from its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Its user may write.
    Active,
    /// Its user is done; the receiver does not know the length yet.
    Done,
    /// Its user has ended it early; the receiver has not completed it yet.
    Withdrawn(Withdrawal),
}

pub(crate) struct Sending {
    pub(crate) spec: SendSpec,
    /// Whether it started without a length: then reports do not prove that its length is known.
    pub(crate) streaming: bool,
    pub(crate) stage: Stage,
    pub(crate) clearance: Option<Clearance>,
    /// Whether the receiver demands another message than this, so that it is never cleared.
    pub(crate) refused: bool,
    /// Where the parity may be written, once there is enough memory for it.
    pub(crate) parity: Option<Place>,
    /// Whether the receiver is known to have no memory for the parity, or too little.
    pub(crate) parity_refused: bool,
    /// Whether the receiver is known to know the length.
    pub(crate) answered: bool,
    /// When something was last heard about the message.
    pub(crate) heard_ns: u64,
    /// Key of its entry in `timers`.
    pub(crate) due_ns: u64,
    /// Wait before the next offer; 0: none has been made since something changed.
    pub(crate) interval_ns: u64,
}

impl Sending {
    /// Whether the receiver knows all that the offer says, and this end where to write.
    pub(crate) fn is_settled(&self) -> bool {
        let is_clear = self.clearance.is_some() && !self.lacks_parity();
        self.stage == Stage::Active && self.answered && is_clear
    }

    /// Whether it waits for its clearance.
    pub(crate) fn awaits_clearance(&self) -> bool {
        self.stage == Stage::Active && self.clearance.is_none() && !self.refused
    }

    /// Whether it is not known yet if there is memory for the parity.
    pub(crate) fn lacks_parity(&self) -> bool {
        self.spec.parity_bytes > 0 && self.parity.is_none() && !self.parity_refused
    }

    /// Whether the message may end as partial: it is cleared, and its scheme or the receiver
    /// accepts that.
    pub(crate) fn accepts_partial(&self) -> bool {
        let clearance = self.clearance.as_ref();
        clearance.is_some_and(|c| self.spec.is_bounded || c.terms.accepts_partial)
    }

    /// Where the message, or its parity, may be written.
    pub(crate) fn place(&self, message: u64) -> Option<Place> {
        if is_parity(message) {
            return self.parity;
        }
        self.clearance.map(|clearance| Place {
            rkey: clearance.rkey,
            base: clearance.base,
            length: clearance.length,
        })
    }
}

/// Whether a clearance has memory for parity, and one known before has not.
pub(crate) fn adds_parity(known: &Clearance, new: &Clearance) -> bool {
    known.parity.is_none() && new.parity.is_some()
}
