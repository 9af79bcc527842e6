//! Converts Ctrl-C, and the loss of the terminal, to a flag that the program reads.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use farwrite_transfer::Cancel;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::exit::{Exit, Failure, OrExit};
use crate::proc::proc_value;

/// The time between two looks of a thread that waits, whether it has to stop.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// Converts the first Ctrl-C to a flag. The second one ends the program at once. A signal that was
/// ignored when the program started stays ignored: `nohup` does this for hang-ups.
pub(crate) fn catch() -> Result<Cancel, Failure> {
    catch_with_flag().map(|(cancel, _)| cancel)
}

/// As [`catch`], without hang-ups.
pub(crate) fn catch_but_hang_up() -> Result<Cancel, Failure> {
    catch_signals(&[SIGINT, SIGTERM]).map(|(cancel, _)| cancel)
}

/// As [`catch`], with the flag, so that this program can set it too.
pub(crate) fn catch_with_flag() -> Result<(Cancel, Arc<AtomicBool>), Failure> {
    catch_signals(&[SIGHUP, SIGINT, SIGTERM])
}

/// Converts hang-ups to a flag, so that they do not end the program.
pub(crate) fn catch_hang_ups() -> Result<Arc<AtomicBool>, Failure> {
    let hung_up = Arc::<AtomicBool>::default();
    let registered = flag::register(SIGHUP, Arc::clone(&hung_up));
    registered.or_exit(Exit::Other, "installing the handler for SIGHUP")?;
    Ok(hung_up)
}

/// Says when a program ends that carries data until Ctrl-C, or for a time.
pub(crate) fn until(time: Option<Duration>) -> &'static str {
    match time {
        Some(_) => "until Ctrl-C or the end of --for",
        None => "until Ctrl-C",
    }
}

fn catch_signals(signals: &[i32]) -> Result<(Cancel, Arc<AtomicBool>), Failure> {
    let flag = Arc::<AtomicBool>::default();
    let ignored = ignored_signals();
    let register = || -> io::Result<()> {
        for &signal in signals {
            if ignored & (1 << (signal - 1)) != 0 {
                continue;
            }
            // The order is important: at the first signal, the flag is not yet set here.
            let status = i32::from(Exit::Interrupted as u8);
            flag::register_conditional_shutdown(signal, status, Arc::clone(&flag))?;
            flag::register(signal, Arc::clone(&flag))?;
        }
        Ok(())
    };
    register().or_exit(Exit::Other, "installing the handler for Ctrl-C")?;
    Ok((Cancel::watching(Arc::clone(&flag)), flag))
}

/// The signals that this process ignores, one bit each; signal 1 is bit 0 (proc(5), `SigIgn`). 0 if
/// the system does not report them.
fn ignored_signals() -> u64 {
    let mask = proc_value("/proc/self/status", "SigIgn");
    mask.and_then(|mask| u64::from_str_radix(&mask, 16).ok())
        .unwrap_or(0)
}
