//! The arguments of `farwrite perf`, named as those of perftest.

use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, ValueEnum};
use farwrite::{CodingThreads, MAX_CHANNELS, SchemeName};
use farwrite_transfer::{DEFAULT_PORT, VerbsConfig};
use serde::{Deserialize, Serialize};

use crate::key::KeyArgs;

const EXAMPLES: &str = "\
Examples:
  farwrite perf write_bw --psk-file far.key                 the server: waits for one client
  farwrite perf write_bw far.example --psk-file far.key     the client: measures, prints a table
  farwrite perf write_bw --code                             a server that shows a code
  farwrite perf write_bw far.example -a --report_gbits      sizes from 2 bytes to 8 MiB
  farwrite perf write_lat far.example -s 64 -n 10000
  farwrite perf read_bw far.example -s 1048576 -t 16 -q 4
  farwrite perf write_bw far.example -s 8388608 --chunk 1,4,16,64 --scheme ec-mds:32,8
  farwrite perf send_bw far.example -m 64 -s 65536 -c UC    the rate of packets of 64 bytes
  farwrite perf write_bw far.example -d mlx5_0              over an RDMA device at this end
  farwrite perf write_bw far.example --channels 4 --receive-threads
  farwrite perf write_bw far.example -w 900 --report_gbits || echo too slow

Give the server its address, its key, its threads and, if it has one, its device. It gets all other settings from
the client.
Names, columns and units are those of perftest (ib_write_bw and others); docs/perf.md says what differs.";

/// Measures messages between two machines, with the options and the table of perftest.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PerfArgs {
    /// What to measure
    #[arg(value_enum)]
    pub(crate) test: Test,
    /// The server to connect to; without it, this end is the server
    #[arg(value_name = "HOST[:PORT]", conflicts_with = "peers")]
    pub(crate) host: Option<String>,
    /// UDP port to listen on or to connect to; a server takes a free one with 0
    #[arg(short, long, value_name = "PORT", default_value_t = DEFAULT_PORT)]
    pub(crate) port: u16,
    /// Address on which a server listens
    #[arg(long, value_name = "ADDR", default_value_t = IpAddr::V6(Ipv6Addr::UNSPECIFIED))]
    #[arg(conflicts_with = "host")]
    pub(crate) bind: IpAddr,
    /// Bytes of a message: 1 to 1073741824 [default: 65536, or 2 for latency]
    #[arg(short, long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..=MOST_BYTES))]
    pub(crate) size: Option<u64>,
    /// Measure the sizes 2, 4, 8 and so on to 8388608
    #[arg(short, long, conflicts_with = "size")]
    pub(crate) all: bool,
    /// Messages of each queue pair and size, at least 5 [default: 1000, or 5000 for `write_bw`]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(5..=1_000_000_000))]
    pub(crate) iters: Option<u64>,
    /// Measure for this number of seconds instead of a number of messages
    #[arg(short = 'D', long, value_name = "SECONDS", conflicts_with = "iters")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) duration: Option<u64>,
    /// Queue pairs: 1 to 32. Also -q N: after `perf`, -q is not --quiet
    #[arg(long = "qp", value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=32))]
    pub(crate) queue_pairs: u16,
    /// Messages in flight on each queue pair, for bandwidth: 1 to 256
    #[arg(short, long, value_name = "N", default_value_t = 128)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) tx_depth: u16,
    /// RC: losses are repaired by --scheme. UC: they are not repaired
    #[arg(short, long, value_enum, value_name = "TYPE", default_value = "RC")]
    #[arg(ignore_case = true)]
    pub(crate) connection: Connection,
    /// The scheme that repairs losses, such as sr-nack, sr-rto or ec-mds:32,8
    #[arg(long, value_name = "SCHEME", default_value = "sr-nack")]
    pub(crate) scheme: SchemeName,
    /// Largest payload of a packet in bytes: a multiple of 4 from 64 on. The path can carry less
    #[arg(short, long, value_name = "BYTES", default_value_t = 4096)]
    pub(crate) mtu: u32,
    /// Packets of a chunk, the unit of repair; with several numbers, each of them is measured
    #[arg(long, value_name = "N,...", default_value = "1", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) chunk: Vec<u32>,
    /// Channels of each queue pair: 1 to 64. Its packets take turns on as many sockets of each end. With more
    /// than one, the data have UDP ports of their own at both ends
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "device")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=i64::from(MAX_CHANNELS)))]
    pub(crate) channels: u8,
    /// Receive on threads at this end, one for each channel. The data then have UDP ports of their own
    #[arg(long)]
    pub(crate) receive_threads: bool,
    /// Threads of this end that compute parity: 0 to 1024, or auto: none on one core, one on two or three
    /// cores, otherwise one for each core beyond two, at most 4
    #[arg(long, value_name = "N", default_value = "auto")]
    pub(crate) coding_threads: CodingThreads,
    /// Show bandwidth in Gbit/s instead of MiB/s
    #[arg(long = "report_gbits", alias = "report-gbits")]
    pub(crate) report_gbits: bool,
    /// Do not compute the peak bandwidth
    #[arg(short = 'N', long = "noPeak", alias = "no-peak")]
    pub(crate) no_peak: bool,
    /// Fail with exit code 1 if an average bandwidth is lower, in the unit of the table
    #[arg(short = 'w', long = "limit_bw", alias = "limit-bw", value_name = "BW")]
    #[arg(value_parser = parse_limit)]
    pub(crate) limit_bw: Option<f64>,
    /// Fail with exit code 1 if a rate of messages is lower, in millions a second
    #[arg(short = 'y', long = "limit_msgrate", alias = "limit-msgrate")]
    #[arg(value_name = "MPPS", value_parser = parse_limit)]
    pub(crate) limit_msgrate: Option<f64>,
    /// Write the report as JSON to a file
    #[arg(long = "out_json", alias = "out-json")]
    pub(crate) out_json: bool,
    /// The file of `--out_json`
    #[arg(long = "out_json_file", alias = "out-json-file", value_name = "FILE")]
    #[arg(requires = "out_json", default_value = "perftest_out.json")]
    pub(crate) out_json_file: PathBuf,
    /// RDMA device of this machine for the data, instead of UDP sockets: its name, /PORT for a port other
    /// than 1, @ADDRESS for an entry of its table of GIDs. The data are not sealed then. The other end may
    /// use a device or a UDP socket. See docs/rdma.md
    #[arg(short = 'd', long, visible_alias = "ib-dev")]
    #[arg(value_name = "NAME[/PORT][@ADDRESS]")]
    pub(crate) device: Option<VerbsConfig>,
    #[command(flatten)]
    pub(crate) key: KeyArgs,
    /// At a server, show a code of one use, which the client asks for
    #[arg(long, conflicts_with_all = ["host", "psk_file", "identity"])]
    pub(crate) code: bool,
    /// Of the options that the command line gives, those that only a client follows
    #[arg(skip)]
    pub(super) of_client: Vec<&'static str>,
}

/// The options that only a client follows: the names of their fields, and their names.
const OF_CLIENT: [(&str, &str); 17] = [
    ("size", "--size"),
    ("all", "--all"),
    ("iters", "--iters"),
    ("duration", "--duration"),
    ("queue_pairs", "--qp"),
    ("tx_depth", "--tx-depth"),
    ("connection", "--connection"),
    ("scheme", "--scheme"),
    ("mtu", "--mtu"),
    ("chunk", "--chunk"),
    ("channels", "--channels"),
    ("report_gbits", "--report_gbits"),
    ("no_peak", "--noPeak"),
    ("limit_bw", "--limit_bw"),
    ("limit_msgrate", "--limit_msgrate"),
    ("out_json", "--out_json"),
    ("out_json_file", "--out_json_file"),
];

/// Bytes of the longest message.
pub(super) const MOST_BYTES: u64 = 1 << 30;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(crate) enum Test {
    /// Bandwidth of messages into one buffer of the server
    WriteBw,
    /// Half of the round trip of a message and of its answer
    WriteLat,
    /// Bandwidth of reads of the server's memory
    ReadBw,
    /// Bandwidth of messages into a buffer each
    SendBw,
}

impl Test {
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::WriteBw => "RDMA_Write BW Test",
            Self::WriteLat => "RDMA_Write Latency Test",
            Self::ReadBw => "RDMA_Read BW Test",
            Self::SendBw => "Send BW Test",
        }
    }
}

/// Whether losses are repaired, by the names of the InfiniBand services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[value(rename_all = "UPPER")]
pub(crate) enum Connection {
    Rc,
    Uc,
}

/// The name of a value of an option.
pub(super) fn name(value: impl ValueEnum) -> String {
    let value = value.to_possible_value().expect("no value is left out");
    value.get_name().to_owned()
}

impl PerfArgs {
    /// Notes which options the command line gives: options with a default do not show that themselves.
    pub(crate) fn note_given(&mut self, matches: &ArgMatches) {
        let given = |field: &str| matches.value_source(field) == Some(ValueSource::CommandLine);
        let of_client = OF_CLIENT.into_iter().filter(|(field, _)| given(field));
        self.of_client = of_client.map(|(_, name)| name).collect();
    }

    /// The sizes to measure, ascending.
    pub(super) fn sizes(&self) -> Vec<u64> {
        if self.all {
            return (1..=23).map(|power| 1 << power).collect();
        }
        let default = if self.test == Test::WriteLat {
            2
        } else {
            65_536
        };
        vec![self.size.unwrap_or(default)]
    }

    pub(super) fn iters(&self) -> u64 {
        let default = if self.test == Test::WriteBw {
            5000
        } else {
            1000
        };
        self.iters.unwrap_or(default)
    }

    pub(super) fn time(&self) -> Option<Duration> {
        self.duration.map(Duration::from_secs)
    }

    pub(super) fn scheme(&self) -> SchemeName {
        match self.connection {
            Connection::Rc => self.scheme,
            Connection::Uc => UNREPAIRED.parse().expect("a name of a scheme"),
        }
    }
}

/// The scheme of messages whose losses are not repaired.
const UNREPAIRED: &str = "best-effort";

fn parse_limit(text: &str) -> Result<f64, String> {
    let limit = text.parse::<f64>().ok();
    let limit = limit.filter(|limit| limit.is_finite() && *limit >= 0.0);
    limit.ok_or_else(|| "give a number from 0 on".into())
}
