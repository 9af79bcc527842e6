//! Compares completion times with those of another simulator.

use std::ops::RangeInclusive;
use std::path::Path;

use farwrite_experiment::other_simulators::{
    self, FlowMatching, Found, OtherFlow, completion_times, match_flows,
};
use farwrite_experiment::plan::{Case, CaseOutcome, CaseParts, MOST_FILE_BYTES, Plan};
use farwrite_experiment::{Ideal, PacketFormat};
use farwrite_units::input::read_text;
use farwrite_units::show::Count;
use serde::Serialize;

use super::report::{Key, Spread, by_size};
use crate::exit::{Exit, Failure, OrExit};

/// The number of flows in the list of those that differ most.
const MOST_APART: usize = 5;

/// The results of another simulator.
#[derive(Debug)]
pub(super) struct Peer {
    file: String,
    flows: Vec<OtherFlow>,
    /// A warning if flows are faster than the cables allow.
    pub(super) warning: Option<String>,
}

/// The completion times of a plan beside those of another simulator.
#[derive(Debug, Serialize)]
pub(super) struct Comparison {
    pub(super) file: String,
    pub(super) settings: Vec<ComparedSetting>,
    #[serde(skip)]
    pub(super) rows: Vec<ComparedFlow>,
}

/// The runs that differ only in their seeds.
#[derive(Debug, Serialize)]
pub(super) struct ComparedSetting {
    #[serde(flatten)]
    pub(super) key: Key,
    pub(super) seeds: usize,
    /// By size class. The last entry is for all sizes.
    pub(super) sizes: Vec<ComparedSize>,
    /// The flows whose ratios are furthest from 1.
    pub(super) most_apart: Vec<ComparedFlow>,
    /// The flows that have a time in one simulator only.
    pub(super) without_pair: Vec<ComparedFlow>,
    /// The flows that both have, and that the other simulator did not start when its input says.
    pub(super) other_start: Vec<ComparedFlow>,
}

/// Flows up to a size, and above the size of the previous entry. All seeds are taken together.
#[derive(Debug, Serialize)]
pub(super) struct ComparedSize {
    /// `None` for any size.
    pub(super) up_to_bytes: Option<u64>,
    pub(super) flows: usize,
    pub(super) ours_us: Spread,
    pub(super) theirs_us: Spread,
}

/// A flow of a run, a flow of the other simulator, or one that both have.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ComparedFlow {
    pub(super) run: usize,
    /// `None`: the workload lacks it.
    pub(super) flow: Option<usize>,
    /// Line of the other simulator's file; `None`: it lacks the flow.
    pub(super) line: Option<usize>,
    pub(super) src: usize,
    pub(super) dst: usize,
    pub(super) bytes: Option<u64>,
    /// The start in the input; `None`: a trigger starts the flow.
    pub(super) planned_us: Option<f64>,
    /// The start in the other simulator's results, if they have it.
    pub(super) their_start_us: Option<f64>,
    pub(super) ours_us: Option<f64>,
    pub(super) theirs_us: Option<f64>,
    pub(super) found: Found,
}

impl Peer {
    /// Reads the file, and checks before any run that it belongs to the workload of the plan.
    pub(super) fn read(path: &Path, plan: &Plan) -> Result<Self, Failure> {
        let cases = plan.cases();
        let refuse = |why: String| {
            let path = path.display();
            Failure::new(Exit::Usage, format!("--compare {path}: {why}"))
        };
        let name = |case: &Case| {
            let names = plan.names(case);
            (names.topology.to_owned(), names.workload.to_owned())
        };
        if let Some(other) = cases.iter().map(name).find(|at| *at != name(&cases[0])) {
            let first = name(&cases[0]);
            return Err(refuse(format!(
                "the plan has several networks or workloads, such as {} on {} and {} on {}; keep one",
                first.1, first.0, other.1, other.0
            )));
        }
        let file = path.display().to_string();
        let text = read_text(path, MOST_FILE_BYTES).or_exit(Exit::Files, &file)?;
        let parts = plan.parts(&cases[0]).or_exit(Exit::Usage, "the plan")?;
        let flows = completion_times(&file, &text, &parts.host_of);
        let flows = flows.or_exit(Exit::Usage, "--compare")?;
        let matching = match_flows(&parts.workload.flows, plan.flow_ids(&cases[0]), &flows);
        if matching.pairs.is_empty() {
            let (first, ours) = (&flows[0], &parts.workload.flows[0]);
            return Err(refuse(format!(
                "none of its {} flows is in workload {}: its first goes from host {} to host {} (line \
                 {}), that of the workload from host {} to host {}; hosts, sizes and starts must agree",
                flows.len(),
                name(&cases[0]).1,
                first.src,
                first.dst,
                first.line,
                ours.src,
                ours.dst
            )));
        }
        let warning = warning_of_speed(&file, &flows, &matching, &parts);
        Ok(Self {
            file,
            flows,
            warning,
        })
    }

    pub(super) fn compare(&self, plan: &Plan, outcomes: &[CaseOutcome]) -> Comparison {
        let rows: Vec<_> = outcomes
            .iter()
            .flat_map(|case| self.rows(plan, case))
            .collect();
        let settings = outcomes.chunk_by(|one, other| one.case.setting == other.case.setting);
        let settings = settings.map(|cases| {
            let is_of = |row: &&ComparedFlow| cases.iter().any(|at| at.case.number == row.run);
            let rows: Vec<_> = rows.iter().filter(is_of).collect();
            ComparedSetting::new(Key::new(plan, &cases[0].case), cases.len(), &rows)
        });
        Comparison {
            file: self.file.clone(),
            settings: settings.collect(),
            rows,
        }
    }

    /// All flows of a run, then those that only the other simulator has.
    fn rows(&self, plan: &Plan, case: &CaseOutcome) -> Vec<ComparedFlow> {
        let Ok(outcome) = &case.outcome else {
            return Vec::new();
        };
        let ids = plan.flow_ids(&case.case);
        let flows = other_simulators::compare_flows(&case.flows, ids, outcome, &self.flows);
        let flows = flows.into_iter();
        flows
            .map(|flow| ComparedFlow::new(case.case.number, &flow))
            .collect()
    }
}

/// Says that flows of the other simulator are faster than the cables of the plan allow, if so.
fn warning_of_speed(
    file: &str,
    theirs: &[OtherFlow],
    matching: &FlowMatching,
    parts: &CaseParts,
) -> Option<String> {
    let format = PacketFormat {
        mtu: parts.transport.mtu(),
        framing: parts.options.framing_bytes,
    };
    let mut ideal = Ideal::new(&parts.topology, &parts.options, format);
    let flows = &parts.workload.flows;
    let found = other_simulators::too_fast(flows, theirs, matching, &mut ideal);
    let first = found.first()?;
    Some(format!(
        "{file}: {} faster than the cables of the topology allow, such as that of line {}: {:.1} us, and the \
         cables take {:.1} us at least. See whether the topology and the sizes are those of that run",
        Count(found.len() as u64, "flow"),
        first.line,
        first.theirs_ns / 1e3,
        first.least_ns / 1e3
    ))
}

impl ComparedFlow {
    fn new(run: usize, flow: &other_simulators::ComparedFlow) -> Self {
        let us = |ns: Option<f64>| ns.map(|ns| ns / 1e3);
        Self {
            run,
            flow: flow.flow,
            line: flow.line,
            src: flow.src,
            dst: flow.dst,
            bytes: flow.bytes,
            planned_us: us(flow.planned_ns),
            their_start_us: us(flow.their_start_ns),
            ours_us: us(flow.ours_ns),
            theirs_us: us(flow.theirs_ns),
            found: flow.found,
        }
    }

    /// Our time divided by theirs, for a flow that both have.
    pub(super) fn ratio(&self) -> Option<f64> {
        let is_both = self.found == Found::Both;
        let times = self.ours_us.zip(self.theirs_us).filter(|_| is_both);
        times.map(|(ours, theirs)| ours / theirs)
    }

    /// Whether the other simulator started the flow at another time than its input says, by more
    /// than a microsecond.
    fn has_other_start(&self) -> bool {
        let starts = self.planned_us.zip(self.their_start_us);
        starts.is_some_and(|(planned, theirs)| (planned - theirs).abs() > 1.0)
    }

    /// How far the ratio is from 1; twice as long counts as much as half as long.
    fn distance(&self) -> f64 {
        self.ratio().map_or(0.0, |ratio| ratio.ln().abs())
    }
}

impl ComparedSetting {
    fn new(key: Key, seeds: usize, rows: &[&ComparedFlow]) -> Self {
        let (mut pairs, others): (Vec<_>, Vec<_>) =
            rows.iter().partition(|row| row.found == Found::Both);
        let sizes = by_size(|up_to, sizes| ComparedSize::new(&pairs, up_to, &sizes));
        pairs.sort_by(|one, other| other.distance().total_cmp(&one.distance()));
        let other_start = pairs.iter().filter(|row| row.has_other_start());
        let other_start = other_start.map(|row| (*row).clone()).collect();
        let owned = |rows: &[&ComparedFlow]| rows.iter().map(|row| (*row).clone()).collect();
        Self {
            key,
            seeds,
            sizes,
            most_apart: owned(&pairs[..pairs.len().min(MOST_APART)]),
            without_pair: owned(&others),
            other_start,
        }
    }
}

impl ComparedSize {
    /// The flows of these sizes; `None` if there are none.
    fn new(
        pairs: &[&ComparedFlow],
        up_to_bytes: Option<u64>,
        sizes: &RangeInclusive<u64>,
    ) -> Option<Self> {
        let is_of = |row: &&&ComparedFlow| row.bytes.is_some_and(|bytes| sizes.contains(&bytes));
        let chosen: Vec<_> = pairs.iter().filter(is_of).collect();
        let ours = chosen.iter().filter_map(|row| row.ours_us);
        let theirs = chosen.iter().filter_map(|row| row.theirs_us);
        Some(Self {
            up_to_bytes,
            flows: chosen.len(),
            ours_us: Spread::of(ours.collect())?,
            theirs_us: Spread::of(theirs.collect())?,
        })
    }
}
