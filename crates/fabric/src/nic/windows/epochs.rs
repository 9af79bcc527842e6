//! Epoch-based reclamation: when a closed window is no longer in use by any worker.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

use super::slots::Unpublished;
use crate::contract::Window;

/// One epoch counter per worker, odd while the worker is in a batch. Only the worker writes it.
pub(in crate::nic) struct Epochs {
    workers: Box<[AtomicU64]>,
    /// Windows that were not freed when the control object ended. They are freed with the last
    /// worker.
    graveyard: Mutex<Vec<Unpublished>>,
}

/// A receive worker's part in the reclamation of windows.
pub(in crate::nic) struct Worker {
    epochs: Arc<Epochs>,
    number: usize,
}

/// Proof that a worker is in a batch.
pub(in crate::nic) struct Batch<'a>(PhantomData<&'a Worker>);

impl Epochs {
    pub(in crate::nic) fn new(workers: u16) -> Self {
        Self {
            workers: (0..workers).map(|_| AtomicU64::new(0)).collect(),
            graveyard: Mutex::default(),
        }
    }
}

impl Worker {
    /// There must be only one worker for each number.
    pub(in crate::nic) fn new(epochs: Arc<Epochs>, number: u16) -> Self {
        let number = usize::from(number);
        Self { epochs, number }
    }

    /// Ends the current batch, if there is one, and begins another.
    pub(in crate::nic) fn begin_batch(&mut self) -> Batch<'_> {
        let now = self.epoch().load(Ordering::Relaxed);
        // Release: same as in `end_batch`.
        self.epoch().store((now + 1) | 1, Ordering::Release);
        // Pairs with the fence in `Closings::snapshot`. Either the worker sees that a slot is
        // empty, or the control object sees that the worker is in a batch.
        fence(Ordering::SeqCst);
        Batch(PhantomData)
    }

    /// Ends the current batch, if there is one.
    pub(in crate::nic) fn end_batch(&mut self) {
        let now = self.epoch().load(Ordering::Relaxed);
        // Release: a thread that sees the end of the batch also sees everything that was written in
        // it.
        self.epoch().store(now + now % 2, Ordering::Release);
    }

    fn epoch(&self) -> &AtomicU64 {
        &self.epochs.workers[self.number]
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end_batch();
    }
}

pub(in crate::nic) struct Closings {
    epochs: Arc<Epochs>,
    /// Windows taken from their slots after `waiting` was filled.
    unpublished: Vec<Unpublished>,
    /// Windows taken from their slots before `busy` was recorded.
    waiting: Vec<Unpublished>,
    /// Workers that are still in the batch of the last snapshot: number and epoch.
    busy: Vec<(usize, u64)>,
    /// Closed windows that were not reported yet.
    closed: VecDeque<Window>,
}

impl Closings {
    pub(in crate::nic) fn new(epochs: Arc<Epochs>) -> Self {
        Self {
            epochs,
            unpublished: Vec::new(),
            waiting: Vec::new(),
            busy: Vec::new(),
            closed: VecDeque::new(),
        }
    }

    /// Adds windows that were taken from their slots.
    pub(in crate::nic) fn extend(&mut self, windows: impl Iterator<Item = Unpublished>) {
        self.unpublished.extend(windows);
    }

    /// The next window through which no worker can write any more.
    pub(in crate::nic) fn poll(&mut self) -> Option<Window> {
        if self.closed.is_empty() {
            // The first call may free the windows in `waiting`; the second one starts with the
            // windows that followed.
            self.advance();
            self.advance();
        }
        self.closed.pop_front()
    }

    /// Checks whether the workers have left their batches. One check serves all waiting windows.
    fn advance(&mut self) {
        if self.waiting.is_empty() {
            if self.unpublished.is_empty() {
                return;
            }
            std::mem::swap(&mut self.waiting, &mut self.unpublished);
            self.snapshot();
        }
        let workers = &self.epochs.workers;
        // Acquire: pairs with the release at the end of a batch.
        self.busy
            .retain(|&(worker, epoch)| workers[worker].load(Ordering::Acquire) == epoch);
        if self.busy.is_empty() {
            let closed = self.waiting.drain(..).map(|open| open.window());
            self.closed.extend(closed);
        }
    }

    /// Records the workers that are in a batch now.
    fn snapshot(&mut self) {
        // Pairs with the fence in `Worker::begin_batch`.
        fence(Ordering::SeqCst);
        let epochs = self.epochs.workers.iter().enumerate();
        let epochs = epochs.map(|(worker, epoch)| (worker, epoch.load(Ordering::Acquire)));
        self.busy.extend(epochs.filter(|(_, epoch)| epoch % 2 == 1));
    }
}

impl Drop for Closings {
    fn drop(&mut self) {
        let graveyard = self.epochs.graveyard.lock();
        let mut graveyard = graveyard.unwrap_or_else(PoisonError::into_inner);
        graveyard.append(&mut self.waiting);
        graveyard.append(&mut self.unpublished);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Slots;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::contract::{Region, Registered, WindowSet};

    struct Nic {
        epochs: Arc<Epochs>,
        closings: Closings,
        slots: Slots,
        region: Arc<Registered>,
    }

    impl Nic {
        fn new(workers: u16) -> Self {
            let epochs = Arc::new(Epochs::new(workers));
            Self {
                closings: Closings::new(Arc::clone(&epochs)),
                epochs,
                slots: Slots::new([].into(), 4, 8),
                region: Arc::new(Registered::new(Region::owned(vec![0; 8]))),
            }
        }

        fn worker(&self, number: u16) -> Worker {
            Worker::new(Arc::clone(&self.epochs), number)
        }

        fn open(&self, slot: u32, serial: u64) -> Window {
            let set = WindowSet(1);
            let window = Window { set, slot, serial };
            self.slots.open(window, &self.region, 0, 8).unwrap();
            window
        }

        fn close(&mut self, window: Window) {
            self.closings.extend(self.slots.close(window).into_iter());
        }
    }

    #[test]
    fn with_no_worker_in_a_batch_a_window_closes_at_once() {
        let mut nic = Nic::new(3);
        let window = nic.open(0, 1);
        nic.close(window);
        assert_eq!(nic.closings.poll(), Some(window));
        assert_eq!(nic.closings.poll(), None);
        assert_eq!(Arc::strong_count(&nic.region), 1);
    }

    #[test]
    fn a_window_closes_after_the_batches_that_may_have_seen_it() {
        let mut nic = Nic::new(3);
        let window = nic.open(0, 1);
        let (mut first, mut second) = (nic.worker(0), nic.worker(2));
        first.begin_batch();
        second.begin_batch();
        nic.close(window);
        assert_eq!(nic.closings.poll(), None);
        first.end_batch();
        assert_eq!(nic.closings.poll(), None);
        // A later batch of the same worker cannot have seen the window.
        first.begin_batch();
        assert_eq!(nic.closings.poll(), None);
        assert_eq!(Arc::strong_count(&nic.region), 2);
        second.end_batch();
        assert_eq!(nic.closings.poll(), Some(window));
        assert_eq!(Arc::strong_count(&nic.region), 1);
    }

    #[test]
    fn the_next_batch_and_the_end_of_the_worker_end_a_batch() {
        let mut nic = Nic::new(1);
        let [first, second] = [0, 1].map(|slot| nic.open(slot, 1));
        let mut worker = nic.worker(0);
        worker.begin_batch();
        nic.close(first);
        assert_eq!(nic.closings.poll(), None);
        worker.begin_batch();
        assert_eq!(nic.closings.poll(), Some(first));
        nic.close(second);
        assert_eq!(nic.closings.poll(), None);
        drop(worker);
        assert_eq!(nic.closings.poll(), Some(second));
    }

    #[test]
    fn ending_no_batch_begins_none() {
        let mut nic = Nic::new(1);
        let mut worker = nic.worker(0);
        worker.end_batch();
        let window = nic.open(0, 1);
        nic.close(window);
        assert_eq!(nic.closings.poll(), Some(window));
    }

    #[test]
    fn one_batch_that_ends_serves_all_windows_closed_before() {
        let mut nic = Nic::new(1);
        let windows = [0, 1, 2].map(|slot| nic.open(slot, 1));
        let mut worker = nic.worker(0);
        worker.begin_batch();
        nic.close(windows[0]);
        nic.close(windows[1]);
        assert_eq!(nic.closings.poll(), None);
        worker.begin_batch();
        // This window waits for the batch that began in the meantime.
        nic.close(windows[2]);
        assert_eq!(nic.closings.poll(), Some(windows[0]));
        assert_eq!(nic.closings.poll(), Some(windows[1]));
        assert_eq!(nic.closings.poll(), None);
        worker.end_batch();
        assert_eq!(nic.closings.poll(), Some(windows[2]));
    }

    #[test]
    fn a_slot_can_be_opened_again_before_its_last_window_is_closed() {
        let mut nic = Nic::new(1);
        let old = nic.open(0, 1);
        let mut worker = nic.worker(0);
        worker.begin_batch();
        nic.close(old);
        let new = nic.open(0, 2);
        assert!(nic.slots.close(old).is_none(), "it is another one");
        worker.end_batch();
        assert_eq!(nic.closings.poll(), Some(old));
        nic.close(new);
        assert_eq!(nic.closings.poll(), Some(new));
    }

    /// Under Miri, this test also shows that nothing is read during a write or after it is freed.
    #[test]
    fn nothing_is_written_through_a_window_that_is_closed() {
        const ROUNDS: u8 = if cfg!(miri) { 20 } else { 200 };
        let Nic {
            epochs,
            mut closings,
            slots,
            ..
        } = Nic::new(2);
        let stop = AtomicBool::new(false);
        let work = |number| {
            let mut worker = Worker::new(Arc::clone(&epochs), number);
            while !stop.load(Ordering::Relaxed) {
                let batch = worker.begin_batch();
                // Two workers write to the same bytes, as with two copies of one packet.
                let _ = slots.place(2, &[1; 4], &batch);
                worker.end_batch();
                std::thread::yield_now();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| work(0));
            scope.spawn(|| work(1));
            for serial in 0..ROUNDS {
                let region = Arc::new(Registered::new(Region::owned(vec![0; 8])));
                let set = WindowSet(1);
                let (slot, serial) = (0, serial.into());
                let window = Window { set, slot, serial };
                slots.open(window, &region, 0, 8).unwrap();
                std::thread::yield_now();
                closings.extend(slots.close(window).into_iter());
                while closings.poll() != Some(window) {
                    std::thread::yield_now();
                }
                let mut region = Arc::into_inner(region).unwrap().into_region();
                region.fill(7);
                std::thread::yield_now();
                assert_eq!(*region, [7; 8]);
            }
            stop.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn windows_outlive_the_control_object_as_long_as_a_worker() {
        let mut nic = Nic::new(1);
        let window = nic.open(0, 1);
        let mut worker = nic.worker(0);
        worker.begin_batch();
        nic.close(window);
        let Nic {
            epochs,
            closings,
            slots,
            region,
        } = nic;
        drop((epochs, closings, slots));
        worker.end_batch();
        assert_eq!(Arc::strong_count(&region), 2, "the worker still lives");
        drop(worker);
        assert_eq!(Arc::strong_count(&region), 1);
    }
}
