//! A deterministic fault swarm: random test cases with complete endpoints. One 64-bit seed decides
//! each case.
//!
//! A seed draws a [`Plan`]: hosts, paths, queue pairs, messages, and what goes wrong when. The case
//! runs on simulated networks in virtual time, with the shipped code of endpoints, schemes and
//! fabric. An oracle checks the [`Rule`]s. If a plan breaks a rule, the swarm shrinks the plan.
//!
//! ```
//! use farwrite_swarm::{Case, Plan};
//!
//! let report = Plan::draw(1).run();
//! assert!(report.violation.is_none());
//! ```
//!
//! A second kind of [`Case`], [`NetworkPlan`], has endpoints and NICs with reliable connections as
//! hosts of a network of switches ([`farwrite_net`]), with its own rules. A third kind, in
//! [`boxes`], has RDMA NICs behind LoWAR or NetRT boxes. A fourth kind, in [`collectives`], has the
//! operations of a group of ranks.

pub mod boxes;
mod case;
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

pub use case::{Case, CaseReport, Coverage, CoverageTable};
pub use networks::{Carrier, ChangePlan, FlowPlan, NetworkPlan};
pub use plan::{Ending, Fault, MessagePlan, PairPlan, PathPlan, Plan, Repair, Span, Trailers};
pub use shrink::shrink;
pub use violation::{Rule, Violation};

use world::World;

impl Case for Plan {
    const TEST: &'static str = "swarm";
    const KINDS: &'static [&'static str] = &coverage::KINDS;

    fn draw(seed: u64) -> Self {
        Self::of_seed(seed)
    }

    fn run(&self) -> CaseReport {
        run_world(self, false).0
    }

    /// With the actions and observations of its users.
    fn show(&self) -> String {
        let small = shrink(self);
        let (report, trace) = run_world(&small, true);
        let what = report.violation.map_or_else(
            || "no rule is broken when the case is run once".to_owned(),
            |violation| violation.to_string(),
        );
        let left = small.messages.len();
        let all = self.messages.len();
        let trace = trace.join("\n");
        format!("{left} of {all} messages left\n{small}{trace}\n{what}")
    }
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

/// Runs a case. Returns its events too, one per line, if they are recorded.
fn run_world(plan: &Plan, is_traced: bool) -> (CaseReport, Vec<String>) {
    let mut world = World::new(plan, is_traced);
    let ran = quietly(|| world.run().and_then(|()| world.close()));
    let violation = match ran {
        Ok(result) => result.err(),
        Err(what) => Some(world.violation(Rule::Panic, what)),
    };
    let tap = world.tap.borrow();
    let (hash, packets) = (tap.hash(), tap.counts.sent);
    drop(tap);
    let report = CaseReport {
        violation,
        hash,
        messages: plan.messages.len() as u64,
        faults: plan.faults.len() as u64,
        packets,
        coverage: std::mem::take(&mut world.coverage),
    };
    (report, world.take_trace())
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
