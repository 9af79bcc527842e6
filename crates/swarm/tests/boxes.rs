//! A bounded run of the cases of boxes, and the replay of one seed.
//!
//! `FARWRITE_SWARM_SEED=0x1234 cargo test -p farwrite-swarm --test boxes replay -- --nocapture` runs
//! one case and prints it.

mod runner;

use std::time::Duration;

use farwrite_swarm::boxes::{BoxPlan, KINDS, check};
use runner::{Runner, replayed_seed};

const RUNNER: Runner = Runner {
    program: "boxes",
    fewest: 200,
    time: Duration::from_secs(10),
    most: 4_000,
    enough: 2_000,
    twice: 16,
};

#[test]
fn no_case_breaks_a_rule() {
    RUNNER.count(&KINDS, |seed, twice| {
        let report = check(&BoxPlan::draw(seed), twice);
        (report.violation, report.met)
    });
}

/// Runs the seed of `FARWRITE_SWARM_SEED`, or the first one.
#[test]
fn replay() {
    let plan = BoxPlan::draw(replayed_seed());
    println!("{plan}");
    let report = check(&plan, true);
    match report.violation {
        None => println!("hash {:#018x}, met {:?}", report.hash, report.met),
        Some(violation) => panic!("{violation}"),
    }
}
