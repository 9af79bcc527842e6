//! The priority of a thread that must not be late.
#![allow(unsafe_code)]

use std::io;

/// Gives this thread a core whenever it has work, before all threads without real-time priority:
/// round robin at the lowest real-time priority (`sched(7)`). A nice value does not do: the kernel
/// applies it among the processes of one terminal only.
///
/// # Errors
/// The system's answer, where the process may not.
pub(crate) fn raise() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: 0 names the calling thread, and the kernel only reads the parameters during the call.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &raw const parameters) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
