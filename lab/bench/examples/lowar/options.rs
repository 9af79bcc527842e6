//! What is measured, as the arguments say.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, value_parser};
use farwrite_boxes::ReceiveTimes;
use farwrite_net::Loss;

use crate::case::{BoxPlace, Case, MB, Restart, SEED};
use crate::goodput::FRAME_BYTES;
use crate::rows::{Panel, Rows};

/// The figure whose numbers are from one run.
const SINGLE: &str = "latency";

/// What is measured.
#[derive(Parser)]
pub(crate) struct Options {
    /// Figures; without any, all
    #[arg(value_parser = [
        "goodput", "connections", "nics", "degradation", "times", "bursts", "small", "latency"
    ])]
    figures: Vec<String>,
    /// Rate of the path
    #[arg(long, default_value = "10", value_parser = number::<1, 1_000_000>)]
    gbps: f64,
    /// Round trips of `goodput` and `connections`
    #[arg(long, value_delimiter = ',', default_value = "40000,80000")]
    #[arg(value_parser = value_parser!(u64).range(1..=1_000_000))]
    rtt_us: Vec<u64>,
    /// Losses of `goodput`
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "0,1e-5,3e-5,1e-4,3e-4,1e-3"
    )]
    #[arg(value_parser = number::<0, 1000>)]
    pub(crate) loss: Vec<f64>,
    /// Lengths of bursts in packets
    #[arg(long, value_delimiter = ',', default_value = "2,4,6,8,10,12")]
    #[arg(value_parser = value_parser!(u32).range(1..=1000))]
    pub(crate) bursts: Vec<u32>,
    /// Whether bursts have this number of packets, or a mean of it
    #[arg(long, value_delimiter = ',', default_value = "fixed,mean", value_parser = ["fixed", "mean"])]
    pub(crate) lengths: Vec<String>,
    /// Numbers of connections of `connections`
    #[arg(long, value_delimiter = ',', default_value = "1,4,16,32")]
    #[arg(value_parser = value_parser!(u32).range(1..=512))]
    pub(crate) connections: Vec<u32>,
    /// Length of the runs
    #[arg(long, default_value = "2", value_parser = number::<100, 1_000_000>)]
    pub(crate) seconds: f64,
    /// Runs for each number but those of `latency`, with one seed after the other, on all cores
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u64).range(1..=64))]
    seeds: u64,
    /// LoWAR inside the NICs, with the receive path that decides L13, in `goodput`, `connections`, `times`, `bursts`
    /// and `small`
    #[arg(long)]
    in_nic: bool,
    /// Write the results as rows
    #[arg(long)]
    pub(crate) csv: Option<PathBuf>,
}

impl Options {
    /// What is wrong with them together.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self.seeds > 1 && self.wants(SINGLE) {
            true => Err(format!(
                "--seeds: {SINGLE} has one run for each number; name other figures"
            )),
            false => Ok(()),
        }
    }

    pub(crate) fn rate_bps(&self) -> u64 {
        (self.gbps * 1e9) as u64
    }

    pub(crate) fn rtts(&self) -> impl Iterator<Item = Duration> {
        self.rtt_us.iter().map(|us| Duration::from_micros(*us))
    }

    pub(crate) fn wants(&self, name: &str) -> bool {
        self.figures.is_empty() || self.figures.iter().any(|figure| figure == name)
    }

    /// What the receive path of a NIC takes, in percent of the time of a packet on the cable: for each frame, and
    /// more for each packet that was held.
    pub(crate) fn receive_times(&self, frame: u64, drain: u64) -> ReceiveTimes {
        let frame_ns = (FRAME_BYTES * 8e9 / self.rate_bps() as f64) as u64;
        ReceiveTimes {
            frame_ns: frame_ns * frame / 100,
            drain_ns: frame_ns * drain / 100,
        }
    }

    /// A panel, whose name says if LoWAR is inside the NICs.
    pub(crate) fn panel<'a>(
        &self,
        rows: &'a Rows,
        figure: &str,
        name: &str,
        conditions: &str,
    ) -> Panel<'a> {
        let place = if self.in_nic { ", in the NIC" } else { "" };
        let [name, conditions] = [name, conditions].map(|text| format!("{text}{place}"));
        rows.panel(figure, &name, &conditions)
    }

    /// Messages of 1 MB over 40 ms.
    pub(crate) fn case(&self) -> Case {
        let place = match self.in_nic {
            true => BoxPlace::Nic(self.receive_times(100, 100)),
            false => BoxPlace::Cable(1),
        };
        Case {
            rate_bps: self.rate_bps(),
            place,
            peer_known: self.in_nic,
            restart: Restart::default(),
            rtt: Duration::from_millis(40),
            loss: Loss::None,
            coding: None,
            message_bytes: MB,
            connections: 1,
            queue: 512,
            seconds: self.seconds,
            seed: SEED,
            runs: self.seeds,
        }
    }
}

/// A number between two bounds in thousandths.
fn number<const LOW: u64, const HIGH: u64>(text: &str) -> Result<f64, String> {
    let [low, high] = [LOW, HIGH].map(|bound| bound as f64 / 1e3);
    let number = text.parse::<f64>().map_err(|why| why.to_string())?;
    match (low..=high).contains(&number) {
        true => Ok(number),
        false => Err(format!("it is not from {low} to {high}")),
    }
}
