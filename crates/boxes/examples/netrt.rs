//! The figures of NetRT's paper (claims N6 to N9) in virtual time: Go-Back-N behind NetRT boxes
//! beside Go-Back-N alone, Go-Back-N with PFC, and IRN.
//!
//! `netrt chain`: random losses on a chain of five nodes (figures 6 and 7). `netrt incast`: many
//! senders to one receiver (figure 8). `netrt spines`: packets that take several paths (figure 9 and
//! table III). Without an argument: all three. `--seeds N` sets the runs of incast and spines, 5
//! unless given.

#[path = "../tests/common/racks.rs"]
mod racks;

use std::time::Instant;

use farwrite_boxes::netrt::Config;
use farwrite_net::Policy;
use racks::{Outcome, Racks, Repair, Scene};

const DRILL: Policy = Policy::Drill { d: 2, m: 1 };

fn main() {
    let (figures, seeds) = arguments();
    let wants = |name: &str| figures.is_empty() || figures.iter().any(|figure| figure == name);
    let began = Instant::now();
    if wants("chain") {
        chain();
    }
    if wants("incast") {
        incast(seeds);
    }
    if wants("spines") {
        spines(seeds);
    }
    println!("{:.0} s", began.elapsed().as_secs_f64());
}

/// The figures and the number of seeds.
fn arguments() -> (Vec<String>, u64) {
    let (mut figures, mut seeds) = (Vec::new(), 5);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--seeds" => {
                let number = args.next().and_then(|number| number.parse().ok());
                seeds = number
                    .filter(|&seeds| seeds > 0)
                    .expect("--seeds needs a number from 1 on");
            }
            "chain" | "incast" | "spines" => figures.push(arg),
            _ => panic!("{arg}: the figures are chain, incast and spines; the option is --seeds"),
        }
    }
    (figures, seeds)
}

/// N6 and N7.
fn chain() {
    println!("chain, 10 Gbit/s, 200 writes, losses towards the receiver; times in us");
    head("repair");
    for bytes in [10_000, 100_000, 1_000_000] {
        for loss in [0.001, 0.005, 0.01, 0.05] {
            println!("{bytes} bytes, loss {loss}");
            let scene = Scene::chain(bytes, loss, 200);
            let plain = run(&scene, &Repair::Gbn, 1);
            print_row("Go-Back-N", &plain, &plain);
            for products in [1, 2, 4] {
                let boxes = run(&scene, &netrt(&scene, products), 1);
                print_row(&format!("NetRT, pool {products} BDP"), &boxes, &plain);
                if products == 1 {
                    print_memory(&boxes[0]);
                }
            }
        }
    }
    println!(
        "paper: mean up to 75% lower than Go-Back-N, flat in the loss; pool 128 KB; buffer 37 KB, mean 15 KB"
    );
}

/// N8.
fn incast(seeds: u64) {
    println!(
        "\nincast, 500 KB each, 10 us apart, 50 Gbit/s, DCQCN; times in us, means of {seeds} seeds"
    );
    for buffer_mib in [2, 9] {
        for senders in [15, 30, 50] {
            let scene = Scene {
                buffer_bytes: buffer_mib << 20,
                ..Scene::incast(senders)
            };
            head(&format!("{senders} senders, {buffer_mib} MiB"));
            let plain = run(&scene, &Repair::Gbn, seeds);
            print_row("Go-Back-N", &plain, &plain);
            print_row(
                "Go-Back-N and PFC",
                &run(&scene, &Repair::GbnPfc, seeds),
                &plain,
            );
            print_row("IRN", &run(&scene, &Repair::Irn, seeds), &plain);
            for products in [1, 4, 16, 32] {
                let boxes = run(&scene, &netrt(&scene, products), seeds);
                print_row(&format!("NetRT, pool {products} BDP"), &boxes, &plain);
            }
        }
    }
    println!("paper: mean 34 to 47% lower than Go-Back-N, tail 14 to 34%; PFC mean 25 to 35%");
}

/// N9.
fn spines(seeds: u64) {
    println!(
        "\n15 senders of 1 MB to one receiver, over spines; times in us, means of {seeds} seeds"
    );
    for paths in [2, 4, 8] {
        head(&format!("{paths} spines"));
        let ecmp = Scene::spines(paths, Policy::Ecmp);
        let drill = Scene::spines(paths, DRILL);
        let plain = run(&drill, &Repair::Gbn, seeds);
        print_row("ECMP, Go-Back-N", &run(&ecmp, &Repair::Gbn, seeds), &plain);
        print_row("DRILL, Go-Back-N", &plain, &plain);
        print_row("DRILL, IRN", &run(&drill, &Repair::Irn, seeds), &plain);
        print_row(
            "DRILL, NetRT",
            &run(&drill, &netrt(&drill, 1), seeds),
            &plain,
        );
        let late = Config {
            request_delay_ns: 5_000,
            ..drill.netrt(1)
        };
        let boxes = run(&drill, &Repair::NetRt(late), seeds);
        print_row("DRILL, NetRT, 5 us delay", &boxes, &plain);
    }
    println!("paper: mean 37 to 60% lower than DRILL alone, no repeats by NICs");
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
        "{what:<26} {:>8} {:>7} {:>8} {:>7} {:>9} {:>8} {:>8} {:>9} {:>8} {:>7}",
        "mean",
        "change",
        "p99",
        "change",
        "e2e rep.",
        "timeouts",
        "lost",
        "recovered",
        "in vain",
        "notices"
    );
}

fn print_row(name: &str, runs: &[Outcome], plain: &[Outcome]) {
    let mean = |runs: &[Outcome], value: fn(&Outcome) -> f64| {
        runs.iter().map(value).sum::<f64>() / runs.len() as f64
    };
    let change = |value| (mean(runs, value) / mean(plain, value) - 1.0) * 100.0;
    let tail = |run: &Outcome| run.tail_us(0.01);
    println!(
        "{name:<26} {:>8.0} {:>6.1}% {:>8.0} {:>6.1}% {:>9.0} {:>8.1} {:>8.0} {:>9.0} {:>8.0} {:>7.0}",
        mean(runs, Outcome::mean_us),
        change(Outcome::mean_us),
        mean(runs, tail),
        change(tail),
        mean(runs, |run| run.repeated as f64),
        mean(runs, |run| run.timeouts as f64),
        mean(runs, |run| run.dropped as f64),
        mean(runs, |run| run.boxes.recovered as f64),
        mean(runs, |run| run.boxes.copies_dropped as f64),
        mean(runs, |run| run.boxes.notices_sent as f64),
    );
}

/// The sender's pool and the receiver's reordering buffer.
fn print_memory(run: &Outcome) {
    let kb = |bytes: u64| bytes as f64 / 1000.0;
    let used: Vec<_> = run.held_bytes.iter().filter(|bytes| **bytes > 0).collect();
    let mean = used.iter().map(|bytes| **bytes as f64).sum::<f64>() / used.len().max(1) as f64;
    println!(
        "    pool {:.0} KB; reordering buffer peak {:.0} KB, mean while used {:.0} KB",
        kb(run.boxes.peak_pool_bytes),
        kb(run.boxes.peak_held_bytes),
        mean / 1000.0
    );
}
