//! All runs of a plan, on all cores.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use super::{Case, Plan};
use crate::{Flow, Outcome, run};

/// A case and what came of it.
#[derive(Clone, Debug)]
pub struct CaseOutcome {
    /// The case.
    pub case: Case,
    /// The flows, as its seed has made them.
    pub flows: Vec<Flow>,
    /// What came of it, or why it could not run.
    pub outcome: Result<Outcome, String>,
}

/// Runs all cases on some threads, one thread a run. The run of the case `watched`, by its number,
/// keeps the queue of each port over time. `done` is called on the calling thread after
/// each one, in the order in which they end, and answers whether to go on. The outcomes are in the
/// order of the cases; those that were not begun are absent.
pub fn sweep(
    plan: &Plan,
    threads: usize,
    watched: Option<usize>,
    mut done: impl FnMut(&CaseOutcome) -> bool,
) -> Vec<CaseOutcome> {
    let cases = plan.cases();
    let next = AtomicUsize::new(0);
    let mut outcomes = Vec::with_capacity(cases.len());
    thread::scope(|scope| {
        let (results, received) = channel();
        for _ in 0..threads.clamp(1, cases.len()) {
            let results = results.clone();
            let (cases, next) = (&cases, &next);
            scope.spawn(move || {
                while let Some(&case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if results
                        .send(run_case(plan, case, watched == Some(case.number)))
                        .is_err()
                    {
                        return;
                    }
                }
            });
        }
        drop(results);
        while let Ok(outcome) = received.recv() {
            let goes_on = done(&outcome);
            outcomes.push(outcome);
            if !goes_on {
                next.store(cases.len(), Ordering::Relaxed);
            }
        }
    });
    outcomes.sort_by_key(|outcome| outcome.case.number);
    outcomes
}

/// Runs one case on the calling thread. `keeps_ports` is that of [`Scene`](crate::Scene).
#[must_use]
pub fn run_case(plan: &Plan, case: Case, keeps_ports: bool) -> CaseOutcome {
    let parts = match plan.parts(&case) {
        Ok(parts) => parts,
        Err(why) => {
            return CaseOutcome {
                case,
                flows: Vec::new(),
                outcome: Err(why.to_string()),
            };
        }
    };
    let outcome = run(&parts.scene(keeps_ports)).map_err(|why| why.to_string());
    CaseOutcome {
        case,
        flows: parts.workload.flows,
        outcome,
    }
}
