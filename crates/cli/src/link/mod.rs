//! `farwrite link`: emulates a long path for any IP traffic.

mod args;
mod changes;
mod quantities;
mod show;

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use farwrite_emulator::tun::{TunEmulator, TunEmulatorError};
use farwrite_link::Loss;
use farwrite_units::Burst;

pub(crate) use args::LinkArgs;

use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::interrupt;

/// The time between two checks for the end.
const LOOK: Duration = Duration::from_millis(20);

/// Carries packets until Ctrl-C, until the time has elapsed, or until a device disappears.
pub(crate) fn run(args: &LinkArgs, console: &Console) -> Result<ExitCode, Failure> {
    let cancel = interrupt::catch()?;
    let config = args.config()?;
    let emulator = TunEmulator::start(&config).map_err(failure)?;
    let end = args.duration.map(|duration| Instant::now() + duration);
    console.say(show::started(&config, args.duration));
    while emulator.is_running() && !cancel.is_set() && end.is_none_or(|end| Instant::now() < end) {
        thread::sleep(LOOK);
    }
    let (report, result) = emulator.stop();
    console.say(show::table(&report));
    console.end(result.map_err(failure), &show::json(&report))
}

/// The losses of an emulated link: each by itself, or in bursts with the same mean.
pub(crate) fn losses(loss_packet: f64, burst: Option<Burst>) -> Loss {
    match burst {
        Some(Burst::Losses(packets)) => Loss::in_bursts(loss_packet, packets),
        Some(Burst::Time(time)) => Loss::in_timed_bursts(loss_packet, time),
        None => Loss::Iid { loss_packet },
    }
}

fn failure(error: TunEmulatorError) -> Failure {
    let exit = match error {
        TunEmulatorError::Path { .. }
        | TunEmulatorError::Mtu(_)
        | TunEmulatorError::DeviceName(_) => Exit::Usage,
        _ => Exit::Other,
    };
    Failure::new(exit, error)
}
