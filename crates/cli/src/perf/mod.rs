//! `farwrite perf`: measures messages between two machines, in the dialect of perftest.

mod args;
mod client;
mod control;
mod data;
mod report;
mod server;
mod tasks;

use std::process::ExitCode;
use std::time::Duration;

use farwrite_connection::{Connection, ConnectionOptions, Error as ConnectionError, Messages};
use farwrite_transfer::Cancel;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(crate) use args::PerfArgs;

use crate::console::Console;
use crate::exit::{Exit, Failure, OrExit};

/// How long an end waits for an answer of the other one.
const PATIENCE: Duration = Duration::from_secs(30);
/// The time between two checks of whether the user cancelled, or the connection is over.
const SLICE: Duration = Duration::from_millis(100);

/// Measures, or serves a client. Returns the exit code.
pub(crate) fn run(args: &PerfArgs, console: &Console) -> Result<ExitCode, Failure> {
    match &args.host {
        Some(host) => client::run(args, host, console),
        None => server::run(args, console),
    }
}

/// The options of connections at both ends.
fn connection_options() -> ConnectionOptions {
    ConnectionOptions {
        silence_limit: Duration::from_secs(15),
        ..ConnectionOptions::default()
    }
}

fn is_alive(connection: &Connection, cancel: &Cancel) -> Result<(), Failure> {
    cancel.check()?;
    match connection.ended() {
        None => Ok(()),
        Some(ended) => Err(Failure::of("measuring", &ConnectionError::Over(ended))),
    }
}

fn tell(messages: &Messages, line: &impl Serialize) {
    messages.send(serde_json::to_vec(line).expect("memory takes any line"));
}

/// Waits for a line of the other end, without end if `limit` is `None`.
fn hear<T: DeserializeOwned>(
    messages: &Messages,
    cancel: &Cancel,
    limit: Option<Duration>,
) -> Result<T, Failure> {
    hear_while(messages, cancel, limit, || Ok(()))
}

/// As [`hear`], as long as `check` finds no error.
fn hear_while<T: DeserializeOwned>(
    messages: &Messages,
    cancel: &Cancel,
    limit: Option<Duration>,
    check: impl Fn() -> Result<(), Failure>,
) -> Result<T, Failure> {
    let mut waited = Duration::ZERO;
    loop {
        if let Some(line) = messages.receive(SLICE).or_fail("measuring")? {
            let line = serde_json::from_slice(&line);
            return line.or_exit(Exit::Mismatch, "the other end sent no line of perf");
        }
        is_alive(messages.connection(), cancel)?;
        check()?;
        waited += SLICE;
        if limit.is_some_and(|limit| waited >= limit) {
            let what = format!(
                "the other end did not answer within {} s",
                PATIENCE.as_secs()
            );
            return Err(Failure::new(Exit::Unreachable, what));
        }
    }
}
