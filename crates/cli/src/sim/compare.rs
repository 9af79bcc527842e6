//! Compares completion times with those of another simulator.

use std::ops::RangeInclusive;
use std::path::Path;

use farwrite_experiment::other_simulators::{
    ComparedFlow, FlowMatching, Found, OtherFlow, compare_flows, completion_times, match_flows,
    too_fast,
};
use farwrite_experiment::plan::{Case, CaseOutcome, CaseParts, MOST_FILE_BYTES, Plan};
use farwrite_experiment::stats::Summary;
use farwrite_experiment::{Ideal, PacketFormat};
use farwrite_units::input::read_text;
use farwrite_units::show::Count;
use serde::Serialize;

use super::report::{Key, by_size};
use crate::exit::{Exit, Failure, OrExit};

/// The number of flows in the list of those that differ most.
const MOST_APART: usize = 5;

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
    pub(super) ours_us: Summary,
    pub(super) theirs_us: Summary,
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
        let compared = |at: &CaseOutcome| {
            let (run, ids) = (at.case.number, plan.flow_ids(&at.case));
            let outcome = at.outcome.as_ref().ok()?;
            Some(compare_flows(run, &at.flows, ids, outcome, &self.flows))
        };
        let rows: Vec<_> = outcomes.iter().filter_map(compared).flatten().collect();
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
    let found = too_fast(flows, theirs, matching, &mut ideal);
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

/// Our time divided by theirs, for a flow that both have.
pub(super) fn ratio(flow: &ComparedFlow) -> Option<f64> {
    let times = flow.ours_us.zip(flow.theirs_us);
    let times = times.filter(|_| flow.found == Found::Both);
    times.map(|(ours, theirs)| ours / theirs)
}

/// How far the ratio is from 1; twice as long counts as much as half as long.
fn distance(flow: &ComparedFlow) -> f64 {
    ratio(flow).map_or(0.0, |ratio| ratio.ln().abs())
}

/// Whether the other simulator started the flow at another time than its input says, by more
/// than a microsecond.
fn has_other_start(flow: &ComparedFlow) -> bool {
    let starts = flow.planned_us.zip(flow.their_start_us);
    starts.is_some_and(|(planned, theirs)| (planned - theirs).abs() > 1.0)
}

impl ComparedSetting {
    fn new(key: Key, seeds: usize, rows: &[&ComparedFlow]) -> Self {
        let (mut pairs, others): (Vec<_>, Vec<_>) =
            rows.iter().partition(|row| row.found == Found::Both);
        let sizes = by_size(|up_to, sizes| ComparedSize::new(&pairs, up_to, &sizes));
        pairs.sort_by(|one, other| distance(other).total_cmp(&distance(one)));
        let other_start = pairs.iter().filter(|row| has_other_start(row));
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
            ours_us: Summary::of(ours.collect())?,
            theirs_us: Summary::of(theirs.collect())?,
        })
    }
}
