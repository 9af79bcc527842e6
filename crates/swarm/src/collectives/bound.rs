//! When the bounded operations of a rank must end at the latest.

use super::plan::{CollectivePlan, Step};
use super::world::{Ended, World};

/// The number of operations of a rank that make progress at the same time.
const ACTIVE: usize = 8;

/// An operation with a deadline that does not wait for other ranks otherwise.
pub(super) struct Bound {
    /// The number of the step.
    pub(super) step: usize,
    /// When it had to end at the latest.
    pub(super) due_ns: u64,
}

/// The bounds of all operations at a rank that have one, in order.
///
/// An operation begins when the first phases of earlier ones have ended, at the latest. It ends
/// when its time has passed since then. While a rank does nothing, nothing ends there.
pub(super) fn bounds(plan: &CollectivePlan, world: &World<'_>, rank: usize) -> Vec<Bound> {
    // Pauses can overlap.
    let resumed_ns = |mut at_ns| {
        while let Some(until_ns) = plan.paused_until_ns(rank, at_ns) {
            at_ns = until_ns;
        }
        at_ns
    };
    let mut bounds = Vec::new();
    let mut earlier_ns = Vec::new();
    // The time at which the first phases of all operations so far have ended, at the latest.
    let mut collected_ns = 0;
    for (number, step) in plan.steps.iter().enumerate().filter(|(_, s)| !s.is_send()) {
        let Some(ended) = world.ended[rank].get(&number) else {
            break;
        };
        let place_ns = when_active(&mut earlier_ns);
        earlier_ns.push(ended.at_ns);
        if !step.is_bounded() {
            continue;
        }
        let begun_ns = resumed_ns(ended.started_ns.max(collected_ns).max(place_ns));
        let limit_ns = match ended.result {
            Ok(_) => limit_ns(ended),
            // Its limit is not known, only the longest one. With another size, it may be a warm-up.
            Err(_) => {
                let has_limit = !plan.differs_by(number) && is_learned(plan, world, rank, number);
                has_limit.then_some(plan.options.bounded.bounds.max_ns)
            }
        };
        let Some(limit_ns) = limit_ns else {
            collected_ns = collected_ns.max(ended.at_ns);
            continue;
        };
        let due_ns = resumed_ns(plan.later_ns(rank, begun_ns, limit_ns));
        collected_ns = collected_ns.max(due_ns.min(ended.at_ns));
        if !plan.has_exact_phase(step) {
            bounds.push(Bound {
                step: number,
                due_ns,
            });
        }
    }
    bounds
}

/// When fewer than [`ACTIVE`] of the earlier operations were left.
fn when_active(ends_ns: &mut [u64]) -> u64 {
    ends_ns.sort_unstable();
    let before = ends_ns.len().checked_sub(ACTIVE);
    before.map_or(0, |place| ends_ns[place])
}

/// Whether the same operation has ended at all ranks before this one began: its warm-up is over.
pub(super) fn is_learned(
    plan: &CollectivePlan,
    world: &World<'_>,
    rank: usize,
    number: usize,
) -> bool {
    let begun_ns = world.ended[rank][&number].started_ns;
    let step = &plan.steps[number];
    let is_same = |other: &Step| {
        let shape = |step: &Step| (step.operation.clone(), step.options, step.count);
        shape(other) == shape(step)
    };
    let has_ended = |earlier: usize| {
        let is_done = |ended: &Ended| ended.result.is_ok() && ended.at_ns < begun_ns;
        let mut ranks = world.ended.iter();
        ranks.all(|ended| ended.get(&earlier).is_some_and(is_done))
    };
    (0..number).any(|earlier| is_same(&plan.steps[earlier]) && has_ended(earlier))
}

/// How long an operation waited for contributions at most; `None` for a warm-up, and after an error.
fn limit_ns(ended: &Ended) -> Option<u64> {
    let (report, _) = ended.result.as_ref().ok()?;
    u64::try_from(report.limit?.as_nanos()).ok()
}
