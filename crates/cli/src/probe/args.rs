//! The arguments of the probe.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use farwrite_keys::{HostPort, parse_listen};
use farwrite_probe::Settings;
use farwrite_units::parse::{
    parse_part, parse_payload, parse_probe_time, parse_rate, parse_timeout,
};

use crate::addresses::parse_target;

const EXAMPLES: &str = "\
Examples:
  farwrite probe --listen --psk-file far.key        answer probes (farwrite recv answers them too)
  farwrite probe far.example --psk-file far.key
  farwrite probe far.example:4792 --psk-file far.key --save link.toml --plot drops.svg
  farwrite probe 192.0.2.7 --psk-file far.key --flows 1 --sizes 1KiB,8KiB --trials 20 --time 2min
  farwrite plan --link link.toml --size 128MiB

The probe measures the direction from this machine to the other one, in this order:
  1. round trips, and changes of ECN bits and addresses on the path;
  2. the rate of the path, by trains of packets of at most 20 ms. Each
     train is four times as fast as the one before, until one arrives more
     slowly than it left. Trains of 100 ms confirm the rate;
  3. the MTU, without trusting ICMP;
  4. losses, at --share of the rate.

A train can be faster than the path. So a pause follows each train, and train and pause together use
at most --share of the path (or 64 kbit/s, so that a probe of a slow path ends). Losses in the two
hosts are counted separately, by the counters of their kernels.

The other end answers only with the key. Ctrl-C ends the probe and shows its results so far.";

/// Measures the path to another machine: losses and their bursts, round trip, rate, reordering,
/// ECN, address translation, MTU.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[expect(clippy::doc_markdown, reason = "shown as help")]
pub(crate) struct ProbeArgs {
    /// The other end, where `farwrite recv` or `farwrite probe --listen` runs: a name or an
    /// address; without a port, 4792
    #[arg(value_name = "HOST[:PORT]", value_parser = parse_target)]
    #[arg(required_unless_present = "listen", conflicts_with = "listen")]
    pub(crate) to: Option<HostPort>,
    /// Answer probes, over UDP, until Ctrl-C; without an address, at port 4792 of all addresses
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_listen, num_args = 0..=1)]
    #[expect(
        clippy::option_option,
        reason = "how clap has an option with an optional value"
    )]
    pub(crate) listen: Option<Option<SocketAddr>>,
    /// With --listen: end after one probe
    #[arg(long, requires = "listen", conflicts_with = "to")]
    pub(crate) once: bool,
    /// File with the pre-shared key of both ends; without it, the key is taken from the environment
    /// variable FARWRITE_PSK, or else the program asks for it at the terminal
    #[arg(long, value_name = "FILE")]
    pub(crate) psk_file: Option<PathBuf>,
    /// Flows that send the packets, each with its own UDP port: 1 to 64
    #[arg(long, value_name = "N", default_value = "16")]
    #[arg(allow_hyphen_values = true, value_parser = clap::value_parser!(u16).range(1..=64))]
    flows: u16,
    /// UDP payload sizes at which losses are counted: 72 to 9168 bytes [default: those of
    /// 1KiB,2KiB,4KiB,8KiB that fit into the path's MTU]
    #[arg(long, value_name = "SIZE,...", value_parser = parse_payload, value_delimiter = ',')]
    #[arg(allow_hyphen_values = true)]
    sizes: Option<Vec<u32>>,
    /// Rates at which losses are counted, within --share [default: half of --share, and all of it]
    #[arg(long, value_name = "RATE,...", value_parser = parse_rate, value_delimiter = ',')]
    #[arg(allow_hyphen_values = true)]
    rates: Option<Vec<u64>>,
    /// How often each size is sent at each rate: 1 to 200
    #[arg(long, value_name = "N", default_value = "5")]
    #[arg(allow_hyphen_values = true, value_parser = clap::value_parser!(u32).range(1..=200))]
    trials: u32,
    /// Maximum share of the path's rate that the probe uses on average: above 0, to 100%
    #[arg(long, value_name = "SHARE", default_value = "10%", value_parser = parse_part)]
    #[arg(allow_hyphen_values = true)]
    share: f64,
    /// Maximum rate, also for trains: 8kbit to 100Gbit
    #[arg(long, value_name = "RATE", default_value = "10Gbit", value_parser = parse_rate)]
    #[arg(allow_hyphen_values = true)]
    max_rate: u64,
    /// Duration of the probe: 2s to 1h. On a slow path or if --share is small it takes longer. Trials of losses
    /// take about twice this time at most, but one is always sent
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_probe_time)]
    #[arg(allow_hyphen_values = true)]
    time: Duration,
    /// Give up when the other end cannot be reached for this long: 1s to 1h
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_timeout)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) timeout: Duration,
    /// Write a description of the path, which `plan`, `send` and `demo` take as --link
    #[arg(long, value_name = "FILE", conflicts_with = "listen")]
    pub(crate) save: Option<PathBuf>,
    /// Draw the loss of each trial by payload size, and the distribution of round trips, as an SVG
    #[arg(long, value_name = "FILE", conflicts_with = "listen")]
    pub(crate) plot: Option<PathBuf>,
}

impl ProbeArgs {
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            flows: self.flows,
            sizes: self.sizes.clone(),
            rates_bps: self.rates.clone(),
            trials: self.trials,
            share: self.share,
            max_rate_bps: self.max_rate,
            time: self.time,
        }
    }
}
