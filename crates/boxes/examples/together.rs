//! Ways to repair losses, side by side on the same paths, in virtual time: Go-Back-N alone, behind
//! LoWAR boxes and behind NetRT boxes, IRN, and endpoints of Farwrite.
//!
//! `together wan`: 100 writes of 5 MB, one after the other, over 10 Gbit/s and 40 ms that lose a share
//! of the packets. `together incast`: 15 senders that begin 10 us apart write 500 KB each to one
//! receiver, over 50 Gbit/s and 5 us. Without a name: both. `--writes N` and `--seeds N` change the
//! size of either.

#[path = "../tests/common/racks.rs"]
mod racks;

use std::time::Instant;

use farwrite_boxes::{lowar, netrt};
use farwrite_experiment::{Flow, FlowEnd, Start, Transport, TriggerKind, Workload};
use farwrite_net::{CableConfig, Options, Role, Topology};
use racks::{Racks, Repair, Scene};

/// A full packet of 1024 bytes in memory.
const FRAME_BYTES: u64 = 1106;
/// Cables between two NICs.
const CABLES: u64 = 4;

/// What a way came to.
#[derive(Default)]
struct Sum {
    times_us: Vec<f64>,
    failed: usize,
    /// Bytes that all ports sent.
    sent_bytes: u64,
    repeated: u64,
    dropped: u64,
    /// Most bytes that a box kept at a time.
    kept_bytes: u64,
}

fn main() {
    let (mut names, mut writes, mut seeds) = (Vec::new(), 100, 5);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = || {
            let number = args.next().and_then(|number| number.parse().ok());
            number
                .filter(|&number: &u64| number > 0)
                .expect("a number from 1 on")
        };
        match arg.as_str() {
            "--writes" => writes = number(),
            "--seeds" => seeds = number(),
            "wan" | "incast" => names.push(arg),
            _ => panic!("{arg}: the paths are wan and incast; the options --writes and --seeds"),
        }
    }
    let wants = |name: &str| names.is_empty() || names.iter().any(|arg| arg == name);
    let began = Instant::now();
    if wants("wan") {
        for loss in [1e-5, 1e-4, 1e-3] {
            wan(loss, writes);
        }
    }
    if wants("incast") {
        for buffer_mib in [2, 9] {
            incast(buffer_mib, seeds);
        }
    }
    println!("{:.0} s", began.elapsed().as_secs_f64());
}

fn wan(loss: f64, writes: u64) {
    head(&format!("40 ms, loss {loss:.0e}"));
    let scene = Scene::wan(5_000_000, loss, writes);
    let lowar = lowar::Config::default();
    let netrt = netrt::Config {
        // The packets of a round trip.
        max_held: 60_000,
        ..scene.netrt(2)
    };
    let ways = [
        ("Go-Back-N", Repair::Gbn),
        ("Go-Back-N, LoWAR", Repair::Lowar(lowar)),
        ("Go-Back-N, NetRT", Repair::NetRt(netrt)),
        ("IRN", Repair::Irn),
    ];
    for (name, repair) in ways {
        print_row(name, &scene, &boxes(&scene, &repair, 1));
    }
    for name in ENDPOINTS {
        // Little of the line is left for acknowledgements and headers.
        let rate = Some(scene.rate_bps / 100 * 90);
        print_row(name, &scene, &endpoints(&scene, name, rate, 1));
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
        print_row(name, &scene, &boxes(&scene, &repair, seeds));
    }
    for name in ENDPOINTS {
        print_row(name, &scene, &endpoints(&scene, name, None, seeds));
    }
}

const ENDPOINTS: [&str; 3] = [
    "farwrite-sr-nack",
    "farwrite-ec-xor:32,8",
    "farwrite-ec-mds:32,8",
];

fn boxes(scene: &Scene, repair: &Repair, seeds: u64) -> Sum {
    let mut sum = Sum::default();
    for seed in 0..seeds {
        let run = Racks::new(scene, repair, None, seed).run(scene, |_, _| {});
        sum.times_us
            .extend(run.fct_ns.iter().map(|ns| *ns as f64 / 1000.0));
        sum.sent_bytes += run.sent_bytes;
        sum.repeated += run.repeated;
        sum.dropped += run.dropped;
        let netrt = run.boxes.peak_pool_bytes + run.boxes.peak_held_bytes;
        let kept = netrt + run.lowar_peak_held * FRAME_BYTES;
        sum.kept_bytes = sum.kept_bytes.max(kept);
    }
    sum
}

/// The same cables, with switches in the place of boxes. Each forwards from one port to one other of
/// the same rate.
fn endpoints(scene: &Scene, protocol: &str, rate: Option<u64>, seeds: u64) -> Sum {
    let mut topology = Topology::new();
    let near = CableConfig::new(scene.rate_bps, scene.delay);
    let core = topology.add(Role::Switch, "core");
    for number in 0..=scene.senders {
        let host = topology.add(Role::Host, format!("host{number}"));
        let in_place = topology.add(Role::Switch, format!("switch{number}"));
        topology.connect(host, in_place, near);
        topology.connect(core, in_place, scene.cable_to_box(number == scene.senders));
    }
    let options = Options::with_switches(racks::switch(scene, &Repair::Gbn));
    let transport = Transport {
        mtu: 1024,
        rate,
        ..Transport::new(protocol)
    };
    let workload = workload(scene);
    let mut sum = Sum::default();
    for seed in 0..seeds {
        let run = farwrite_experiment::run(&farwrite_experiment::Scene {
            topology: &topology,
            options: &options,
            workload: &workload,
            transport: &transport,
            seed,
            until_ns: None,
            keeps_ports: false,
        });
        let run = run.expect("a possible scene");
        let times = run.flows.iter().filter_map(|flow| flow.time_ns());
        sum.times_us.extend(times.map(|ns| ns as f64 / 1000.0));
        let failed = |end| !matches!(end, FlowEnd::Done { .. });
        sum.failed += run.flows.iter().filter(|flow| failed(flow.end)).count();
        sum.sent_bytes += run.totals.transmitted_bytes;
        sum.repeated += run.repeated();
        sum.dropped += run.totals.all_dropped();
    }
    sum.times_us.sort_by(f64::total_cmp);
    sum
}

/// The writes of each sender, one after the other.
fn workload(scene: &Scene) -> Workload {
    let mut workload = Workload::default();
    for sender in 0..scene.senders {
        let start_ns = sender as u64 * scene.gap_ns;
        let mut start = Start::At(start_ns);
        for write in 0..scene.writes {
            let mut flow = Flow::new(sender, scene.senders, u64::from(scene.bytes), 0);
            flow.start = start;
            if write + 1 < scene.writes {
                let next = workload.add_trigger(TriggerKind::OneShot);
                flow.when_sent = Some(next);
                start = Start::On(next);
            }
            workload.flows.push(flow);
        }
    }
    workload
}

fn head(what: &str) {
    println!(
        "{what:<26} {:>10} {:>10} {:>6} {:>9} {:>9} {:>9} {:>9}",
        "mean us", "p99 us", "wire", "repeated", "dropped", "kept KB", "failed"
    );
}

fn print_row(name: &str, scene: &Scene, sum: &Sum) {
    let mut times = sum.times_us.clone();
    times.sort_by(f64::total_cmp);
    assert!(!times.is_empty(), "{name}: no write ended");
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    let p99 = times[(times.len() * 99).div_ceil(100) - 1];
    let writes = (times.len() + sum.failed) as f64;
    let useful = writes * f64::from(scene.bytes) * CABLES as f64;
    println!(
        "{name:<26} {mean:>10.0} {p99:>10.0} {:>6.3} {:>9} {:>9} {:>9} {:>9}",
        sum.sent_bytes as f64 / useful,
        sum.repeated,
        sum.dropped,
        sum.kept_bytes / 1000,
        sum.failed,
    );
}
