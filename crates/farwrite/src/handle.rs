//! What a user holds of a message in flight.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use farwrite_sdr::{ChunkBitmap, Refusal};
use farwrite_wire::control::Outcome;

use crate::partial::Partial;

/// Names a queue pair of an [`Endpoint`](crate::Endpoint).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueuePair {
    /// Counts the queue pairs of the endpoint.
    pub(crate) serial: u32,
    /// Its place in the endpoint's table.
    pub(crate) index: u32,
}

const OPEN: u8 = 0;
const WHOLE: u8 = 1;
const PARTIAL: u8 = 2;
const FAILED: u8 = 3;

/// An outcome that one side sets once and the other looks at.
#[derive(Debug, Default)]
struct OutcomeCell(AtomicU8);

impl OutcomeCell {
    fn set(&self, outcome: Outcome) {
        let code = match outcome {
            Outcome::Whole => WHOLE,
            Outcome::Partial => PARTIAL,
            Outcome::Failed => FAILED,
        };
        // The first outcome stands: a message ends once.
        let _ = self
            .0
            .compare_exchange(OPEN, code, Ordering::Release, Ordering::Relaxed);
    }

    fn get(&self) -> Option<Outcome> {
        match self.0.load(Ordering::Acquire) {
            WHOLE => Some(Outcome::Whole),
            PARTIAL => Some(Outcome::Partial),
            FAILED => Some(Outcome::Failed),
            _ => None,
        }
    }
}

/// What the endpoint tells the holder of a send.
#[derive(Debug, Default)]
pub(crate) struct SendShared {
    outcome: OutcomeCell,
    injected: AtomicU8,
    refusal: OnceLock<Refusal>,
}

impl SendShared {
    /// The message does not fit its receive. Say so before [`SendShared::finish`].
    pub(crate) fn refuse(&self, refusal: Refusal) {
        // The first stands.
        let _ = self.refusal.set(refusal);
    }

    pub(crate) fn finish(&self, outcome: Outcome) {
        self.outcome.set(outcome);
    }

    pub(crate) fn set_injected(&self) {
        self.injected.store(1, Ordering::Release);
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
    /// Number of the message on its queue pair, counted from 0 in the order of posting. It lands in
    /// the receive of the same number.
    #[must_use]
    pub fn message(&self) -> u64 {
        self.message
    }

    /// The queue pair.
    #[must_use]
    pub fn queue_pair(&self) -> QueuePair {
        self.pair
    }

    /// How the message ended, known to this end; `None` while it is open, or the fabric holds
    /// packets of it. From then on its memory may be changed. A best-effort message ends as
    /// [`Outcome::Partial`] when its last packet has left: only the receiver knows what arrived.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        self.shared.outcome.get()
    }

    /// What of the message is not as its receiver demands; `None` where it did not fail for that,
    /// or where the receiver found it out first and its clearance has not come.
    #[must_use]
    pub fn refusal(&self) -> Option<Refusal> {
        self.shared.refusal.get().copied()
    }

    /// Whether every packet of the message has left this end at least once. It says nothing about
    /// arrival.
    #[must_use]
    pub fn is_injected(&self) -> bool {
        self.shared.injected.load(Ordering::Acquire) != 0
    }
}

/// What the endpoint tells the holder of a receive.
#[derive(Debug)]
pub(crate) struct RecvShared {
    outcome: OutcomeCell,
    /// Bytes, or `u64::MAX` while unknown.
    length: AtomicU64,
    /// The immediate, or `u64::MAX` while there is none.
    immediate: AtomicU64,
    refusal: OnceLock<Refusal>,
    partial: OnceLock<Partial>,
}

impl Default for RecvShared {
    fn default() -> Self {
        Self {
            outcome: OutcomeCell::default(),
            length: AtomicU64::new(u64::MAX),
            immediate: AtomicU64::new(u64::MAX),
            refusal: OnceLock::new(),
            partial: OnceLock::new(),
        }
    }
}

impl RecvShared {
    pub(crate) fn set_length(&self, bytes: u64) {
        self.length.store(bytes, Ordering::Release);
    }

    pub(crate) fn set_immediate(&self, immediate: u32) {
        self.immediate
            .store(u64::from(immediate), Ordering::Release);
    }

    /// The message does not fit the receive. Say so before [`RecvShared::finish`].
    pub(crate) fn refuse(&self, refusal: Refusal) {
        // The first stands.
        let _ = self.refusal.set(refusal);
    }

    pub(crate) fn finish(&self, outcome: Outcome) {
        self.outcome.set(outcome);
    }

    /// Ends the receive as partial.
    pub(crate) fn finish_partial(&self, partial: Partial) {
        // A receive ends once.
        let _ = self.partial.set(partial);
        self.finish(Outcome::Partial);
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
    /// Number of the message on its queue pair, counted from 0 in the order of posting. The send of
    /// the same number lands here.
    #[must_use]
    pub fn message(&self) -> u64 {
        self.message
    }

    /// The queue pair.
    #[must_use]
    pub fn queue_pair(&self) -> QueuePair {
        self.pair
    }

    /// Which chunks have arrived: live, one bit a chunk (paper section 3.1.1). A clone of it stays
    /// readable for as long as it lives.
    #[must_use]
    pub fn bitmap(&self) -> &ChunkBitmap {
        &self.bitmap
    }

    /// Bytes of the message; `None` until the sender's offer has come, unless the receive was
    /// posted with [`RecvOptions::exact_length`](crate::RecvOptions::exact_length).
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        Some(self.shared.length.load(Ordering::Acquire)).filter(|&bytes| bytes != u64::MAX)
    }

    /// The user immediate; `None` until it is whole, or where the message has none.
    #[must_use]
    pub fn immediate(&self) -> Option<u32> {
        u32::try_from(self.shared.immediate.load(Ordering::Acquire)).ok()
    }

    /// How the message ended, as its scheme, a deadline or
    /// [`Endpoint::complete_recv`](crate::Endpoint::complete_recv) said; `None` while it is open.
    /// From then on no packet changes its memory.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        self.shared.outcome.get()
    }

    /// What arrived of a message whose outcome is [`Outcome::Partial`]; else `None`.
    #[must_use]
    pub fn partial(&self) -> Option<&Partial> {
        self.shared.partial.get()
    }

    /// Why the message could not go into this receive; `None` where it did not fail for that.
    #[must_use]
    pub fn refusal(&self) -> Option<Refusal> {
        self.shared.refusal.get().copied()
    }
}
