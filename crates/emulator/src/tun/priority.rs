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
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: 0 means the calling thread, and the kernel only reads the parameters during the call.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &raw const parameters) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
