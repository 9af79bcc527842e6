//! A bounded run of the swarm, and the replay of one seed.
//!
//! `FARWRITE_SWARM_SEED=0x1234 cargo test -p farwrite-swarm --test swarm replay -- --nocapture`
//! runs one case, shrinks it if it breaks a rule, and prints it.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use farwrite_swarm::{CoverageTable, Plan, check, explain, parse_seed};

/// Lowest number of cases, even on a slow machine.
const FEWEST: u64 = 500;
/// No further cases start after this time.
const TIME: Duration = Duration::from_secs(20);
/// Highest number of cases.
const MOST: u64 = 8_000;
/// After this number of cases, all kinds must have been met.
const ENOUGH: u64 = 2_000;
/// One of this number of cases runs twice, and both runs must be equal.
const TWICE: u64 = 16;

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(parse_seed(&text).unwrap_or_else(|error| panic!("{name}: {error}")))
}

fn work(next: &AtomicU64, start: Instant, table: &Mutex<CoverageTable>) -> Option<u64> {
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= MOST || (seed >= FEWEST && start.elapsed() > TIME) {
            return None;
        }
        let report = check(&Plan::draw(seed), seed.is_multiple_of(TWICE));
        if report.violation.is_some() {
            // Start no further seeds.
            next.store(MOST, Ordering::Relaxed);
            return Some(seed);
        }
        let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
        table.add(&report.coverage);
    }
}

#[test]
fn no_case_breaks_a_rule() {
    let (next, start, table) = (
        AtomicU64::new(0),
        Instant::now(),
        Mutex::new(CoverageTable::default()),
    );
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let failed: Vec<u64> = std::thread::scope(|scope| {
        let spawn = |_| scope.spawn(|| work(&next, start, &table));
        let workers: Vec<_> = (0..threads).map(spawn).collect();
        let results = workers
            .into_iter()
            .map(|worker| worker.join().expect("no panic"));
        results.flatten().collect()
    });
    if let Some(&seed) = failed.iter().min() {
        panic!("{}", explain(seed, &Plan::draw(seed)));
    }
    let table = table.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{table}");
    // Write directly to stderr, so that the number of cases also appears for passed tests.
    let (cases, took) = (table.cases(), start.elapsed());
    writeln!(std::io::stderr(), "swarm: {cases} cases in {took:.0?}").expect("stderr");
    if cases >= ENOUGH {
        assert_eq!(table.holes(), Vec::<&str>::new(), "kinds that no case met");
    }
}

/// Runs the seed of `FARWRITE_SWARM_SEED`, or the first one.
#[test]
fn replay() {
    let seed = variable("FARWRITE_SWARM_SEED").unwrap_or(0);
    let plan = Plan::draw(seed);
    println!("{plan}");
    let report = check(&plan, true);
    match report.violation {
        None => println!("{} packets, hash {:#018x}", report.packets, report.hash),
        Some(violation) => panic!("{violation}\nshrunk:\n{}", explain(seed, &plan)),
    }
}
