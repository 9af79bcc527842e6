//! The arguments of the planner.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use farwrite_model::Scheme;
use farwrite_model::plan::{Coding, Objective};
use serde::Serialize;

use crate::link_file::Medium;
use farwrite_units::Burst;
use farwrite_units::parse::{
    List, parse_chunk, parse_cores, parse_distance, parse_message, parse_mtu, parse_path_loss,
    parse_path_rate, parse_path_rtt, parse_share,
};

const EXAMPLES: &str = "\
Examples:
  farwrite plan --rate 400Gbit --rtt 25ms --loss 1e-5 --size 128MiB
  farwrite plan --rate 400Gbit --distance 3750km --loss 1e-5 --size 128MiB --objective p99.9
  farwrite plan --rate 10Gbit --rtt 80ms --loss 0.1% --burst 4 --size 1GiB --parity-budget 10%
  farwrite plan --rate 10Gbit --rtt 80ms --loss 0.1% --burst 50us --size 1GiB
  farwrite plan --rate 100Gbit --rtt 25ms --loss 1e-4 --size 128MiB --senders 8
  farwrite plan --link link.toml --size 8MiB --json
  farwrite plan --collective ring-all-reduce --paths sites.toml --size 1GiB

A link.toml describes a path with the values of the options; options have priority over it:
  rate = \"400Gbit\"           # bits per second, with headers
  rtt = \"25ms\"               # or: distance = \"3750km\", and signal = \"fibre\" or \"vacuum\"
  loss_chunk = 1e-5          # or: loss_packet = 1e-6
  mean_burst_chunks = 1.5    # optional; with loss_packet: mean_burst_packets; or mean_burst_time
  chunk = \"4KiB\"             # optional, like mtu = 4096

A sites.toml for --paths has the sites in their order around a ring, and a path between each two,
with the keys of a link.toml:
  sites = [\"livermore\", \"oakridge\", \"lugano\"]
  [[path]]
  ends = [\"livermore\", \"oakridge\"]    # both directions; for one: from = \"...\", to = \"...\"
  name = \"northern fibre\"             # optional
  rate = \"400Gbit\"
  distance = \"3750km\"
  loss_packet = 1e-5
More than 8 sites keep their order, and need only the paths around the ring.

`farwrite probe --save link.toml` measures a path and writes such a file. `farwrite send --json` also
measures: use loss_chunk and mean_burst_chunks of its send_loss, its rtt_ms, and its mtu as the chunk.

Of the schemes whose time is within 1 % of the best, the answer is the one with the least parity. The
times come from the model, which includes retransmissions and coding; docs/model.md derives them. Where
losses come in bursts, they are drawn: from simulated messages, always the same. Queues of senders that
share a path, and delays that vary, are left to `farwrite sim`.";

/// Predicts which scheme delivers a message first, what each alternative costs, and how certain that
/// is.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) path: PathArgs,
    /// Bytes of the message, or with --collective of the whole buffer: 1 to 4PiB
    #[arg(long, value_name = "SIZE", value_parser = parse_message, allow_hyphen_values = true)]
    pub(crate) size: u64,
    /// Plan a collective around a ring of sites instead of a message: the order of the sites, and the
    /// scheme of each path
    #[arg(long, value_name = "KIND", value_enum, requires = "paths")]
    #[arg(conflicts_with_all = ["senders", "all"])]
    pub(crate) collective: Option<RingCollective>,
    /// File with the sites and the paths between them, in the format below
    #[arg(long, value_name = "FILE", requires = "collective")]
    #[arg(conflicts_with = "link")]
    pub(crate) paths: Option<PathBuf>,
    /// Senders that share the rate of the path equally, each with such a message: 1 to 65536
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(allow_hyphen_values = true, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(crate) senders: u32,
    /// The time to minimize: mean, p99, p99.9 or another percentile
    #[arg(long, value_name = "WHAT", default_value = "mean")]
    #[arg(allow_hyphen_values = true)]
    pub(crate) objective: Objective,
    /// Maximum parity of a full group, as a share of its data: 0 to 1000%. A short last group, and so a
    /// short message, has as many parity chunks as a full group
    #[arg(long, value_name = "SHARE", default_value = "25%", value_parser = parse_share)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) parity_budget: f64,
    /// Cores for coding at each end, at the paper's speeds; 0 excludes erasure coding. The default is
    /// what endpoints use
    #[arg(long, value_name = "N", default_value_t = Coding::default().cores)]
    #[arg(value_parser = parse_cores, allow_hyphen_values = true)]
    pub(crate) cores: f64,
    /// Schemes to choose from: sr-nack, sr-rto, gbn, ec-mds:K,M, ec-xor:K,M; without it, all, with
    /// K from 4 to 128 and M from 1 to 32
    #[arg(long, value_name = "NAME,...")]
    pub(crate) scheme: Option<List<Scheme>>,
    /// Show all alternatives, not only the most important ones
    #[arg(long)]
    pub(crate) all: bool,
}

/// A collective that goes around a ring in parts of the buffer, one for each site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
pub(crate) enum RingCollective {
    /// Each site has the sum of all buffers, after twice as many steps as sites, less two.
    #[value(name = "ring-all-reduce")]
    #[serde(rename = "ring-all-reduce")]
    AllReduce,
    /// Each site has a part of the sum, after a step less than sites.
    #[value(name = "ring-reduce-scatter")]
    #[serde(rename = "ring-reduce-scatter")]
    ReduceScatter,
    /// Each site has the parts of all sites, after a step less than sites.
    #[value(name = "ring-all-gather")]
    #[serde(rename = "ring-all-gather")]
    AllGather,
}

impl RingCollective {
    pub(crate) fn steps(self, sites: usize) -> usize {
        match self {
            Self::AllReduce => 2 * (sites - 1),
            Self::ReduceScatter | Self::AllGather => sites - 1,
        }
    }
}

/// What the command line says of the path.
#[derive(Debug, Args)]
#[expect(clippy::doc_markdown, reason = "shown as help")]
pub(crate) struct PathArgs {
    /// File that describes the path, in the format below
    #[arg(long, value_name = "FILE")]
    pub(crate) link: Option<PathBuf>,
    /// Bits per second that the path carries, with the headers of packets: 1kbit to 1000Tbit
    #[arg(long, value_name = "RATE", value_parser = parse_path_rate, allow_hyphen_values = true)]
    pub(crate) rate: Option<f64>,
    /// Round-trip time: above 0, to 1h
    #[arg(long, value_name = "TIME", value_parser = parse_path_rtt, allow_hyphen_values = true)]
    #[arg(conflicts_with = "distance")]
    pub(crate) rtt: Option<Duration>,
    /// Length of the path instead of the round-trip time: 1m to 10000000km
    #[arg(long, value_name = "LENGTH", value_parser = parse_distance, allow_hyphen_values = true)]
    pub(crate) distance: Option<f64>,
    /// Medium of the path: 300 000 km/s in vacuum, as in the SDR-RDMA paper, 204 000 km/s in fibre
    #[arg(long, value_name = "MEDIUM", value_enum, default_value = "vacuum")]
    #[arg(requires = "distance")]
    pub(crate) signal: Medium,
    /// Probability that a chunk is lost, such as loss_chunk of `farwrite send --json`: 0 to 0.99
    #[arg(long, value_name = "P", value_parser = parse_path_loss, allow_hyphen_values = true)]
    #[arg(conflicts_with = "loss_packet")]
    pub(crate) loss: Option<f64>,
    /// Probability that a packet is lost, instead of --loss: 0 to 0.99
    #[arg(long, value_name = "P", value_parser = parse_path_loss, allow_hyphen_values = true)]
    pub(crate) loss_packet: Option<f64>,
    /// Mean length of bursts of losses: a number of chunks, such as mean_burst_chunks, or with
    /// --loss-packet of packets, 1 to 1e6; or a time, such as 2ms. Bursts end with time also if they
    /// are given as a number, which is not so in plans of `farwrite sim`
    #[arg(long, value_name = "N|TIME", allow_hyphen_values = true)]
    pub(crate) burst: Option<Burst>,
    /// Bytes of a chunk, which is acknowledged, repeated and coded as a whole [default: 4KiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_chunk, allow_hyphen_values = true)]
    pub(crate) chunk: Option<u64>,
    /// Payload bytes of a packet; sealing and headers take 88 more [default: 4096]
    #[arg(long, value_name = "BYTES", value_parser = parse_mtu, allow_hyphen_values = true)]
    pub(crate) mtu: Option<u32>,
}
