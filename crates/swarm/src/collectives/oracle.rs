//! Checks how the operations of a case ended.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use farwrite::SchemeName;
use farwrite::fabric::sim::{Loss, SimClock};
use farwrite_collectives::{Algorithm, ElementType, Missing, Reduction, Report, replay};

use super::bound::{Bound, bounds, is_learned};
use super::data;
use super::plan::{CollectivePlan, Fault, Step};
use super::world::{Ended, World};
use crate::case::Coverage;
use crate::violation::{Rule, Violation};

/// How much later than its deadline an operation may end: members are polled when they want to be.
const SLACK_NS: u64 = 1_000;

/// How much later than [`GroupOptions::dead_after`](farwrite_collectives::GroupOptions) a rank
/// notices a death: it asks after a quarter of that time without progress, and data of other ranks
/// may still arrive before.
const NOTICE: Duration = Duration::from_millis(900);

/// The broken rule, if any, a hash over the outcomes of all operations, and the events that the case met.
pub(super) type Checked = (Option<Violation>, u64, Coverage);

struct Oracle<'a> {
    plan: &'a CollectivePlan,
    world: &'a World<'a>,
    coverage: Coverage,
}

pub(super) fn check(plan: &CollectivePlan, world: &World<'_>) -> Checked {
    let coverage = Coverage::default();
    let mut oracle = Oracle {
        plan,
        world,
        coverage,
    };
    let violation = oracle.run().err();
    oracle.note_faults();
    (violation, hash(world), oracle.coverage)
}

fn hash(world: &World<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for ended in &world.ended {
        for (step, ended) in ended {
            (step, ended.at_ns).hash(&mut hasher);
            match &ended.result {
                Ok((report, output)) => (report.missing_bytes, output).hash(&mut hasher),
                Err(error) => error.to_string().hash(&mut hasher),
            }
        }
    }
    hasher.finish()
}

impl Oracle<'_> {
    fn run(&mut self) -> Result<(), Violation> {
        let plan = self.plan;
        for (number, step) in plan.steps.iter().enumerate() {
            for rank in (0..plan.ranks).filter(|&rank| step.at(rank).is_some()) {
                match self.world.ended[rank].get(&number) {
                    Some(ended) => self.check_end(number, step, rank, ended)?,
                    None if plan.dies(rank) => {}
                    None => {
                        let what = format!("step {number} never ends at rank {rank}");
                        return Err(self.violation(Rule::Liveness, self.world.now_ns(), what));
                    }
                }
            }
            self.check_equal(number, step)?;
        }
        (0..plan.ranks).try_for_each(|rank| self.check_bounds(rank))
    }

    /// Bounded operations end in their time at ranks that run, whatever other ranks do.
    fn check_bounds(&mut self, rank: usize) -> Result<(), Violation> {
        for Bound { step, due_ns } in bounds(self.plan, self.world, rank) {
            let ended = &self.world.ended[rank][&step];
            if ended.at_ns > due_ns.saturating_add(SLACK_NS) {
                let what = format!("step {step} at rank {rank}: its time was over at {due_ns} ns");
                return Err(self.violation(Rule::Deadline, ended.at_ns, what));
            }
            self.note_silent(ended);
        }
        Ok(())
    }

    /// Notes a result without the contributions of a rank that did nothing during the operation.
    fn note_silent(&mut self, ended: &Ended) {
        let Ok((report, _)) = &ended.result else {
            return;
        };
        for fault in &self.plan.faults {
            let kind = match fault {
                Fault::Stall { .. } => "on time beside a stall",
                Fault::Death { .. } => "on time beside a death",
                Fault::LateReturn { .. } => "on time beside a late return",
                _ => continue,
            };
            let is_silent = |(rank, from_ns, to_ns): (usize, u64, u64)| {
                let lacks = |missing: &Missing| missing.ranks.contains(&rank);
                from_ns <= ended.started_ns
                    && ended.at_ns < to_ns
                    && report.missing.iter().any(lacks)
            };
            if fault.pause().is_some_and(is_silent) {
                self.coverage.saw(kind);
            }
        }
    }

    fn violation(&self, rule: Rule, at_ns: u64, what: String) -> Violation {
        Violation { rule, at_ns, what }
    }

    fn check_end(
        &mut self,
        number: usize,
        step: &Step,
        rank: usize,
        ended: &Ended,
    ) -> Result<(), Violation> {
        let timeout_ns = u64::try_from(self.plan.timeout().as_nanos()).expect("seconds");
        let due_ns = self.plan.later_ns(rank, ended.started_ns, timeout_ns);
        let due_ns = self.plan.paused_until_ns(rank, due_ns).unwrap_or(due_ns);
        let fails = |rule, what: &str| {
            let what = format!("step {number} at rank {rank}: {what}");
            Err(self.violation(rule, ended.at_ns, what))
        };
        if ended.at_ns > due_ns.saturating_add(SLACK_NS) {
            return fails(Rule::Deadline, &format!("it was due at {due_ns} ns"));
        }
        let noticed_ns = self.noticed_ns(rank, ended);
        if noticed_ns.is_some_and(|ns| ended.at_ns > ns) {
            let what = format!("the death was to be noticed by {noticed_ns:?} ns");
            return fails(Rule::Deadline, &what);
        }
        match &ended.result {
            Ok((report, output)) => self.check_result(number, step, rank, (report, output)),
            Err(error) => {
                let text = error.to_string();
                if self.plan.fails_from_ns().is_some_and(|ns| ended.at_ns < ns) {
                    return fails(Rule::Outcome, &format!("an error before the fault: {text}"));
                }
                match self.plan.culprit() {
                    None => fails(Rule::Outcome, &text),
                    Some(culprit)
                        if rank == culprit || text.contains(&format!("rank {culprit} ")) =>
                    {
                        Ok(())
                    }
                    Some(culprit) => {
                        let what = format!("the error does not name rank {culprit}: {text}");
                        fails(Rule::Outcome, &what)
                    }
                }
            }
        }
    }

    /// When an operation ends at the latest beside a rank that has died.
    fn noticed_ns(&self, rank: usize, ended: &Ended) -> Option<u64> {
        let died = self.plan.faults.iter().find_map(|fault| match *fault {
            Fault::Death { at_ns, .. } => Some(at_ns),
            _ => None,
        });
        let dead_after = self.plan.options.dead_after + NOTICE;
        let span_ns = u64::try_from(dead_after.as_nanos()).expect("seconds");
        let since_ns = died?.max(ended.started_ns);
        Some(self.plan.later_ns(rank, since_ns, span_ns))
    }

    fn check_result(
        &mut self,
        number: usize,
        step: &Step,
        rank: usize,
        (report, output): (&Report, &Vec<u8>),
    ) -> Result<(), Violation> {
        let ranks = self.plan.ranks;
        let fails = |rule, what: &str| {
            let what = format!("step {number} at rank {rank}: {what}");
            Err(Violation {
                rule,
                at_ns: self.world.now_ns(),
                what,
            })
        };
        if !step.is_bounded() && !report.missing.is_empty() {
            return fails(Rule::Partial, "an exact result lacks something");
        }
        let longest = Duration::from_nanos(self.plan.options.bounded.bounds.max_ns);
        if step.is_bounded() && report.limit.is_some_and(|limit| limit > longest) {
            let what = format!("its limit {:?} is above {longest:?}", report.limit);
            return fails(Rule::Deadline, &what);
        }
        // An operation without bytes waits for nothing.
        let has_limit = report.limit.is_some() || !step.is_bounded() || step.count == 0;
        if !has_limit && is_learned(self.plan, self.world, rank, number) {
            return fails(Rule::Deadline, "no limit after the warm-up");
        }
        if let Some(problem) = malformed(report, output.len(), ranks) {
            return fails(Rule::Partial, &format!("{problem}: {:?}", report.missing));
        }
        if self.may_be_confused(number, step) {
            return Ok(());
        }
        let is_transformed = self.is_transformed(step);
        let expected = match is_transformed {
            true => self.replayed(number, step, rank, &report.missing),
            false => {
                let options = &self.plan.options;
                data::expected(step, number, (rank, ranks), options, &report.missing)
            }
        };
        if *output != expected {
            let mut places = output.iter().zip(&expected);
            let place = places.position(|(is, wanted)| is != wanted);
            let what = format!(
                "byte {place:?} of {} is wrong, missing: {:?}",
                output.len(),
                report.missing
            );
            return fails(Rule::Bytes, &what);
        }
        self.note_result(step, report, is_transformed);
        Ok(())
    }

    /// All ranks have the same result of an all-reduce, and lack the same, if its parts are exact.
    fn check_equal(&self, number: usize, step: &Step) -> Result<(), Violation> {
        let may_differ = step.is_bounded() && !self.plan.has_exact_phase(step);
        if !step.is_all_reduce() || may_differ {
            return Ok(());
        }
        let ended = self
            .world
            .ended
            .iter()
            .filter_map(|ended| ended.get(&number));
        let mut results = ended.filter_map(|ended| ended.result.as_ref().ok());
        let first = results.next();
        let differs = |(report, output): &&(Report, Vec<u8>)| {
            first.is_some_and(|(other, expected)| {
                report.missing != other.missing || output != expected
            })
        };
        match results.find(differs) {
            None => Ok(()),
            Some((report, _)) => {
                let missing = [
                    Some(&report.missing),
                    first.map(|(report, _)| &report.missing),
                ];
                let what = format!("step {number}: results differ; missing: {missing:?}");
                Err(self.violation(Rule::Bytes, self.world.now_ns(), what))
            }
        }
    }

    /// Whether a bounded operation may end before this rank knows that another rank runs a different
    /// one. Until then, it takes the data of that rank for contributions.
    fn may_be_confused(&self, number: usize, step: &Step) -> bool {
        let is_confused = step.is_bounded() && !self.plan.has_exact_phase(step);
        is_confused && self.plan.differs_by(number)
    }

    fn is_transformed(&self, step: &Step) -> bool {
        let transforms = matches!(
            step.values(),
            Some((
                ElementType::F32 | ElementType::F16 | ElementType::Bf16,
                Reduction::Sum | Reduction::Mean
            ))
        );
        step.is_bounded() && transforms && self.plan.options.bounded.hadamard.is_some()
    }

    /// A transformed result has no short description: the library computes it again.
    fn replayed(&self, number: usize, step: &Step, rank: usize, missing: &[Missing]) -> Vec<u8> {
        let ranks = self.plan.ranks;
        let inputs = (0..ranks).map(|rank| data::contribution(step, number, rank, ranks));
        let inputs: Vec<Vec<u8>> = inputs.collect();
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let replayed = replay(&self.plan.options, rank, &step.operation, &inputs, missing);
        replayed.expect("a report that can be replayed")
    }

    fn note_result(&mut self, step: &Step, report: &Report, is_transformed: bool) {
        let is_bounded_sum = step.is_bounded() && step.is_all_reduce();
        let has_bounded_parts = is_bounded_sum && !self.plan.has_exact_phase(step);
        let is_around = self.plan.options.bounded.algorithm == Algorithm::Ring;
        let others = self.plan.ranks - 1;
        let is_alone = report
            .missing
            .iter()
            .any(|lacks| lacks.ranks.len() == others);
        let is_plain = |(scheme, _): (SchemeName, _)| scheme == SchemeName::BestEffort;
        self.coverage.extend([
            ("exact result", !step.is_bounded()),
            ("bounded result", step.is_bounded()),
            ("transformed result", is_transformed),
            ("send and receive", step.is_send()),
            ("contribution missing", report.missing_bytes > 0),
            ("bounded parts", has_bounded_parts),
            ("bounded ring", is_bounded_sum && is_around),
            ("own contribution alone", has_bounded_parts && is_alone),
            ("limit reached", report.was_cut),
            (
                "parity or repeats",
                report.repair.is_some_and(|repair| !is_plain(repair)),
            ),
            ("sites", !self.plan.options.sites.is_empty()),
        ]);
    }

    fn note_faults(&mut self) {
        let late = |step: &Step| step.gaps_ns.iter().any(|&gap_ns| gap_ns > 10_000_000);
        let is_bursty = matches!(self.plan.link.loss, Loss::Markov { .. });
        self.coverage.extend([
            ("late start", self.plan.steps.iter().any(late)),
            ("packets lost", self.world.lost_packets() > 0),
            ("bursts", is_bursty),
            ("control cut", self.world.lost_control_packets() > 0),
            ("clock skew", self.plan.clocks[0] != SimClock::default()),
        ]);
        let kinds = self.plan.faults.iter().filter_map(|fault| match fault {
            Fault::Stall { .. } => Some("stall"),
            Fault::Cut { .. } => Some("path cut"),
            // Noted above, if it lost anything.
            Fault::ControlCut { .. } => None,
            Fault::Death { .. } => Some("death"),
            Fault::LateReturn { .. } => Some("late return"),
            Fault::Leave { .. } => Some("leave"),
            Fault::Abort { .. } => Some("abort"),
            Fault::Differ { .. } => Some("different arguments"),
        });
        self.coverage.extend(kinds.map(|kind| (kind, true)));
    }
}

/// What is wrong with the ranges of a report, if anything is.
fn malformed(report: &Report, bytes: usize, ranks: usize) -> Option<&'static str> {
    let mut end = 0;
    let mut sum = 0;
    for Missing {
        range,
        ranks: lacks,
    } in &report.missing
    {
        let range = data::to_usize(range);
        if range.is_empty() || range.start < end || range.end > bytes {
            return Some("ranges overlap, or are not in order");
        }
        let is_ascending = lacks.windows(2).all(|pair| pair[0] < pair[1]);
        if lacks.is_empty() || !is_ascending || lacks.iter().any(|&rank| rank >= ranks) {
            return Some("ranks are not in order");
        }
        end = range.end;
        sum += range.len();
    }
    (report.missing_bytes != sum as u64).then_some("the sum is wrong")
}
