//! Running all cases of a plan on all cores.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use super::{Case, Plan};
use crate::{Flow, Outcome, run};

/// A case and its outcome.
#[derive(Clone, Debug)]
pub struct CaseOutcome {
    /// The case.
    pub case: Case,
    /// The flows, as generated from the seed.
    pub flows: Vec<Flow>,
    /// The outcome, or why the case could not run.
    pub outcome: Result<Outcome, String>,
}

/// Runs all cases on `threads` threads, one run per thread at a time. The run of the case with the
/// number `watched` keeps the queue of each port over time. After each run, the calling thread
/// calls `done`, in the order in which the runs end; its result says whether to continue. The
/// outcomes are in the order of the cases, without those that were not started.
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

/// Runs one case on the calling thread. `keeps_ports` is the field of [`Scene`](crate::Scene).
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
