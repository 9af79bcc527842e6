//! When a closed window can no longer be written through.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

use super::slots::Unpublished;
use crate::contract::Window;

/// One counter for each worker: odd while the worker is in a batch.
pub(in crate::nic) struct Epochs {
    workers: Box<[AtomicU64]>,
    /// Windows whose control object ended before they could be freed. They go with the last worker.
    graveyard: Mutex<Vec<Unpublished>>,
}

/// A worker is in a batch while this lives.
pub(in crate::nic) struct Batch<'a>(&'a AtomicU64);

impl Epochs {
    pub(in crate::nic) fn new(workers: u16) -> Self {
        Self {
            workers: (0..workers).map(|_| AtomicU64::new(0)).collect(),
            graveyard: Mutex::default(),
        }
    }

    /// A worker begins a batch. It must not be in one.
    pub(in crate::nic) fn enter(&self, worker: u16) -> Batch<'_> {
        let epoch = &self.workers[usize::from(worker)];
        epoch.fetch_add(1, Ordering::Relaxed);
        // Pairs with the fence in `Closings::snapshot`. Either the worker sees that a slot is
        // empty, or the control object sees that the worker is in a batch.
        fence(Ordering::SeqCst);
        Batch(epoch)
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        // Release: who sees that the batch has ended sees all that was written in it.
        self.0.fetch_add(1, Ordering::Release);
    }
}

/// Windows on their way from closing to being closed.
pub(in crate::nic) struct Closings {
    epochs: Arc<Epochs>,
    /// Taken from their slots since `waiting` was begun.
    unpublished: Vec<Unpublished>,
    /// Taken from their slots before `busy` was looked at.
    waiting: Vec<Unpublished>,
    /// Workers that have not left the batch that they were in: number and epoch.
    busy: Vec<(usize, u64)>,
    /// Not reported yet.
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

    /// Takes in windows that were taken from their slots.
    pub(in crate::nic) fn extend(&mut self, windows: impl Iterator<Item = Unpublished>) {
        self.unpublished.extend(windows);
    }

    /// The next window that no worker can write through any more.
    pub(in crate::nic) fn poll(&mut self) -> Option<Window> {
        if self.closed.is_empty() {
            // First those that are waiting, then those that came after them.
            self.advance();
            self.advance();
        }
        self.closed.pop_front()
    }

    /// Looks whether the workers have left their batches. One look serves all windows that wait.
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

    /// Notes which workers are in a batch now.
    fn snapshot(&mut self) {
        // Pairs with the fence in `Epochs::enter`.
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
                slots: Slots::new(4, 8),
                region: Arc::new(Registered::new(Region::owned(vec![0; 8]))),
            }
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
        let epochs = Arc::clone(&nic.epochs);
        let (first, second) = (epochs.enter(0), epochs.enter(2));
        nic.close(window);
        assert_eq!(nic.closings.poll(), None);
        drop(first);
        assert_eq!(nic.closings.poll(), None);
        // A later batch of the same worker cannot have seen it.
        let again = epochs.enter(0);
        assert_eq!(nic.closings.poll(), None);
        assert_eq!(Arc::strong_count(&nic.region), 2);
        drop(second);
        assert_eq!(nic.closings.poll(), Some(window));
        assert_eq!(Arc::strong_count(&nic.region), 1);
        drop(again);
    }

    #[test]
    fn one_batch_that_ends_serves_all_windows_closed_before() {
        let mut nic = Nic::new(1);
        let windows = [0, 1, 2].map(|slot| nic.open(slot, 1));
        let epochs = Arc::clone(&nic.epochs);
        let batch = epochs.enter(0);
        nic.close(windows[0]);
        nic.close(windows[1]);
        assert_eq!(nic.closings.poll(), None);
        drop(batch);
        let batch = epochs.enter(0);
        // This one waits for the batch that has begun meanwhile.
        nic.close(windows[2]);
        assert_eq!(nic.closings.poll(), Some(windows[0]));
        assert_eq!(nic.closings.poll(), Some(windows[1]));
        assert_eq!(nic.closings.poll(), None);
        drop(batch);
        assert_eq!(nic.closings.poll(), Some(windows[2]));
    }

    #[test]
    fn a_slot_can_be_opened_again_before_its_last_window_is_closed() {
        let mut nic = Nic::new(1);
        let old = nic.open(0, 1);
        let epochs = Arc::clone(&nic.epochs);
        let batch = epochs.enter(0);
        nic.close(old);
        let new = nic.open(0, 2);
        assert!(nic.slots.close(old).is_none(), "it is another one");
        drop(batch);
        assert_eq!(nic.closings.poll(), Some(old));
        nic.close(new);
        assert_eq!(nic.closings.poll(), Some(new));
    }

    /// Under Miri, this also shows that nothing is read while it is written or after it is freed.
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
        let work = |worker| {
            while !stop.load(Ordering::Relaxed) {
                let batch = epochs.enter(worker);
                // Apart: Miri takes two copies to one place at once for a data race.
                let addr = 4 * u64::from(worker);
                let _ = slots.place(addr, &[1; 4], &batch);
                drop(batch);
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
        let epochs = Arc::clone(&nic.epochs);
        let batch = epochs.enter(0);
        nic.close(window);
        let Nic {
            epochs: control,
            closings,
            slots,
            region,
        } = nic;
        drop((control, closings, slots));
        drop(batch);
        assert_eq!(Arc::strong_count(&region), 2, "the worker still lives");
        drop(epochs);
        assert_eq!(Arc::strong_count(&region), 1);
    }
}
