//! A bounded run of many cases, one seed after another, and the seed of a replay.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::time::{Duration, Instant};

use farwrite_swarm::{Violation, parse_seed};

/// How many cases a test runs.
pub(crate) struct Runner {
    /// Name of the test program.
    pub(crate) program: &'static str,
    /// Lowest number of cases, even on a slow machine.
    pub(crate) fewest: u64,
    /// No further cases start after this time.
    pub(crate) time: Duration,
    /// Highest number of cases.
    pub(crate) most: u64,
    /// After this number of cases, all kinds must have been met.
    pub(crate) enough: u64,
    /// One of this number of cases runs twice, and both runs must be equal.
    pub(crate) twice: u64,
}

impl Runner {
    /// Calls `case` with one seed after another, and whether the case runs twice. Returns whether
    /// the number of cases is enough to have met all kinds.
    pub(crate) fn run(&self, mut case: impl FnMut(u64, bool)) -> bool {
        let start = Instant::now();
        let mut cases = 0;
        while cases < self.fewest || (cases < self.most && start.elapsed() < self.time) {
            case(cases, cases.is_multiple_of(self.twice));
            cases += 1;
        }
        // Write directly to stderr, so that the number of cases also appears for passed tests.
        let (program, took) = (self.program, start.elapsed());
        writeln!(std::io::stderr(), "{program}: {cases} cases in {took:.0?}").expect("stderr");
        cases >= self.enough
    }

    /// Runs cases and counts the kinds of events that they meet. Fails at a case that breaks a rule,
    /// and if enough cases leave a kind out.
    #[allow(dead_code, reason = "some programs count kinds in their own way")]
    pub(crate) fn count(
        &self,
        kinds: &[&'static str],
        mut check: impl FnMut(u64, bool) -> (Option<Violation>, BTreeSet<&'static str>),
    ) {
        let mut counts: BTreeMap<_, u64> = kinds.iter().map(|kind| (*kind, 0)).collect();
        let program = self.program;
        let is_enough = self.run(|seed, twice| {
            let (violation, met) = check(seed, twice);
            if let Some(violation) = violation {
                panic!(
                    "seed {seed:#x}: {violation}\nFARWRITE_SWARM_SEED={seed:#x} \
                     cargo test -p farwrite-swarm --test {program} replay -- --nocapture"
                );
            }
            for kind in met {
                *counts.get_mut(kind).expect("a kind of the table") += 1;
            }
        });
        println!("{counts:#?}");
        if is_enough {
            let holes = counts.iter().filter(|(_, count)| **count == 0);
            let holes: Vec<_> = holes.map(|(kind, _)| kind).collect();
            assert_eq!(holes, Vec::<&&str>::new(), "kinds that no case met");
        }
    }
}

/// Returns the seed of `FARWRITE_SWARM_SEED`, or the first one.
pub(crate) fn replayed_seed() -> u64 {
    let text = std::env::var("FARWRITE_SWARM_SEED").unwrap_or("0".into());
    parse_seed(&text).unwrap_or_else(|error| panic!("FARWRITE_SWARM_SEED: {error}"))
}
