//! The last figure of NetRT's paper (figure 10, claim N10) in virtual time, made smaller: servers
//! behind top-of-rack switches send flows of the `WebSearch` sizes to each other, at random times.
//! Go-Back-N behind NetRT boxes beside Go-Back-N alone, Go-Back-N with PFC, and IRN.
//!
//! The paper has 16 racks of 32 servers and 4 core switches: `--paper`. Without it, 4 racks of 16
//! servers and 2 core switches have the same ratio of 4 between servers and core. All ways have the
//! same flows. With several sets of flows, on all cores, times and counts are means over the sets, and
//! the range of the change is printed. `--help` lists the options.

#[path = "../../../../crates/boxes/tests/common/racks.rs"]
mod racks;
mod results;
#[path = "../common/rows.rs"]
mod rows;

use std::ops::Range;
use std::path::PathBuf;
use std::time::Instant;

use clap::Parser;
use farwrite_boxes::BoxDevice;
use farwrite_experiment::{Sizes, parallel_map};
use farwrite_link::Rng;
use farwrite_net::{CableConfig, Network, NodeId, Options, Payload, Policy, Role, Topology};
use farwrite_rate::{DcqcnOptions, RateControl};
use farwrite_rc::{Connection, FIRST_QPN, Nic, QpConfig, RdmaTransport, Remote, Request};
use racks::{BACKPRESSURE, Host, Node, PRIORITY, Racks, Repair, Scene};
use results::{Sum, measures, print_row};
use rows::Rows;

const CORE_BPS: u64 = 100_000_000_000;
const RKEY: u32 = 1;
/// Flows up to this length are short.
const SHORT_BYTES: u64 = 100_000;
/// Of the first set of flows.
const SEED: u64 = 5;

/// A flow of the workload.
#[derive(Clone, Copy)]
struct Flow {
    start_ns: u64,
    src: usize,
    dst: usize,
    bytes: u64,
}

/// The ways with `--few`.
const FEW: [&str; 3] = ["Go-Back-N", "NetRT, pool 1 BDP", "NetRT, pool 32 BDP"];

/// Servers without `--paper`.
const SMALL_HOSTS: usize = 64;

/// The hosts and switches.
#[derive(Clone, Copy)]
struct Size {
    racks: usize,
    /// In each rack.
    servers: usize,
    cores: usize,
}

impl Size {
    fn hosts(self) -> usize {
        self.racks * self.servers
    }
}

#[derive(Parser)]
struct Args {
    /// The size of the paper
    #[arg(long)]
    paper: bool,
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u16).range(100..))]
    flows: u16,
    /// Load of the cables between racks and core
    #[arg(long, requires = "buffer")]
    load: Option<f64>,
    /// Buffer of the switches in KiB
    #[arg(long, requires = "load")]
    buffer: Option<u64>,
    /// Sets of flows
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
    seeds: u64,
    /// Seed of the first set; others follow it
    #[arg(long, default_value_t = SEED, value_parser = clap::value_parser!(u64).range(..1 << 32))]
    first_seed: u64,
    /// Only Go-Back-N, and NetRT with pools of 1 and 32 BDP, for many loads and buffers
    #[arg(long)]
    few: bool,
    /// Write the results as rows
    #[arg(long)]
    csv: Option<PathBuf>,
}

impl Args {
    fn size(&self) -> Size {
        let (racks, servers, cores) = if self.paper { (16, 32, 4) } else { (4, 16, 2) };
        Size {
            racks,
            servers,
            cores,
        }
    }

    /// The name of a panel.
    fn panel(&self, load: f64, buffer_kib: u64) -> String {
        let sweep = if self.few { "sweep, " } else { "" };
        let servers = match self.size().hosts() {
            SMALL_HOSTS => String::new(),
            hosts => format!("{hosts} servers, "),
        };
        let fresh = match self.first_seed {
            SEED => String::new(),
            first => format!(", from seed {first}"),
        };
        format!("{sweep}{servers}load {load}, {buffer_kib} KiB{fresh}")
    }

    /// Loads, and buffers in KiB.
    fn settings(&self) -> Vec<(f64, u64)> {
        match self.load.zip(self.buffer) {
            Some(setting) => vec![setting],
            None => vec![(0.5, 2048), (0.8, 1024), (0.8, 512)],
        }
    }
}

fn main() {
    let args = Args::parse();
    let size = args.size();
    let seeds = args.first_seed..args.first_seed + args.seeds;
    let count = usize::from(args.flows);
    let began = Instant::now();
    let rows = Rows::new();
    for (load, buffer_kib) in args.settings() {
        let sets: Vec<_> = seeds
            .clone()
            .map(|seed| workload(size, load, count, seed))
            .collect();
        let scene = Scene {
            buffer_bytes: buffer_kib << 10,
            ..Scene::spines(size.cores, Policy::Ecmp)
        };
        println!(
            "{} servers, load {load}, {buffer_kib} KiB, {count} flows, {} seeds; times in us\n\
             {:<22} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
            size.hosts(),
            args.seeds,
            "",
            "short",
            "change",
            "p90",
            "change",
            "long",
            "p90",
            "repeated",
            "timeouts",
            "dropped"
        );
        let name = args.panel(load, buffer_kib);
        let panel = rows.panel("N10", &name, &conditions(size, &scene, count, &seeds));
        let netrt = |products| Repair::NetRt(scene.netrt(products));
        // All that fits into the path without queues, as IRN limits itself.
        let narrow = Some(scene.path().round_trip_packets());
        let ways = [
            ("Go-Back-N", Repair::Gbn, None),
            ("Go-Back-N and PFC", Repair::GbnPfc, None),
            ("IRN", Repair::Irn, None),
            ("NetRT, pool 1 BDP", netrt(1), None),
            ("NetRT, pool 32 BDP", netrt(32), None),
            ("NetRT, pool 4096 BDP", netrt(4096), None),
            ("window 1 BDP: GBN", Repair::Gbn, narrow),
            ("window 1 BDP: NetRT 1", netrt(1), narrow),
            ("window 1 BDP: NetRT 32", netrt(32), narrow),
        ];
        let is_wanted = |name: &str| !args.few || FEW.contains(&name);
        let ways: Vec<_> = ways.iter().filter(|way| is_wanted(way.0)).collect();
        let runs: Vec<_> = ways
            .iter()
            .flat_map(|way| sets.iter().map(move |flows| (way, flows)))
            .collect();
        let sums = parallel_map(&runs, |((_, repair, window), flows)| {
            run(&scene, repair, *window, size, flows)
        });
        for ((name, ..), of_way) in ways.iter().zip(sums.chunks(sets.len())) {
            print_row(name, of_way, &sums[..sets.len()]);
            for (measure, value) in measures(of_way) {
                panel.add(name, load, &measure, value);
            }
        }
    }
    rows.write(args.csv.as_deref());
    println!("paper: short flows 13.5 to 24.5% below Go-Back-N, tail up to 46.8%");
    println!("{:.0} s", began.elapsed().as_secs_f64());
}

/// The network and its flows, for a person.
fn conditions(size: Size, scene: &Scene, flows: usize, seeds: &Range<u64>) -> String {
    let (first, last) = (seeds.start, seeds.end - 1);
    let seeds = if first == last {
        format!("seed {first}")
    } else {
        format!("seeds {first} to {last}")
    };
    format!(
        "{} servers in {} racks at {} Gbit/s, {} core switches at {} Gbit/s, MTU of {} bytes, ECMP, \
         DCQCN, {flows} flows of the WebSearch sizes, {seeds}",
        size.hosts(),
        size.racks,
        scene.rate_bps / 1_000_000_000,
        size.cores,
        CORE_BPS / 1_000_000_000,
        scene.path().mtu_bytes,
    )
}

/// Flows that fill the cables between racks and core to this share.
fn workload(size: Size, load: f64, count: usize, seed: u64) -> Vec<Flow> {
    let mut rng = Rng::new(seed);
    let sizes = Sizes::web_search();
    let hosts = size.hosts();
    // The share of flows that leave their rack.
    let leave = (hosts - size.servers) as f64 / (hosts - 1) as f64;
    let core_bps = load * CORE_BPS as f64 * (size.cores * size.racks) as f64;
    let gap_ns = sizes.mean() * 8e9 * leave / core_bps;
    let mut now_ns = 0.0;
    let mut flow = |_| {
        let share = (rng.bits() >> 11) as f64 / (1u64 << 53) as f64;
        now_ns -= gap_ns * (1.0 - share).ln();
        let src = rng.below(hosts);
        let dst = (src + 1 + rng.below(hosts - 1)) % hosts;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let start_ns = now_ns as u64;
        Flow {
            start_ns,
            src,
            dst,
            bytes: sizes.draw(&mut rng),
        }
    };
    (0..count).map(&mut flow).collect()
}

fn build(scene: &Scene, repair: &Repair, size: Size) -> Racks {
    let mut topology = Topology::new();
    let cable = CableConfig::new(scene.rate_bps, scene.delay);
    let core_cable = CableConfig::new(CORE_BPS, scene.delay);
    let racks: Vec<_> = (0..size.racks)
        .map(|rack| topology.add(Role::Switch, format!("rack{rack}")))
        .collect();
    for number in 0..size.cores {
        let core = topology.add(Role::Switch, format!("core{number}"));
        for rack in &racks {
            topology.connect(*rack, core, core_cable);
        }
    }
    let (mut hosts, mut boxes) = (Vec::new(), Vec::new());
    for number in 0..size.hosts() {
        let host = topology.add(Role::Host, format!("host{number}"));
        let rack = racks[number / size.servers];
        hosts.push(host);
        if matches!(repair, Repair::GbnPfc) {
            // The wire in the place of a box would not pass a pause on to the NIC.
            let whole = CableConfig::new(scene.rate_bps, 2 * scene.delay);
            topology.connect(host, rack, whole);
            continue;
        }
        let path_box = topology.add(Role::Box, format!("box{number}"));
        topology.connect(host, path_box, cable);
        topology.connect(rack, path_box, cable);
        boxes.push(path_box);
    }
    let device = |id, node: &farwrite_net::Node| match (node.role, repair) {
        (Role::Box, Repair::NetRt(config)) => {
            let device = BoxDevice::new(config.clone(), 0, BACKPRESSURE);
            Node::Box(Box::new(device))
        }
        (Role::Box, _) => Node::Wire(Vec::new()),
        _ => Node::Host(Box::new(Host::new(id))),
    };
    let options = Options::with_switches(racks::switch(scene, repair));
    let network = Network::new(&topology, &options, 1, device);
    Racks {
        network: network.expect("a possible network"),
        hosts,
        boxes,
        topology,
    }
}

/// Joins the hosts of all flows; the queue pairs of their senders.
fn join(
    racks: &mut Racks,
    scene: &Scene,
    repair: &Repair,
    window: Option<u32>,
    flows: &[Flow],
) -> Vec<u32> {
    let transport = match repair {
        Repair::Irn => RdmaTransport::Irn,
        _ => RdmaTransport::Roce,
    };
    let path = scene.path();
    let dcqcn = DcqcnOptions::ns3(scene.rate_bps);
    for at in 0..racks.hosts.len() {
        let nic = &mut racks.host(at).nic;
        transport.prepare(nic, &path, dcqcn);
        let region = nic.memory.register_ghost(RKEY, 0, u64::from(u32::MAX));
        region.expect("a free key");
    }
    let mut pairs = vec![FIRST_QPN; racks.hosts.len()];
    let mut senders = Vec::new();
    for (flow, number) in flows.iter().zip(0u16..) {
        let own = [pairs[flow.src], pairs[flow.dst]];
        for (at, peer, qpn, peer_qpn) in [
            (flow.src, flow.dst, own[0], own[1]),
            (flow.dst, flow.src, own[1], own[0]),
        ] {
            let to = (racks.hosts[peer], 49_152 + number % 16_384);
            let nic = &mut racks.host(at).nic;
            let mut config = transport.config(peer_qpn, &path);
            config.retry_limit = Some(255);
            config.window_packets = window.unwrap_or(config.window_packets);
            let control = transport.control(&path, dcqcn);
            assert_eq!(connect(nic, to, config, control), qpn);
            pairs[at] += 1;
        }
        senders.push(own[0]);
    }
    senders
}

/// `window`: packets of a flow that may be unacknowledged; `None`: as the transport has it.
fn run(scene: &Scene, repair: &Repair, window: Option<u32>, size: Size, flows: &[Flow]) -> Sum {
    let mut racks = build(scene, repair, size);
    let qpns = join(&mut racks, scene, repair, window, flows);
    for (number, (flow, qpn)) in (0..).zip(flows.iter().zip(qpns)) {
        racks.network.run_until(flow.start_ns);
        let request = Request::Write {
            data: Payload::Ghost(u32::try_from(flow.bytes).expect("below 4 GB")),
            to: Remote {
                rkey: RKEY,
                addr: 0,
            },
            imm: None,
        };
        let nic = &mut racks.host(flow.src).nic;
        nic.post(qpn, number, request).expect("a queue pair");
    }
    let mut sum = Sum::default();
    for (number, flow) in (0..).zip(flows) {
        let done_ns = loop {
            if let Some(done_ns) = racks.host_ref(flow.src).done_ns.get(&number) {
                break *done_ns;
            }
            let now_ns = racks.network.now_ns();
            assert!(now_ns < 60_000_000_000, "a flow is not done");
            racks.network.run_until(now_ns + 1_000_000);
        };
        let time_us = (done_ns - flow.start_ns) as f64 / 1000.0;
        let times = if flow.bytes <= SHORT_BYTES {
            &mut sum.short
        } else {
            &mut sum.long
        };
        times.push(time_us);
    }
    sum.short.sort_by(f64::total_cmp);
    sum.long.sort_by(f64::total_cmp);
    racks.count(&mut sum.counts);
    sum
}

fn connect(
    nic: &mut Nic,
    (peer, src_port): (NodeId, u16),
    config: QpConfig,
    control: Option<Box<dyn RateControl + Send>>,
) -> u32 {
    let to = Connection {
        peer,
        src_port,
        priority: PRIORITY,
        rate_bps: None,
    };
    let qpn = nic.connect(to, config).expect("a possible queue pair");
    if let Some(control) = control {
        nic.set_control(qpn, control).expect("a queue pair");
    }
    qpn
}
