//! One message at its sender.

use farwrite_wire::control::{Clearance, CriticalChunks, MessageId, Place, SchemeTag, Withdrawal};

/// What to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendSpec {
    /// Bytes of the message; `None` for a streaming send whose length is not known yet.
    pub length: Option<u64>,
    /// A user immediate for the receiver.
    pub immediate: Option<u32>,
    /// The scheme that the receiver must run.
    pub scheme: SchemeTag,
    /// Bytes of the message's parity message; 0 for none.
    pub parity_bytes: u64,
    /// Whether the scheme allows the message to end as partial, whatever the peer's terms are
    /// (P5.9).
    pub is_bounded: bool,
    /// The critical chunks (P5.9.6). They must lie within the message, whose length must be known.
    pub critical: CriticalChunks,
    /// Whether the message may be written only once the receiver knows its scheme: the receiver has
    /// the offer, or its terms name the scheme.
    pub needs_offer: bool,
    /// Whether the message answers a read of the peer (P3.13).
    pub answers_read: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Its user may write.
    Active,
    /// The user has finished writing. The receiver does not know the length yet.
    Done,
    /// The user has ended the send early. The receiver has not completed it yet.
    Withdrawn(Withdrawal),
}

/// What this end knows about memory that a send needs at the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room<T> {
    /// The receiver has not answered yet.
    Awaited,
    /// There is no memory, or none is needed.
    Never,
    /// The memory, or its place.
    Known(T),
}

impl<T> Room<T> {
    pub(crate) fn known(&self) -> Option<&T> {
        match self {
            Self::Known(room) => Some(room),
            Self::Awaited | Self::Never => None,
        }
    }
}

pub(crate) struct MessageSend {
    pub(crate) spec: SendSpec,
    /// Whether the send started without a length. If so, reports do not prove that the receiver
    /// knows its length.
    pub(crate) streaming: bool,
    pub(crate) stage: Stage,
    /// Where the message may be written; `Never` if the receiver requires another message.
    pub(crate) clearance: Room<Clearance>,
    /// Where the parity may be written; `Never` if there is no parity, or too little memory for it.
    pub(crate) parity: Room<Place>,
    /// Whether this end knows that the receiver knows the length.
    pub(crate) answered: bool,
    /// Whether this end knows that the receiver had the offer while its receive was open. An answer
    /// does not show this: a receive that has ended counts as answered too.
    pub(crate) offer_known: bool,
    /// When the peer last sent something about the message.
    pub(crate) heard_ns: u64,
    /// Wait before the next offer; `None` if no offer was sent since the last change.
    pub(crate) interval_ns: Option<u64>,
}

impl MessageSend {
    /// Returns whether the receiver knows everything in the offer, and this end knows where to
    /// write.
    pub(crate) fn is_settled(&self) -> bool {
        self.stage == Stage::Active && self.answered && self.is_writable() && !self.awaits_repeat()
    }

    /// Returns whether the receiver must repeat the clearance: memory for parity may follow in it, or
    /// it must show that the receiver has the offer.
    pub(crate) fn awaits_repeat(&self) -> bool {
        let is_active = self.stage == Stage::Active;
        let is_cleared = is_active && self.clearance.known().is_some();
        self.parity == Room::Awaited || (is_cleared && !self.is_writable())
    }

    /// Returns whether the message may be written: there is a clearance, and the receiver knows what
    /// it must know.
    pub(crate) fn is_writable(&self) -> bool {
        let clearance = self.clearance.known();
        clearance.is_some_and(|clearance| {
            !self.spec.needs_offer || self.offer_known || clearance.terms.scheme.is_some()
        })
    }

    pub(crate) fn awaits_clearance(&self) -> bool {
        self.stage == Stage::Active && self.clearance == Room::Awaited
    }

    /// Whether the message may end as partial: it is cleared, and its scheme or the receiver
    /// accepts that. The receiver of an answer accepts it: its request says that the receive is
    /// posted (P3.13).
    pub(crate) fn accepts_partial(&self) -> bool {
        let clearance = self.clearance.known();
        let may_end = clearance.is_some_and(|c| self.spec.is_bounded || c.terms.accepts_partial);
        self.spec.answers_read || may_end
    }

    /// Where the message, or its parity, may be written.
    pub(crate) fn place(&self, message: MessageId) -> Option<Place> {
        if message.is_parity() {
            return self.parity.known().copied();
        }
        self.clearance.known().map(|clearance| Place {
            rkey: clearance.rkey,
            base: clearance.base,
            length: clearance.length,
        })
    }
}

/// Returns whether the new clearance has memory for parity and the known one has not.
pub(crate) fn adds_parity(known: &Clearance, new: &Clearance) -> bool {
    known.parity.is_none() && new.parity.is_some()
}
