//! Real-time priority for threads that must not be late.
#![allow(unsafe_code)]

use std::io;

/// Gives the calling thread real-time priority: it gets a core whenever it has work, before all
/// threads without such priority (round robin at the lowest real-time priority, `sched(7)`). A nice
/// value is not enough: the kernel applies it only among the processes of one terminal.
///
/// # Errors
/// The error of the operating system if the process may not set the priority.
pub(super) fn raise() -> io::Result<()> {
    // SAFETY: `sched_param` is a struct of integers, of which the C library of musl has more than glibc.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = 1;
    // `sched_setscheduler` would do it too, but not with musl, which leaves that function out.
    // SAFETY: the calling thread exists, and the function only reads the parameters during the call.
    let result = unsafe {
        libc::pthread_setschedparam(libc::pthread_self(), libc::SCHED_RR, &raw const parameters)
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(result))
    }
}
