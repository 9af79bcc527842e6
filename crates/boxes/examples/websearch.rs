//! The last figure of NetRT's paper (figure 10, claim N10) in virtual time, made smaller: servers
//! behind top-of-rack switches send flows of the `WebSearch` sizes to each other, at random times.
//! Go-Back-N behind NetRT boxes beside Go-Back-N alone, Go-Back-N with PFC, and IRN.
//!
//! The paper has 16 racks of 32 servers and 4 core switches. Here, 4 racks of 16 servers and 2 core
//! switches have the same ratio of 4 between servers and core. `--flows N` sets the number of flows,
//! 1000 unless given; all ways have the same ones.

#[path = "../tests/common/racks.rs"]
mod racks;

use std::collections::BTreeMap;
use std::time::Instant;

use farwrite_boxes::BoxDevice;
use farwrite_boxes::netrt::NetRt;
use farwrite_experiment::Sizes;
use farwrite_link::Dice;
use farwrite_net::header::Header;
use farwrite_net::{
    CableConfig, Device, Frame, Network, NodeId, Options, Output, Payload, Policy, Ports, Role,
    Topology,
};
use farwrite_rate::DcqcnOptions;
use farwrite_rc::{Connection, FIRST_QPN, Nic, Path, Remote, Request, Transport};
use racks::{BACKPRESSURE, PRIORITY, Repair, Scene};

const RACKS: usize = 4;
const SERVERS: usize = 16;
const CORES: usize = 2;
const CORE_BPS: u64 = 100_000_000_000;
const RKEY: u32 = 1;
/// Flows up to this length are short.
const SHORT_BYTES: u64 = 100_000;

/// A flow of the workload.
#[derive(Clone, Copy)]
struct Flow {
    start_ns: u64,
    src: usize,
    dst: usize,
    bytes: u64,
}

enum Node {
    Host(Box<Host>),
    Box(Box<BoxDevice<NetRt>>),
    /// In the place of a box.
    Wire(Vec<Output>),
}

struct Host {
    nic: Nic,
    /// When the request of each queue pair was done.
    done_ns: BTreeMap<u32, u64>,
}

impl Device for Node {
    fn handle(&mut self, now_ns: u64, port: usize, frame: Frame) {
        match self {
            Self::Host(host) => {
                let qpn = match &frame.header {
                    Header::Roce(roce) => roce.bth.dest_qp,
                    Header::Other(_) => 0,
                };
                host.nic.handle(now_ns, port, frame);
                if host.nic.poll_completion(qpn).is_some() {
                    host.done_ns.insert(qpn, now_ns);
                }
            }
            Self::Box(device) => device.handle(now_ns, port, frame),
            Self::Wire(out) => out.push(Output::Send {
                port: 1 - port,
                frame,
            }),
        }
    }

    fn poll(&mut self, now_ns: u64, ports: &Ports<'_>) -> Option<Output> {
        match self {
            Self::Host(host) => host.nic.poll(now_ns, ports),
            Self::Box(device) => device.poll(now_ns, ports),
            Self::Wire(out) => out.pop(),
        }
    }

    fn next_ns(&self) -> Option<u64> {
        match self {
            Self::Host(host) => host.nic.next_ns(),
            Self::Box(device) => device.next_ns(),
            Self::Wire(_) => None,
        }
    }
}

fn main() {
    let mut count = 1000;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        assert_eq!(arg, "--flows", "the only option is --flows");
        let number = args.next().and_then(|number| number.parse().ok());
        count = number
            .filter(|number: &usize| (100..=65_535).contains(number))
            .expect("--flows needs a number from 100 to 65535");
    }
    let began = Instant::now();
    for (load, buffer_kib) in [(0.5, 2048), (0.8, 1024), (0.8, 512)] {
        let flows = workload(load, count);
        let scene = Scene {
            buffer_bytes: buffer_kib << 10,
            ..Scene::spines(CORES, Policy::Ecmp)
        };
        println!(
            "load {load}, {buffer_kib} KiB, {count} flows; times in us\n{:<22} {:>9} {:>9} {:>9} \
             {:>9} {:>9} {:>9} {:>9} {:>9}",
            "", "short", "change", "p90", "change", "long", "p90", "repeated", "dropped"
        );
        let ways = [
            ("Go-Back-N", Repair::Gbn),
            ("Go-Back-N and PFC", Repair::GbnPfc),
            ("IRN", Repair::Irn),
            ("NetRT, pool 1 BDP", Repair::NetRt(scene.netrt(1))),
            ("NetRT, pool 32 BDP", Repair::NetRt(scene.netrt(32))),
        ];
        let mut plain = None;
        for (name, repair) in ways {
            let sum = run(&scene, &repair, &flows);
            print_row(name, &sum, plain.get_or_insert_with(|| sum.clone()));
        }
    }
    println!("paper: short flows 13.5 to 24.5% below Go-Back-N, tail up to 46.8%");
    println!("{:.0} s", began.elapsed().as_secs_f64());
}

/// Flows that fill the cables between racks and core to this share.
fn workload(load: f64, count: usize) -> Vec<Flow> {
    let mut dice = Dice::new(5);
    let sizes = Sizes::web_search();
    let hosts = RACKS * SERVERS;
    // The share of flows that leave their rack.
    let leave = (hosts - SERVERS) as f64 / (hosts - 1) as f64;
    let core_bps = load * CORE_BPS as f64 * (CORES * RACKS) as f64;
    let gap_ns = sizes.mean() * 8e9 * leave / core_bps;
    let mut now_ns = 0.0;
    let mut flow = |_| {
        let share = (dice.bits() >> 11) as f64 / (1u64 << 53) as f64;
        now_ns -= gap_ns * (1.0 - share).ln();
        let src = dice.below(hosts);
        let dst = (src + 1 + dice.below(hosts - 1)) % hosts;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let start_ns = now_ns as u64;
        Flow {
            start_ns,
            src,
            dst,
            bytes: sizes.draw(&mut dice),
        }
    };
    (0..count).map(&mut flow).collect()
}

/// What a way came to.
#[derive(Clone, Default)]
struct Sum {
    /// Completion times in us, ascending.
    short: Vec<f64>,
    long: Vec<f64>,
    repeated: u64,
    dropped: u64,
}

/// A network, and where its hosts are.
fn build(scene: &Scene, repair: &Repair) -> (Network<Node>, Vec<NodeId>) {
    let mut topology = Topology::new();
    let cable = CableConfig::new(scene.rate_bps, scene.delay);
    let core_cable = CableConfig::new(CORE_BPS, scene.delay);
    let racks: Vec<_> = (0..RACKS)
        .map(|rack| topology.add(Role::Switch, format!("rack{rack}")))
        .collect();
    for number in 0..CORES {
        let core = topology.add(Role::Switch, format!("core{number}"));
        for rack in &racks {
            topology.connect(*rack, core, core_cable);
        }
    }
    let mut hosts = Vec::new();
    for number in 0..RACKS * SERVERS {
        let host = topology.add(Role::Host, format!("host{number}"));
        hosts.push(host);
        if matches!(repair, Repair::GbnPfc) {
            // The wire in the place of a box would not pass a pause on to the NIC.
            let whole = CableConfig::new(scene.rate_bps, 2 * scene.delay);
            topology.connect(host, racks[number / SERVERS], whole);
            continue;
        }
        let path_box = topology.add(Role::Box, format!("box{number}"));
        topology.connect(host, path_box, cable);
        topology.connect(racks[number / SERVERS], path_box, cable);
    }
    let device = |id, node: &farwrite_net::Node| match (node.role, repair) {
        (Role::Box, Repair::NetRt(config)) => {
            let device = BoxDevice::new(config.clone(), 0, BACKPRESSURE);
            Node::Box(Box::new(device))
        }
        (Role::Box, _) => Node::Wire(Vec::new()),
        _ => Node::Host(Box::new(Host {
            nic: Nic::new(id),
            done_ns: BTreeMap::new(),
        })),
    };
    let options = Options::with_switches(racks::switch(scene, repair));
    let network = Network::new(&topology, &options, 1, device);
    (network.expect("a possible network"), hosts)
}

fn host(network: &mut Network<Node>, node: NodeId) -> &mut Host {
    match network.device_mut(node) {
        Some(Node::Host(host)) => host,
        _ => panic!("no host"),
    }
}

fn run(scene: &Scene, repair: &Repair, flows: &[Flow]) -> Sum {
    let (mut network, hosts) = build(scene, repair);
    let transport = match repair {
        Repair::Irn => Transport::Irn,
        _ => Transport::Roce,
    };
    let path = scene.path();
    let dcqcn = DcqcnOptions::ns3(scene.rate_bps);
    for node in &hosts {
        let nic = &mut host(&mut network, *node).nic;
        transport.prepare(nic, &path, dcqcn);
        let region = nic.memory.register_ghost(RKEY, 0, u64::from(u32::MAX));
        region.expect("a free key");
    }
    let mut pairs = vec![FIRST_QPN; hosts.len()];
    let mut ports = Vec::new();
    for (flow, number) in flows.iter().zip(0u16..) {
        let own = [pairs[flow.src], pairs[flow.dst]];
        for (at, peer, qpn, peer_qpn) in [
            (flow.src, flow.dst, own[0], own[1]),
            (flow.dst, flow.src, own[1], own[0]),
        ] {
            let to = (hosts[peer], 49_152 + number % 16_384);
            let nic = &mut host(&mut network, hosts[at]).nic;
            assert_eq!(connect(nic, transport, &path, dcqcn, to, peer_qpn), qpn);
            pairs[at] += 1;
        }
        ports.push(own[0]);
    }
    for (flow, qpn) in flows.iter().zip(&ports) {
        network.run_until(flow.start_ns);
        let request = Request::Write {
            data: Payload::Ghost(u32::try_from(flow.bytes).expect("below 4 GB")),
            to: Remote {
                rkey: RKEY,
                addr: 0,
            },
            imm: None,
        };
        let nic = &mut host(&mut network, hosts[flow.src]).nic;
        nic.post(*qpn, 0, request).expect("a queue pair");
    }
    let mut sum = Sum::default();
    for (flow, qpn) in flows.iter().zip(&ports) {
        let done_ns = loop {
            let host = host(&mut network, hosts[flow.src]);
            if let Some(done_ns) = host.done_ns.get(qpn) {
                break *done_ns;
            }
            let now_ns = network.now_ns();
            assert!(now_ns < 60_000_000_000, "a flow is not done");
            network.run_until(now_ns + 1_000_000);
        };
        let time_us = (done_ns - flow.start_ns) as f64 / 1000.0;
        let times = if flow.bytes <= SHORT_BYTES {
            &mut sum.short
        } else {
            &mut sum.long
        };
        times.push(time_us);
        let counters = host(&mut network, hosts[flow.src]).nic.qp_counters(*qpn);
        sum.repeated += counters.map_or(0, |counters| counters.repeated);
    }
    sum.short.sort_by(f64::total_cmp);
    sum.long.sort_by(f64::total_cmp);
    sum.dropped = network.totals().all_dropped();
    sum
}

fn connect(
    nic: &mut Nic,
    transport: Transport,
    path: &Path,
    dcqcn: DcqcnOptions,
    (peer, src_port): (NodeId, u16),
    peer_qpn: u32,
) -> u32 {
    let to = Connection {
        peer,
        src_port,
        priority: PRIORITY,
        rate_bps: None,
    };
    let mut config = transport.config(peer_qpn, path);
    config.retry_limit = 255;
    let qpn = nic.connect(to, config).expect("a possible queue pair");
    if let Some(control) = transport.control(path, dcqcn) {
        nic.set_control(qpn, control).expect("a queue pair");
    }
    qpn
}

fn mean(times: &[f64]) -> f64 {
    times.iter().sum::<f64>() / times.len() as f64
}

fn p90(times: &[f64]) -> f64 {
    times[(times.len() * 9).div_ceil(10) - 1]
}

fn print_row(name: &str, sum: &Sum, plain: &Sum) {
    let change = |of: fn(&[f64]) -> f64| (of(&sum.short) / of(&plain.short) - 1.0) * 100.0;
    println!(
        "{name:<22} {:>9.1} {:>8.1}% {:>9.1} {:>8.1}% {:>9.0} {:>9.0} {:>9} {:>9}",
        mean(&sum.short),
        change(mean),
        p90(&sum.short),
        change(p90),
        mean(&sum.long),
        p90(&sum.long),
        sum.repeated,
        sum.dropped,
    );
}
