//! Compares the adaptive controller with Swift, a model of BBR version 1, BBR version 3 and Copa on the
//! same grids of paths: `alone` (one flow) and `equals` (2 to 16 flows under the same controller).
//!
//! `cargo run --release -p farwrite-bench --example rate_controllers [CONTROLLER...]`: takes up to a minute
//! for each of `adaptive`, `swift`, `bbr`, `bbr3` and `copa`.

#[path = "../../../crates/rate/tests/common/mod.rs"]
mod common;
#[path = "../controllers/mod.rs"]
mod controllers;

use clap::Parser;
use common::case::{Case, FlowKind};
use common::grids;
use common::measure::CaseResult;
use common::network::run;
use farwrite_units::stats::median;

const CONTROLLERS: [(&str, FlowKind); 5] = [
    ("adaptive", FlowKind::Adaptive),
    ("swift", FlowKind::Swift),
    ("bbr", FlowKind::Bbr),
    ("bbr3", controllers::BBR3),
    ("copa", controllers::COPA),
];

/// The least use of a path, and the longest mean queue in round trips, that count as good.
const USED: f64 = 0.9;
const QUEUE: f64 = 0.25;
/// The least fairness that counts as good (Jain's index).
const FAIR: f64 = 0.9;
/// Packets on the path for each flow, below which no controller can share it.
const FLOW_PACKETS: f64 = 8.0;

#[derive(Parser)]
struct Args {
    /// Rate controllers; without any, all
    #[arg(value_parser = CONTROLLERS.map(|(name, _)| name))]
    controllers: Vec<String>,
}

fn main() {
    let Args { controllers } = Args::parse();
    let is_wanted =
        |name: &str| controllers.is_empty() || controllers.iter().any(|wanted| wanted == name);
    println!(
        "| grid | controller | cells | good | used: least, median | mean queue: median, most | dropped: median, most | Jain: least, median |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|---:|");
    for (name, kind) in CONTROLLERS.into_iter().filter(|(name, _)| is_wanted(name)) {
        let loss_is = |lossy: bool| move |case: &Case| (case.loss > 0.0) == lossy && !case.ecn;
        for (grid, lossy) in [("alone", false), ("alone, loss", true)] {
            let cells = grids::alone().filter(loss_is(lossy));
            print_row(grid, name, &results(kind, cells));
        }
        for (grid, lossy) in [("equals", false), ("equals, loss", true)] {
            let cells = grids::equals().filter(loss_is(lossy));
            print_row(grid, name, &results(kind, cells));
        }
    }
}

/// Runs all cells whose flows have room on the path.
fn results(kind: FlowKind, cells: impl Iterator<Item = Case>) -> Vec<CaseResult> {
    let has_room = |case: &Case| {
        let packets = case.path_bytes() / case.packet_bytes() as f64;
        packets >= FLOW_PACKETS * case.flows.len() as f64
    };
    let cells = cells.filter(has_room);
    cells.map(|case| run(&case.under(kind))).collect()
}

fn is_good(result: &CaseResult) -> bool {
    result.utilisation >= USED && result.queue_mean <= QUEUE && result.jain >= FAIR
}

fn print_row(grid: &str, name: &str, results: &[CaseResult]) {
    let sorted = |of: &dyn Fn(&CaseResult) -> f64| {
        let mut values: Vec<f64> = results.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let used = sorted(&|result| result.utilisation);
    let queue = sorted(&|result| result.queue_mean);
    let dropped = sorted(&|result| result.dropped);
    let jain = sorted(&|result| result.jain);
    println!(
        "| {grid} | {name} | {} | {} | {:.2}, {:.2} | {:.2}, {:.2} | {:.2} %, {:.1} % | {:.2}, {:.2} |",
        results.len(),
        results.iter().filter(|result| is_good(result)).count(),
        used[0],
        median(&used),
        median(&queue),
        queue[queue.len() - 1],
        median(&dropped) * 100.0,
        dropped[dropped.len() - 1] * 100.0,
        jain[0],
        median(&jain),
    );
}
