//! Threads that code.

use std::fmt;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{JoinHandle, available_parallelism};

use farwrite_fabric::contract::{FabricError, Waker};
use farwrite_fabric::threads;

use super::coder::Coder;
use super::queue::Queue;
use super::{Coded, Task};
use crate::announcement::Announcement;

/// Maximum number of threads that [`CodingThreads::Auto`] means: one core encodes more bytes in a second
/// than several cores send (`make -C lab bench-cores` measures both).
const MOST_AUTO: usize = 4;

/// How many threads compute parity for an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CodingThreads {
    /// As many as the machine has room for: none on one core, one on two or three cores, and one
    /// for each core beyond two on larger machines, at most four.
    #[default]
    Auto,
    /// This many. With 0, the thread that polls computes parity.
    Count(u16),
}

impl CodingThreads {
    /// Returns the number of threads on this machine.
    #[must_use]
    pub fn count(self) -> usize {
        match self {
            Self::Auto => auto(available_parallelism().map_or(1, NonZeroUsize::get)),
            Self::Count(count) => count.into(),
        }
    }

    /// Returns how many cores compute parity at the same time: the threads, or the one that polls.
    #[must_use]
    pub fn cores(self) -> usize {
        self.count().max(1)
    }
}

fn auto(cores: usize) -> usize {
    // Also with two cores, messages with parity are faster if the thread that polls does not code.
    let least = cores.saturating_sub(1).min(1);
    cores.saturating_sub(2).clamp(least, MOST_AUTO)
}

impl fmt::Display for CodingThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Count(count) => count.fmt(f),
        }
    }
}

impl FromStr for CodingThreads {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            text => text
                .parse()
                .ok()
                .filter(|&count| count <= 1024)
                .map(Self::Count)
                .ok_or_else(|| {
                    format!("{text:?} is neither auto nor a number of threads from 0 to 1024")
                }),
        }
    }
}

/// Threads that code. They start with the first task. Dropping this value ends them, without the
/// tasks that they have not begun.
#[derive(Debug)]
pub(super) struct Threads {
    pub(super) count: usize,
    owner: Waker,
    shared: Arc<SharedPool>,
    handles: Vec<JoinHandle<()>>,
    to_owner: Sender<Result<Coded, FabricError>>,
    from_threads: Receiver<Result<Coded, FabricError>>,
}

#[derive(Debug)]
struct SharedPool {
    /// Tasks, each with memory for its result.
    queue: Queue<(Task, Vec<u8>)>,
    /// Whether the owner was woken and has not looked for results yet.
    announcement: Announcement,
}

impl Threads {
    /// Makes `count` threads, at least one, that have not started. `owner` wakes the owner.
    pub(super) fn new(count: usize, owner: &Waker) -> Self {
        let (to_owner, from_threads) = mpsc::channel();
        Self {
            count,
            owner: owner.clone(),
            shared: Arc::new(SharedPool {
                queue: Queue::new(),
                announcement: Announcement::new(),
            }),
            handles: Vec::new(),
            to_owner,
            from_threads,
        }
    }

    /// Starts the threads, unless they run. If the operating system starts some of them only, they do
    /// the work of the others. Returns whether there are any.
    pub(super) fn start(&mut self) -> bool {
        if self.handles.is_empty() {
            for number in 0..self.count {
                let (shared, owner) = (Arc::clone(&self.shared), self.owner.clone());
                let to_owner = self.to_owner.clone();
                let name = format!("farwrite-code-{number}");
                match threads::spawn(name, move || run(&shared, &to_owner, &owner)) {
                    Ok(handle) => self.handles.push(handle),
                    Err(_) => break,
                }
            }
        }
        !self.handles.is_empty()
    }

    pub(super) fn push(&self, task: Task, output: Vec<u8>) {
        self.shared.queue.push((task, output));
    }

    /// Takes the results that exist; [`FabricError::Io`] when a thread has failed.
    pub(super) fn take(&self) -> Vec<Result<Coded, FabricError>> {
        self.shared.announcement.take();
        self.from_threads.try_iter().collect()
    }

    /// Takes back tasks that no thread has begun.
    pub(super) fn withdraw(&self, mut is_wanted: impl FnMut(&Task) -> bool) -> Vec<Task> {
        let withdrawn = self.shared.queue.remove(|(task, _)| is_wanted(task));
        withdrawn.into_iter().map(|(task, _)| task).collect()
    }

    /// Waits for the next result. At least one task must be in progress.
    ///
    /// # Errors
    /// [`FabricError::Io`] when a thread has failed.
    pub(super) fn wait(&self) -> Result<Coded, FabricError> {
        self.from_threads.recv().unwrap_or_else(|_| Err(panicked()))
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.queue.close();
        for handle in self.handles.drain(..) {
            // A thread that panicked has nothing to return.
            let _ = handle.join();
        }
    }
}

/// Codes until the queue is closed.
fn run(shared: &SharedPool, to_owner: &Sender<Result<Coded, FabricError>>, owner: &Waker) {
    let mut coder = Coder::default();
    while let Some((task, output)) = shared.queue.take() {
        // The panic has already been reported. The coder is not used again.
        let result = catch_unwind(AssertUnwindSafe(|| coder.code(task, output)));
        let is_over = result.is_err();
        // If the owner is gone, nobody reads the result.
        let _ = to_owner.send(result.map_err(|_| panicked()));
        if shared.announcement.announce() {
            owner.wake();
        }
        if is_over {
            return;
        }
    }
}

fn panicked() -> FabricError {
    FabricError::Io {
        what: "computing parity".into(),
        source: std::io::Error::other("a coding thread panicked"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_core_codes_where_it_polls() {
        let expected = [(1, 0), (2, 1), (3, 1), (4, 2), (6, 4), (64, 4)];
        for (cores, threads) in expected {
            assert_eq!(auto(cores), threads, "{cores} cores");
        }
        assert_eq!(CodingThreads::Count(0).cores(), 1);
        assert_eq!(CodingThreads::Count(3).cores(), 3);
    }

    #[test]
    fn names_of_numbers_are_read_back() {
        for threads in [
            CodingThreads::Auto,
            CodingThreads::Count(0),
            CodingThreads::Count(1024),
        ] {
            assert_eq!(threads.to_string().parse(), Ok(threads));
        }
        for text in ["", "-1", "1025", "all"] {
            let error = text.parse::<CodingThreads>().unwrap_err();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }
}
