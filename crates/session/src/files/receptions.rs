//! How many transfers this process receives at once.

use std::sync::atomic::{AtomicUsize, Ordering};

static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Counts as one transfer until it is dropped.
#[derive(Debug)]
pub(super) struct Reception(());

impl Reception {
    pub(super) fn begin() -> Self {
        COUNT.fetch_add(1, Ordering::Relaxed);
        Self(())
    }

    /// Whether other transfers are under way. Some of their temporary files have no lock, so what looks like
    /// the leftovers of a killed receiver may be theirs.
    pub(super) fn has_others() -> bool {
        COUNT.load(Ordering::Relaxed) > 1
    }
}

impl Drop for Reception {
    fn drop(&mut self) {
        COUNT.fetch_sub(1, Ordering::Relaxed);
    }
}
