//! A bounded run of many cases of a kind, one seed after another, and the replay of one seed.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use farwrite_swarm::{Case, CoverageTable, Violation, parse_seed};

/// How many cases a test runs.
pub(crate) struct Runner {
    /// Lowest number of cases, even on a slow machine.
    pub(crate) fewest: u64,
    /// No further cases start after this time.
    pub(crate) time: Duration,
    /// Highest number of cases.
    pub(crate) most: u64,
    /// After this number of cases, all kinds of events must have been met.
    pub(crate) enough: u64,
    /// One of this number of cases runs twice, and both runs must be equal.
    pub(crate) twice: u64,
}

impl Runner {
    /// Runs cases on all cores, and counts the kinds of events that they meet. Fails at a case that breaks a rule, and
    /// if enough cases leave a kind out.
    pub(crate) fn run<C: Case>(&self) {
        let (next, start) = (AtomicU64::new(0), Instant::now());
        let table = Mutex::new(CoverageTable::of::<C>());
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let failed: Vec<(u64, Violation)> = thread::scope(|scope| {
            let work = |_| scope.spawn(|| self.work::<C>(&next, start, &table));
            let workers: Vec<_> = (0..threads).map(work).collect();
            let ended = workers.into_iter().map(|worker| worker.join());
            ended.filter_map(|ended| ended.expect("no panic")).collect()
        });
        if let Some((seed, violation)) = failed.into_iter().min_by_key(|(seed, _)| *seed) {
            panic!("{violation}\n{}", C::draw(seed).explain(seed));
        }
        let table = table.into_inner().unwrap_or_else(PoisonError::into_inner);
        println!("{table}");
        // Write directly to stderr, so that the number of cases also appears for passed tests.
        let (cases, took) = (table.cases(), start.elapsed());
        writeln!(
            std::io::stderr(),
            "{}: {cases} cases in {took:.0?}",
            C::TEST
        )
        .expect("stderr");
        if cases >= self.enough {
            assert_eq!(table.holes(), Vec::<&str>::new(), "kinds that no case met");
        }
    }

    /// Runs cases until enough have run. Returns the seed of one that breaks a rule, and which one.
    fn work<C: Case>(
        &self,
        next: &AtomicU64,
        start: Instant,
        table: &Mutex<CoverageTable>,
    ) -> Option<(u64, Violation)> {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= self.most || (seed >= self.fewest && start.elapsed() > self.time) {
                return None;
            }
            let report = C::draw(seed).check(seed.is_multiple_of(self.twice));
            if let Some(violation) = report.violation {
                // Start no further seeds.
                next.store(self.most, Ordering::Relaxed);
                return Some((seed, violation));
            }
            let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
            table.add(&report.coverage);
        }
    }
}

/// Runs the seed of `FARWRITE_SWARM_SEED`, or the first one, and prints it.
pub(crate) fn replay<C: Case>() {
    let text = std::env::var("FARWRITE_SWARM_SEED").unwrap_or("0".into());
    let seed = parse_seed(&text).unwrap_or_else(|error| panic!("FARWRITE_SWARM_SEED: {error}"));
    let case = C::draw(seed);
    println!("{}", case.show());
    let report = case.check(true);
    match report.violation {
        None => println!("hash {:#018x}, {:?}", report.hash, report.coverage),
        Some(violation) => panic!("{violation}"),
    }
}
