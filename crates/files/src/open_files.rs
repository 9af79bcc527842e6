//! How many files each receiver of this process may keep open.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of sinks in this process.
static SINKS: AtomicUsize = AtomicUsize::new(0);

/// Counts a sink until it is dropped.
#[derive(Debug)]
pub(super) struct Counted;

impl Counted {
    pub(super) fn new() -> Self {
        SINKS.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

/// The share of one sink when all sinks of this process divide this number of open files.
pub(super) fn part_of_sink(files: usize) -> usize {
    (files / SINKS.load(Ordering::Relaxed).max(1)).max(1)
}

impl Drop for Counted {
    fn drop(&mut self) {
        SINKS.fetch_sub(1, Ordering::Relaxed);
    }
}
