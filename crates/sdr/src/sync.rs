//! The atomic words that workers share, or their stand-ins for exhaustive checking by loom
//! (`RUSTFLAGS="--cfg loom" cargo test -p farwrite-sdr --lib`).

#[cfg(not(all(test, loom)))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(all(test, loom))]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use alloc::boxed::Box;

/// Words of zeros, as the allocator has them: their memory is not touched before it is used.
#[cfg(not(all(test, loom)))]
pub(crate) fn zeroed(words: usize) -> Box<[AtomicU64]> {
    bytemuck::allocation::zeroed_slice_box(words)
}
#[cfg(all(test, loom))]
pub(crate) fn zeroed(words: usize) -> Box<[AtomicU64]> {
    (0..words).map(|_| AtomicU64::new(0)).collect()
}
