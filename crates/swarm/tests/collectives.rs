//! A bounded run of the cases of collectives, and the replay of one seed.
//!
//! `FARWRITE_SWARM_SEED=0x1234 cargo test -p farwrite-swarm --test collectives replay -- --nocapture` runs
//! one case and prints it.

mod runner;

use std::time::Duration;

use farwrite_swarm::collectives::{CollectivePlan, KINDS, check};
use runner::{Runner, replayed_seed};

const RUNNER: Runner = Runner {
    program: "collectives",
    fewest: 60,
    time: Duration::from_secs(8),
    most: 2_000,
    enough: 500,
    twice: 16,
};

#[test]
fn no_case_breaks_a_rule() {
    RUNNER.count(&KINDS, |seed, twice| {
        let report = check(&CollectivePlan::draw(seed), twice);
        (report.violation, report.met)
    });
}

/// Runs the seed of `FARWRITE_SWARM_SEED`, or the first one.
#[test]
fn replay() {
    let plan = CollectivePlan::draw(replayed_seed());
    println!("{plan}");
    let report = check(&plan, true);
    match report.violation {
        None => println!("hash {:#018x}, met {:?}", report.hash, report.met),
        Some(violation) => panic!("{violation}"),
    }
}
