//! Running all cases of a plan on all cores.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use super::{Case, Plan};
use crate::run::run_while;
use crate::{Flow, Outcome, Recording};

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

/// Time from one question whether to continue to the next, while no run ends.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// Runs all cases on `threads` threads, one run per thread at a time. The run of the case with the
/// number `recorded.0` records `recorded.1`. The calling thread calls `goes_on` after
/// each run, in the order in which the runs end, and every 100 ms between. If it returns false, the
/// runs in progress stop. The outcomes are in the order of the cases, without those that did not run
/// to their end.
pub fn sweep(
    plan: &Plan,
    threads: usize,
    recorded: Option<(usize, Recording)>,
    mut goes_on: impl FnMut(Option<&CaseOutcome>) -> bool,
) -> Vec<CaseOutcome> {
    let cases = plan.cases();
    let next = AtomicUsize::new(0);
    let is_stopped = AtomicBool::new(false);
    let mut outcomes = Vec::with_capacity(cases.len());
    thread::scope(|scope| {
        let (results, received) = channel();
        for _ in 0..threads.clamp(1, cases.len()) {
            let results = results.clone();
            let (cases, next, is_stopped) = (&cases, &next, &is_stopped);
            scope.spawn(move || {
                let goes_on = || !is_stopped.load(Ordering::Relaxed);
                while goes_on() {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&case) = cases.get(number) else {
                        return;
                    };
                    let own = recorded.filter(|(run, _)| *run == case.number);
                    let recording = own.map(|(_, recording)| recording).unwrap_or_default();
                    let ran = run_case_while(plan, case, recording, &goes_on);
                    if ran.is_none_or(|outcome| results.send(outcome).is_err()) {
                        return;
                    }
                }
            });
        }
        drop(results);
        loop {
            let outcome = match received.recv_timeout(ASK_EVERY) {
                Ok(outcome) => Some(outcome),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if !goes_on(outcome.as_ref()) {
                is_stopped.store(true, Ordering::Relaxed);
            }
            outcomes.extend(outcome);
        }
    });
    outcomes.sort_by_key(|outcome| outcome.case.number);
    outcomes
}

/// Runs one case on the calling thread. `recording` is the field of [`Scene`](crate::Scene).
#[must_use]
#[expect(clippy::missing_panics_doc, reason = "nothing stops the run")]
pub fn run_case(plan: &Plan, case: Case, recording: Recording) -> CaseOutcome {
    let ran = run_case_while(plan, case, recording, &|| true);
    ran.expect("nothing stops the run")
}

/// `None` if `goes_on` returned false before the end of the run.
fn run_case_while(
    plan: &Plan,
    case: Case,
    recording: Recording,
    goes_on: &dyn Fn() -> bool,
) -> Option<CaseOutcome> {
    let parts = match plan.parts(&case) {
        Ok(parts) => parts,
        Err(why) => {
            return Some(CaseOutcome {
                case,
                flows: Vec::new(),
                outcome: Err(why.to_string()),
            });
        }
    };
    let outcome = run_while(&parts.scene(recording), goes_on).map_err(|why| why.to_string());
    Some(CaseOutcome {
        case,
        flows: parts.workload.flows,
        outcome: outcome.transpose()?,
    })
}
