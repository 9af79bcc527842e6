//! `farwrite perf`: measures messages between two machines, in the dialect of perftest.

mod args;
mod client;
mod control;
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
use crate::exit::{Exit, Failure};

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

/// Waits until `check` has a value.
fn wait_for<T>(
    connection: &Connection,
    cancel: &Cancel,
    mut check: impl FnMut() -> Option<Result<T, Failure>>,
) -> Result<T, Failure> {
    loop {
        let waited = connection.thread().wait(SLICE, &mut check);
        match waited.map_err(|error| Failure::caused(Exit::Other, "measuring", &error))? {
            Some(result) => return result,
            None => is_alive(connection, cancel)?,
        }
    }
}

fn is_alive(connection: &Connection, cancel: &Cancel) -> Result<(), Failure> {
    cancel.check()?;
    match connection.ended() {
        None => Ok(()),
        Some(ended) => Err(Failure::of_connection(
            "measuring",
            &ConnectionError::Over(ended),
        )),
    }
}

/// Sends a line to the other end.
fn tell(messages: &Messages, line: &impl Serialize) {
    messages.send(control::encode(line));
}

/// Waits for a line of the other end, without end if `limit` is `None`.
fn hear<T: DeserializeOwned>(
    messages: &Messages,
    cancel: &Cancel,
    limit: Option<Duration>,
) -> Result<T, Failure> {
    let mut waited = Duration::ZERO;
    loop {
        let line = messages.receive(SLICE);
        if let Some(line) = line.map_err(|error| Failure::of_connection("measuring", &error))? {
            return control::decode(&line).map_err(|why| Failure::new(Exit::Mismatch, why));
        }
        is_alive(messages.connection(), cancel)?;
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
