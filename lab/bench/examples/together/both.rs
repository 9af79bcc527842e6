//! Both paths in one network: a NIC 40 ms away writes to a receiver in a data center, where 15 others
//! write to the same receiver at once, again and again.
//!
//! ```text
//! remote ── box ══ 10 Gbit/s, 20 ms, loses ══ core ── box ── box ── receiver
//! local, 15 of them ── box ── 50 Gbit/s ──────┘
//! ```
//!
//! LoWAR boxes stand beside the remote NIC and the receiver, NetRT boxes beside all in the data
//! center. A NetRT box has one set of waits, so those serve the short paths only: another pair of
//! NetRT boxes, with another key and the waits of the long path, stands in the places of the LoWAR
//! boxes. DCQCN paces the local NICs, and the cable the remote one.

use std::cmp::Ordering;
use std::time::Duration;

use farwrite_boxes::{Backpressure, BoxDevice, lowar, netrt};
use farwrite_experiment::{Flow, Workload};
use farwrite_net::{CableConfig, Loss, Network, NodeId, Payload, Role, Topology};
use farwrite_rate::DcqcnOptions;
use farwrite_rc::{Connection, FIRST_QPN, PathProfile, RdmaTransport, Remote, Request};

use crate::options::Options;
use crate::racks::{self, BACKPRESSURE, Host, Node, Outcome, PRIORITY, Racks, Repair, Scene};
use crate::rows::{Panel, Rows};
use crate::sum::{COST_HEADS, Counts, Sum, Times, show_costs, write_costs};
use crate::{ENDPOINTS, Endpoints, FIGURE, in_turn, run_endpoints};

const LOCAL: usize = 15;
const LOCAL_BYTES: u32 = 500_000;
const LOCAL_GAP_NS: u64 = 10_000;
/// From one incast to the next.
const ROUND_NS: u64 = 50_000_000;
/// The place of the remote host, behind the local ones.
const REMOTE: usize = LOCAL;
const RECEIVER: usize = LOCAL + 1;
const REMOTE_BYTES: u32 = 5_000_000;
const REMOTE_BPS: u64 = 10_000_000_000;
const REMOTE_DELAY: Duration = Duration::from_millis(20);
const LOSS: f64 = 1e-4;
/// Of the boxes of the long path: more than the packets in flight, in the bitmap and held.
const WIDE_BITS: u32 = 65_536;
const WIDE_HELD: usize = 60_000;
const RKEY: u32 = 1;
const STEP_NS: u64 = 10_000;

/// What repairs losses of the long path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Long {
    Nics,
    Lowar,
    NetRt,
}

/// What stands in the path of NICs.
struct Boxes {
    name: &'static str,
    long: Long,
    /// NetRT boxes in the data center.
    netrt: bool,
    transport: RdmaTransport,
}

const fn way(name: &'static str, long: Long, netrt: bool, transport: RdmaTransport) -> Boxes {
    Boxes {
        name,
        long,
        netrt,
        transport,
    }
}

const GBN: RdmaTransport = RdmaTransport::RoceLossy;
const WAYS: [Boxes; 6] = [
    way("Go-Back-N", Long::Nics, false, GBN),
    way("Go-Back-N, LoWAR", Long::Lowar, false, GBN),
    way("Go-Back-N, NetRT", Long::Nics, true, GBN),
    way("Go-Back-N, both boxes", Long::Lowar, true, GBN),
    way("Go-Back-N, two NetRT pairs", Long::NetRt, true, GBN),
    way("IRN", Long::Nics, false, RdmaTransport::Irn),
];

/// The writes over the long path, and those of the incasts.
#[derive(Default)]
struct Sums {
    remote: Sum,
    local: Sum,
    costs: Counts,
}

/// Prints the table of all ways, and adds it to the results.
pub(crate) fn print(options: &Options, rows: &Rows) {
    println!(
        "both at once, loss {LOSS:.0e}    {:>10} {:>7} {:>10} {:>10} {:>7} {:>10} {COST_HEADS} {:>7}",
        "40 ms: us", "+-", "p99", "incast: us", "+-", "p99", "failed"
    );
    let writes = options.writes;
    let conditions = format!(
        "{writes} writes of 5 MB one after the other over 10 Gbit/s and 40 ms at a loss of {LOSS:e}, every \
         50 ms an incast of {LOCAL} senders of 500 KB over 50 Gbit/s and 5 us, {}",
        options.runs()
    );
    let panel = rows.panel(FIGURE, "both", &conditions);
    for way in WAYS.iter().filter(|way| options.wants_way(way.name)) {
        let runs = options.with_seeds(|seed| nics(way, writes, seed));
        row(way.name, &runs, &panel);
    }
    for ends in ENDPOINTS.iter().filter(|ends| options.wants_way(ends.name)) {
        let runs = options.with_seeds(|seed| endpoints(ends, writes, seed));
        row(ends.name, &runs, &panel);
    }
}

fn row(name: &str, runs: &[Sums], panel: &Panel<'_>) {
    let remote = Times::of(runs.iter().map(|run| &run.remote));
    let local = Times::of(runs.iter().map(|run| &run.local));
    let bytes = |of: fn(&Sums) -> &Sum, each: u32| {
        let writes: u64 = runs.iter().map(|run| of(run).writes()).sum();
        writes * u64::from(each)
    };
    let (far, near) = (
        bytes(|run| &run.remote, REMOTE_BYTES),
        bytes(|run| &run.local, LOCAL_BYTES),
    );
    let counts: Vec<Counts> = runs.iter().map(|run| run.costs).collect();
    // Cables from the remote NIC, and from a local one.
    let costs = Counts::costs(&counts, far + near, 5 * far + 5 * near);
    print!("{name:<26}");
    for times in [&remote, &local] {
        let (mean, error, p99) = (times.mean_us, times.error_us, times.p99_us);
        print!(" {mean:>10.0} {error:>7.0} {p99:>10.0}");
    }
    println!(
        " {} {:>7}",
        show_costs(&costs),
        remote.failed + local.failed
    );
    remote.write(panel, name, LOSS, "long_");
    local.write(panel, name, LOSS, "incast_");
    write_costs(panel, name, LOSS, &costs);
}

/// The incast, which has the local cables and the switch.
fn scene() -> Scene {
    Scene {
        buffer_bytes: 9 << 20,
        ..Scene::incast(LOCAL)
    }
}

/// What the remote NIC assumes of its path.
fn remote_path() -> PathProfile {
    PathProfile {
        rate_bps: REMOTE_BPS,
        rtt_ns: 40_010_000,
        ..scene().path()
    }
}

/// The settings of NetRT boxes for the long path.
fn wide() -> netrt::Config {
    let path = remote_path();
    let config = netrt::Config::new(path.rate_bps, path.rtt_ns);
    netrt::Config {
        key: Some([5; 32].into()),
        pool_bytes: 2 * config.pool_bytes,
        max_held: WIDE_HELD,
        bitmap_bits: WIDE_BITS,
        ..config
    }
}

/// Hosts, the places of boxes, and two places before the receiver: the first for NetRT. In the
/// places are nodes of a role.
fn topology(in_place: Role) -> (Topology, Vec<NodeId>, Vec<NodeId>) {
    let scene = scene();
    let mut topology = Topology::new();
    let short = CableConfig::new(scene.rate_bps, scene.delay);
    let slow = CableConfig::new(REMOTE_BPS, scene.delay);
    let long = CableConfig {
        loss: Loss::Iid { loss_packet: LOSS },
        ..CableConfig::new(REMOTE_BPS, REMOTE_DELAY)
    };
    let core = topology.add(Role::Switch, "core");
    let (mut hosts, mut places) = (Vec::new(), Vec::new());
    for number in 0..=RECEIVER {
        let host = topology.add(Role::Host, format!("host{number}"));
        let place = topology.add(in_place, format!("place{number}"));
        let (near, far) = match number {
            REMOTE => (slow, long),
            _ => (short, short),
        };
        topology.connect(host, place, near);
        if number == RECEIVER {
            let first = topology.add(in_place, "first");
            topology.connect(place, first, short);
            topology.connect(first, core, short);
            places.push(place);
            places.push(first);
        } else {
            topology.connect(place, core, far);
            places.push(place);
        }
        hosts.push(host);
    }
    (topology, hosts, places)
}

fn build(way: &Boxes, seed: u64) -> Racks {
    let scene = scene();
    let (topology, hosts, places) = topology(Role::Box);
    let netrt = scene.netrt(32);
    let device = |id, node: &farwrite_net::Node| {
        if node.role == Role::Host {
            return Node::Host(Box::new(Host::new(id)));
        }
        let place = places.iter().position(|place| *place == id);
        match place {
            Some(REMOTE | RECEIVER) if way.long == Long::Lowar => {
                let config = lowar::Config::default();
                Node::Lowar(Box::new(BoxDevice::new(config, 0, Backpressure::default())))
            }
            Some(REMOTE | RECEIVER) if way.long == Long::NetRt => {
                Node::Box(Box::new(BoxDevice::new(wide(), 0, BACKPRESSURE)))
            }
            Some(at) if way.netrt && at != REMOTE && at != RECEIVER => {
                Node::Box(Box::new(BoxDevice::new(netrt.clone(), 0, BACKPRESSURE)))
            }
            _ => Node::Wire(Vec::new()),
        }
    };
    let options = farwrite_net::Options::with_switches(racks::switch(&scene, &Repair::Gbn));
    let network = Network::new(&topology, &options, seed, device);
    let mut racks = Racks {
        network: network.expect("a possible network"),
        hosts,
        boxes: Vec::new(),
        topology,
    };
    connect(&mut racks, way.transport);
    racks
}

fn connect(racks: &mut Racks, transport: RdmaTransport) {
    let (scene, remote) = (scene(), remote_path());
    let dcqcn = DcqcnOptions::ns3(scene.rate_bps);
    for at in 0..=RECEIVER {
        transport.prepare(&mut racks.host(at).nic, &scene.path(), dcqcn);
    }
    let memory = &mut racks.host(RECEIVER).nic.memory;
    let registered = memory.register_ghost(RKEY, 0, u64::from(REMOTE_BYTES));
    registered.expect("a free key");
    for (sender, number) in (0..RECEIVER).zip(0u16..) {
        let qpn = FIRST_QPN + u32::from(number);
        for (at, peer, peer_qpn) in [(sender, RECEIVER, qpn), (RECEIVER, sender, FIRST_QPN)] {
            let to = Connection {
                peer: racks.hosts[peer],
                src_port: 49_152 + number,
                priority: PRIORITY,
                rate_bps: None,
            };
            let path = match sender {
                REMOTE => remote,
                _ => scene.path(),
            };
            let mut config = transport.config(peer_qpn, &path);
            config.retry_limit = Some(255);
            let nic = &mut racks.host(at).nic;
            let own = nic.connect(to, config).expect("a possible queue pair");
            let control = transport.control(&path, dcqcn).filter(|_| sender != REMOTE);
            if let Some(control) = control {
                nic.set_control(own, control).expect("a queue pair");
            }
        }
    }
}

fn nics(way: &Boxes, writes: u64, seed: u64) -> Sums {
    let mut racks = build(way, seed);
    let mut sums = Sums::default();
    // The request under way at the remote NIC, and when it began.
    let mut remote = (0, 0);
    let mut rounds = 0;
    post(&mut racks, REMOTE, 0, REMOTE_BYTES);
    for now_ns in (0..).step_by(usize::try_from(STEP_NS).expect("small")) {
        racks.network.run_until(now_ns);
        if let Some(done_ns) = racks.host_ref(REMOTE).done_ns.get(&remote.0) {
            let took_ns = done_ns - remote.1;
            sums.remote.times_us.push(took_ns as f64 / 1000.0);
            remote = (remote.0 + 1, now_ns);
            if remote.0 == writes {
                break;
            }
            post(&mut racks, REMOTE, remote.0, REMOTE_BYTES);
        }
        let (round, since_ns) = (now_ns / ROUND_NS, now_ns % ROUND_NS);
        let sender = usize::try_from(since_ns / LOCAL_GAP_NS).expect("small");
        if sender < LOCAL && since_ns.is_multiple_of(LOCAL_GAP_NS) {
            post(&mut racks, sender, round, LOCAL_BYTES);
            rounds = round + 1;
        }
    }
    // The last incast goes on to its end.
    let now_ns = racks.network.now_ns();
    racks.network.run_until(now_ns + ROUND_NS);
    for sender in 0..LOCAL {
        for round in 0..rounds {
            let began_ns = round * ROUND_NS + sender as u64 * LOCAL_GAP_NS;
            match racks.host_ref(sender).done_ns.get(&round) {
                Some(done_ns) => {
                    let took_ns = done_ns - began_ns;
                    sums.local.times_us.push(took_ns as f64 / 1000.0);
                }
                None => sums.local.failed += 1,
            }
        }
    }
    let mut outcome = Outcome::default();
    racks.count(&mut outcome);
    sums.costs = Counts::of(&outcome);
    sums
}

fn post(racks: &mut Racks, sender: usize, number: u64, bytes: u32) {
    let request = Request::Write {
        data: Payload::Ghost(bytes),
        to: Remote {
            rkey: RKEY,
            addr: 0,
        },
        imm: None,
    };
    let nic = &mut racks.host(sender).nic;
    nic.post(FIRST_QPN, number, request).expect("a queue pair");
}

/// The incasts that begin while the remote writes last, as with NICs. How many these are is known
/// after a run.
fn endpoints(ends: &Endpoints, writes: u64, seed: u64) -> Sums {
    let mut rounds = writes;
    loop {
        let (sums, needed) = endpoints_with(ends, writes, rounds, seed);
        // Incasts after the last remote write change nothing before it.
        match needed.cmp(&rounds) {
            Ordering::Equal => return sums,
            Ordering::Less => rounds = needed,
            Ordering::Greater => rounds = needed + needed / 4,
        }
    }
}

/// What came of this number of incasts, and how many begin while the remote writes last.
fn endpoints_with(ends: &Endpoints, writes: u64, rounds: u64, seed: u64) -> (Sums, u64) {
    let (topology, ..) = topology(Role::Switch);
    let mut workload = Workload::default();
    let remote = Flow::new(REMOTE, RECEIVER, u64::from(REMOTE_BYTES), 0);
    in_turn(&mut workload, remote, writes);
    for round in 0..rounds {
        for sender in 0..LOCAL {
            let start_ns = round * ROUND_NS + sender as u64 * LOCAL_GAP_NS;
            let flow = Flow::new(sender, RECEIVER, u64::from(LOCAL_BYTES), start_ns);
            workload.flows.push(flow);
        }
    }
    let run = run_endpoints(&scene(), &topology, &workload, ends, None, seed);
    let mut sums = Sums::default();
    let mut last_ns = 0;
    for (flow, wanted) in run.flows.iter().zip(&workload.flows) {
        let sum = match wanted.src {
            REMOTE => {
                let end_ns = flow
                    .start_ns
                    .zip(flow.time_ns())
                    .map(|(start, took)| start + took);
                last_ns = last_ns.max(end_ns.unwrap_or(0));
                &mut sums.remote
            }
            _ => &mut sums.local,
        };
        sum.take(flow.time_ns(), flow.end);
    }
    sums.costs = Counts::of_endpoints(&run, &workload, ends);
    (sums, last_ns.div_ceil(ROUND_NS))
}
