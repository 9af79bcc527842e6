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

use crate::case::{Case, CaseReport, Coverage};
use crate::quietly;
use crate::violation::{Rule, Violation};

pub use plan::{CollectivePlan, Fault, Step};

/// All kinds of events that cases of collectives can meet.
const KINDS: [&str; 26] = [
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

impl Case for CollectivePlan {
    const TEST: &'static str = "collectives";
    const KINDS: &'static [&'static str] = &KINDS;

    fn draw(seed: u64) -> Self {
        Self::of_seed(seed)
    }

    fn run(&self) -> CaseReport {
        let (violation, hash, coverage) = match quietly(|| world::World::new(self)) {
            Ok(mut world) => {
                let ran = quietly(|| {
                    world.run();
                    oracle::check(self, &world)
                });
                ran.unwrap_or_else(|what| panicked(world.now_ns(), what))
            }
            Err(what) => panicked(0, what),
        };
        CaseReport {
            violation,
            hash,
            messages: self.steps.len() as u64,
            faults: self.faults.len() as u64,
            packets: 0,
            coverage,
        }
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

fn panicked(at_ns: u64, what: String) -> oracle::Checked {
    let rule = Rule::Panic;
    let violation = Violation { rule, at_ns, what };
    (Some(violation), 0, Coverage::default())
}
