//! Converts Ctrl-C, and the loss of the terminal, to a flag that the program reads.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use farwrite_transfer::Cancel;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::exit::{Exit, Failure, OrExit};

/// Converts the first Ctrl-C to a flag. The second one ends the program at once. A signal that was
/// ignored when the program started stays ignored: `nohup` does this for hang-ups.
pub(crate) fn catch() -> Result<Cancel, Failure> {
    catch_signals(&[SIGHUP, SIGINT, SIGTERM])
}

/// As [`catch`], without hang-ups.
pub(crate) fn catch_but_hang_up() -> Result<Cancel, Failure> {
    catch_signals(&[SIGINT, SIGTERM])
}

/// As [`catch`], with the flag, so that this program can set it too.
pub(crate) fn catch_with_flag() -> Result<(Cancel, Arc<AtomicBool>), Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    let cancel = catch_into(&[SIGHUP, SIGINT, SIGTERM], &flag)?;
    Ok((cancel, flag))
}

/// Says when a program ends that carries data until Ctrl-C, or for a time.
pub(crate) fn until(time: Option<Duration>) -> &'static str {
    match time {
        Some(_) => "until Ctrl-C or the end of --for",
        None => "until Ctrl-C",
    }
}

fn catch_signals(signals: &[i32]) -> Result<Cancel, Failure> {
    catch_into(signals, &Arc::new(AtomicBool::new(false)))
}

fn catch_into(signals: &[i32], flag: &Arc<AtomicBool>) -> Result<Cancel, Failure> {
    let ignored = ignored_signals();
    let register = || -> io::Result<()> {
        for &signal in signals {
            if ignored & (1 << (signal - 1)) != 0 {
                continue;
            }
            // The order is important: at the first signal, the flag is not yet set here.
            let status = i32::from(Exit::Interrupted as u8);
            flag::register_conditional_shutdown(signal, status, Arc::clone(flag))?;
            flag::register(signal, Arc::clone(flag))?;
        }
        Ok(())
    };
    register().or_exit(Exit::Other, "installing the handler for Ctrl-C")?;
    Ok(Cancel::watching(Arc::clone(flag)))
}

/// The signals that this process ignores, one bit each; signal 1 is bit 0 (proc(5), `SigIgn`). 0 if
/// the system does not report them.
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .map(str::trim);
    mask.and_then(|mask| u64::from_str_radix(mask, 16).ok())
        .unwrap_or(0)
}
