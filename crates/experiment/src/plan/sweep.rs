//! Running all cases of a plan on all cores.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use super::{Case, Plan};
use crate::run::{RunProgress, run_while};
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

/// How far a sweep is.
#[derive(Clone, Copy, Debug)]
pub struct SweepProgress<'a> {
    /// The case whose run has just ended; `None` if none has since the last call.
    pub ended: Option<&'a CaseOutcome>,
    /// Runs that have begun.
    pub begun_runs: u64,
    /// Flows of all runs that have begun.
    pub flows: u64,
    /// Flows that have ended, in all runs so far.
    pub ended_flows: u64,
    /// Sum of the virtual times of all runs so far, each from the start of its first flow, in
    /// nanoseconds.
    pub virtual_ns: u64,
}

impl SweepProgress<'_> {
    /// Thousandths of a run that are done, in all runs so far, by the share of flows that have ended.
    #[must_use]
    pub fn done_thousandths(&self) -> u64 {
        let ended = u128::from(self.ended_flows) * u128::from(self.begun_runs) * 1000;
        u64::try_from(ended / u128::from(self.flows.max(1))).unwrap_or(u64::MAX)
    }
}

/// Sums over all runs so far.
#[derive(Debug, Default)]
struct Sums {
    begun_runs: AtomicU64,
    flows: AtomicU64,
    ended_flows: AtomicU64,
    virtual_ns: AtomicU64,
    is_stopped: AtomicBool,
}

impl Sums {
    fn goes_on(&self) -> bool {
        !self.is_stopped.load(Relaxed)
    }

    /// Adds the progress of one run since `before`.
    fn add(&self, before: RunProgress, now: RunProgress) {
        let is_first = before == RunProgress::default();
        self.begun_runs.fetch_add(is_first.into(), Relaxed);
        self.flows.fetch_add(now.flows - before.flows, Relaxed);
        let ended = now.ended_flows - before.ended_flows;
        self.ended_flows.fetch_add(ended, Relaxed);
        let virtual_ns = now.virtual_ns - before.virtual_ns;
        self.virtual_ns.fetch_add(virtual_ns, Relaxed);
    }

    fn progress<'a>(&self, ended: Option<&'a CaseOutcome>) -> SweepProgress<'a> {
        SweepProgress {
            ended,
            begun_runs: self.begun_runs.load(Relaxed),
            flows: self.flows.load(Relaxed),
            ended_flows: self.ended_flows.load(Relaxed),
            virtual_ns: self.virtual_ns.load(Relaxed),
        }
    }
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
    mut goes_on: impl FnMut(SweepProgress<'_>) -> bool,
) -> Vec<CaseOutcome> {
    let cases = plan.cases();
    let next = AtomicUsize::new(0);
    let sums = Sums::default();
    let mut outcomes = Vec::with_capacity(cases.len());
    thread::scope(|scope| {
        let (results, received) = channel();
        for _ in 0..threads.clamp(1, cases.len()) {
            let results = results.clone();
            let (cases, next, sums) = (&cases, &next, &sums);
            scope.spawn(move || {
                while sums.goes_on() {
                    let number = next.fetch_add(1, Relaxed);
                    let Some(&case) = cases.get(number) else {
                        return;
                    };
                    let own = recorded.filter(|(run, _)| *run == case.number);
                    let recording = own.map(|(_, recording)| recording).unwrap_or_default();
                    let mut before = RunProgress::default();
                    let ran = run_with_progress(plan, case, recording, &mut |now| {
                        sums.add(before, now);
                        before = now;
                        sums.goes_on()
                    });
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
            if !goes_on(sums.progress(outcome.as_ref())) {
                sums.is_stopped.store(true, Relaxed);
            }
            outcomes.extend(outcome);
        }
    });
    outcomes.sort_by_key(|outcome| outcome.case.number);
    outcomes
}

/// Runs one case on the calling thread, as long as `goes_on` returns true; `None` if it returned false before the
/// end. It is called at least each thousandth of the virtual time so far. `recording` is the field of
/// [`RunSetup`](crate::RunSetup).
pub fn run_case_while(
    plan: &Plan,
    case: Case,
    recording: Recording,
    mut goes_on: impl FnMut() -> bool,
) -> Option<CaseOutcome> {
    run_with_progress(plan, case, recording, &mut |_| goes_on())
}

/// The same, with how far the run is.
fn run_with_progress(
    plan: &Plan,
    case: Case,
    recording: Recording,
    goes_on: &mut dyn FnMut(RunProgress) -> bool,
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
    let mut outcome = run_while(&parts.setup(recording), goes_on).map_err(|why| why.to_string());
    if let Ok(Some(outcome)) = &mut outcome {
        for flow in &mut outcome.flows {
            flow.is_measured = flow.start_ns.is_none_or(|at_ns| plan.measure.has(at_ns));
        }
    }
    Some(CaseOutcome {
        case,
        flows: parts.workload.flows,
        outcome: outcome.transpose()?,
    })
}
