//! What all kinds of cases have in common.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};

use crate::violation::Violation;

/// The plan of a case. One seed decides it, and equal plans give equal runs.
pub trait Case: Sized {
    /// The test program that runs such cases.
    const TEST: &'static str;
    /// All kinds of events that cases can meet. If many cases do not meet a kind, the plans have a hole.
    const KINDS: &'static [&'static str];

    /// Draws the plan of a seed.
    #[must_use]
    fn draw(seed: u64) -> Self;

    /// Runs the case.
    #[must_use]
    fn run(&self) -> CaseReport;

    /// The plan for a person: if it breaks a rule and plans of its kind can shrink, a smaller plan that breaks the same
    /// rule, with what happens in it.
    #[must_use]
    fn show(&self) -> String;

    /// Runs the case. If `twice`, runs it again and compares the hashes.
    #[must_use]
    fn check(&self, twice: bool) -> CaseReport {
        let mut report = self.run();
        if twice && report.violation.is_none() {
            report.violation = Violation::of_hashes(report.hash, self.run().hash);
        }
        report
    }

    /// What happens in the case of a seed, and the command that runs it again.
    #[must_use]
    fn explain(&self, seed: u64) -> String {
        format!(
            "seed {seed:#018x}\n{}\nFARWRITE_SWARM_SEED={seed:#x} \
             cargo test -p farwrite-swarm --test {} replay -- --nocapture",
            self.show(),
            Self::TEST
        )
    }
}

/// The result of a case.
#[derive(Clone, Debug, Default)]
pub struct CaseReport {
    /// The rule that the case broke, if any.
    pub violation: Option<Violation>,
    /// A hash over the events of the case, with their times.
    pub hash: u64,
    /// Number of messages, requests or operations in the plan.
    pub messages: u64,
    /// Number of faults in the plan.
    pub faults: u64,
    /// Number of packets sent.
    pub packets: u64,
    /// The events that the case met. Complete only if no rule was broken.
    pub coverage: Coverage,
}

/// The events that one case met.
#[derive(Clone, Debug, Default)]
pub struct Coverage(BTreeSet<&'static str>);

impl Coverage {
    pub(crate) fn saw(&mut self, kind: &'static str) {
        self.0.insert(kind);
    }

    pub(crate) fn saw_if(&mut self, kind: &'static str, is_so: bool) {
        if is_so {
            self.saw(kind);
        }
    }
}

impl Extend<(&'static str, bool)> for Coverage {
    fn extend<T: IntoIterator<Item = (&'static str, bool)>>(&mut self, kinds: T) {
        for (kind, is_so) in kinds {
            self.saw_if(kind, is_so);
        }
    }
}

/// The number of cases that met each kind of event.
#[derive(Clone, Debug)]
pub struct CoverageTable {
    kinds: &'static [&'static str],
    cases: u64,
    counts: BTreeMap<&'static str, u64>,
}

impl CoverageTable {
    /// An empty table of a kind of cases.
    #[must_use]
    pub fn of<C: Case>() -> Self {
        Self {
            kinds: C::KINDS,
            cases: 0,
            counts: BTreeMap::new(),
        }
    }

    /// Adds a case.
    ///
    /// # Panics
    /// If it met a kind that is not in [`Case::KINDS`].
    pub fn add(&mut self, coverage: &Coverage) {
        self.cases += 1;
        for &kind in &coverage.0 {
            assert!(self.kinds.contains(&kind), "{kind} is not in the table");
            *self.counts.entry(kind).or_default() += 1;
        }
    }

    /// The number of cases added.
    #[must_use]
    pub fn cases(&self) -> u64 {
        self.cases
    }

    /// Kinds that no case met.
    #[must_use]
    pub fn holes(&self) -> Vec<&'static str> {
        let is_hole = |kind: &&str| !self.counts.contains_key(kind);
        self.kinds.iter().copied().filter(is_hole).collect()
    }
}

impl Display for CoverageTable {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:>9}  of {} cases met", "number", self.cases)?;
        for kind in self.kinds {
            let count = self.counts.get(kind).copied().unwrap_or(0);
            writeln!(f, "{count:>9}  {kind}")?;
        }
        Ok(())
    }
}
