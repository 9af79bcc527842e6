//! What is measured, as the arguments say.

use std::path::PathBuf;
use std::time::Duration;

use crate::case::{Case, MB, Place, Restart, SEED};
use farwrite_net::Loss;

const FIGURES: [&str; 8] = [
    "goodput",
    "connections",
    "nics",
    "degradation",
    "times",
    "bursts",
    "small",
    "latency",
];
/// The one whose numbers are from one run.
const SINGLE: &str = "latency";
/// Bursts have this number of packets, or a mean of it.
const LENGTHS: [&str; 2] = ["fixed", "mean"];
/// Each run has a thread.
const MAX_RUNS: f64 = 64.0;

/// What is measured.
pub(crate) struct Options {
    figures: Vec<String>,
    pub(crate) rate_bps: u64,
    pub(crate) rtts: Vec<Duration>,
    pub(crate) losses: Vec<f64>,
    /// Lengths of bursts in packets.
    pub(crate) bursts: Vec<u32>,
    /// Which lengths of bursts: those of [`LENGTHS`].
    pub(crate) lengths: Vec<String>,
    /// Numbers of connections.
    pub(crate) connections: Vec<u32>,
    pub(crate) seconds: f64,
    /// Runs for each number, but of [`SINGLE`].
    runs: u64,
    pub(crate) csv: Option<PathBuf>,
}

impl Options {
    /// What the arguments of the program say, or what is wrong with them.
    pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            figures: Vec::new(),
            rate_bps: 10_000_000_000,
            rtts: [40, 80].map(Duration::from_millis).to_vec(),
            losses: vec![0.0, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3],
            bursts: vec![2, 4, 6, 8, 10, 12],
            lengths: LENGTHS.map(String::from).to_vec(),
            connections: vec![1, 4, 16, 32],
            seconds: 2.0,
            runs: 1,
            csv: None,
        };
        while let Some(arg) = args.next() {
            if FIGURES.contains(&arg.as_str()) {
                options.figures.push(arg);
                continue;
            }
            let value = args.next().unwrap_or_default();
            options.set(&arg, &value)?;
        }
        if options.figures.is_empty() {
            options.figures = FIGURES.map(String::from).to_vec();
        }
        if options.runs > 1 && options.wants(SINGLE) {
            return Err(format!(
                "--seeds: {SINGLE} has one run for each number; name other figures"
            ));
        }
        Ok(options)
    }

    fn set(&mut self, option: &str, value: &str) -> Result<(), String> {
        let within = |low, high| numbers(option, value, low, high);
        let one = |low, high| match within(low, high)?[..] {
            [number] => Ok(number),
            _ => Err(format!("{option} {value}: it takes one number")),
        };
        let whole = |number: f64| match number.fract() {
            0.0 => Ok(number as u64),
            _ => Err(format!("{option} {value}: it takes whole numbers")),
        };
        let counts = |high| {
            let counts = within(1.0, high)?.into_iter();
            let counts = counts.map(|count| whole(count).map(|count| count as u32));
            counts.collect::<Result<Vec<u32>, String>>()
        };
        match option {
            "--seconds" => self.seconds = one(0.1, 1000.0)?,
            "--seeds" => self.runs = whole(one(1.0, MAX_RUNS)?)?,
            "--gbps" => self.rate_bps = (one(0.001, 1000.0)? * 1e9) as u64,
            "--rtt-us" => {
                let rtts = within(1.0, 1e6)?;
                let rtts = rtts.iter().map(|us| Duration::from_secs_f64(us * 1e-6));
                self.rtts = rtts.collect();
            }
            "--loss" => self.losses = within(0.0, 1.0)?,
            "--bursts" => self.bursts = counts(1000.0)?,
            "--lengths" if LENGTHS.contains(&value) => self.lengths = vec![value.into()],
            "--connections" => self.connections = counts(512.0)?,
            "--csv" if !value.is_empty() => self.csv = Some(PathBuf::from(value)),
            _ => {
                return Err(format!(
                    "{option} {value}: the figures are {}; the options are --seconds, --seeds, \
                     --gbps, --rtt-us, --loss, --bursts, --lengths (fixed or mean), --connections and \
                     --csv, each with a value",
                    FIGURES.join(", ")
                ));
            }
        }
        Ok(())
    }

    pub(crate) fn wants(&self, name: &str) -> bool {
        self.figures.iter().any(|figure| figure == name)
    }

    /// Messages of 1 MB over 40 ms.
    pub(crate) fn case(&self) -> Case {
        Case {
            rate_bps: self.rate_bps,
            place: Place::Cable(1),
            peer_known: false,
            restart: Restart::default(),
            rtt: Duration::from_millis(40),
            loss: Loss::None,
            coding: None,
            message_bytes: MB,
            connections: 1,
            queue: 512,
            seconds: self.seconds,
            seed: SEED,
            runs: self.runs,
        }
    }
}

/// The numbers of a list with commas, each from `low` to `high`.
fn numbers(option: &str, value: &str, low: f64, high: f64) -> Result<Vec<f64>, String> {
    let number = |text: &str| {
        let number = text.parse::<f64>().ok();
        number
            .filter(|number| (low..=high).contains(number))
            .ok_or_else(|| format!("{option} {text}: it takes numbers from {low} to {high}"))
    };
    value.split(',').map(number).collect()
}
