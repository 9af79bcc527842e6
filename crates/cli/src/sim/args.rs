//! The arguments of the simulator.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, ValueEnum};

/// An example plan for a first run.
pub(crate) const FIRST_PLAN: &str = r#"[topology.rack]
shape = "star"
hosts = 16
cable = { rate = "100Gbit", delay = "1us" }

[workload.incast]
pattern = "incast"
senders = 15
size = "500kB"
"#;

const MORE: &str = r#"
The parts of a plan have names, and each combination of parts is a run. A plan can also have:
  measure = { from = "1ms" }       # statistics of the flows that start after a warm-up
  seeds = 10                       # each run with seeds 1 to 10, for confidence intervals
  loss = [0, 1e-5]                 # probability that a cable loses a frame
  transport = ["roce", "irn"]      # to compare them; names: {names}
  [switch.drill]                   # without it: the settings of the transport
  routing = { policy = "drill", d = 2, m = 1 }
  [transport.small]                # instead of the list, for other settings
  protocol = "roce"
  mtu = 1024
  [workload.web]
  pattern = "poisson"
  load = 0.5
  sizes = "websearch"
  flows = 10000
  [workload.theirs]
  file = "incast.cm"               # of htsim, or flows of the RDMA trees of ns-3
docs/sim.md lists all keys; docs/sim-own.md shows how to add a congestion controller. The directory
of results has flows.csv (completion times by flow), runs.csv, sizes.csv (by size, with confidence
intervals), queues.csv (queues over time), results.json, plan.toml and two pictures: completion.svg
(completion times and slowdowns by setting) and timeline.svg (one run over time). With --compare,
compare.csv has both times of each flow. fct.txt has the flows of one run as ns-3 writes them. With
--capture, capture.pcap has the packets of one host. With --series, links.csv, rates.csv and
series.svg have one run over time, and events.csv each PFC stop and each congestion notification.

A flow that fails is a result: a warning counts such flows, and the exit code is 0."#;

fn examples() -> String {
    let plan: String = FIRST_PLAN
        .lines()
        .map(|line| format!("  {line}\n"))
        .collect();
    format!(
        "Examples:\n  farwrite sim plan.toml\n  farwrite sim --connections incast.cm --topology \
         rack.topo\n  farwrite sim --flows flow.txt --topology topology.txt --mtu 1024\n  \
         farwrite sim --flows flow.txt --topology topology.txt --mtu 1024 --like ns3 --compare \
         fct.txt\n  \
         farwrite sim --connections permutation.cm --topology rack.topo --until 10ms\n  \
         farwrite sim plan.toml --capture 15\n  farwrite sim plan.toml --series\n\nA plan for a \
         first run:\n{}\n{}",
        plan.replace("  \n", "\n").trim_end_matches('\n'),
        MORE.replace("{names}", &farwrite_experiment::transport::names())
    )
}

/// Simulates flows between hosts in a network of switches, and reports how long each flow takes and
/// what happened in the switches. The same plan and seed give the same results on every machine.
#[derive(Debug, Args)]
#[command(after_help = examples())]
#[command(group = ArgGroup::new("what").required(true).args(["plan", "connections", "flows"]))]
pub(crate) struct SimArgs {
    /// Plan of many runs. It sets --topology, --transport, --mtu, --paths, --like, --buffer, --framing, --seed, --seeds
    /// and --until itself, so these options are refused with it
    #[arg(value_name = "PLAN.toml")]
    pub(crate) plan: Option<PathBuf>,
    /// Connection matrix of htsim
    #[arg(long, value_name = "FILE", requires = "topology")]
    pub(crate) connections: Option<PathBuf>,
    /// Flows of the RDMA trees of ns-3
    #[arg(long, value_name = "FILE", requires = "topology")]
    pub(crate) flows: Option<PathBuf>,
    /// Topology: of htsim (.topo), of ns-3, or TOML (docs/networks.md)
    #[arg(long, value_name = "FILE", conflicts_with = "plan")]
    pub(crate) topology: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) quick: QuickArgs,
    /// Completion times of another simulator, to compare flow by flow: fct.txt of ns-3, or a log of
    /// htsim. A plan then has one topology and one workload
    #[arg(long, value_name = "FILE")]
    pub(crate) compare: Option<PathBuf>,
    /// Directory for the results; created if it does not exist
    #[arg(long, value_name = "DIR", default_value = "out/sim")]
    pub(crate) out: PathBuf,
    /// Number of runs at the same time [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,
    /// Number of the run to draw, from runs.csv
    #[arg(long, value_name = "RUN", default_value = "0")]
    pub(crate) picture: usize,
    /// Capture the packets of this host in the run to draw, for Wireshark or tshark: capture.pcap.
    /// Hosts are counted from 0
    #[arg(long, value_name = "HOST")]
    pub(crate) capture: Option<usize>,
    /// Write the run to draw over time: use, queue and PFC of each link (links.csv), rate and congestion notifications
    /// of each flow (rates.csv), a picture of both (series.svg), and single PFC stops and notifications (events.csv)
    #[arg(long)]
    pub(crate) series: bool,
}

/// A simulator whose settings a run takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Like {
    /// The RDMA trees of ns-3 (HPCC, `ConWeave`).
    Ns3,
    /// The same with `HAS_WIN` and `VAR_WIN`: a window that follows the rate of DCQCN.
    Ns3Vwin,
    /// htsim.
    Htsim,
}

/// What a plan would say, for --connections and --flows.
#[derive(Debug, Args)]
pub(crate) struct QuickArgs {
    #[arg(
        long,
        help = format!("Transports of the hosts, with commas: {}", farwrite_experiment::transport::described()),
        value_name = "NAMES",
        default_value = "roce",
        conflicts_with = "plan"
    )]
    pub(crate) transport: Vec<String>,
    /// Payload bytes of a packet: 256, 512, 1024, 2048 or 4096; with endpoints a multiple of 4 from 64 to 65,468
    #[arg(long, value_name = "BYTES", default_value = "4096")]
    #[arg(conflicts_with = "plan")]
    pub(crate) mtu: u32,
    /// With eqds, falcon and uccl: number of paths (UDP source ports) of a flow [default: that of the
    /// transport; with eqds, the switches spray]
    #[arg(long, value_name = "N", conflicts_with = "plan")]
    pub(crate) paths: Option<u16>,
    /// Settings of another simulator for switches, DCQCN, NAKs and framing: ns3 (the RDMA trees),
    /// ns3-vwin (with a window that follows the rate, and marks by the rate of the port) or htsim
    #[arg(long, value_name = "SIMULATOR", conflicts_with = "plan")]
    pub(crate) like: Option<Like>,
    /// Buffer of each switch, such as 32MiB [default: that of the transport, of --like, or of a topology of htsim]
    #[arg(long, value_name = "SIZE", value_parser = farwrite_units::parse::parse_count)]
    #[arg(conflicts_with = "plan")]
    pub(crate) buffer: Option<u64>,
    /// Bytes of a frame on a cable beyond its IP datagram [default: 38, or those of --like]
    #[arg(long, value_name = "BYTES", conflicts_with = "plan")]
    pub(crate) framing: Option<u32>,
    /// Number of runs, each with a different seed
    #[arg(long, value_name = "N", default_value = "1", conflicts_with = "plan")]
    pub(crate) seeds: u64,
    /// Seed of the first run
    #[arg(long, value_name = "N", default_value = "1", conflicts_with = "plan")]
    pub(crate) seed: u64,
    /// Simulated time at which a run ends even if flows are not complete, such as 10ms. Flows without
    /// a size send until then
    #[arg(long, value_name = "TIME", value_parser = farwrite_units::parse::parse_simulated)]
    #[arg(conflicts_with = "plan")]
    pub(crate) until: Option<Duration>,
}
