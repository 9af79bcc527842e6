//! `farwrite lowar` and `farwrite netrt`: boxes in the path, between two network interfaces of this
//! machine.

mod counters;
mod lowar;
mod netrt;

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use farwrite::metrics::Metric;
use farwrite_boxes::{Backpressure, Middlebox, Secret};
use farwrite_bridge::{Bridge, BridgeConfig, BridgeError, BridgeReport, gain_no_privileges};
use farwrite_http::Address;
use farwrite_transfer::Cancel;
use farwrite_units::parse::{parse_count, parse_duration, parse_rtt};
use serde_json::json;

pub(crate) use lowar::{LowarArgs, run as run_lowar};
pub(crate) use netrt::{NetRtArgs, run as run_netrt};

use self::counters::of_bridge;
use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::metrics::Metrics;
use crate::supervisor::Supervisor;
use crate::table::lay_out;
use crate::{interrupt, key};

/// The time between two checks for the end.
const LOOK: Duration = Duration::from_millis(20);
/// The number of rows between two headings of the live table.
const ROWS: usize = 20;
/// The counters whose rates the live table shows for every box.
const ALWAYS: [&str; 2] = ["near_received", "far_received"];
/// Characters of a column of rates.
const WIDTH: usize = 10;

/// What all boxes take.
#[derive(Debug, Args)]
#[expect(clippy::doc_markdown, reason = "shown as help")]
struct BridgeArgs {
    /// The interface where the NICs are that the box protects
    #[arg(long, value_name = "INTERFACE")]
    near: String,
    /// The interface where the network or the long path to the other box is
    #[arg(long, value_name = "INTERFACE")]
    far: String,
    /// The priority, 0 to 7, that PFC frames pause on the near side when packets queue up before the
    /// far interface. `farwrite netrt` also pauses it, or the priority in the VLAN tags of the packets, while it
    /// repeats many packets
    #[arg(long, value_name = "PRIORITY", default_value = "3")]
    #[arg(conflicts_with = "mark", value_parser = clap::value_parser!(u8).range(..=7))]
    pause: u8,
    /// Mark packets with congestion experienced instead, when more than this queues up, such as 64KiB
    #[arg(long, value_name = "BYTES", value_parser = parse_count)]
    mark: Option<u64>,
    /// Neither pause nor mark because of a queue. `farwrite netrt` still pauses NICs while it repeats many packets
    #[arg(long, conflicts_with_all = ["mark", "pause"])]
    no_backpressure: bool,
    /// Serve counters as Prometheus text over HTTP, at an address and port such as 127.0.0.1:9791, which
    /// all who reach it can read, or at a Unix socket such as unix:/run/box.sock
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<Address>,
    /// Print a line of rates this often; never with 0s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_every)]
    every: Duration,
    /// End after this long: 1ms to 1 day
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// File with the key that all boxes share; without it, the key is taken from the environment
    /// variable FARWRITE_PSK
    #[arg(long, value_name = "FILE")]
    psk_file: Option<PathBuf>,
    /// Work without a key: anybody who can send packets to the box can then forge its messages
    #[arg(long, conflicts_with = "psk_file")]
    no_key: bool,
}

/// The limits that both kinds of boxes have.
#[derive(Clone, Debug, clap::Args)]
struct LimitArgs {
    /// Maximum number of frames that all connections together hold back; at most four fifths are from one
    /// source
    #[arg(long, value_name = "FRAMES", default_value_t = 2560,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    held: u32,
    /// Maximum number of connections that are protected in each direction; further ones pass
    /// unprotected. One source has at most a third of them
    #[arg(long, value_name = "CONNECTIONS", default_value_t = 2048,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
}

/// A number that increases with each start: nanoseconds since 1970, until the year 2554.
fn boot() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(1, |since| u64::try_from(since.as_nanos()).unwrap_or(1))
}

/// Reads the time for which packets wait.
fn parse_hold(text: &str) -> Result<Duration, String> {
    let hold = parse_rtt(text).ok().filter(|hold| !hold.is_zero());
    hold.ok_or_else(|| "a hold time lies above 0s, up to 10s; write it like 4ms".to_owned())
}

fn parse_every(text: &str) -> Result<Duration, String> {
    match text {
        "0" | "0s" => Ok(Duration::ZERO),
        _ => parse_duration(text),
    }
}

impl BridgeArgs {
    /// Derives the key that boxes share for a purpose; `None` if the user selected no key.
    fn key(&self, purpose: &str) -> Result<Option<Secret>, Failure> {
        if self.no_key {
            return Ok(None);
        }
        // Signals still end the program here.
        let psk = key::find(self.psk_file.as_deref(), &Cancel::default())?.ok_or_else(|| {
            let what = "no key: give --psk-file with a key of `farwrite keygen`, the same at all \
                        boxes, or --no-key";
            Failure::new(Exit::Usage, what)
        })?;
        Ok(Some(psk.derive(purpose).into()))
    }

    /// Estimate of the bytes that queue up at the far interface: a pause or a mark takes effect late,
    /// so twice as many as it starts at.
    fn longest_queue_bytes(&self) -> u64 {
        let starts_bytes = match self.config(None).backpressure.unwrap_or_default() {
            Backpressure::Pfc { stop_bytes, .. } => stop_bytes,
            Backpressure::Ecn { mark_bytes } => mark_bytes,
        };
        starts_bytes.saturating_mul(2)
    }

    /// `longest_bytes`: the longest IP packet that the box may send to the path, if the user says so.
    fn config(&self, longest_bytes: Option<usize>) -> BridgeConfig {
        let backpressure = match self.mark {
            _ if self.no_backpressure => None,
            Some(mark_bytes) => Some(Backpressure::Ecn { mark_bytes }),
            None => Some(Backpressure::default()),
        };
        BridgeConfig {
            near: self.near.clone(),
            far: self.far.clone(),
            backpressure,
            priorities: 1 << self.pause,
            longest_bytes,
        }
    }
}

/// What the program needs to know about a box.
trait Shown: Middlebox<Counters: Clone + Default + Send> + Send + 'static {
    /// The name of the metrics of the box.
    const NAME: &'static str;
    /// The counters whose rates the live table shows.
    const COLUMNS: &'static [&'static str];

    fn shown(counters: &Self::Counters) -> Vec<Metric>;
}

/// Carries frames until Ctrl-C, until the time has elapsed, or until an interface disappears.
/// `config` is that of `args`.
fn carry<B: Shown>(
    args: &BridgeArgs,
    config: &BridgeConfig,
    inner: B,
    console: &Console,
) -> Result<ExitCode, Failure> {
    let cancel = interrupt::catch()?;
    let supervisor = Supervisor::of_environment()?;
    gain_no_privileges().map_err(failure)?;
    // A port or the file of a socket may need privileges, which the bridge gives up.
    let metrics = Metrics::serve(args.metrics.as_ref(), B::NAME)?;
    let bridge = Bridge::start(config, inner).map_err(failure)?;
    console.say(format_args!(
        "Carrying frames between {} (near) and {} (far) {}",
        args.near,
        args.far,
        interrupt::until(args.duration)
    ));
    for name in bridge.down() {
        console.say(format_args!(
            "{name} is down; it carries frames after `ip link set {name} up`"
        ));
    }
    supervisor.ready();
    let mut carried = Duration::ZERO;
    let start = Instant::now();
    let ends = |elapsed| args.duration.is_some_and(|duration| elapsed >= duration);
    let mut live = Live {
        every: args.every,
        ..Live::default()
    };
    while bridge.is_running() && !cancel.is_set() && !ends(start.elapsed()) {
        thread::sleep(LOOK);
        let report = bridge.report();
        // Only while the thread that carries frames makes progress: systemd restarts a box that is stuck.
        if report.elapsed > carried {
            carried = report.elapsed;
            supervisor.alive();
        }
        let counters = counters::<B>(&report);
        if let Some(metrics) = &metrics {
            metrics.set(&counters);
        }
        live.show::<B>(start.elapsed(), &counters, console);
    }
    supervisor.stopping();
    let (report, result) = bridge.stop();
    let counters = counters::<B>(&report);
    let mut object = json!({ "seconds": report.elapsed.as_secs_f64() });
    let mut rows = Vec::new();
    for counter in &counters {
        let (name, value) = (counter.name, counter.value);
        object[name] = value.into();
        rows.push([name.to_owned(), counter.help.to_owned(), value.to_string()]);
    }
    console.say(lay_out(&rows, 2));
    console.end(result.map_err(failure), &object)
}

fn counters<B: Shown>(report: &BridgeReport<B::Counters>) -> Vec<Metric> {
    let mut counters = of_bridge(report);
    counters.extend(B::shown(&report.counters));
    counters
}

fn failure(error: BridgeError) -> Failure {
    let exit = match error {
        BridgeError::SameInterface(_)
        | BridgeError::NoInterface(_)
        | BridgeError::NotEthernet(_)
        | BridgeError::TooLong { .. } => Exit::Usage,
        _ => Exit::Other,
    };
    Failure::new(exit, error)
}

/// The two lines above the rates: each name at its first underscore, so that a row fits into 80 columns.
fn head(columns: &[&str]) -> [String; 2] {
    let names = || {
        columns
            .iter()
            .map(|name| name.split_once('_').unwrap_or(("", *name)))
    };
    let first: String = names()
        .map(|(first, _)| format!("{first:>WIDTH$}"))
        .collect();
    let rest: String = names().map(|(_, rest)| format!("{rest:>WIDTH$}")).collect();
    [
        format!("{:>8}{first}", ""),
        format!("{:>8}{rest}  (a second)", "time"),
    ]
}

/// The live table, which periodically prints a row of rates.
#[derive(Default)]
struct Live {
    every: Duration,
    at: Duration,
    rows: usize,
    before: Vec<u64>,
}

impl Live {
    fn show<B: Shown>(&mut self, elapsed: Duration, counters: &[Metric], console: &Console) {
        if self.every.is_zero() || elapsed < self.at + self.every {
            return;
        }
        let columns = [&ALWAYS[..], B::COLUMNS].concat();
        let value = |name: &&str| {
            let counter = counters.iter().find(|counter| counter.name == *name);
            counter.map_or(0, |counter| counter.value)
        };
        let values: Vec<_> = columns.iter().map(value).collect();
        let seconds = (elapsed - self.at).as_secs_f64();
        self.before.resize(values.len(), 0);
        let rates = values.iter().zip(&self.before).map(|(now, before)| {
            let events = now.saturating_sub(*before);
            format!("{:>WIDTH$.0}", farwrite_units::show::real(events) / seconds)
        });
        let rates: String = rates.collect();
        if self.rows.is_multiple_of(ROWS) {
            for line in head(&columns) {
                console.say(line);
            }
        }
        console.say(format_args!("{:>7.1}s{rates}", elapsed.as_secs_f64()));
        self.rows += 1;
        self.at = elapsed;
        self.before = values;
    }
}

#[cfg(test)]
mod tests {
    use farwrite_boxes::lowar::Lowar;
    use farwrite_boxes::netrt::NetRt;
    use farwrite_bridge::Forward;

    use super::*;

    #[test]
    fn the_live_table_fits_into_80_columns() {
        for of_box in [Lowar::COLUMNS, NetRt::COLUMNS, Forward::COLUMNS] {
            let columns = [&ALWAYS[..], of_box].concat();
            for line in head(&columns) {
                assert!(line.len() <= 80, "{line}");
            }
            // No name touches the one before it.
            let words = |name: &&str| {
                name.split_once('_')
                    .is_none_or(|(a, b)| a.len().max(b.len()) < WIDTH)
            };
            assert!(columns.iter().all(words), "{columns:?}");
        }
        let [first, rest] = head(&ALWAYS);
        assert_eq!(first, "              near       far");
        assert_eq!(rest, "    time  received  received  (a second)");
    }
}
