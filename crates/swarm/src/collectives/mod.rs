//! Cases of collectives: a group of ranks that run operations over paths that lose, reorder, double
//! and damage packets, or lose control packets alone. Ranks stall, die, return late, leave, abort or
//! differ. Their clocks differ in time and rate.
//!
//! In every case, each operation ends by its timeout at each rank that runs, and a bounded one by its
//! deadline if no phase of it is exact. An exact result has the bits of its documented order. A bounded
//! one is the reduction of exactly the contributors that its report does not name. An error names the
//! rank that is the cause. One seed decides a case.

mod bound;
mod data;
mod draw;
mod oracle;
mod plan;
mod world;

use std::collections::BTreeSet;

use crate::quietly;
use crate::violation::{Rule, Violation};

pub use plan::{CollectivePlan, Fault, Step};

/// All kinds of events that cases of collectives can meet. If many cases do not meet a kind, the
/// plans have a hole.
pub const KINDS: [&str; 26] = [
    "exact result",
    "bounded result",
    "transformed result",
    "send and receive",
    "contribution missing",
    "bounded parts",
    "bounded ring",
    "own contribution alone",
    "limit reached",
    "parity or repeats",
    "sites",
    "late start",
    "packets lost",
    "bursts",
    "clock skew",
    "stall",
    "path cut",
    "control cut",
    "death",
    "late return",
    "leave",
    "abort",
    "different arguments",
    "on time beside a stall",
    "on time beside a death",
    "on time beside a late return",
];

/// The result of a case.
#[derive(Clone, Debug)]
pub struct CollectiveReport {
    /// The rule that the case broke, if any.
    pub violation: Option<Violation>,
    /// A hash over the outcomes of all operations, with their times.
    pub hash: u64,
    /// The events of [`KINDS`] that the case met.
    pub met: BTreeSet<&'static str>,
}

/// Runs a case. If `twice`, runs it again and compares the hashes.
#[must_use]
pub fn check(plan: &CollectivePlan, twice: bool) -> CollectiveReport {
    let mut report = run(plan);
    if twice && report.violation.is_none() {
        report.violation = Violation::of_hashes(report.hash, run(plan).hash);
    }
    report
}

fn run(plan: &CollectivePlan) -> CollectiveReport {
    let mut world = match quietly(|| world::World::new(plan)) {
        Ok(world) => world,
        Err(what) => return panicked(0, what),
    };
    let ran = quietly(|| {
        world.run();
        oracle::check(plan, &world)
    });
    match ran {
        Ok(checked) => CollectiveReport {
            violation: checked.violation,
            hash: checked.hash,
            met: checked.met,
        },
        Err(what) => panicked(world.now_ns(), what),
    }
}

fn panicked(at_ns: u64, what: String) -> CollectiveReport {
    let rule = Rule::Panic;
    CollectiveReport {
        violation: Some(Violation { rule, at_ns, what }),
        hash: 0,
        met: BTreeSet::new(),
    }
}
