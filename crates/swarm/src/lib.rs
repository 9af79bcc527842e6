//! A deterministic fault swarm over whole endpoints: random cases, each decided by one 64-bit seed.
//!
//! A seed draws a [`Plan`]: hosts, paths, queue pairs, messages, and what goes wrong when. The case
//! runs on simulated networks in virtual time, with the endpoints, schemes and fabric code that
//! ship. An oracle checks it against the [`Rule`]s. A plan that breaks one is shrunk.
//!
//! ```
//! use farwrite_swarm::{Plan, run};
//!
//! let report = run(&Plan::draw(1));
//! assert!(report.violation.is_none());
//! ```
//!
//! A second kind of case, [`NetworkPlan`], has endpoints and NICs with reliable connections as hosts of
//! a network of switches ([`farwrite_net`]), with rules of its own. A third kind, in [`boxes`], has RDMA
//! NICs behind LoWAR or NetRT boxes.

pub mod boxes;
mod closing;
mod coverage;
mod dice;
mod ledger;
mod networks;
mod oracle;
mod plan;
mod remains;
mod shrink;
mod tap;
mod verdict;
mod violation;
mod world;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use coverage::{Coverage, Table};
pub use networks::{
    Carrier, ChangePlan, FlowPlan, NetworkPlan, NetworkReport, Tally, check_network,
    explain_network,
};
pub use plan::{Ending, Fault, MessagePlan, PairPlan, PathPlan, Plan, Repair, Span};
pub use shrink::shrink;
pub use violation::{Rule, Violation};

use world::World;

/// What a case did.
#[derive(Clone, Debug)]
pub struct Report {
    /// The rule that it broke, if it broke one.
    pub violation: Option<Violation>,
    /// A hash over everything that was sent and every outcome, with their times.
    pub hash: u64,
    /// Messages of its plan.
    pub messages: u64,
    /// Faults of its plan.
    pub faults: u64,
    /// Packets that were sent.
    pub packets: u64,
    /// What the case met. Complete only if no rule was broken.
    pub coverage: Coverage,
    /// What happened, one line each; empty unless it was asked for.
    pub trace: Vec<String>,
}

/// Runs a case.
#[must_use]
pub fn run(plan: &Plan) -> Report {
    run_world(plan, false)
}

/// Runs a case and writes down what its users do and see.
#[must_use]
pub fn trace(plan: &Plan) -> Report {
    run_world(plan, true)
}

/// Runs a case, and if `twice` once more, and compares.
#[must_use]
pub fn check(plan: &Plan, twice: bool) -> Report {
    let mut report = run(plan);
    if twice && report.violation.is_none() {
        let again = run(plan);
        if again.hash != report.hash {
            report.violation = Some(Violation {
                rule: Rule::Determinism,
                at_ns: 0,
                what: format!("hashes {:#x} and {:#x}", report.hash, again.hash),
            });
        }
    }
    report
}

/// Shrinks the plan of a seed that breaks a rule, and says what happens in it and how to run it.
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

/// Reads a seed, decimal or hexadecimal with 0x before it.
///
/// # Errors
/// What would do instead.
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
    let (hash, packets) = (tap.hash(), tap.tally.sent);
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

/// Calls `body`, and turns a panic into its message and place, which are not printed.
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
