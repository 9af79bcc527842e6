//! A bounded run of the swarm in networks of switches, and the replay of one seed.
//!
//! `FARWRITE_SWARM_SEED=0x1234 cargo test -p farwrite-swarm --test networks replay -- --nocapture`
//! runs one case, shrinks it if it breaks a rule, and prints it.

use std::io::Write;
use std::time::{Duration, Instant};

use farwrite_swarm::{NetworkPlan, NetworkTally, check_network, explain_network, parse_seed};

/// Lowest number of cases, even on a slow machine.
const FEWEST: u64 = 60;
/// No further cases start after this time.
const TIME: Duration = Duration::from_secs(10);
/// Highest number of cases.
const MOST: u64 = 2_000;
/// After this number of cases, all kinds must have been met.
const ENOUGH: u64 = 200;
/// One of this number of cases runs twice, and both runs must be equal.
const TWICE: u64 = 8;

#[test]
fn no_case_in_a_network_breaks_a_rule() {
    let start = Instant::now();
    let mut tally = NetworkTally::default();
    let mut cases = 0;
    while cases < FEWEST || (cases < MOST && start.elapsed() < TIME) {
        let seed = cases;
        let plan = NetworkPlan::draw(seed);
        let report = check_network(&plan, seed.is_multiple_of(TWICE));
        assert!(
            report.violation.is_none(),
            "{}",
            explain_network(seed, &plan)
        );
        tally += report.tally;
        cases += 1;
    }
    println!("{tally}");
    // Write directly to stderr, so that the number of cases also appears for passed tests.
    let took = start.elapsed();
    writeln!(std::io::stderr(), "networks: {cases} cases in {took:.0?}").expect("stderr");
    if cases >= ENOUGH {
        assert_eq!(tally.holes(), [""; 0], "kinds that no case met");
    }
}

/// Runs the seed of `FARWRITE_SWARM_SEED`, or the first one.
#[test]
fn replay() {
    let seed = std::env::var("FARWRITE_SWARM_SEED").ok();
    let seed = seed.map_or(Ok(0), |text| parse_seed(&text));
    let seed = seed.expect("FARWRITE_SWARM_SEED is a seed");
    let plan = NetworkPlan::draw(seed);
    let report = check_network(&plan, true);
    match report.violation {
        None => println!("{plan:#?}\nhash {:#018x}\n{}", report.hash, report.tally),
        Some(violation) => panic!("{violation}\nshrunk:\n{}", explain_network(seed, &plan)),
    }
}
