//! Completion times of an incast beside those of two public simulators: 15 and 50 senders of
//! 500 KB, begun 10 us apart, one switch, 50 Gbit/s.
//!
//! `cargo run --release -p farwrite-rc --example incast`

#[path = "../tests/common/incast.rs"]
mod incast;

use incast::{Outcome, Setup};

const SEEDS: u64 = 10;

/// Setup, name, and the means and p99 of the other simulator in us, for 15 and for 50 senders.
const ROWS: [(Setup, &str, [[f64; 2]; 2]); 5] = [
    (
        Setup::RoceAlone,
        "roce, PFC, no control (ns-3)",
        [[915.0, 1117.0], [3214.0, 3719.0]],
    ),
    (
        Setup::Roce,
        "roce, PFC, DCQCN (ns-3)",
        [[1167.0, 1400.0], [3332.0, 3904.0]],
    ),
    (
        Setup::RoceLossy,
        "roce, no PFC, DCQCN (ns-3)",
        [[2402.0, 4879.0], [5313.0, 9257.0]],
    ),
    (
        Setup::Irn,
        "irn, DCQCN (ns-3)",
        [[1088.0, 1378.0], [3593.0, 4372.0]],
    ),
    (
        Setup::Eqds,
        "eqds (htsim)",
        [[1106.0, 1178.0], [3760.0, 4006.0]],
    ),
];

fn main() {
    println!(
        "{:<30} {:>7} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6}",
        "",
        "senders",
        "mean us",
        "theirs",
        "p99 us",
        "theirs",
        "last us",
        "repeated",
        "trimmed",
        "drops"
    );
    for (setup, name, theirs) in ROWS {
        for (senders, [their_mean, their_p99]) in [15, 50].into_iter().zip(theirs) {
            let runs: Vec<_> = (0..SEEDS).map(|seed| setup.run(senders, seed)).collect();
            let mean = |value: fn(&Outcome) -> f64| {
                runs.iter().map(value).sum::<f64>() / runs.len() as f64
            };
            println!(
                "{name:<30} {senders:>7} {:>8.0} {their_mean:>8.0} {:>8.0} {their_p99:>8.0} {:>8.0} \
                 {:>8.0} {:>8.0} {:>6.0}",
                mean(Outcome::mean_us),
                mean(Outcome::p99_us),
                mean(|run| run.last_ns as f64 / 1000.0),
                mean(|run| run.repeated as f64),
                mean(|run| run.trimmed as f64),
                mean(|run| run.dropped as f64),
            );
        }
    }
}
