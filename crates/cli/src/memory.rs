//! What the system says in /proc: the available memory, and other values.

use std::fs;

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
    let available = proc_value("/proc/meminfo", "MemAvailable")?;
    let kib: u64 = available.strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The first value with this name in a file of proc(5); `None` if the system does not report it.
pub(crate) fn proc_value(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let values = text.lines().filter_map(|line| line.split_once(':'));
    let mut named = values.filter(|(of_line, _)| of_line.trim_end() == name);
    named.next().map(|(_, value)| value.trim().to_owned())
}
