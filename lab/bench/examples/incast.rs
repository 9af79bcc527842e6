//! Prints completion times of incasts next to those of two public simulators: ns-3 in `ConWeave`'s
//! tree for `roce` and `irn`, htsim for `eqds`. For htsim, the retransmissions of `eqds` are the
//! trimmed packets.
//!
//! `cargo run --release -p farwrite-bench --example incast`

#[path = "../../../crates/rc/tests/rc/common/incast.rs"]
mod incast;

use farwrite_net::Policy;
use farwrite_units::stats;
use incast::{Outcome, Scene, Setup};

const SEEDS: u64 = 20;
const DRILL: Policy = Policy::Drill { d: 2, m: 1 };

/// The mean, the p99 and the number of retransmissions of the other simulator.
type Theirs = [Option<u32>; 3];

/// A row: its name, its scene, and the values of the other simulator.
type Row = (&'static str, Setup, Scene, Theirs);

/// Values of ns-3 that stand beside two settings.
const ROCE_15: Theirs = known(1167, 1400, 0);
const ROCE_50: Theirs = known(3332, 3904, 0);
const NO_PFC_15: Theirs = known(2402, 4879, 3022);
const IRN_15: Theirs = known(1088, 1378, 0);
const IRN_50: Theirs = [Some(3593), Some(4372), None];
const ROCE_ECMP: Theirs = [Some(3311), None, Some(0)];
const ROCE_DRILL: Theirs = [Some(4398), None, Some(4130)];
const IRN_DRILL: Theirs = [Some(3515), None, Some(240)];

fn main() {
    print_stars();
    print_leaves();
    print_ns3_rules();
}

fn print_stars() {
    println!("15 and 50 senders of 500 KB, begun 10 us apart, one switch, 50 Gbit/s");
    head();
    let star = Scene::star;
    let rows: [Row; 10] = [
        (
            "roce-nocc, 15",
            Setup::RoceAlone,
            star(15),
            known(915, 1117, 0),
        ),
        (
            "roce-nocc, 50",
            Setup::RoceAlone,
            star(50),
            known(3214, 3719, 0),
        ),
        ("roce, 15", Setup::Roce, star(15), ROCE_15),
        ("roce, 50", Setup::Roce, star(50), ROCE_50),
        ("roce, no PFC, 15", Setup::RoceLossy, star(15), NO_PFC_15),
        (
            "roce, no PFC, 50",
            Setup::RoceLossy,
            star(50),
            known(5313, 9257, 31868),
        ),
        ("irn, 15", Setup::Irn, star(15), IRN_15),
        ("irn, 50", Setup::Irn, star(50), IRN_50),
        ("eqds, 15", Setup::Eqds, star(15), known(1106, 1178, 113)),
        ("eqds, 50", Setup::Eqds, star(50), known(3760, 4006, 422)),
    ];
    rows.iter().for_each(print);
}

fn print_leaves() {
    println!("\n15 senders of 1 MB, begun together, from one leaf to a host of another, 8 spines");
    head();
    let rows: [Row; 4] = [
        (
            "roce, ECMP",
            Setup::Roce,
            Scene::leaves(Policy::Ecmp),
            ROCE_ECMP,
        ),
        ("roce, DRILL", Setup::Roce, Scene::leaves(DRILL), ROCE_DRILL),
        ("irn, DRILL", Setup::Irn, Scene::leaves(DRILL), IRN_DRILL),
        (
            "eqds, sprayed",
            Setup::Eqds,
            Scene::leaves(Policy::Spray),
            [None; 3],
        ),
    ];
    rows.iter().for_each(print);
}

fn print_ns3_rules() {
    println!("\nWith the rules of ns-3: NAKs, congestion notifications, DCQCN's timing");
    head();
    let star = |senders| Scene::star(senders).by_ns3_rules();
    let leaves = |routing| Scene::leaves(routing).by_ns3_rules();
    let rows: [Row; 9] = [
        ("roce, 15", Setup::Roce, star(15), ROCE_15),
        ("roce, 50", Setup::Roce, star(50), ROCE_50),
        ("roce, no PFC, 15", Setup::RoceLossy, star(15), NO_PFC_15),
        (
            "the same, jittered",
            Setup::RoceLossy,
            star(15).jittered(),
            NO_PFC_15,
        ),
        ("irn, 15", Setup::Irn, star(15), IRN_15),
        ("irn, 50", Setup::Irn, star(50), IRN_50),
        ("roce, ECMP", Setup::Roce, leaves(Policy::Ecmp), ROCE_ECMP),
        ("roce, DRILL", Setup::Roce, leaves(DRILL), ROCE_DRILL),
        ("irn, DRILL", Setup::Irn, leaves(DRILL), IRN_DRILL),
    ];
    rows.iter().for_each(print);
}

const fn known(mean: u32, p99: u32, repeated: u32) -> Theirs {
    [Some(mean), Some(p99), Some(repeated)]
}

fn head() {
    println!(
        "{:<22} {:>6} {:>12} {:>6} {:>6} {:>6} {:>8} {:>6} {:>6}",
        "us; means of 20 seeds",
        "mean",
        "least-most",
        "theirs",
        "p99",
        "theirs",
        "repeated",
        "theirs",
        "drops"
    );
}

fn print((name, setup, scene, theirs): &Row) {
    let runs: Vec<_> = (0..SEEDS).map(|seed| setup.run(scene, seed)).collect();
    let mean = |value: fn(&Outcome) -> f64| stats::mean(runs.iter().map(value));
    let [their_mean, their_p99, their_repeated] =
        theirs.map(|value| value.map_or("-".into(), |value| value.to_string()));
    let least = runs.iter().map(Outcome::mean_us).fold(f64::MAX, f64::min);
    let most = runs.iter().map(Outcome::mean_us).fold(0.0, f64::max);
    let range = format!("{least:.0}-{most:.0}");
    println!(
        "{name:<22} {:>6.0} {range:>12} {their_mean:>6} {:>6.0} {their_p99:>6} {:>8.0} \
         {their_repeated:>6} {:>6.0}",
        mean(Outcome::mean_us),
        mean(Outcome::p99_us),
        mean(|run| run.repeated as f64),
        mean(|run| run.dropped as f64),
    );
}
