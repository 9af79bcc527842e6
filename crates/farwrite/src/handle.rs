//! What a user holds of a message in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use farwrite_sdr::ChunkBitmap;
use farwrite_wire::control::Outcome;

/// Names a queue pair of an [`Endpoint`](crate::Endpoint).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueuePair(pub(crate) u32);

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
}

impl SendShared {
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
    /// packets of it. From then on its memory may be changed.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        self.shared.outcome.get()
    }

    /// Whether every packet of a message without a scheme has left this end. It says nothing about
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
}

impl Default for RecvShared {
    fn default() -> Self {
        Self {
            outcome: OutcomeCell::default(),
            length: AtomicU64::new(u64::MAX),
            immediate: AtomicU64::new(u64::MAX),
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

    pub(crate) fn finish(&self, outcome: Outcome) {
        self.outcome.set(outcome);
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

    /// Which chunks have arrived: live, one bit a chunk (paper section 3.1.1). Reads as empty once
    /// the receive is over and its slot was posted again.
    #[must_use]
    pub fn bitmap(&self) -> &ChunkBitmap {
        &self.bitmap
    }

    /// Bytes of the message; `None` until the sender's offer has come.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        Some(self.shared.length.load(Ordering::Acquire)).filter(|&bytes| bytes != u64::MAX)
    }

    /// The user immediate; `None` until it is whole, or where the message has none.
    #[must_use]
    pub fn immediate(&self) -> Option<u32> {
        u32::try_from(self.shared.immediate.load(Ordering::Acquire)).ok()
    }

    /// How the message ended, as its scheme or
    /// [`Endpoint::complete_recv`](crate::Endpoint::complete_recv) said; `None` while it is open.
    /// From then on no packet changes its memory.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        self.shared.outcome.get()
    }
}
