//! The figures of NetRT's paper (claims N6 to N9) in virtual time: Go-Back-N behind NetRT boxes
//! beside Go-Back-N alone, Go-Back-N with PFC, and IRN.
//!
//! `netrt chain`: random losses on a chain of five nodes (figures 6 and 7). `netrt incast`: many
//! senders to one receiver (figure 8). `netrt spines`: packets that take several paths (figure 9 and
//! table III). `netrt window`: the incast of senders that have at most a bandwidth-delay product in
//! flight. `netrt timeout`: the chain with the ACK timeout of IRN. `netrt unlimited`: the incast where N,
//! by which repeats slow down, has no limit. Without an argument: all six. `--help` lists the options.

#[path = "../../../crates/boxes/tests/common/racks.rs"]
mod racks;
#[path = "common/rows.rs"]
mod rows;

use std::path::PathBuf;
use std::time::Instant;

use clap::Parser;
use farwrite_boxes::netrt::Config;
use farwrite_net::Policy;
use farwrite_units::stats::{mean, standard_error};
use racks::{Outcome, Racks, Repair, Scene};
use rows::{Panel, Rows};

const DRILL: Policy = Policy::Drill { d: 2, m: 1 };

/// A number of a run, and its name.
type Measure = (&'static str, fn(&Outcome) -> f64);

/// What a way of repairing losses is measured by: means of its runs.
const MEASURES: [Measure; 9] = [
    ("mean_us", Outcome::mean_us),
    ("p99_us", |run| run.tail_us(0.01)),
    ("repeated", |run| run.repeated as f64),
    ("timeouts", |run| run.timeouts as f64),
    ("dropped", |run| run.dropped as f64),
    ("recovered", |run| run.boxes.recovered as f64),
    ("copies_in_vain", |run| run.boxes.copies_dropped as f64),
    ("notices", |run| run.boxes.notices_sent as f64),
    ("path_changes", |run| run.path_changes as f64),
];

#[derive(Parser)]
struct Args {
    /// Figures; without any, all
    #[arg(value_parser = ["chain", "incast", "spines", "window", "timeout", "unlimited"])]
    figures: Vec<String>,
    /// Runs of incast, spines, window and unlimited
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Write the results as rows
    #[arg(long)]
    csv: Option<PathBuf>,
}

fn main() {
    let Args {
        figures,
        seeds,
        csv,
    } = Args::parse();
    let wants = |name: &str| figures.is_empty() || figures.iter().any(|figure| figure == name);
    let began = Instant::now();
    let rows = Rows::new();
    if wants("chain") {
        chain(&rows);
        memory_over_time(&rows);
    }
    if wants("incast") {
        incast(seeds, &rows);
    }
    if wants("spines") {
        spines(seeds, &rows);
    }
    if wants("window") {
        window(seeds, &rows);
    }
    if wants("timeout") {
        chain_of(", ACK timeout of 320 us", chain_of_short_timeout, &rows);
    }
    if wants("unlimited") {
        unlimited(seeds, &rows);
    }
    rows.write(csv.as_deref());
    println!("{:.0} s", began.elapsed().as_secs_f64());
}

/// Makes a chain from the bytes of a write, the loss, and the number of writes.
type Chain = fn(u32, f64, u64) -> Scene;

/// The chains of N6 and N7, and what their panels add to the size.
const CHAINS: [(&str, Chain); 3] = [
    ("", Scene::chain),
    (", losses both ways", Scene::chain_both_ways),
    (", 30 us between boxes", Scene::chain_of_near_boxes),
];

/// The chain with IRN's `RTO_high` at the NICs.
fn chain_of_short_timeout(bytes: u32, loss: f64, writes: u64) -> Scene {
    Scene {
        ack_timeout_ns: 320_000,
        ..Scene::chain(bytes, loss, writes)
    }
}

/// N6 and N7.
fn chain(rows: &Rows) {
    for (variant, make) in CHAINS {
        chain_of(variant, make, rows);
    }
    println!(
        "paper: mean up to 75% lower than Go-Back-N, flat in the loss; pool 128 KB; buffer 37 KB, mean 15 KB"
    );
}

fn chain_of(variant: &str, make: Chain, rows: &Rows) {
    const WRITES: u64 = 200;
    println!("chain{variant}, 10 Gbit/s, {WRITES} writes; times in us");
    head("repair");
    for bytes in [10_000, 100_000, 1_000_000] {
        for loss in [0.001, 0.005, 0.01, 0.05] {
            println!("{bytes} bytes, loss {loss}");
            let scene = make(bytes, loss, WRITES);
            let conditions = format!("{}, {WRITES} writes, seed 0", conditions(&scene));
            let size = match bytes {
                1_000_000 => format!("1 MB{variant}"),
                _ => format!("{} KB{variant}", bytes / 1000),
            };
            let plain = run(&scene, &Repair::Gbn, 1);
            let table = Table::new(rows.panel("N6", &size, &conditions), loss, &plain);
            table.row("Go-Back-N", &plain);
            for products in [1, 2, 4] {
                let boxes = run(&scene, &netrt(&scene, products), 1);
                table.row(&pool_name(products), &boxes);
                if products == 1 {
                    print_memory(&boxes[0], loss, &rows.panel("N7", &size, &conditions));
                }
            }
        }
    }
}

/// N8.
fn incast(seeds: u64, rows: &Rows) {
    println!(
        "\nincast, 500 KB each, 10 us apart, 50 Gbit/s, DCQCN; times in us, means of {seeds} seeds"
    );
    for (buffer_mib, has_ns3_nics) in [(2, false), (9, false), (2, true), (9, true)] {
        for senders in [15, 30, 50] {
            let scene = Scene {
                buffer_bytes: buffer_mib << 20,
                has_ns3_nics,
                ..Scene::incast(senders)
            };
            let name = format!("{buffer_mib} MiB{}", nics(&scene));
            head(&format!("{senders} senders, {name}"));
            let panel = rows.panel("N8", &name, &incast_conditions(&scene, seeds));
            let plain = run(&scene, &Repair::Gbn, seeds);
            let table = Table::new(panel, senders as f64, &plain);
            table.row("Go-Back-N", &plain);
            table.row("Go-Back-N and PFC", &run(&scene, &Repair::GbnPfc, seeds));
            table.row("IRN", &run(&scene, &Repair::Irn, seeds));
            for products in [1, 4, 16, 32] {
                let boxes = run(&scene, &netrt(&scene, products), seeds);
                table.row(&pool_name(products), &boxes);
            }
        }
    }
    println!("paper: mean 34 to 47% lower than Go-Back-N, tail 14 to 34%; PFC mean 25 to 35%");
}

/// N8 where N is all bytes that were requested and not yet repeated, also beyond a bandwidth-delay product.
fn unlimited(seeds: u64, rows: &Rows) {
    println!("\nincast, N without a limit; times in us, means of {seeds} seeds");
    for buffer_mib in [2, 9] {
        for senders in [15, 30, 50] {
            let scene = Scene {
                buffer_bytes: buffer_mib << 20,
                ..Scene::incast(senders)
            };
            let name = format!("{buffer_mib} MiB");
            head(&format!("{senders} senders, {name}"));
            let panel = rows.panel("N8", &name, &incast_conditions(&scene, seeds));
            let plain = run(&scene, &Repair::Gbn, seeds);
            let table = Table::new(panel, senders as f64, &plain);
            for products in [1, 32] {
                let boxes = run(
                    &scene,
                    &Repair::NetRt(scene.netrt_unlimited(products)),
                    seeds,
                );
                table.row(&format!("{}, no limit of N", pool_name(products)), &boxes);
            }
        }
    }
}

/// N8 with a window, and with smaller buffers, which such senders need to lose packets.
fn window(seeds: u64, rows: &Rows) {
    println!("\nincast, with at most 1 BDP in flight for each sender; means of {seeds} seeds");
    for buffer_kib in [512, 1024, 2048, 9216] {
        for senders in [15, 30, 50] {
            let open = Scene {
                buffer_bytes: buffer_kib << 10,
                ..Scene::incast(senders)
            };
            let scene = Scene {
                window_packets: Some(open.path().round_trip_packets()),
                ..open.clone()
            };
            head(&format!("{senders} senders, {buffer_kib} KiB"));
            let conditions = format!(
                "{}, writes of 500 KB that begin 10 us apart, DCQCN, at most {} packets of a sender in \
                 flight, means of seeds 0 to {}",
                conditions(&scene),
                scene.path().round_trip_packets(),
                seeds - 1
            );
            let panel = rows.panel("N8-window", &format!("{buffer_kib} KiB"), &conditions);
            let plain = run(&scene, &Repair::Gbn, seeds);
            let table = Table::new(panel, senders as f64, &plain);
            table.row("no window, Go-Back-N", &run(&open, &Repair::Gbn, seeds));
            table.row("no window, NetRT", &run(&open, &netrt(&open, 1), seeds));
            table.row("Go-Back-N", &plain);
            table.row("IRN", &run(&scene, &Repair::Irn, seeds));
            table.row("NetRT", &run(&scene, &netrt(&scene, 1), seeds));
        }
    }
}

/// N9.
fn spines(seeds: u64, rows: &Rows) {
    for (spine_rate_bps, has_ns3_nics) in [
        (None, false),
        (Some(12_500_000_000), false),
        (Some(10_000_000_000), false),
        (None, true),
        (Some(12_500_000_000), true),
    ] {
        let change = |scene| Scene {
            spine_rate_bps,
            has_ns3_nics,
            // The links that count add a little to the time of a packet.
            counts_paths: spine_rate_bps.is_some() || has_ns3_nics,
            ..scene
        };
        spines_at(&change, seeds, rows);
    }
    println!("paper: mean 37 to 60% lower than DRILL alone, no repeats by NICs");
}

/// N9 with one rate of the paths, and one kind of NICs.
fn spines_at(change: &impl Fn(Scene) -> Scene, seeds: u64, rows: &Rows) {
    println!(
        "\n15 senders of 1 MB to one receiver, over spines; times in us, means of {seeds} seeds"
    );
    for paths in [2, 4, 8] {
        let ecmp = change(Scene::spines(paths, Policy::Ecmp));
        let drill = change(Scene::spines(paths, DRILL));
        let rate = drill.spine_rate_bps.map(|bps| bps as f64 / 1e9);
        let rate = rate.map_or_else(String::new, |gbps| format!(" at {gbps} Gbit/s"));
        let name = format!("spines{rate}{}", nics(&drill));
        head(&format!("{paths} {name}"));
        let plain = run(&drill, &Repair::Gbn, seeds);
        let conditions = format!(
            "{}, {} writes of 1 MB begun together, DCQCN, means of seeds 0 to {}",
            conditions(&drill),
            drill.senders,
            seeds - 1
        );
        let panel = rows.panel("N9", &name, &conditions);
        let table = Table::new(panel, paths as f64, &plain);
        table.row("ECMP, Go-Back-N", &run(&ecmp, &Repair::Gbn, seeds));
        table.row("DRILL, Go-Back-N", &plain);
        table.row("DRILL, IRN", &run(&drill, &Repair::Irn, seeds));
        table.row("DRILL, NetRT", &run(&drill, &netrt(&drill, 1), seeds));
        let late = Config {
            request_delay_ns: 5_000,
            ..drill.netrt(1)
        };
        let boxes = run(&drill, &Repair::NetRt(late), seeds);
        table.row("DRILL, NetRT, 5 us delay", &boxes);
    }
}

/// What a panel adds for the NICs.
fn nics(scene: &Scene) -> &'static str {
    match scene.has_ns3_nics {
        true => ", NICs of ns-3",
        false => "",
    }
}

/// N7: what boxes keep while the first writes cross.
fn memory_over_time(rows: &Rows) {
    const WRITES: u64 = 2;
    const LOSS: f64 = 0.01;
    let scene = Scene::chain(1_000_000, LOSS, WRITES);
    let conditions = format!(
        "{}, {WRITES} writes of 1 MB, {LOSS} of the packets lost, seed 0",
        conditions(&scene)
    );
    let panel = rows.panel("N7", "over time", &conditions);
    let mut racks = Racks::new(&scene, &netrt(&scene, 1), None, 0);
    racks.run(&scene, |racks, step| {
        let pool = racks.path_box(0).map(|source| source.inner().pool_bytes());
        let buffer = racks
            .path_box(scene.senders)
            .map(|destination| destination.inner().held_bytes());
        let kept = [("duplicate pool", pool), ("reordering buffer", buffer)];
        for (name, bytes) in kept {
            let kept_kb = bytes.expect("a box") as f64 / 1000.0;
            // A step takes 10 us.
            panel.add(name, step as f64 / 100.0, "kept_kb", kept_kb);
        }
    });
}

/// The network, for a person.
fn conditions(scene: &Scene) -> String {
    let path = scene.path();
    format!(
        "{} Gbit/s, round trip of {:.1} us without queues, MTU of {} bytes",
        path.rate_bps as f64 / 1e9,
        path.rtt_ns as f64 / 1e3,
        path.mtu_bytes,
    )
}

fn incast_conditions(scene: &Scene, seeds: u64) -> String {
    format!(
        "{}, writes of 500 KB that begin 10 us apart, DCQCN, means of seeds 0 to {}",
        conditions(scene),
        seeds - 1
    )
}

/// The name of NetRT with a pool of this number of bandwidth-delay products.
fn pool_name(products: u64) -> String {
    format!("NetRT, pool {products} BDP")
}

fn netrt(scene: &Scene, products: u64) -> Repair {
    Repair::NetRt(scene.netrt(products))
}

fn run(scene: &Scene, repair: &Repair, seeds: u64) -> Vec<Outcome> {
    let seeds = 0..seeds;
    let run = |seed| Racks::new(scene, repair, None, seed).run(scene, |_, _| {});
    seeds.map(run).collect()
}

fn head(what: &str) {
    println!(
        "{what:<26} {:>8} {:>7} {:>8} {:>7} {:>9} {:>8} {:>8} {:>9} {:>8} {:>7} {:>7}",
        "mean",
        "change",
        "p99",
        "change",
        "e2e rep.",
        "timeouts",
        "lost",
        "recovered",
        "unneeded",
        "notices",
        "paths"
    );
}

/// The means of [`MEASURES`].
fn means(runs: &[Outcome]) -> [f64; MEASURES.len()] {
    MEASURES.map(|(_, value)| mean(runs.iter().map(value)))
}

/// The standard errors of times: of their means over runs, or over the writes of one run. One run does
/// not show that of a tail.
fn errors_us(runs: &[Outcome]) -> Vec<(&'static str, f64)> {
    let of = |value: fn(&Outcome) -> f64| {
        let values: Vec<_> = runs.iter().map(value).collect();
        standard_error(&values)
    };
    match runs {
        [run] => {
            let times: Vec<_> = run.fct_ns.iter().map(|&ns| ns as f64 / 1e3).collect();
            vec![("mean_error_us", standard_error(&times))]
        }
        _ => vec![
            ("mean_error_us", of(Outcome::mean_us)),
            ("p99_error_us", of(|run| run.tail_us(0.01))),
        ],
    }
}

/// Ways of repairing losses on one network, beside Go-Back-N.
struct Table<'a> {
    panel: Panel<'a>,
    x: f64,
    plain: [f64; MEASURES.len()],
}

impl<'a> Table<'a> {
    fn new(panel: Panel<'a>, x: f64, plain: &[Outcome]) -> Self {
        let plain = means(plain);
        Self { panel, x, plain }
    }

    fn row(&self, name: &str, runs: &[Outcome]) {
        let means = means(runs);
        for ((measure, _), value) in MEASURES.iter().zip(means) {
            self.panel.add(name, self.x, measure, value);
        }
        for (measure, value) in errors_us(runs) {
            self.panel.add(name, self.x, measure, value);
        }
        let change = |at: usize| (means[at] / self.plain[at] - 1.0) * 100.0;
        let [
            mean,
            tail,
            repeated,
            timeouts,
            dropped,
            recovered,
            in_vain,
            notices,
            changes,
        ] = means;
        println!(
            "{name:<26} {mean:>8.0} {:>6.1}% {tail:>8.0} {:>6.1}% {repeated:>9.0} {timeouts:>8.1}              {dropped:>8.0} {recovered:>9.0} {in_vain:>8.0} {notices:>7.0} {changes:>7.0}",
            change(0),
            change(1),
        );
    }
}

/// The sender's pool and the receiver's reordering buffer.
fn print_memory(run: &Outcome, loss: f64, panel: &Panel<'_>) {
    let used: Vec<_> = run.held_bytes.iter().filter(|bytes| **bytes > 0).collect();
    let mean = used.iter().map(|bytes| **bytes as f64).sum::<f64>() / used.len().max(1) as f64;
    let pool_kb = run.boxes.peak_pool_bytes as f64 / 1000.0;
    let (peak_kb, mean_kb) = (run.boxes.peak_held_bytes as f64 / 1000.0, mean / 1000.0);
    println!(
        "    pool {pool_kb:.0} KB; reordering buffer peak {peak_kb:.0} KB, mean while used          {mean_kb:.0} KB"
    );
    panel.add("duplicate pool", loss, "peak_kb", pool_kb);
    panel.add("reordering buffer", loss, "peak_kb", peak_kb);
    panel.add("reordering buffer", loss, "mean_kb", mean_kb);
}
