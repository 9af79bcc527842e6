//! The atomic words that workers share. In loom's exhaustive checks, loom's types replace them
//! (`RUSTFLAGS="--cfg loom" cargo test -p farwrite-sdr --lib`).

#[cfg(not(all(test, loom)))]
pub(crate) use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(all(test, loom))]
pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

use alloc::boxed::Box;

/// Words of zeros straight from the allocator: their memory is not touched before it is used.
#[cfg(not(all(test, loom)))]
pub(crate) fn zeroed(words: usize) -> Box<[AtomicU64]> {
    bytemuck::allocation::zeroed_slice_box(words)
}
#[cfg(all(test, loom))]
pub(crate) fn zeroed(words: usize) -> Box<[AtomicU64]> {
    (0..words).map(|_| AtomicU64::new(0)).collect()
}

/// Marks a place where the order of an earlier write and a later read matters. Both are
/// sequentially consistent, which orders them without a fence. Loom treats them as acquire and
/// release, so its models need the fence.
#[inline]
pub(crate) fn write_before_read() {
    #[cfg(all(test, loom))]
    fence(Ordering::SeqCst);
}
