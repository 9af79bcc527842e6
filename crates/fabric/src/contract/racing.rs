//! Copies to and from memory that other threads may write at the same time.
//!
//! Two workers may place two copies of one packet at the same time, and an owner may read bytes
//! while they are placed. In Rust, this is a data race and undefined behaviour unless every access
//! is atomic. So each of these copies is, for Rust, a relaxed atomic load or store of every byte,
//! in any order. Concurrent copies give the bytes of either, in any mixture.
//!
//! Compilers do not merge such loads and stores into wide ones. On x86-64 and 64-bit Arm, assembly
//! does that instead. Assembly must only do what Rust code could have done: these processors load
//! and store each byte of a wider access as a whole, as the atomics do. Miri runs the atomics
//! themselves.
#![allow(unsafe_code)]

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
use assembly as copies;
#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
use atomics as copies;

/// Writes `bytes` to the memory at `to`.
///
/// # Safety
/// `to` must be valid for writes of `bytes.len()` bytes. Concurrent accesses of other threads must
/// go through this module.
pub(super) unsafe fn store(to: *mut u8, bytes: &[u8]) {
    // SAFETY: guaranteed by the caller.
    unsafe { copies::store(to, bytes) }
}

/// Fills `out` from the memory at `from`.
///
/// # Safety
/// `from` must be valid for reads and writes of `out.len()` bytes. Concurrent writes of other
/// threads must go through this module.
pub(super) unsafe fn load(from: *mut u8, out: &mut [u8]) {
    // SAFETY: guaranteed by the caller.
    unsafe { copies::load(from, out) }
}

/// The reference implementation, whose behaviour the assembly must have.
#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
mod atomics {
    use std::sync::atomic::{AtomicU8, Ordering};

    /// See [`super::store`].
    pub(super) unsafe fn store(to: *mut u8, bytes: &[u8]) {
        for (at, &byte) in bytes.iter().enumerate() {
            // SAFETY: the byte is within the range that the caller guarantees. Every address is
            // aligned for a byte.
            unsafe { AtomicU8::from_ptr(to.add(at)) }.store(byte, Ordering::Relaxed);
        }
    }

    /// See [`super::load`].
    pub(super) unsafe fn load(from: *mut u8, out: &mut [u8]) {
        for (at, byte) in out.iter_mut().enumerate() {
            // SAFETY: same as in `store`.
            *byte = unsafe { AtomicU8::from_ptr(from.add(at)) }.load(Ordering::Relaxed);
        }
    }
}

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
mod assembly {
    use std::arch::asm;

    /// See [`super::store`].
    pub(super) unsafe fn store(to: *mut u8, bytes: &[u8]) {
        // SAFETY: guaranteed by the caller; the slice is readable.
        unsafe { copy(bytes.as_ptr(), to, bytes.len()) }
    }

    /// See [`super::load`].
    pub(super) unsafe fn load(from: *mut u8, out: &mut [u8]) {
        // SAFETY: guaranteed by the caller; the slice is writable.
        unsafe { copy(from, out.as_mut_ptr(), out.len()) }
    }

    /// Copies with the string instruction of the processor: as fast as the C library from 4 KiB on,
    /// a few nanoseconds slower below.
    ///
    /// # Safety
    /// `from` must be valid for reads and `to` for writes of `length` bytes.
    #[cfg(target_arch = "x86_64")]
    unsafe fn copy(from: *const u8, to: *mut u8, length: usize) {
        // SAFETY: the assembly reads and writes only the ranges that the caller guarantees. The
        // direction flag is clear at the start of assembly, so addresses ascend. Later stores
        // become visible after these.
        unsafe {
            asm!(
                "rep movsb",
                inout("rcx") length => _,
                inout("rsi") from => _,
                inout("rdi") to => _,
                options(nostack, preserves_flags),
            );
        }
    }

    /// Copies 32 bytes at a time, and the rest byte by byte.
    ///
    /// # Safety
    /// `from` must be valid for reads and `to` for writes of `length` bytes.
    #[cfg(target_arch = "aarch64")]
    unsafe fn copy(from: *const u8, to: *mut u8, length: usize) {
        // SAFETY: the assembly reads and writes only the ranges that the caller guarantees.
        unsafe {
            asm!(
                "subs {left}, {left}, #32",
                "b.lo 3f",
                "2:",
                "ldp {a:q}, {b:q}, [{from}], #32",
                "stp {a:q}, {b:q}, [{to}], #32",
                "subs {left}, {left}, #32",
                "b.hs 2b",
                "3:",
                "adds {left}, {left}, #32",
                "b.eq 5f",
                "4:",
                "ldrb {byte:w}, [{from}], #1",
                "strb {byte:w}, [{to}], #1",
                "subs {left}, {left}, #1",
                "b.ne 4b",
                "5:",
                left = inout(reg) length => _,
                from = inout(reg) from => _,
                to = inout(reg) to => _,
                byte = out(reg) _,
                a = out(vreg) _,
                b = out(vreg) _,
                options(nostack),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn every_length_is_copied_from_and_to_every_alignment() {
        let most = if cfg!(miri) { 40 } else { 300 };
        let source: Vec<u8> = (1..=251).cycle().take(most + 16).collect();
        for length in 0..most {
            for (from, to) in [(0, 0), (1, 0), (0, 3), (7, 9), (15, 15)] {
                let bytes = &source[from..from + length];
                let mut memory = vec![0; most + 16];
                // SAFETY: the vectors are long enough.
                unsafe { store(memory.as_mut_ptr().add(to), bytes) };
                assert_eq!(memory[to..to + length], *bytes);
                let beside = memory[..to].iter().chain(&memory[to + length..]);
                assert!(
                    beside.into_iter().all(|&byte| byte == 0),
                    "{length} bytes at {to}"
                );
                let mut out = vec![0; length];
                // SAFETY: same as above.
                unsafe { load(memory.as_mut_ptr().add(to), &mut out) };
                assert_eq!(out, bytes);
            }
        }
    }

    /// Address of memory that threads share.
    struct SharedByte(*mut u8);
    // SAFETY: only `store` and `load` use the address.
    unsafe impl Sync for SharedByte {}

    /// Under Miri, this test also shows that concurrent copies are not a data race.
    #[test]
    fn copies_that_meet_give_the_bytes_of_either() {
        const BYTES: usize = if cfg!(miri) { 24 } else { 5000 };
        const ROUNDS: usize = if cfg!(miri) { 8 } else { 2000 };
        let mut memory = vec![1; BYTES];
        let shared = &SharedByte(memory.as_mut_ptr());
        let running = &AtomicU32::new(2);
        thread::scope(|scope| {
            for value in [1, 2] {
                scope.spawn(move || {
                    let bytes = vec![value; BYTES];
                    for round in 0..ROUNDS {
                        // Copies of different lengths at different offsets.
                        let skip = round % 8 + usize::from(value);
                        // SAFETY: the range is within the memory, which outlives the scope.
                        unsafe { store(shared.0.add(skip), &bytes[skip..]) };
                    }
                    running.fetch_sub(1, Ordering::Relaxed);
                });
            }
            let mut seen = vec![0; BYTES];
            while running.load(Ordering::Relaxed) > 0 {
                // SAFETY: same as above.
                unsafe { load(shared.0, &mut seen) };
                assert!(seen.iter().all(|byte| [1, 2].contains(byte)));
            }
        });
    }
}
