//! The queue from which threads take work. A thread without work sleeps.

use std::collections::VecDeque;

#[cfg(not(all(test, loom)))]
use std::sync::{Condvar, Mutex, MutexGuard};

#[cfg(all(test, loom))]
use loom::sync::{Condvar, Mutex, MutexGuard};

/// Work for any number of threads, in the order in which it was pushed.
#[derive(Debug)]
pub(super) struct Queue<T> {
    state: Mutex<QueueState<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct QueueState<T> {
    work: VecDeque<T>,
    /// Number of threads that sleep, or were woken and do not run yet.
    sleeping: usize,
    is_closed: bool,
}

impl<T> Queue<T> {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(QueueState {
                work: VecDeque::new(),
                sleeping: 0,
                is_closed: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// Wakes a thread if one sleeps.
    pub(super) fn push(&self, work: T) {
        let mut state = self.lock();
        state.work.push_back(work);
        // A wake costs a system call even if nobody sleeps.
        let sleeps = state.sleeping > 0;
        drop(state);
        if sleeps {
            self.changed.notify_one();
        }
    }

    /// Takes the next work; sleeps until there is some. Returns `None` once the queue is closed.
    pub(super) fn take(&self) -> Option<T> {
        let mut state = self.lock();
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(work) = state.work.pop_front() {
                return Some(work);
            }
            state.sleeping += 1;
            state = match self.changed.wait(state) {
                Ok(state) => state,
                Err(poisoned) => poisoned.into_inner(),
            };
            state.sleeping -= 1;
        }
    }

    /// Takes out work that is wanted back, and that no thread has taken.
    pub(super) fn remove(&self, mut is_wanted: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut state = self.lock();
        let (removed, kept) = state.work.drain(..).partition(|work| is_wanted(work));
        state.work = kept;
        Vec::from(removed)
    }

    /// Drops work that no thread has taken, and ends the threads.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let left = std::mem::take(&mut state.work);
        drop(state);
        drop(left);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<T>> {
        // The state is valid even after a panic of another thread.
        match self.state.lock() {
            Ok(state) => state,
            Err(poisoned) => poisoned.into_inner(),
        }
    }
}

#[cfg(all(test, loom))]
mod interleavings {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// Two threads take what the owner pushes, and push it to a queue from which the owner takes. A
    /// lost wake would be a deadlock, which loom reports.
    #[test]
    fn all_work_is_taken_once_and_all_threads_end() {
        let mut model = loom::model::Builder::new();
        // All interleavings would take hours.
        model.preemption_bound = Some(2);
        model.check(|| {
            let (queue, results) = (Arc::new(Queue::new()), Arc::new(Queue::new()));
            let threads = [(); 2].map(|()| {
                let (queue, results) = (Arc::clone(&queue), Arc::clone(&results));
                thread::spawn(move || {
                    while let Some(work) = queue.take() {
                        results.push(work);
                    }
                })
            });
            queue.push(1);
            queue.push(2);
            let sum: u32 = [(); 2].iter().filter_map(|()| results.take()).sum();
            assert_eq!(sum, 3);
            queue.close();
            for thread in threads {
                thread.join().unwrap();
            }
        });
    }
}
