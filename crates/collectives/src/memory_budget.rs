//! The memory by which the buffers of a member may grow.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of bytes that are left. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct MemoryBudget(Arc<AtomicU64>);

impl MemoryBudget {
    pub(crate) fn new(bytes: u64) -> Self {
        Self(Arc::new(AtomicU64::new(bytes)))
    }

    /// Whether this many bytes are left.
    pub(crate) fn has(&self, bytes: u64) -> bool {
        self.0.load(Ordering::Relaxed) >= bytes
    }

    /// Takes bytes. Returns `false`, and takes none, if fewer are left.
    pub(crate) fn take(&self, bytes: u64) -> bool {
        let less = |left: u64| left.checked_sub(bytes);
        let taken = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        taken.is_ok()
    }
}
