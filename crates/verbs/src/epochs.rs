//! Batches of receive workers: when a closed window is no longer in use by any of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// One counter for each worker, odd while the worker is in a batch. Only the worker changes it.
pub(crate) struct Epochs(Box<[AtomicU64]>);

/// A worker's part.
pub(crate) struct Worker {
    epochs: Arc<Epochs>,
    number: usize,
}

/// The workers that were in a batch at one moment.
pub(crate) struct Busy(Vec<(usize, u64)>);

impl Epochs {
    pub(crate) fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| AtomicU64::new(0)).collect())
    }

    /// The workers that are in a batch now.
    pub(crate) fn busy(&self) -> Busy {
        // Pairs with the fence in `Worker::begin_batch`: either the worker sees what this thread did
        // before, or this thread sees that the worker is in a batch.
        fence(Ordering::SeqCst);
        let all = self.0.iter().map(|epoch| epoch.load(Ordering::Acquire));
        Busy(
            all.enumerate()
                .filter(|(_, epoch)| epoch % 2 == 1)
                .collect(),
        )
    }

    /// Whether all these workers have left the batches that they were in.
    pub(crate) fn have_left(&self, busy: &mut Busy) -> bool {
        // Acquire: pairs with the release at the end of a batch.
        busy.0
            .retain(|&(worker, epoch)| self.0[worker].load(Ordering::Acquire) == epoch);
        busy.0.is_empty()
    }
}

impl Worker {
    /// There must be only one worker for each number.
    pub(crate) fn new(epochs: &Arc<Epochs>, number: usize) -> Self {
        let epochs = Arc::clone(epochs);
        Self { epochs, number }
    }

    /// Ends the current batch, if there is one, and begins another.
    pub(crate) fn begin_batch(&mut self) {
        let now = self.epoch().load(Ordering::Relaxed);
        // Release: same as in `end_batch`.
        self.epoch().store((now + 1) | 1, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Ends the current batch, if there is one.
    pub(crate) fn end_batch(&mut self) {
        let now = self.epoch().load(Ordering::Relaxed);
        // Release: a thread that sees the end of the batch also sees everything that was done in it.
        self.epoch().store(now + now % 2, Ordering::Release);
    }

    fn epoch(&self) -> &AtomicU64 {
        &self.epochs.0[self.number]
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end_batch();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_ends_with_the_next_one_or_the_worker() {
        let epochs = Arc::new(Epochs::new(2));
        let mut worker = Worker::new(&epochs, 1);
        assert!(
            epochs.have_left(&mut epochs.busy()),
            "no worker is in a batch"
        );
        worker.begin_batch();
        let mut first = epochs.busy();
        assert!(!epochs.have_left(&mut first));
        worker.begin_batch();
        assert!(epochs.have_left(&mut first));
        let mut second = epochs.busy();
        assert!(!epochs.have_left(&mut second));
        worker.end_batch();
        worker.end_batch();
        assert!(epochs.have_left(&mut second));
        worker.begin_batch();
        let mut third = epochs.busy();
        drop(worker);
        assert!(epochs.have_left(&mut third));
    }
}
