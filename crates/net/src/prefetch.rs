//! Prefetching into the processor's caches.
#![allow(unsafe_code, reason = "the hint is an intrinsic")]

/// Asks the processor to fetch a value into its caches, without waiting for it. Does nothing on
/// processors other than x86-64.
#[inline]
pub(crate) fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        const LINE_BYTES: usize = 64;
        let start: *const i8 = std::ptr::from_ref(value).cast();
        for offset in (0..size_of::<T>()).step_by(LINE_BYTES) {
            // SAFETY: every x86-64 processor has the instruction. It only affects caches, whatever
            // the address, and this address lies within `value`.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.add(offset)) }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
