//! A bounded run of the cases of collectives, and the replay of one seed.
//!
//! `FARWRITE_SWARM_SEED=0x1234 cargo test -p farwrite-swarm --test collectives replay -- --nocapture` runs
//! one case and prints it.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

use farwrite_swarm::collectives::{CollectivePlan, KINDS, check};
use farwrite_swarm::parse_seed;

/// Lowest number of cases, even on a slow machine.
const FEWEST: u64 = 60;
/// No further cases start after this time.
const TIME: Duration = Duration::from_secs(8);
/// Highest number of cases.
const MOST: u64 = 2_000;
/// After this number of cases, all kinds must have been met.
const ENOUGH: u64 = 500;
/// One of this number of cases runs twice, and both runs must be equal.
const TWICE: u64 = 16;

#[test]
fn no_case_breaks_a_rule() {
    let start = Instant::now();
    let mut counts: BTreeMap<_, u64> = KINDS.into_iter().map(|kind| (kind, 0)).collect();
    let mut cases = 0;
    while cases < FEWEST || (cases < MOST && start.elapsed() < TIME) {
        let seed = cases;
        let plan = CollectivePlan::draw(seed);
        let report = check(&plan, seed.is_multiple_of(TWICE));
        if let Some(violation) = report.violation {
            panic!(
                "seed {seed:#x}: {violation}\nFARWRITE_SWARM_SEED={seed:#x} \
                 cargo test -p farwrite-swarm --test collectives replay -- --nocapture"
            );
        }
        for kind in report.met {
            *counts.get_mut(kind).expect("a kind of the table") += 1;
        }
        cases += 1;
    }
    println!("{counts:#?}");
    // Write directly to stderr, so that the number of cases also appears for passed tests.
    let took = start.elapsed();
    writeln!(
        std::io::stderr(),
        "collectives: {cases} cases in {took:.0?}"
    )
    .expect("stderr");
    if cases >= ENOUGH {
        let holes = counts.iter().filter(|(_, count)| **count == 0);
        let holes: Vec<_> = holes.map(|(kind, _)| kind).collect();
        assert_eq!(holes, Vec::<&&str>::new(), "kinds that no case met");
    }
}

/// Runs the seed of `FARWRITE_SWARM_SEED`, or the first one.
#[test]
fn replay() {
    let text = std::env::var("FARWRITE_SWARM_SEED").unwrap_or("0".into());
    let seed = parse_seed(&text).unwrap_or_else(|error| panic!("{error}"));
    let plan = CollectivePlan::draw(seed);
    println!("{plan}");
    let report = check(&plan, true);
    match report.violation {
        None => println!("hash {:#018x}, met {:?}", report.hash, report.met),
        Some(violation) => panic!("{violation}"),
    }
}
