//! A bounded run of the swarm, and the replay of one seed.
//!
//! `FARWRITE_SWARM_SEED=0x1234 cargo test -p farwrite-swarm --test swarm replay -- --nocapture`
//! runs one case, shrinks it if it breaks a rule, and prints it.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use farwrite_swarm::{Plan, Table, check, explain, parse_seed};

/// Cases that are run in any case, however slow the machine is.
const FEWEST: u64 = 500;
/// Time in which further cases are begun.
const TIME: Duration = Duration::from_secs(45);
/// Most cases.
const MOST: u64 = 8_000;
/// Cases that must have met everything.
const ENOUGH: u64 = 2_000;
/// One of this many cases is run twice, and must be the same both times.
const TWICE: u64 = 16;

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(parse_seed(&text).unwrap_or_else(|error| panic!("{name}: {error}")))
}

fn work(next: &AtomicU64, start: Instant, table: &Mutex<Table>) -> Option<u64> {
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= MOST || (seed >= FEWEST && start.elapsed() > TIME) {
            return None;
        }
        let report = check(&Plan::draw(seed), seed.is_multiple_of(TWICE));
        if report.violation.is_some() {
            // No further seeds are begun.
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
        Mutex::new(Table::default()),
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
    // Past the capture of output: how many there were is part of a passed test, too.
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
