//! How much memory this machine has to spare.

use std::fs;
use std::path::Path;

use crate::exit::{Exit, Failure};
use farwrite_units::show::Bytes;

/// Refuses what this machine cannot hold: it would rather kill the program than say no. `what` wants
/// so many bytes; `help` says how to want less.
pub(crate) fn check_available(wanted: u64, what: &str, help: &str) -> Result<(), Failure> {
    match available() {
        Some(available) if wanted > available => Err(Failure::new(
            Exit::Other,
            format!(
                "{what} needs {} of memory and this machine has {} to spare: {help}",
                Bytes(wanted),
                Bytes(available)
            ),
        )),
        _ => Ok(()),
    }
}

/// Bytes that programs may still take (proc(5), `MemAvailable`); `None` where the system does not say.
fn available() -> Option<u64> {
    let text = fs::read_to_string(Path::new("/proc/meminfo")).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}
