//! An allocator that can count allocated bytes.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};

/// The system's allocator, which counts bytes while [`count`] runs. Otherwise, it only checks a
/// flag, so that other measurements are not disturbed.
pub(crate) struct CountingAllocator;

static COUNTS: AtomicBool = AtomicBool::new(false);
static BYTES: AtomicIsize = AtomicIsize::new(0);

/// Runs `work`. Returns its result, and the bytes allocated minus the bytes freed in it, which may
/// be negative. Untouched memory counts as allocated. Only one thread may count at a time.
pub(crate) fn count<T>(work: impl FnOnce() -> T) -> (T, isize) {
    BYTES.store(0, Ordering::SeqCst);
    COUNTS.store(true, Ordering::SeqCst);
    let result = work();
    COUNTS.store(false, Ordering::SeqCst);
    (result, BYTES.load(Ordering::SeqCst))
}

fn note(old: usize, new: usize) {
    if COUNTS.load(Ordering::Relaxed) {
        // No allocation is longer than `isize::MAX`.
        BYTES.fetch_add(
            new.cast_signed().wrapping_sub(old.cast_signed()),
            Ordering::Relaxed,
        );
    }
}

// SAFETY: every method hands its arguments on to `System`, which keeps the contract of the trait, and
// returns what that returns. Counting does not allocate and does not panic.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(0, layout.size());
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        note(layout.size(), 0);
        // SAFETY: `ptr` came from `System` with this layout.
        unsafe { System.dealloc(ptr, layout) }
    }

    /// Calls the system's function, so that zeroed memory stays untouched until it is used.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(0, layout.size());
        // SAFETY: the caller keeps the contract of `alloc_zeroed`, which is the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        note(layout.size(), new_size);
        // SAFETY: `ptr` came from `System` with this layout; the caller vouches for the new size.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Much larger than all allocations of tests that run at the same time.
    const LARGE: usize = 1 << 28;

    #[test]
    fn counts_what_stays() {
        let (kept, bytes) = count(|| {
            drop(vec![1_u8; LARGE / 4]);
            let mut kept: Vec<u8> = Vec::with_capacity(LARGE / 4);
            kept.reserve_exact(LARGE);
            kept
        });
        let extra = bytes.unsigned_abs().abs_diff(kept.capacity());
        assert!(bytes > 0 && extra < LARGE / 8, "{bytes} bytes");
        let ((), bytes) = count(|| drop(kept));
        assert!(bytes < -(LARGE.cast_signed() / 8 * 7), "{bytes} bytes");
    }
}
