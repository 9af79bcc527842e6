//! `farwrite probe`: measures a path.

mod args;
mod listen;
mod picture;
mod report;
mod show;
mod trips_picture;

use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use farwrite_connection::{Connection, ConnectionOptions, Purpose};
use farwrite_keys::{HostPort, Key};
use farwrite_probe::message::Cause;
use farwrite_probe::{self as probe, Control, Findings, ProbeHooks, ProbeStage};
use farwrite_transfer::{Cancel, ErrorKind, Waiting};

pub(crate) use args::ProbeArgs;
pub(crate) use listen::Answering;
use report::report;

use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::files::{self, directory_of};
use crate::recv::check_directory;
use crate::{interrupt, key, link_file};

/// The pause after the other end was busy, and the least time to connect after it.
const LEAST_TIME: Duration = Duration::from_millis(200);

/// Probes, or answers probes. Returns the exit code.
pub(crate) fn run(args: &ProbeArgs, console: &Console) -> Result<ExitCode, Failure> {
    match &args.to {
        Some(to) => ask(args, to, console),
        None => {
            listen::run(args, console)?;
            // Scripts get one object from every command.
            console.json(&serde_json::Value::Null)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn ask(args: &ProbeArgs, to: &HostPort, console: &Console) -> Result<ExitCode, Failure> {
    let cancel = interrupt::catch()?;
    let key = Key::PreShared(key::needed(args.psk_file.as_deref(), &cancel)?);
    // A place that is wrong is told before the work begins.
    for file in args.save.iter().chain(&args.plot) {
        check_directory(directory_of(file))?;
    }
    let settings = args.settings();
    let hooks = ProbeHooks {
        redirect: &|_, to| to,
        cancelled: &|| cancel.is_set(),
        observe: &|event| show_progress(console, event),
    };
    let asked = Instant::now();
    let (findings, start) = loop {
        let left = args.timeout.saturating_sub(asked.elapsed());
        let control = reach(to, &key, left.max(LEAST_TIME), &cancel, console)?;
        console.say(format_args!(
            "probing the path to {} for {} s",
            control.peer_addr(),
            settings.time.as_secs_f64()
        ));
        let start = Instant::now();
        let found = probe::probe(control, &settings, &hooks);
        match found.map_err(|error| failure("probing", &error)) {
            // The other end has kept this one waiting for some seconds.
            Err(failure) if failure.exit == Exit::Busy && asked.elapsed() < args.timeout => {
                console.say("the other end is busy with another transfer or probe: trying again");
                cancel.check()?;
                thread::sleep(LEAST_TIME);
            }
            found => break (found?, start),
        }
    };
    console.say(show::text(&findings));
    let trouble = save(args, &findings, console).err();
    if let Some(failure) = &trouble {
        console.warn(failure);
    }
    let report = report(args, &findings, start.elapsed());
    console.json_result(trouble.as_ref(), &report)?;
    Ok(trouble.map_or(ExitCode::SUCCESS, |failure| failure.exit.into()))
}

/// Connects to the other end, which may start later, and asks it for a probe.
fn reach(
    to: &HostPort,
    key: &Key,
    patience: Duration,
    cancel: &Cancel,
    console: &Console,
) -> Result<Control, Failure> {
    let options = |limit| ConnectionOptions {
        purpose: Purpose::PROBE,
        connect_limit: limit,
        busy_limit: limit,
        // The probe itself finds larger packets.
        largest_mtu: Some(Control::MTU),
        ..ConnectionOptions::default()
    };
    let open = move |connection: &Connection| Control::open(connection, patience);
    let of_connection = |error: &probe::Error| match error {
        probe::Error::Connection(error) => Some(error.clone()),
        _ => None,
    };
    let waiting = Waiting::new(to.clone(), key, patience)
        .for_program("farwrite recv` or `farwrite probe --listen");
    let met = waiting.open(options, open, of_connection, (cancel, console))?;
    met.map_err(|error| failure(&format!("connecting to {to}"), &error))
}

fn save(args: &ProbeArgs, findings: &Findings, console: &Console) -> Result<(), Failure> {
    let write = |file: &Path, text: String| {
        files::write(file, text)?;
        console.say(format_args!("wrote {}", file.display()));
        Ok::<_, Failure>(())
    };
    match &args.plot {
        Some(file) if findings.trials.is_empty() => console.warn(format_args!(
            "no trial has ended: {} is not drawn",
            file.display()
        )),
        Some(file) => write(file, picture::draw(findings))?,
        None => {}
    }
    if let Some(file) = &args.save {
        write(file, link_file::text(findings, SystemTime::now())?)?;
    }
    if findings.interrupted {
        return Err(Failure::new(
            Exit::Interrupted,
            "interrupted: partial results",
        ));
    }
    Ok(())
}

fn show_progress(console: &Console, event: ProbeStage) {
    let (done, all) = match event {
        ProbeStage::Losses { done, all } => (done, all),
        _ => (0, 1),
    };
    let stage = match event {
        ProbeStage::RoundTrips => "round trips, ECN, addresses",
        ProbeStage::Rate => "rate",
        ProbeStage::Mtu => "MTU",
        ProbeStage::Losses { .. } => "losses",
    };
    console.progress("probing", all).show(done, stage);
}

/// A failure of a probe, with the exit code for it.
fn failure(doing: &str, error: &probe::Error) -> Failure {
    let exit = match error {
        probe::Error::Connection(error) => return Failure::of(doing, error),
        probe::Error::Aborted { cause, .. } => match cause {
            Cause::Mismatch => Exit::Mismatch,
            Cause::Network | Cause::Interrupted => Exit::Unreachable,
            Cause::Busy => Exit::Busy,
            Cause::Other => Exit::Other,
        },
        probe::Error::Socket(_) | probe::Error::NoUdp { .. } | probe::Error::Silence { .. } => {
            Exit::Unreachable
        }
        probe::Error::Size { .. } | probe::Error::Rate { .. } => Exit::Usage,
        probe::Error::Interrupted => ErrorKind::Interrupted.into(),
        _ => Exit::Other,
    };
    Failure::caused(exit, doing, error)
}
