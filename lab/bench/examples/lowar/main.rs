//! The figures of LoWAR's paper in virtual time, over 10 Gbit/s with an MTU of 1024.
//!
//! - `goodput` (figure 9, claim L9): one connection over 40 and 80 ms with random losses, messages
//!   of 1 MB: Go-Back-N alone, LoWAR with fixed r and c, and LoWAR that adapts.
//! - `connections` (L9): 1 to 32 connections over 40 and 80 ms.
//! - `nics` (L9): NICs that restart slowly and have other timeouts, beside LoWAR, with one connection.
//! - `degradation` (figure 3, L3): Go-Back-N in a local network, also with a short timeout, and over 40 ms,
//!   with 1 to 32 connections.
//! - `times` (figure 10, L10): completion times of messages of 1 MB over 40 ms.
//! - `bursts` (figure 11, L11): LoWAR(64, 8) over 40 ms with bursts of losses, beside the best of other
//!   shapes.
//! - `small` (figure 12, L12): small messages, of which 128 are under way, over 40 ms at 0.1% loss.
//! - `latency` (figure 13, L13): one message of 1 MB in a local network, with chosen losses. LoWAR is inside
//!   NICs whose receive paths take different times, and then in boxes behind cables that are as fast as the
//!   path, and 4 and 40 times as fast.
//!
//! In `times` and `latency`, and with `--in-nic`, boxes know that the other one is there, so they protect
//! connections from the first packet on. In the rest, the first round trip of a run is unprotected.
//!
//! Without a name: all. `--help` lists the options.
#![allow(
    clippy::cast_possible_truncation,
    reason = "small numbers of an example"
)]

mod case;
mod degradation;
mod goodput;
mod latency;
#[path = "../../../../crates/boxes/tests/common/network.rs"]
mod network;
mod nics;
mod options;
#[path = "../common/rows.rs"]
mod rows;

use std::collections::BTreeSet;
use std::time::Instant;

use case::Case;
use clap::Parser;
use farwrite_boxes::lowar::{BlockShape, Coding};
use farwrite_experiment::parallel_map;
use farwrite_link::Rng;
use farwrite_net::Loss;
use farwrite_units::stats::{mean, percentile, standard_error};
use options::Options;
use rows::Rows;

/// How often a burst of losses begins, per packet.
const BURSTS: f64 = 1e-4;
/// Fixed shapes beside LoWAR(64, 8) under bursts.
const BURST_SHAPES: [(u16, u8); 3] = [(256, 8), (256, 16), (256, 32)];
/// The messages of most figures.
const LONG: &str = "messages of 1 MB";

fn main() {
    let options = Options::parse();
    options.check().unwrap_or_else(|wrong| {
        eprintln!("{wrong}");
        std::process::exit(2)
    });
    let rows = Rows::new();
    let began = Instant::now();
    if options.wants("goodput") {
        for rtt in options.rtts() {
            goodput::of_one(&options, rtt, &rows);
        }
        println!(
            "paper, (32,1) beside a ConnectX-5: 2.05 (1e-5) to 5.01 (1e-4) at 40 ms, 11.55 to \
             19.07 at 80 ms"
        );
    }
    if options.wants("connections") {
        goodput::of_many(&options, &rows);
    }
    if options.wants("nics") {
        nics::of_all(&options, &rows);
    }
    if options.wants("degradation") {
        degradation::of_all(&options, &rows);
    }
    if options.wants("times") {
        times(&options, &rows);
    }
    if options.wants("bursts") {
        bursts(&options, &rows);
    }
    if options.wants("small") {
        small(&options, &rows);
    }
    if options.wants("latency") {
        latency::of_all(&options, &rows);
    }
    rows.write(options.csv.as_deref());
    println!("{:.0} s", began.elapsed().as_secs_f64());
}

fn fixed(packets: u16, units: u8) -> Option<Coding> {
    Some(Coding::Fixed(
        BlockShape::new(packets, units).expect("a shape"),
    ))
}

/// The name of what repairs losses.
fn series(coding: Option<Coding>) -> String {
    match coding {
        None => "Go-Back-N".into(),
        Some(Coding::Fixed(shape)) => format!("LoWAR({}, {})", shape.packets(), shape.units()),
        Some(Coding::Adaptive) => "LoWAR, adaptive".into(),
    }
}

fn iid(loss_packet: f64) -> Loss {
    if loss_packet > 0.0 {
        Loss::Iid { loss_packet }
    } else {
        Loss::None
    }
}

/// L10.
fn times(options: &Options, rows: &Rows) {
    /// Messages of a run of a second.
    const COUNT: f64 = 500.0;
    let count = (COUNT * options.seconds).ceil() as u64;
    let conditions = options.case().conditions();
    let conditions = format!("{conditions}, {count} {LONG} one after the other in each run");
    let panel = options.panel(rows, "L10", "times", &conditions);
    println!("round trip 40 ms, one message of 1 MB after the other; time in ms");
    println!(
        "{:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "loss", "GBN", "p99", "(32,1)", "p99", "(8,1)", "p99"
    );
    for loss in [0.0, 1e-5, 1e-4, 5e-4, 1e-3] {
        let run = |coding| {
            let case = Case {
                peer_known: true,
                loss: iid(loss),
                coding,
                ..options.case()
            };
            let seeds: Vec<u64> = (case.seed..case.seed + case.runs).collect();
            let times = parallel_map(&seeds, |&seed| Case { seed, ..case }.times_us(count, None));
            let mut times = times.concat();
            times.sort_by(f64::total_cmp);
            let tail = percentile(&times, 99).unwrap_or(f64::NAN);
            let all = [mean(&times), tail, standard_error(&times)];
            let [mean, tail, error] = all.map(|us| us / 1000.0);
            panel.add(&series(coding), loss, "mean_ms", mean);
            panel.add(&series(coding), loss, "p99_ms", tail);
            panel.add(&series(coding), loss, "error_ms", error);
            [mean, tail]
        };
        let [plain, wide, narrow] = [None, fixed(32, 1), fixed(8, 1)].map(run);
        println!(
            "{loss:>8.0e} {:>8.2} {:>8.2} {:>8.2} {:>8.2} {:>8.2} {:>8.2}",
            plain[0], plain[1], wide[0], wide[1], narrow[0], narrow[1]
        );
    }
    println!(
        "paper: ConnectX-5 12% above LoWAR at 1e-4 and 97% at 5e-4; LoWAR flat, its tail from"
    );
    println!("       1e-3 on");
}

/// L11. Bursts begin at 0.01% of the packets, and lose a share `p_high` of theirs. They have a fixed
/// number of data packets, or a mean one (a Markov chain, so some are much longer).
fn bursts(options: &Options, rows: &Rows) {
    for kind in &options.lengths {
        bursts_of(options, kind, rows);
    }
    println!("paper: (64,8) about 8 up to bursts of 8 and beyond; Go-Back-N declines");
}

fn bursts_of(options: &Options, kind: &str, rows: &Rows) {
    let is_fixed = kind == "fixed";
    let runs = options.case().runs();
    println!("round trip 40 ms, bursts of a {kind} length, {runs}; goodput in Gbit/s");
    println!(
        "{:>6} {:>6} {:>8} {:>8} {:>8} {:>8} {:>20}",
        "p_high", "burst", "GBN", "(64,8)", "adaptive", "of best", "best fixed"
    );
    for loss_bad in [0.3, 0.7] {
        let conditions = options.case().goodput_conditions(LONG);
        let conditions = format!("{conditions}, a burst begins at {BURSTS} of the packets");
        let name = format!("{kind} length, {loss_bad} lost");
        let panel = options.panel(rows, "L11", &name, &conditions);
        for &burst in &options.bursts {
            let markov = Loss::Markov {
                p_good_to_bad: BURSTS,
                p_bad_to_good: 1.0 / f64::from(burst),
                loss_good: 0.0,
                loss_bad,
            };
            let run = |coding| {
                let case = Case {
                    loss: if is_fixed { Loss::None } else { markov },
                    coding,
                    ..options.case()
                };
                let lost = |case: &Case| is_fixed.then(|| fixed_bursts(case, burst, loss_bad));
                let goodput = case.goodput(&lost);
                let goodput = goodput.add_to(&panel, &series(coding), burst.into(), case.runs);
                goodput.mean
            };
            let [plain, coded, adaptive] = [None, fixed(64, 8), Some(Coding::Adaptive)].map(run);
            let others = BURST_SHAPES.map(|(r, c)| ((r, c), run(fixed(r, c))));
            let best = [((64, 8), coded)].into_iter().chain(others);
            let best = best.max_by(|a, b| a.1.total_cmp(&b.1));
            let (shape, best) = best.expect("several shapes");
            println!(
                "{loss_bad:>6} {burst:>6} {plain:>8.3} {coded:>8.3} {adaptive:>8.3} {:>8.3} {:>20}",
                adaptive / best,
                format!("{shape:?}: {best:.3}")
            );
        }
    }
}

/// The numbers of lost packets, in a run with the seed of this case.
fn fixed_bursts(case: &Case, burst: u32, loss_bad: f64) -> BTreeSet<u64> {
    // Other draws than those of the path, which begin from the seed itself.
    let mut rng = Rng::new(case.seed + 2);
    let mut lost = BTreeSet::new();
    let mut at = 0;
    let packets = case.most_packets();
    while at < packets {
        if rng.chance(BURSTS) {
            lost.extend((at..at + u64::from(burst)).filter(|_| rng.chance(loss_bad)));
            at += u64::from(burst);
        }
        at += 1;
    }
    lost
}

/// L12.
fn small(options: &Options, rows: &Rows) {
    const LOSS: f64 = 1e-3;
    let runs = options.case().runs();
    println!("round trip 40 ms, 128 messages under way, {runs}; goodput in Gbit/s");
    println!(
        "{:>8} {:>9} {:>9} {:>9} {:>9} {:>12}",
        "bytes", "lossless", "GBN 0.1%", "(32,1)", "(8,1)", "(32,1) keeps"
    );
    let case = Case {
        queue: 128,
        seconds: 5.0 * options.seconds,
        ..options.case()
    };
    let conditions = case.goodput_conditions("messages");
    let conditions = format!("{conditions}, {LOSS:e} of the packets lost");
    let panel = options.panel(rows, "L12", "small messages", &conditions);
    for message_bytes in [1 << 10, 4 << 10, 16 << 10, 64 << 10] {
        let run = |(loss, coding)| {
            let case = Case {
                loss: iid(loss),
                coding,
                message_bytes,
                ..case
            };
            let goodput = case.goodput(&|_| None);
            let name = if loss > 0.0 {
                series(coding)
            } else {
                "without loss".into()
            };
            goodput
                .add_to(&panel, &name, message_bytes.into(), case.runs)
                .mean
        };
        let runs = [
            (0.0, None),
            (LOSS, None),
            (LOSS, fixed(32, 1)),
            (LOSS, fixed(8, 1)),
        ];
        let [lossless, plain, coded, more] = runs.map(run);
        println!(
            "{message_bytes:>8} {lossless:>9.4} {plain:>9.4} {coded:>9.4} {more:>9.4} {:>12.3}",
            coded / lossless
        );
    }
    println!("paper: LoWAR nearly equals lossless, the ConnectX-5 falls");
}
