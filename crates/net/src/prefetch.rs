//! Prefetching into the processor's caches.
#![allow(unsafe_code, reason = "the hint is an instruction")]

/// Asks the processor to fetch a value into its caches, without waiting for it. Does nothing on
/// processors other than x86-64.
#[inline]
pub fn prefetch<T: ?Sized>(value: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        const LINE_BYTES: usize = 64;
        let start = std::ptr::from_ref(value).cast::<u8>();
        // The value may begin and end within a line.
        let skipped = start.addr() % LINE_BYTES;
        for offset in (0..skipped + size_of_val(value)).step_by(LINE_BYTES) {
            let line = start.wrapping_sub(skipped).wrapping_add(offset);
            // This is assembly because compilers unroll a loop of the intrinsic. A whole packet had half
            // of the effect with that.
            // SAFETY: every x86-64 processor has the instruction. It only affects caches, whatever
            // the address.
            unsafe {
                std::arch::asm!(
                    "prefetcht0 [{line}]",
                    line = in(reg) line,
                    options(nostack, preserves_flags, readonly)
                );
            }
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = value;
}
