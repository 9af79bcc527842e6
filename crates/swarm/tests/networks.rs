//! A bounded run of the swarm in networks of switches, and the replay of one seed.
//!
//! `FARWRITE_SWARM_SEED=0x1234 cargo test -p farwrite-swarm --test networks replay -- --nocapture`
//! runs one case, shrinks it if it breaks a rule, and prints it.

mod runner;

use std::time::Duration;

use farwrite_swarm::{NetworkCounts, NetworkPlan, check_network, explain_network};
use runner::{Runner, replayed_seed};

const RUNNER: Runner = Runner {
    program: "networks",
    fewest: 60,
    time: Duration::from_secs(7),
    most: 2_000,
    enough: 500,
    twice: 8,
};

#[test]
fn no_case_in_a_network_breaks_a_rule() {
    let mut counts = NetworkCounts::default();
    let is_enough = RUNNER.run(|seed, twice| {
        let plan = NetworkPlan::draw(seed);
        let report = check_network(&plan, twice);
        assert!(
            report.violation.is_none(),
            "{}",
            explain_network(seed, &plan)
        );
        counts += report.counts;
    });
    println!("{counts}");
    if is_enough {
        assert_eq!(counts.holes(), [""; 0], "kinds that no case met");
    }
}

/// Runs the seed of `FARWRITE_SWARM_SEED`, or the first one.
#[test]
fn replay() {
    let seed = replayed_seed();
    let plan = NetworkPlan::draw(seed);
    let report = check_network(&plan, true);
    match report.violation {
        None => println!("{plan:#?}\nhash {:#018x}\n{}", report.hash, report.counts),
        Some(violation) => panic!("{violation}\nshrunk:\n{}", explain_network(seed, &plan)),
    }
}
