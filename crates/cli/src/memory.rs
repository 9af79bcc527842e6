//! The available memory.

use crate::exit::{Exit, Failure};
use crate::proc::proc_value;
use farwrite_units::show::Bytes;

/// Refuses to use more memory than this machine has available: the kernel would kill the program
/// instead of refusing. `what` needs `wanted` bytes. `help` explains how to need less.
pub(crate) fn check_available(wanted: u64, what: &str, help: &str) -> Result<(), Failure> {
    match available() {
        Some(available) if wanted > available => Err(Failure::new(
            Exit::Other,
            format!(
                "{what} needs {} of memory and this machine has {} free: {help}",
                Bytes(wanted),
                Bytes(available)
            ),
        )),
        _ => Ok(()),
    }
}

/// The number of bytes that programs can still allocate (proc(5), `MemAvailable`); `None` if the
/// system does not report it.
fn available() -> Option<u64> {
    let available = proc_value("/proc/meminfo", "MemAvailable")?;
    let kib: u64 = available.strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}
