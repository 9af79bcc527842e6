//! Ctrl-C, and a terminal that goes away, as a flag to look at.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use farwrite_transfer::Cancel;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::exit::{Exit, Failure, OrExit};

/// Turns the first Ctrl-C into a flag; the second ends the program at once. A signal that was
/// ignored when the program started, as `nohup` does with hang-ups, stays ignored.
pub(crate) fn catch() -> Result<Cancel, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    let ignored = ignored_signals();
    let register = || -> io::Result<()> {
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            if ignored & (1 << (signal - 1)) != 0 {
                continue;
            }
            // The order matters: at the first signal the flag is not yet set here.
            let status = i32::from(Exit::Interrupted as u8);
            flag::register_conditional_shutdown(signal, status, Arc::clone(&flag))?;
            flag::register(signal, Arc::clone(&flag))?;
        }
        Ok(())
    };
    register().or_exit(Exit::Other, "installing the handler for Ctrl-C")?;
    Ok(Cancel::watching(flag))
}

/// The signals that this process ignores, one bit each, signal 1 being bit 0 (proc(5), `SigIgn`).
/// None where the system does not say.
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .map(str::trim);
    mask.and_then(|mask| u64::from_str_radix(mask, 16).ok())
        .unwrap_or(0)
}
