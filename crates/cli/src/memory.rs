//! The available memory of this machine.

use std::fs;
use std::path::Path;

use crate::exit::{Exit, Failure};
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
    let text = fs::read_to_string(Path::new("/proc/meminfo")).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}
