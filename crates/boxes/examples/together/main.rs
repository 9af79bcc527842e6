//! Ways to repair losses, side by side on the same paths, in virtual time: Go-Back-N alone, behind
//! LoWAR boxes and behind NetRT boxes, IRN, and endpoints of Farwrite.
//!
//! - `together wan`: 100 writes of 5 MB, one after the other, over 10 Gbit/s and 40 ms that lose a
//!   share of the packets.
//! - `together incast`: 15 senders that begin 10 us apart write 500 KB each to one receiver, over 50
//!   Gbit/s and 5 us.
//! - `together both`: both at once, in one network with one receiver.
//!
//! Without a name: all three. `--writes N` sets the number of writes over the long path, `--seeds N`
//! how often the incast is repeated. `--only "Go-Back-N, NetRT"` runs one way over the long path, alone or
//! with the incast.

mod both;
#[path = "../../tests/common/racks.rs"]
mod racks;

use std::time::Instant;

use farwrite_boxes::{lowar, netrt};
use farwrite_experiment::{Flow, FlowEnd, Start, Transport, TriggerKind, Workload};
use farwrite_net::{CableConfig, Role, Topology};
use racks::{Outcome, Racks, Repair, Scene};

const MTU: u32 = 1024;

/// The results of a way on a path.
#[derive(Default)]
pub(crate) struct Sum {
    pub(crate) times_us: Vec<f64>,
    pub(crate) failed: usize,
    pub(crate) counts: Counts,
}

/// What a way cost.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    /// Bytes that all ports sent.
    sent_bytes: u64,
    repeated: u64,
    dropped: u64,
    /// Most bytes that a box kept at a time.
    kept_bytes: u64,
    /// Most coding units that a LoWAR box used at a time.
    units: u64,
    /// Bytes that entered an XOR, or a multiplication and sum: in LoWAR boxes at both ends, in
    /// endpoints to make parity.
    coded_bytes: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, run: &Outcome) {
        self.sent_bytes += run.sent_bytes;
        self.repeated += run.repeated;
        self.dropped += run.dropped;
        self.kept_bytes = self.kept_bytes.max(run.peak_kept_bytes);
        self.units = self.units.max(run.peak_units);
        self.coded_bytes += run.xored_bytes;
    }

    /// Adds a run of endpoints with a code.
    pub(crate) fn add_endpoints(
        &mut self,
        run: &farwrite_experiment::Outcome,
        workload: &Workload,
        ends: &Endpoints,
    ) {
        self.sent_bytes += run.totals.transmitted_bytes;
        self.repeated += run.repeated();
        self.dropped += run.totals.all_dropped();
        for (flow, wanted) in run.flows.iter().zip(&workload.flows) {
            let data = wanted.bytes.div_ceil(u64::from(MTU));
            let parity = flow.packets.saturating_sub(flow.repeated + data);
            self.coded_bytes += parity * ends.inputs * u64::from(MTU);
        }
    }
}

/// A protocol of endpoints.
pub(crate) struct Endpoints {
    pub(crate) name: &'static str,
    pub(crate) protocol: &'static str,
    /// Data packets that make a parity packet.
    inputs: u64,
}

pub(crate) const ENDPOINTS: [Endpoints; 3] = [
    Endpoints {
        name: "sr-nack",
        protocol: "farwrite-sr-nack",
        inputs: 0,
    },
    Endpoints {
        name: "ec-xor:32,8",
        protocol: "farwrite-ec-xor:32,8",
        inputs: 32 / 8,
    },
    Endpoints {
        name: "ec-mds:32,8",
        protocol: "farwrite-ec-mds:32,8",
        inputs: 32,
    },
];

fn main() {
    let (mut names, mut writes, mut seeds) = (Vec::new(), 100, 5);
    let mut only = None;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        if arg == "--only" {
            only = args.next();
            continue;
        }
        let mut number = || {
            let number = args.next().and_then(|number| number.parse().ok());
            number
                .filter(|&number: &u64| number > 0)
                .expect("a number from 1 on")
        };
        match arg.as_str() {
            "--writes" => writes = number(),
            "--seeds" => seeds = number(),
            "wan" | "incast" | "both" => names.push(arg),
            _ => panic!(
                "{arg}: the paths are wan, incast and both; the options --writes, --seeds, --only"
            ),
        }
    }
    let wants = |name: &str| names.is_empty() || names.iter().any(|arg| arg == name);
    let began = Instant::now();
    if wants("wan") {
        for loss in [1e-5, 1e-4, 1e-3] {
            wan(loss, writes, only.as_deref());
        }
    }
    if wants("incast") {
        for buffer_mib in [2, 9] {
            incast(buffer_mib, seeds);
        }
    }
    if wants("both") {
        both::print(writes, only.as_deref());
    }
    println!("{:.0} s", began.elapsed().as_secs_f64());
}

/// `only`: the name of one way, without the others.
fn wan(loss: f64, writes: u64, only: Option<&str>) {
    head(&format!("40 ms, loss {loss:.0e}"));
    let scene = Scene::wan(5_000_000, loss, writes);
    let lowar = lowar::Config::default();
    let netrt = netrt::Config {
        // The packets of a round trip.
        max_held: 60_000,
        ..scene.netrt(2)
    };
    let wide = netrt::Config {
        bitmap_bits: 65_536,
        ..netrt.clone()
    };
    let ways = [
        ("Go-Back-N", Repair::Gbn),
        ("Go-Back-N, LoWAR", Repair::Lowar(lowar)),
        ("Go-Back-N, NetRT", Repair::NetRt(netrt)),
        ("Go-Back-N, NetRT, 64 Ki", Repair::NetRt(wide)),
        ("IRN", Repair::Irn),
    ];
    for (name, repair) in ways
        .into_iter()
        .filter(|way| only.is_none_or(|only| way.0 == only))
    {
        print_row(name, &scene, boxes(&scene, &repair, 1));
    }
    for ends in ENDPOINTS
        .iter()
        .filter(|ends| only.is_none_or(|only| ends.name == only))
    {
        // Little of the line is left for acknowledgements and headers.
        let rate = Some(scene.rate_bps / 100 * 90);
        print_row(ends.name, &scene, endpoints(&scene, ends, rate, 1));
    }
}

fn incast(buffer_mib: u64, seeds: u64) {
    head(&format!("incast of 15, {buffer_mib} MiB"));
    let scene = Scene {
        buffer_bytes: buffer_mib << 20,
        ..Scene::incast(15)
    };
    let lowar = lowar::Config::default();
    let ways = [
        ("Go-Back-N", Repair::Gbn),
        ("Go-Back-N, PFC", Repair::GbnPfc),
        ("Go-Back-N, LoWAR", Repair::Lowar(lowar)),
        ("Go-Back-N, NetRT, 1 BDP", Repair::NetRt(scene.netrt(1))),
        ("Go-Back-N, NetRT, 32 BDP", Repair::NetRt(scene.netrt(32))),
        ("IRN", Repair::Irn),
    ];
    for (name, repair) in ways {
        print_row(name, &scene, boxes(&scene, &repair, seeds));
    }
    for ends in &ENDPOINTS {
        print_row(ends.name, &scene, endpoints(&scene, ends, None, seeds));
    }
}

fn boxes(scene: &Scene, repair: &Repair, seeds: u64) -> Sum {
    let mut sum = Sum::default();
    for seed in 0..seeds {
        let run = Racks::new(scene, repair, None, seed).run(scene, |_, _| {});
        let times = run.fct_ns.iter().map(|ns| *ns as f64 / 1000.0);
        sum.times_us.extend(times);
        sum.counts.add(&run);
    }
    sum
}

/// The same cables, with switches in the place of boxes. Each forwards from one port to one other of
/// the same rate.
fn endpoints(scene: &Scene, ends: &Endpoints, rate: Option<u64>, seeds: u64) -> Sum {
    let mut topology = Topology::new();
    let near = CableConfig::new(scene.rate_bps, scene.delay);
    let core = topology.add(Role::Switch, "core");
    for number in 0..=scene.senders {
        let host = topology.add(Role::Host, format!("host{number}"));
        let in_place = topology.add(Role::Switch, format!("switch{number}"));
        topology.connect(host, in_place, near);
        topology.connect(core, in_place, scene.cable_to_box(number == scene.senders));
    }
    let workload = workload(scene);
    let mut sum = Sum::default();
    for seed in 0..seeds {
        let run = run_endpoints(scene, &topology, &workload, ends, rate, seed);
        for flow in &run.flows {
            sum.take(flow.time_ns(), flow.end);
        }
        sum.counts.add_endpoints(&run, &workload, ends);
    }
    sum
}

/// Runs endpoints over switches as in a scene without PFC.
pub(crate) fn run_endpoints(
    scene: &Scene,
    topology: &Topology,
    workload: &Workload,
    ends: &Endpoints,
    rate: Option<u64>,
    seed: u64,
) -> farwrite_experiment::Outcome {
    let options = farwrite_net::Options::with_switches(racks::switch(scene, &Repair::Gbn));
    let transport = Transport {
        mtu: MTU,
        rate,
        ..Transport::new(ends.protocol)
    };
    let run = farwrite_experiment::run(&farwrite_experiment::Scene {
        topology,
        options: &options,
        workload,
        boxes: &[],
        changes: &[],
        transport: &transport,
        seed,
        until_ns: None,
        recording: farwrite_experiment::Recording::default(),
    });
    run.expect("a possible scene")
}

impl Sum {
    /// Notes how a flow of endpoints ended.
    pub(crate) fn take(&mut self, time_ns: Option<u64>, end: FlowEnd) {
        self.times_us.extend(time_ns.map(|ns| ns as f64 / 1000.0));
        self.failed += usize::from(!matches!(end, FlowEnd::Done { .. }));
    }

    /// The mean and the 99th percentile of the times.
    pub(crate) fn mean_and_p99_us(&self) -> [f64; 2] {
        let mut times = self.times_us.clone();
        times.sort_by(f64::total_cmp);
        assert!(!times.is_empty(), "no write ended");
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        [mean, times[(times.len() * 99).div_ceil(100) - 1]]
    }

    /// Writes that ended or failed.
    pub(crate) fn writes(&self) -> u64 {
        (self.times_us.len() + self.failed) as u64
    }
}

/// The writes of each sender, one after the other.
fn workload(scene: &Scene) -> Workload {
    let mut workload = Workload::default();
    for sender in 0..scene.senders {
        let start_ns = sender as u64 * scene.gap_ns;
        let flow = Flow::new(sender, scene.senders, u64::from(scene.bytes), start_ns);
        in_turn(&mut workload, flow, scene.writes);
    }
    workload
}

/// Adds a flow, and copies of it that each start when the one before is done.
pub(crate) fn in_turn(workload: &mut Workload, first: Flow, count: u64) {
    let mut start = first.start;
    for number in 0..count {
        let mut flow = Flow { start, ..first };
        if number + 1 < count {
            let next = workload.add_trigger(TriggerKind::OneShot);
            flow.when_sent = Some(next);
            start = Start::On(next);
        }
        workload.flows.push(flow);
    }
}

const COSTS: [&str; 6] = ["wire", "coded", "repeated", "dropped", "kept KB", "units"];

fn head(what: &str) {
    let [wire, coded, repeated, dropped, kept, units] = COSTS;
    println!(
        "{what:<26} {:>10} {:>10} {wire:>6} {coded:>6} {repeated:>9} {dropped:>9} {kept:>9} \
         {units:>5} {:>7}",
        "mean us", "p99 us", "failed"
    );
}

fn print_row(name: &str, scene: &Scene, sum: Sum) {
    /// Between two NICs.
    const CABLES: u64 = 4;
    let [mean, p99] = sum.mean_and_p99_us();
    let useful = sum.writes() * u64::from(scene.bytes);
    println!(
        "{name:<26} {mean:>10.0} {p99:>10.0} {} {:>7}",
        sum.counts.columns(useful, useful * CABLES),
        sum.failed
    );
}

impl Counts {
    /// The columns of [`COSTS`]: bytes sent by useful bytes and cable, coded by useful byte.
    pub(crate) fn columns(&self, useful: u64, useful_by_cable: u64) -> String {
        format!(
            "{:>6.3} {:>6.2} {:>9} {:>9} {:>9} {:>5}",
            self.sent_bytes as f64 / useful_by_cable as f64,
            self.coded_bytes as f64 / useful as f64,
            self.repeated,
            self.dropped,
            self.kept_bytes / 1000,
            self.units,
        )
    }
}
