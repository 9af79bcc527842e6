//! Ways to repair losses, side by side on the same paths, in virtual time: Go-Back-N alone, behind
//! LoWAR boxes and behind NetRT boxes, IRN, and endpoints of Farwrite.
//!
//! - `together wan`: 100 writes of 5 MB, one after the other, over 10 Gbit/s and 40 ms that lose a
//!   share of the packets.
//! - `together incast`: 15 senders that begin 10 us apart write 500 KB each to one receiver, over 50
//!   Gbit/s and 5 us.
//! - `together both`: both at once, in one network with one receiver.
//!
//! Without a name: all three. `--only "Go-Back-N, NetRT"` runs one way; `--help` lists all options. From the rows
//! of `--csv`, `lab/tables/tables.py` makes the tables of lab/results/boxes.md.

mod both;
mod options;
#[path = "../../../../crates/boxes/tests/common/racks.rs"]
mod racks;
#[path = "../common/rows.rs"]
mod rows;
mod sum;

use std::time::Instant;

use clap::Parser;
use farwrite_boxes::{lowar, netrt};
use farwrite_experiment::{Flow, Start, TransportSettings, TriggerKind, Workload};
use farwrite_net::{CableConfig, Role, Topology};
use options::Options;
use racks::{Racks, Repair, Scene};
use rows::{Panel, Rows};
use sum::{COST_HEADS, Counts, Sum, Times, show_costs, write_costs};

const MTU: u32 = 1024;

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

/// In the files of results.
const FIGURE: &str = "together";

fn main() {
    let options = Options::parse();
    let rows = Rows::new();
    let began = Instant::now();
    if options.wants("wan") {
        for loss in [1e-5, 1e-4, 1e-3] {
            wan(loss, &options, &rows);
        }
    }
    if options.wants("incast") {
        for buffer_mib in [2, 9] {
            incast(buffer_mib, &options, &rows);
        }
    }
    if options.wants("both") {
        both::print(&options, &rows);
    }
    rows.write(options.csv.as_deref());
    println!("{:.0} s", began.elapsed().as_secs_f64());
}

fn wan(loss: f64, options: &Options, rows: &Rows) {
    head(&format!("40 ms, loss {loss:.0e}"));
    let scene = Scene::wan(5_000_000, loss, options.writes);
    let conditions = format!(
        "10 Gbit/s, round trip of 40 ms, {} writes of 5 MB one after the other, {}",
        options.writes,
        options.runs()
    );
    let panel = rows.panel(FIGURE, "wan", &conditions);
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
    for (name, repair) in ways {
        let run = |seed| boxes(&scene, &repair, seed);
        row(name, &scene, options, (&panel, loss), run);
    }
    for ends in &ENDPOINTS {
        // Little of the line is left for acknowledgements and headers.
        let rate = Some(scene.rate_bps / 100 * 90);
        let run = |seed| endpoints(&scene, ends, rate, seed);
        row(ends.name, &scene, options, (&panel, loss), run);
    }
}

fn incast(buffer_mib: u64, options: &Options, rows: &Rows) {
    head(&format!("incast of 15, {buffer_mib} MiB"));
    let scene = Scene {
        buffer_bytes: buffer_mib << 20,
        ..Scene::incast(15)
    };
    let conditions = format!(
        "15 senders of 500 KB 10 us apart, 50 Gbit/s, round trip of 5 us, x is the buffer in MiB, {}",
        options.runs()
    );
    let panel = rows.panel(FIGURE, "incast", &conditions);
    let lowar = lowar::Config::default();
    let ways = [
        ("Go-Back-N", Repair::Gbn),
        ("Go-Back-N, PFC", Repair::GbnPfc),
        ("Go-Back-N, LoWAR", Repair::Lowar(lowar)),
        ("Go-Back-N, NetRT, 1 BDP", Repair::NetRt(scene.netrt(1))),
        ("Go-Back-N, NetRT, 32 BDP", Repair::NetRt(scene.netrt(32))),
        ("IRN", Repair::Irn),
    ];
    let to = (&panel, buffer_mib as f64);
    for (name, repair) in ways {
        let run = |seed| boxes(&scene, &repair, seed);
        row(name, &scene, options, to, run);
    }
    for ends in &ENDPOINTS {
        let run = |seed| endpoints(&scene, ends, None, seed);
        row(ends.name, &scene, options, to, run);
    }
}

fn boxes(scene: &Scene, repair: &Repair, seed: u64) -> (Sum, Counts) {
    let run = Racks::new(scene, repair, None, seed).run(scene, |_, _| {});
    (Sum::of_ns(&run.fct_ns), Counts::of(&run))
}

/// The same cables, with switches in the place of boxes. Each forwards from one port to one other of
/// the same rate.
fn endpoints(scene: &Scene, ends: &Endpoints, rate: Option<u64>, seed: u64) -> (Sum, Counts) {
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
    let run = run_endpoints(scene, &topology, &workload, ends, rate, seed);
    let mut sum = Sum::default();
    for flow in &run.flows {
        sum.take(flow.time_ns(), flow.end);
    }
    (sum, Counts::of_endpoints(&run, &workload, ends))
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
    let transport = TransportSettings {
        mtu: MTU,
        rate,
        ..TransportSettings::new(ends.protocol)
    };
    let transport = transport.transport().expect("valid settings");
    let run = farwrite_experiment::run(&farwrite_experiment::RunSetup {
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

/// Runs a way with each seed, prints its row and adds it to the results.
fn row(
    name: &str,
    scene: &Scene,
    options: &Options,
    to: (&Panel<'_>, f64),
    run: impl Fn(u64) -> (Sum, Counts) + Sync,
) {
    /// Between two NICs.
    const CABLES: u64 = 4;
    if !options.wants_way(name) {
        return;
    }
    let (sums, counts): (Vec<_>, Vec<_>) = options.with_seeds(run).into_iter().unzip();
    let times = Times::of(sums.iter());
    let writes: u64 = sums.iter().map(Sum::writes).sum();
    let useful = writes * u64::from(scene.bytes);
    let costs = Counts::costs(&counts, useful, useful * CABLES);
    println!(
        "{name:<26} {:>10.0} {:>7.0} {:>10.0} {} {:>7}",
        times.mean_us,
        times.error_us,
        times.p99_us,
        show_costs(&costs),
        times.failed
    );
    let (panel, x) = to;
    times.write(panel, name, x, "");
    write_costs(panel, name, x, &costs);
}

fn head(what: &str) {
    println!(
        "{what:<26} {:>10} {:>7} {:>10} {COST_HEADS} {:>7}",
        "mean us", "+-", "p99 us", "failed"
    );
}
