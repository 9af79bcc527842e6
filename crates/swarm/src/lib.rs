//! A deterministic fault swarm: random test cases with complete endpoints. One 64-bit seed decides
//! each case.
//!
//! A seed draws a [`Plan`]: hosts, paths, queue pairs, messages, and what goes wrong when. The case
//! runs on simulated networks in virtual time, with the shipped code of endpoints, schemes and
//! fabric. An oracle checks the [`Rule`]s. If a plan breaks a rule, the swarm shrinks the plan.
//!
//! ```
//! use farwrite_swarm::{Plan, run};
//!
//! let report = run(&Plan::draw(1));
//! assert!(report.violation.is_none());
//! ```
//!
//! A second kind of case, [`NetworkPlan`], has endpoints and NICs with reliable connections as
//! hosts of a network of switches ([`farwrite_net`]), with its own rules. A third kind, in
//! [`boxes`], has RDMA NICs behind LoWAR or NetRT boxes. A fourth kind, in [`collectives`], has the
//! operations of a group of ranks.

pub mod boxes;
mod closing;
pub mod collectives;
mod coverage;
mod networks;
mod oracle;
mod partial_receive;
mod plan;
mod recorded_fabric;
mod shrink;
mod tap;
mod verdict;
mod violation;
mod world;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use coverage::{Coverage, CoverageTable};
pub use networks::{
    Carrier, ChangePlan, FlowPlan, NetworkCounts, NetworkPlan, NetworkReport, check_network,
    explain_network,
};
pub use plan::{Ending, Fault, MessagePlan, PairPlan, PathPlan, Plan, Repair, Span, Trailers};
pub use shrink::shrink;
pub use violation::{Rule, Violation};

use world::World;

/// The result of a case.
#[derive(Clone, Debug)]
pub struct Report {
    /// The rule that the case broke, if any.
    pub violation: Option<Violation>,
    /// A hash over all packets sent and all outcomes, with their times.
    pub hash: u64,
    /// Number of messages in the plan.
    pub messages: u64,
    /// Number of faults in the plan.
    pub faults: u64,
    /// Number of packets sent.
    pub packets: u64,
    /// The events that the case met. Complete only if no rule was broken.
    pub coverage: Coverage,
    /// The events, one per line. Empty, except after [`trace`].
    pub trace: Vec<String>,
}

/// Runs a case.
#[must_use]
pub fn run(plan: &Plan) -> Report {
    run_world(plan, false)
}

/// Runs a case, and records the actions and observations of its users.
#[must_use]
pub fn trace(plan: &Plan) -> Report {
    run_world(plan, true)
}

/// Runs a case. If `twice`, runs it again and compares the hashes.
#[must_use]
pub fn check(plan: &Plan, twice: bool) -> Report {
    let mut report = run(plan);
    if twice && report.violation.is_none() {
        report.violation = Violation::of_hashes(report.hash, run(plan).hash);
    }
    report
}

/// Shrinks the plan of a seed that breaks a rule. Returns a description of the events, and the
/// command that runs the seed.
#[must_use]
pub fn explain(seed: u64, plan: &Plan) -> String {
    let small = shrink(plan);
    let Report {
        violation, trace, ..
    } = crate::trace(&small);
    let what = violation.map_or_else(
        || "no rule is broken when the case is run once".to_owned(),
        |violation| violation.to_string(),
    );
    format!(
        "seed {seed:#018x}, {} of {} messages left\n{small}{}\n{what}\n\
         FARWRITE_SWARM_SEED={seed:#x} \
         cargo test -p farwrite-swarm --test swarm replay -- --nocapture",
        small.messages.len(),
        plan.messages.len(),
        trace.join("\n"),
    )
}

/// Parses a seed, decimal or hexadecimal with 0x.
///
/// # Errors
/// A text that describes valid seeds.
pub fn parse_seed(text: &str) -> Result<u64, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| format!("{text:?} is no seed: write a number, with 0x if hexadecimal"))
}

fn run_world(plan: &Plan, traced: bool) -> Report {
    let mut world = World::new(plan, traced);
    let ran = quietly(|| world.run().and_then(|()| world.close()));
    let violation = match ran {
        Ok(result) => result.err(),
        Err(what) => Some(world.violation(Rule::Panic, what)),
    };
    let tap = world.tap.borrow();
    let (hash, packets) = (tap.hash(), tap.counts.sent);
    drop(tap);
    Report {
        violation,
        hash,
        messages: plan.messages.len() as u64,
        faults: plan.faults.len() as u64,
        packets,
        coverage: std::mem::take(&mut world.coverage),
        trace: world.take_trace(),
    }
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
    static LAST_PANIC: Cell<Option<String>> = const { Cell::new(None) };
}

/// Calls `body`. Returns the message and the place of a panic, without printing them.
fn quietly<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: std::sync::Once = std::sync::Once::new();
    HOOK.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if QUIET.get() {
                LAST_PANIC.set(Some(info.to_string()));
            } else {
                loud(info);
            }
        }));
    });
    QUIET.set(true);
    let result = catch_unwind(AssertUnwindSafe(body));
    QUIET.set(false);
    result.map_err(|_| LAST_PANIC.take().unwrap_or_default())
}
