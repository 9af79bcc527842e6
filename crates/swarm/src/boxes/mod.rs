//! Cases of boxes in the path: reliable connections between two RDMA NICs, with a LoWAR or NetRT
//! box beside each, and a path between the boxes that loses, changes, doubles and delays frames and
//! forges messages of the boxes.
//!
//! Whatever goes wrong, both NICs get only packets that the other one has sent, all requests are
//! done once the faults are over, and memory is what was written. One seed decides a case.

mod device;
mod forge;
mod plan;
mod traffic;
mod world;

use std::collections::BTreeSet;

use farwrite_boxes::lowar::Lowar;
use farwrite_boxes::netrt::NetRt;

use crate::quietly;
use crate::violation::{Rule, Violation};

pub use plan::{BoxPlan, Boxes, Rates, Restart};

use world::Watched;

/// All that cases of boxes can meet. What none met after many cases is a hole in the plans.
pub const KINDS: [&str; 30] = [
    "frames lost",
    "frames changed",
    "frames doubled",
    "frames late",
    "message replayed",
    "message forged with the right key",
    "message forged with another key",
    "restart",
    "one box missing",
    "different keys",
    "several connections",
    "lowar: coded",
    "lowar: recovered",
    "lowar: not verified",
    "lowar: given up",
    "lowar: hold ended",
    "lowar: damaged packet",
    "lowar: repair too long",
    "lowar: no units",
    "lowar: no streams",
    "lowar: no room",
    "netrt: copied",
    "netrt: recovered",
    "netrt: notice",
    "netrt: copy dropped",
    "netrt: given up",
    "netrt: hold ended",
    "netrt: damaged packet",
    "netrt: no flows",
    "netrt: no room",
];

/// What a case did.
#[derive(Clone, Debug)]
pub struct BoxReport {
    /// The rule that it broke, if it broke one.
    pub violation: Option<Violation>,
    /// A hash over everything that happened to frames.
    pub hash: u64,
    /// What it met, of [`KINDS`].
    pub met: BTreeSet<&'static str>,
}

/// Runs a case.
#[must_use]
pub fn run(plan: &BoxPlan) -> BoxReport {
    match &plan.boxes {
        Boxes::Lowar(configs) => run_world::<Lowar>(plan, configs),
        Boxes::NetRt(configs) => run_world::<NetRt>(plan, configs),
    }
}

/// Runs a case twice, and compares.
#[must_use]
pub fn check(plan: &BoxPlan) -> BoxReport {
    let mut report = run(plan);
    let again = run(plan);
    if report.violation.is_none() && again.hash != report.hash {
        report.violation = Some(Violation {
            rule: Rule::Determinism,
            at_ns: 0,
            what: format!("hashes {:#x} and {:#x}", report.hash, again.hash),
        });
    }
    report
}

fn run_world<B: Watched>(plan: &BoxPlan, configs: &[Option<B::Config>; 2]) -> BoxReport {
    let mut world = world::World::<B>::new(plan, configs);
    let ran = quietly(|| world.run());
    let violation = match ran {
        Ok(result) => result.err(),
        Err(what) => Some(Violation {
            rule: Rule::Panic,
            at_ns: world.now_ns(),
            what,
        }),
    };
    BoxReport {
        violation,
        hash: world.hash(),
        met: world.met(),
    }
}
