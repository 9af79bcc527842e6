//! Threads of the library, and the mutexes that they share.
#![cfg_attr(target_os = "linux", allow(unsafe_code))]

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Starts a thread to which the kernel delivers no signal of the process: a program may handle its
/// signals, or wait for them (sigwait), on threads of its own. Signals that report a fault of the thread
/// itself stay as they are.
///
/// # Errors
/// Those of the operating system, which may start no more threads.
pub fn spawn<T: Send + 'static>(
    name: impl Into<String>,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    // A thread begins with the mask of the one that starts it.
    #[cfg(target_os = "linux")]
    let _masked = Masked::new();
    Builder::new().name(name.into()).spawn(work)
}

/// Locks a mutex whose value is valid even after a panic of another thread.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All signals of the process are blocked for this thread, until this value is dropped.
#[cfg(target_os = "linux")]
struct Masked(libc::sigset_t);

#[cfg(target_os = "linux")]
impl Masked {
    /// Faults of a thread, which a debugger or a handler of the program may want to see, and SIGPROF of
    /// profilers.
    const KEPT: [i32; 7] = [
        libc::SIGABRT,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGILL,
        libc::SIGPROF,
        libc::SIGSEGV,
        libc::SIGTRAP,
    ];

    fn new() -> Self {
        // SAFETY: a set of signals consists of integers, for which all zeroes is a valid value. The calls
        // write to these two sets only, and all arguments are valid, so they do not fail.
        unsafe {
            let (mut blocked, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut blocked);
            for signal in Self::KEPT {
                libc::sigdelset(&raw mut blocked, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, &raw mut before);
            Self(before)
        }
    }
}

#[cfg(target_os = "linux")]
impl Drop for Masked {
    fn drop(&mut self) {
        // SAFETY: the set is one that the kernel has returned, and the null pointer asks for no other one.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut());
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn blocked() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("its own");
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
        u64::from_str_radix(mask.expect("a mask").trim(), 16).expect("hexadecimal")
    }

    #[test]
    fn signals_of_the_process_go_to_threads_of_the_program() {
        let before = blocked();
        let of_thread = spawn("quiet", blocked)
            .expect("a thread")
            .join()
            .expect("no panic");
        let is_blocked = |signal: i32| of_thread >> (signal - 1) & 1 == 1;
        assert!(
            [libc::SIGTERM, libc::SIGINT, libc::SIGCHLD, libc::SIGALRM]
                .into_iter()
                .all(is_blocked)
        );
        assert!(!Masked::KEPT.into_iter().any(is_blocked), "{of_thread:x}");
        assert_eq!(blocked(), before);
    }
}
