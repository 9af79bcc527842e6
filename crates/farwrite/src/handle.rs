//! The handles that a user has for queue pairs and for messages in flight.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use farwrite_sdr::{ChunkBitmap, Refusal};
use farwrite_wire::control::Outcome;

use crate::partial::Partial;
use crate::reads::ReadRefused;

/// Names a queue pair of an [`Endpoint`](crate::Endpoint).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueuePair {
    /// Serial number of the queue pair in its endpoint.
    pub(crate) serial: u32,
    /// Index of the queue pair in the endpoint's table, less than 2^24.
    pub(crate) index: u32,
}

/// State shared by the endpoint and the holder of a send. The first refusal and outcome stay: a message
/// ends once. The outcome comes last, because a holder who sees it looks for the rest only once.
#[derive(Debug, Default)]
pub(crate) struct SendShared {
    outcome: OnceLock<Outcome>,
    pub(crate) injected: AtomicBool,
    refusal: OnceLock<Refusal>,
}

impl SendShared {
    /// Call this before [`SendShared::finish`].
    pub(crate) fn refuse(&self, refusal: Refusal) {
        debug_assert!(self.outcome.get().is_none(), "{refusal:?} comes too late");
        let _ = self.refusal.set(refusal);
    }

    pub(crate) fn finish(&self, outcome: Outcome) {
        let _ = self.outcome.set(outcome);
    }
}

/// A message being sent.
#[derive(Clone, Debug)]
pub struct SendHandle {
    pub(crate) pair: QueuePair,
    pub(crate) message: u64,
    pub(crate) shared: Arc<SendShared>,
}

impl SendHandle {
    /// Returns the number of the message on its queue pair, counted from 0 in the order of posting.
    /// The message is written to the receive with the same number.
    #[must_use]
    pub fn message(&self) -> u64 {
        self.message
    }

    /// Returns the queue pair.
    #[must_use]
    pub fn queue_pair(&self) -> QueuePair {
        self.pair
    }

    /// Returns how the message ended, as known at this end. Returns `None` while the message is
    /// open or the fabric holds packets of it. Once there is an outcome, the memory of the message
    /// may change. A best-effort message ends as [`Outcome::Partial`] when its last packet has
    /// left: only the receiver knows what arrived.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        self.shared.outcome.get().copied()
    }

    /// Returns which property of the message differs from what its receiver requires.
    /// Returns `None` if the message failed for another reason, if it did not fail, or if the packet with this reason was
    /// lost.
    #[must_use]
    pub fn refusal(&self) -> Option<Refusal> {
        self.shared.refusal.get().copied()
    }

    /// Returns whether every packet of the message has left this end at least once, apart from those
    /// that the deadline of a write has cut ([`Endpoint::write`](crate::Endpoint::write)). This does
    /// not imply that any packet arrived.
    #[must_use]
    pub fn is_injected(&self) -> bool {
        self.shared.injected.load(Ordering::Acquire)
    }
}

/// State shared by the endpoint and the holder of a receive. The first value of each field stays: a
/// message ends once. The outcome comes last, because a holder who sees it looks for the rest only once.
#[derive(Debug, Default)]
pub(crate) struct RecvShared {
    outcome: OnceLock<Outcome>,
    /// Length in bytes, once it is known.
    length: OnceLock<u64>,
    immediate: OnceLock<u32>,
    refusal: OnceLock<Refusal>,
    read_refusal: OnceLock<ReadRefused>,
    partial: OnceLock<Partial>,
}

impl RecvShared {
    pub(crate) fn set_length(&self, length: u64) {
        let _ = self.length.set(length);
    }

    pub(crate) fn set_immediate(&self, immediate: u32) {
        let _ = self.immediate.set(immediate);
    }

    /// Call this before [`RecvShared::finish`].
    pub(crate) fn refuse(&self, refusal: Refusal) {
        debug_assert!(self.outcome.get().is_none(), "{refusal:?} comes too late");
        let _ = self.refusal.set(refusal);
    }

    /// Call this before [`RecvShared::finish`].
    pub(crate) fn refuse_read(&self, refused: ReadRefused) {
        debug_assert!(self.outcome.get().is_none(), "{refused:?} comes too late");
        let _ = self.read_refusal.set(refused);
    }

    /// For outcomes other than [`Outcome::Partial`].
    pub(crate) fn finish(&self, outcome: Outcome) {
        debug_assert_ne!(outcome, Outcome::Partial, "without what arrived");
        let _ = self.outcome.set(outcome);
    }

    /// Ends the message as [`Outcome::Partial`].
    pub(crate) fn finish_partial(&self, partial: Partial) {
        let _ = self.partial.set(partial);
        let _ = self.outcome.set(Outcome::Partial);
    }
}

/// A posted receive.
#[derive(Clone, Debug)]
pub struct RecvHandle {
    pub(crate) pair: QueuePair,
    pub(crate) message: u64,
    pub(crate) bitmap: ChunkBitmap,
    pub(crate) shared: Arc<RecvShared>,
}

impl RecvHandle {
    /// Returns the number of the message on its queue pair, counted from 0 in the order of posting.
    /// This receive takes the send with the same number.
    #[must_use]
    pub fn message(&self) -> u64 {
        self.message
    }

    /// Returns the queue pair.
    #[must_use]
    pub fn queue_pair(&self) -> QueuePair {
        self.pair
    }

    /// Returns the live bitmap of the chunks that have arrived, with one bit for each chunk (paper
    /// section 3.1.1). A clone of the bitmap stays readable for as long as the clone lives.
    #[must_use]
    pub fn bitmap(&self) -> &ChunkBitmap {
        &self.bitmap
    }

    /// Returns the length of the message in bytes. Returns `None` until the sender's offer has
    /// arrived, unless the receive was posted with
    /// [`RecvOptions::exact_length`](crate::RecvOptions::exact_length).
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        self.shared.length.get().copied()
    }

    /// Returns the user immediate. Returns `None` until all of it has arrived, or if the message
    /// has none.
    #[must_use]
    pub fn immediate(&self) -> Option<u32> {
        self.shared.immediate.get().copied()
    }

    /// Returns how the message ended. Its scheme, a deadline or
    /// [`Endpoint::complete_recv`](crate::Endpoint::complete_recv) sets the outcome. Returns `None`
    /// while the message is open. Once there is an outcome, no packet changes the memory of the
    /// message.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        self.shared.outcome.get().copied()
    }

    /// Returns what arrived of a message whose outcome is [`Outcome::Partial`]. Returns `None` for
    /// other outcomes.
    #[must_use]
    pub fn partial(&self) -> Option<&Partial> {
        self.shared.partial.get()
    }

    /// Returns what the peer refused to send, and why, if this is a read that failed for that
    /// reason ([`Endpoint::post_read`](crate::Endpoint::post_read)).
    #[must_use]
    pub fn read_refusal(&self) -> Option<ReadRefused> {
        self.shared.read_refusal.get().copied()
    }

    /// Returns why the message did not fit into this receive. Returns `None` if the message did not
    /// fail for that reason.
    #[must_use]
    pub fn refusal(&self) -> Option<Refusal> {
        self.shared.refusal.get().copied()
    }
}
