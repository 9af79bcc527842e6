//! A bounded run of the swarm in networks of switches, and the replay of one seed.
//!
//! `FARWRITE_SWARM_SEED=0x1234 cargo test -p farwrite-swarm --test networks replay -- --nocapture`
//! runs one case, shrinks it if it breaks a rule, and prints it.

use std::time::{Duration, Instant};

use farwrite_swarm::{NetworkPlan, Tally, check_network, explain_network, parse_seed};

/// Cases that are run in any case, however slow the machine is.
const FEWEST: u64 = 60;
/// Time in which further cases are begun.
const TIME: Duration = Duration::from_secs(10);
/// Most cases.
const MOST: u64 = 2_000;
/// One of this many cases is run twice, and must be the same both times.
const TWICE: u64 = 8;

#[test]
fn no_case_in_a_network_breaks_a_rule() {
    let start = Instant::now();
    let mut tally = Tally::default();
    for seed in 0..MOST {
        if seed >= FEWEST && start.elapsed() > TIME {
            println!("{seed} cases");
            break;
        }
        let plan = NetworkPlan::draw(seed);
        let report = check_network(&plan, seed.is_multiple_of(TWICE));
        assert!(
            report.violation.is_none(),
            "{}",
            explain_network(seed, &plan)
        );
        tally += report.tally;
    }
    println!("{tally}");
    assert_eq!(tally.holes(), [""; 0], "kinds that no case met");
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
