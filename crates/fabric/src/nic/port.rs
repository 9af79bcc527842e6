//! State that the control object shares with the queue and the worker of one port.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::update::{RxUpdate, TxUpdate};
use crate::contract::{Counters, DropReason};

#[derive(Default)]
pub(super) struct PortState {
    pub(super) tx: Updates<TxUpdate>,
    pub(super) rx: Updates<RxUpdate>,
    counters: SharedCounters,
}

/// A list of changes from one side. The other side applies them when it next has work.
pub(super) struct Updates<T> {
    pending: AtomicBool,
    /// `None` after the receiving side has ended.
    list: Mutex<Option<Vec<T>>>,
}

impl<T> Default for Updates<T> {
    fn default() -> Self {
        Self {
            pending: AtomicBool::new(false),
            list: Mutex::new(Some(Vec::new())),
        }
    }
}

impl<T> Updates<T> {
    pub(super) fn push(&self, update: T) {
        let mut list = self.lock();
        if let Some(list) = list.as_mut() {
            list.push(update);
            self.pending.store(true, Ordering::Release);
        }
    }

    /// Removes and returns all updates. Costs one atomic load if there are none.
    pub(super) fn take(&self) -> Vec<T> {
        if !self.pending.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut list = self.lock();
        self.pending.store(false, Ordering::Relaxed);
        list.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Ends the receiving side: later updates are discarded.
    pub(super) fn close(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<T>>> {
        // The list is valid even after a panic of another thread.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The [`Counters`] of one port. The queue writes the counters of sent packets, the worker all
/// others.
#[derive(Default)]
struct SharedCounters {
    sent_packets: AtomicU64,
    sent_bytes: AtomicU64,
    received_packets: AtomicU64,
    received_bytes: AtomicU64,
    unvalidated_packets: AtomicU64,
    dropped: [AtomicU64; DropReason::ALL.len()],
}

impl PortState {
    /// Adds the counts since the last call.
    pub(super) fn count(&self, more: &Counters) {
        let to = &self.counters;
        let mut pairs = [
            (&to.sent_packets, more.sent_packets),
            (&to.sent_bytes, more.sent_bytes),
            (&to.received_packets, more.received_packets),
            (&to.received_bytes, more.received_bytes),
            (&to.unvalidated_packets, more.unvalidated_packets),
        ]
        .into_iter()
        .chain(to.dropped.iter().zip(more.dropped));
        while let Some((counter, more)) = pairs.find(|(_, more)| *more > 0) {
            counter.fetch_add(more, Ordering::Relaxed);
        }
    }

    pub(super) fn add_to(&self, sum: &mut Counters) {
        let from = &self.counters;
        sum.sent_packets += from.sent_packets.load(Ordering::Relaxed);
        sum.sent_bytes += from.sent_bytes.load(Ordering::Relaxed);
        sum.received_packets += from.received_packets.load(Ordering::Relaxed);
        sum.received_bytes += from.received_bytes.load(Ordering::Relaxed);
        sum.unvalidated_packets += from.unvalidated_packets.load(Ordering::Relaxed);
        for (sum, dropped) in sum.dropped.iter_mut().zip(&from.dropped) {
            *sum += dropped.load(Ordering::Relaxed);
        }
    }
}
