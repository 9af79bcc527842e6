//! The table of perftest, and the results as JSON.

use std::fmt::Write as _;
use std::time::Duration;

use farwrite_units::show::{Count, real};
use farwrite_units::stats::{deviation, mean, percentile, quantile};
use serde::Serialize;
use serde_json::{Value, json};

use super::args::{PerfArgs, Test, name};
use super::control::{Arrived, Setting};
use super::tasks::{MOST_TIMES, Round};
use crate::exit::{Exit, Failure};

const LINE: &str =
    "---------------------------------------------------------------------------------------";

/// The result of one size. The names are those of perftest's JSON.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Row {
    Bandwidth(BandwidthRow),
    Latency(LatencyRow),
}

/// Bandwidth in the unit of the table, and messages in millions a second.
#[derive(Clone, Debug, Serialize)]
pub(super) struct BandwidthRow {
    #[serde(rename = "MsgSize")]
    bytes: u64,
    #[serde(rename = "n_iterations")]
    messages: u64,
    #[serde(rename = "BW_peak")]
    peak: f64,
    #[serde(rename = "BW_average")]
    average: f64,
    #[serde(rename = "MsgRate")]
    message_rate: f64,
}

/// Times of one direction, in microseconds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LatencyRow {
    #[serde(rename = "MsgSize")]
    bytes: u64,
    #[serde(rename = "n_iterations")]
    messages: u64,
    t_min: f64,
    t_max: f64,
    t_typical: f64,
    t_avg: f64,
    t_stdev: f64,
    t_99_percent: f64,
    #[serde(rename = "t_99.9_percent")]
    t_999_percent: f64,
}

/// Converts bytes in a time to the unit of the table.
fn bandwidth(bytes: f64, time: Duration, gbits: bool) -> f64 {
    let per_second = bytes / time.as_secs_f64().max(1e-9);
    match gbits {
        true => per_second * 8.0 / 1e9,
        false => per_second / f64::from(1 << 20),
    }
}

impl BandwidthRow {
    pub(super) fn new(bytes: u64, round: &Round, args: &PerfArgs) -> Self {
        let (time, messages) = (round.time(), round.completed);
        let all = real(messages) * real(bytes);
        Self {
            bytes,
            messages,
            peak: peak(bytes, round, args),
            average: bandwidth(all, time, args.report_gbits),
            message_rate: real(messages) / time.as_secs_f64().max(1e-9) / 1e6,
        }
    }
}

/// The highest bandwidth of as many successive completions as messages were in flight; 0 if it was not
/// requested, or there are too many or too few completions.
fn peak(bytes: u64, round: &Round, args: &PerfArgs) -> f64 {
    let run = usize::from(args.tx_depth) * usize::from(args.queue_pairs);
    let times = &round.times;
    if args.no_peak || round.completed > MOST_TIMES as u64 {
        return 0.0;
    }
    let average = bandwidth(
        real(round.completed) * real(bytes),
        round.time(),
        args.report_gbits,
    );
    let shortest = times
        .windows(run + 1)
        .map(|run| run[run.len() - 1] - run[0])
        .min();
    shortest.map_or(average, |time| {
        bandwidth(real(run as u64) * real(bytes), time, args.report_gbits).max(average)
    })
}

impl LatencyRow {
    pub(super) fn new(bytes: u64, mut samples: Vec<Duration>) -> Self {
        let messages = samples.len() as u64;
        if samples.is_empty() {
            samples.push(Duration::ZERO);
        }
        samples.sort_unstable();
        let micros = samples.iter().map(|time| time.as_secs_f64() * 1e6);
        let micros: Vec<_> = micros.collect();
        let percentile = |hundredths| percentile(&micros, hundredths).unwrap_or_default();
        Self {
            bytes,
            messages,
            t_min: percentile(0),
            t_max: percentile(100),
            t_typical: percentile(50),
            t_avg: mean(&micros),
            t_stdev: deviation(&micros),
            t_99_percent: percentile(99),
            t_999_percent: quantile(&micros, 0.999).unwrap_or_default(),
        }
    }
}

impl Row {
    /// The line of the table.
    pub(super) fn line(&self) -> String {
        match self {
            Self::Bandwidth(row) => format!(
                " {:<7}    {:<10}       {:<7.2}            {:<7.2}              {:<7.6}",
                row.bytes, row.messages, row.peak, row.average, row.message_rate
            ),
            Self::Latency(row) => format!(
                " {:<7} {:<10}     {:<7.2}        {:<7.2}      {:<7.2}          {:<7.2}        {:<7.2}           \
                 {:<7.2}                 {:<7.2}",
                row.bytes,
                row.messages,
                row.t_min,
                row.t_max,
                row.t_typical,
                row.t_avg,
                row.t_stdev,
                row.t_99_percent,
                row.t_999_percent
            ),
        }
    }
}

/// The result of a client.
#[derive(Debug, Serialize)]
pub(super) struct ClientReport {
    test: Test,
    role: &'static str,
    peer: String,
    connection: String,
    scheme: String,
    queue_pairs: u16,
    tx_depth: u16,
    channels: u8,
    /// Threads of this end that receive and compute parity. With 0, the thread that polls does it.
    receive_threads: u8,
    coding_threads: usize,
    /// Payload bytes of a packet.
    pub(super) mtu: u32,
    /// `udp`, or the RDMA device of this end.
    device: String,
    /// What the keys of open windows of that device are.
    pub(super) windows: Option<String>,
    /// Whether data packets are encrypted and authenticated.
    #[serde(rename = "sealed")]
    pub(super) is_sealed: bool,
    bandwidth_unit: &'static str,
    rows: Vec<ChunkRow>,
    pub(super) arrived: Arrived,
}

#[derive(Debug, Serialize)]
struct ChunkRow {
    packets_per_chunk: u32,
    /// Packets in millions a second, of bandwidth tests.
    #[serde(rename = "PktRate")]
    packet_rate: Option<f64>,
    #[serde(flatten)]
    row: Row,
}

impl ClientReport {
    pub(super) fn new(args: &PerfArgs, peer: &str) -> Self {
        Self {
            test: args.test,
            role: "client",
            peer: peer.to_owned(),
            connection: name(args.connection),
            scheme: args.scheme().to_string(),
            queue_pairs: 0,
            tx_depth: 0,
            channels: args.channels,
            receive_threads: if args.receive_threads {
                args.channels
            } else {
                0
            },
            coding_threads: args.coding_threads.count(),
            mtu: 0,
            device: match &args.device {
                Some(device) => device.to_string(),
                None => "udp".to_owned(),
            },
            windows: None,
            is_sealed: true,
            bandwidth_unit: if args.report_gbits {
                "Gb/sec"
            } else {
                "MiB/sec"
            },
            rows: Vec::new(),
            arrived: Arrived::default(),
        }
    }

    /// The lines above the rows.
    pub(super) fn head(&mut self, setting: &Setting) -> String {
        (self.queue_pairs, self.tx_depth) = (setting.queue_pairs, setting.tx_depth);
        let mut text = format!("{LINE}\n                    {}\n", self.test.title());
        let device = match &self.windows {
            Some(windows) => format!("{}, windows are {windows}", self.device),
            None => self.device.clone(),
        };
        let sealed = if self.is_sealed { "ON" } else { "OFF" };
        let pairs = [
            ("Number of qps", self.queue_pairs.to_string()),
            ("Connection type", self.connection.clone()),
            ("Scheme", self.scheme.clone()),
            ("TX depth", self.tx_depth.to_string()),
            ("Channels", self.channels.to_string()),
            ("Receive threads", self.receive_threads.to_string()),
            ("Coding threads", self.coding_threads.to_string()),
            ("Mtu", format!("{}[B]", self.mtu)),
            ("Device", device),
            ("Sealed", sealed.to_owned()),
        ];
        for (name, value) in pairs {
            writeln!(text, " {name:<15} : {value}").expect("strings take all");
        }
        let columns = match self.test {
            Test::WriteLat => {
                " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    \
                 t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]"
                    .to_owned()
            }
            _ => format!(
                " #bytes     #iterations    BW peak[{0}]    BW average[{0}]   MsgRate[Mpps]",
                self.bandwidth_unit
            ),
        };
        write!(text, "{LINE}\n{columns}").expect("strings take all");
        text
    }

    pub(super) fn add(&mut self, setting: &Setting, row: Row) {
        let packets = |row: &BandwidthRow| real(row.bytes.div_ceil(self.mtu.max(1).into()));
        let packet_rate = match &row {
            Row::Bandwidth(row) => Some(row.message_rate * packets(row)),
            Row::Latency(_) => None,
        };
        self.rows.push(ChunkRow {
            packets_per_chunk: setting.packets_per_chunk,
            packet_rate,
            row,
        });
    }

    /// The lines below the rows.
    pub(super) fn last_line(&self) -> String {
        let mut text = LINE.to_owned();
        let rates = self.rows.iter().filter_map(|row| row.packet_rate);
        if let Some(most) = rates.reduce(f64::max) {
            write!(text, "\nat most {most:.6} million packets a second").expect("strings take all");
        }
        if self.test != Test::ReadBw {
            write!(text, "\nthe server received {}", self.arrived.text())
                .expect("strings take all");
        }
        text
    }

    /// Fails if a row is slower than the user wants.
    pub(super) fn check_limits(&self, args: &PerfArgs) -> Result<(), Failure> {
        for row in &self.rows {
            let Row::Bandwidth(row) = &row.row else {
                continue;
            };
            let (unit, rate) = (self.bandwidth_unit, row.message_rate);
            let average = format!("the average bandwidth is {:.6} {unit}", row.average);
            let messages = format!("the rate of messages is {rate:.6} Mpps");
            for (shown, value, option, limit) in [
                (average, row.average, "--limit_bw", args.limit_bw),
                (messages, rate, "--limit_msgrate", args.limit_msgrate),
            ] {
                if let Some(limit) = limit.filter(|limit| value < *limit) {
                    let bytes = row.bytes;
                    let what =
                        format!("with {bytes} bytes, {shown}, less than {limit} of {option}");
                    return Err(Failure::new(Exit::Other, what));
                }
            }
        }
        Ok(())
    }

    /// The file of `--out_json`: as perftest writes it, with a list if there are several results.
    pub(super) fn perftest_json(&self) -> String {
        let results = match &self.rows[..] {
            [one] => json!(one.row),
            rows => Value::from_iter(rows.iter().map(|row| json!(row))),
        };
        let text = json!({
            "test_info": {
                "test": self.test.title().replace(' ', "_"),
                "Device": self.device,
                "Number_of_qps": self.queue_pairs,
                "Connection_type": self.connection,
                "Scheme": self.scheme,
                "TX_depth": self.tx_depth,
                "Channels": self.channels,
                "Receive_threads": self.receive_threads,
                "Coding_threads": self.coding_threads,
                "Mtu": self.mtu,
                "BW_unit": self.bandwidth_unit,
            },
            "results": results,
        });
        format!("{text:#}\n")
    }
}

impl Arrived {
    /// Adds what another measurement has received.
    pub(super) fn add(&mut self, other: Option<Self>) {
        let other = other.unwrap_or_default();
        self.whole += other.whole;
        self.partial += other.partial;
        self.failed += other.failed;
        self.bytes += other.bytes;
    }

    pub(super) fn text(&self) -> String {
        let mut text = Count(self.whole, "whole message").to_string();
        for (count, what) in [(self.partial, "partial"), (self.failed, "failed")] {
            if count > 0 {
                write!(text, ", {count} {what} ones").expect("strings take all");
            }
        }
        write!(text, "; {} bytes", self.bytes).expect("strings take all");
        text
    }
}
