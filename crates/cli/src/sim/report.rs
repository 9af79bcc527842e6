//! Results by run, and by setting and size class.

use std::ops::RangeInclusive;

use farwrite_experiment::plan::{Case, CaseOutcome, Plan};
use farwrite_experiment::stats::{Interval, Summary, interval};
use farwrite_experiment::{FlowOutcome, Outcome};
use farwrite_net::FrameDrop;
use serde::Serialize;

use farwrite_units::show::real;

use super::compare::{Comparison, Peer};
use super::settings::Values;

/// All results except those of single flows.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// All runs of the plan. An interrupted command has fewer results.
    pub(super) planned_runs: usize,
    pub(super) runs: Vec<Run>,
    pub(super) settings: Vec<Setting>,
    /// What endpoints do at the start of a flow that `farwrite plan` does not count.
    pub(super) start_costs: Vec<StartCosts>,
    /// The same flows in the results of another simulator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) comparison: Option<Comparison>,
}

#[derive(Debug, Serialize)]
pub(super) struct StartCosts {
    pub(super) transport: String,
    pub(super) text: String,
}

/// The properties that identify a run or a setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Key {
    pub(super) topology: String,
    pub(super) workload: String,
    pub(super) switch: String,
    pub(super) transport: String,
    /// `None` selects the loss of the topology.
    pub(super) loss: Option<f64>,
}

#[derive(Debug, Serialize)]
pub(super) struct Run {
    pub(super) run: usize,
    #[serde(flatten)]
    pub(super) key: Key,
    pub(super) seed: u64,
    pub(super) flows: usize,
    pub(super) done: usize,
    pub(super) failed: usize,
    pub(super) fct_us: Option<Summary>,
    pub(super) slowdown: Option<Summary>,
    /// From the start of the first flow to the end of the last that is done; `None` if none is.
    pub(super) last_done_us: Option<f64>,
    pub(super) packets: u64,
    pub(super) repeated: u64,
    pub(super) timeouts: u64,
    pub(super) missing_bytes: u64,
    /// By cause, in the order of [`FrameDrop::ALL`].
    pub(super) dropped_buffer: u64,
    pub(super) dropped_headroom: u64,
    pub(super) dropped_cable: u64,
    pub(super) dropped_cable_down: u64,
    pub(super) dropped_no_route: u64,
    pub(super) marked: u64,
    pub(super) trimmed: u64,
    pub(super) pfc_frames: u64,
    /// Goodput of all flows without an end together; `None` if there are none.
    pub(super) endless_bps: Option<f64>,
    /// The sum over all ports.
    pub(super) pfc_stopped_us: f64,
    pub(super) path_changes: u64,
    pub(super) box_repairs: u64,
    pub(super) box_recovered: u64,
    pub(super) box_given_up: u64,
    pub(super) box_peak_held: u64,
    pub(super) queue_peak_bytes: u64,
    pub(super) queue_mean_bytes: f64,
    pub(super) packet_hops: u64,
    pub(super) events: u64,
    pub(super) trace: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Setting {
    #[serde(flatten)]
    pub(super) key: Key,
    pub(super) seeds: usize,
    pub(super) values: Option<Values>,
    /// By size class. The last entry is for all sizes.
    pub(super) sizes: Vec<SizeClass>,
}

/// Flows up to a size, and above the size of the previous entry.
#[derive(Debug, Serialize)]
pub(super) struct SizeClass {
    /// `None` for any size.
    pub(super) up_to_bytes: Option<u64>,
    /// The number of completed flows that statistics count, for all seeds.
    pub(super) flows: usize,
    /// Means over seeds.
    pub(super) fct_mean_us: Interval,
    pub(super) fct_p99_us: Interval,
    pub(super) slowdown_mean: Interval,
    pub(super) slowdown_p99: Interval,
}

/// The upper bounds of size classes.
const CLASSES: [u64; 7] = [
    1_000,
    10_000,
    100_000,
    1_000_000,
    10_000_000,
    100_000_000,
    u64::MAX,
];

/// The size classes that are not empty, and then that of all sizes. `class` makes one of its bound and its sizes.
pub(super) fn by_size<T>(class: impl Fn(Option<u64>, RangeInclusive<u64>) -> Option<T>) -> Vec<T> {
    let least = [1]
        .into_iter()
        .chain(CLASSES.map(|up_to| up_to.saturating_add(1)));
    let bound = |up_to| (up_to < u64::MAX).then_some(up_to);
    let classes = least
        .zip(CLASSES)
        .map(|(least, up_to)| (bound(up_to), least..=up_to));
    let all = classes.chain([(None, 1..=u64::MAX)]);
    all.filter_map(|(up_to, sizes)| class(up_to, sizes))
        .collect()
}

impl Report {
    /// `outcomes` holds cases of the plan, in order. None of them failed to run.
    /// `text` is that of the plan.
    pub(super) fn new(
        plan: &Plan,
        text: &str,
        outcomes: &[CaseOutcome],
        peer: Option<&Peer>,
    ) -> Self {
        let run = |at: &CaseOutcome| Some(Run::new(plan, &at.case, at.outcome.as_ref().ok()?));
        let settings = outcomes.chunk_by(|one, other| one.case.setting == other.case.setting);
        let start_costs = plan.start_costs().into_iter();
        let start_cost = |(transport, text): (&str, String)| StartCosts {
            transport: transport.to_owned(),
            text,
        };
        // The plan was read from this text.
        let table = toml::from_str(text).unwrap_or_default();
        Self {
            planned_runs: plan.cases().len(),
            runs: outcomes.iter().filter_map(run).collect(),
            settings: settings
                .map(|cases| Setting::new(plan, &table, cases))
                .collect(),
            start_costs: start_costs.map(start_cost).collect(),
            comparison: peer.map(|peer| peer.compare(plan, outcomes)),
        }
    }
}

impl Key {
    pub(super) fn new(plan: &Plan, case: &Case) -> Self {
        let names = plan.names(case);
        Self {
            topology: names.topology.to_owned(),
            workload: names.workload.to_owned(),
            switch: names.switch.to_owned(),
            transport: names.transport.to_owned(),
            loss: case.loss,
        }
    }

    pub(super) fn names(&self) -> [&str; 4] {
        [
            &self.topology,
            &self.workload,
            &self.switch,
            &self.transport,
        ]
        .map(String::as_str)
    }
}

impl Run {
    fn new(plan: &Plan, case: &Case, outcome: &Outcome) -> Self {
        let totals = &outcome.totals;
        let slowdowns = outcome.measured().filter_map(FlowOutcome::slowdown);
        Self {
            run: case.number,
            key: Key::new(plan, case),
            seed: case.seed,
            flows: outcome.flows.len(),
            done: outcome.done(),
            failed: outcome.failed(),
            fct_us: Summary::of(outcome.measured().filter_map(fct_us).collect()),
            slowdown: Summary::of(slowdowns.collect()),
            last_done_us: outcome.last_done_ns().map(|ns| real(ns) / 1e3),
            packets: outcome.packets(),
            repeated: outcome.repeated(),
            timeouts: outcome.timeouts(),
            missing_bytes: outcome.missing_bytes(),
            dropped_buffer: totals.dropped_for(FrameDrop::Buffer),
            dropped_headroom: totals.dropped_for(FrameDrop::Headroom),
            dropped_cable: totals.dropped_for(FrameDrop::Cable),
            dropped_cable_down: totals.dropped_for(FrameDrop::CableDown),
            dropped_no_route: totals.dropped_for(FrameDrop::NoRoute),
            marked: totals.marked,
            trimmed: totals.trimmed,
            pfc_frames: totals.pauses_sent,
            endless_bps: outcome.endless_goodput_bps(),
            pfc_stopped_us: real(totals.stopped_ns) / 1e3,
            path_changes: totals.path_changes,
            box_repairs: outcome.boxes.repairs,
            box_recovered: outcome.boxes.recovered,
            box_given_up: outcome.boxes.given_up,
            box_peak_held: outcome.boxes.peak_held,
            queue_peak_bytes: totals.peak_queued_bytes,
            queue_mean_bytes: outcome.depths.mean_deepest(),
            packet_hops: totals.transmitted,
            events: outcome.events,
            trace: format!("{:016x}", outcome.trace_hash),
        }
    }
}

impl Setting {
    fn new(plan: &Plan, table: &toml::Table, cases: &[CaseOutcome]) -> Self {
        Self {
            key: Key::new(plan, &cases[0].case),
            seeds: cases.len(),
            values: Values::new(plan, table, &cases[0].case),
            sizes: by_size(|up_to, sizes| SizeClass::new(cases, up_to, &sizes)),
        }
    }
}

impl SizeClass {
    /// The flows of these sizes, in cases that differ in their seeds; `None` if no flow is completed.
    fn new(
        cases: &[CaseOutcome],
        up_to_bytes: Option<u64>,
        sizes: &RangeInclusive<u64>,
    ) -> Option<Self> {
        let mut flows = 0;
        let mut of_seeds: Vec<[Summary; 2]> = Vec::new();
        for case in cases {
            let Ok(outcome) = &case.outcome else {
                continue;
            };
            let pairs = case.flows.iter().zip(&outcome.flows);
            let chosen: Vec<_> = pairs
                .filter(|(flow, _)| sizes.contains(&flow.bytes))
                .map(|(_, outcome)| outcome)
                .filter(|outcome| outcome.is_measured)
                .collect();
            let times = Summary::of(chosen.iter().copied().filter_map(fct_us).collect());
            let slowdowns = chosen.iter().filter_map(|flow| flow.slowdown());
            if let (Some(times), Some(slowdowns)) = (times, Summary::of(slowdowns.collect())) {
                flows += times.count;
                of_seeds.push([times, slowdowns]);
            }
        }
        let estimate = |value: fn(&[Summary; 2]) -> f64| {
            let values: Vec<_> = of_seeds.iter().map(value).collect();
            interval(&values)
        };
        Some(Self {
            up_to_bytes,
            flows,
            fct_mean_us: estimate(|[times, _]| times.mean)?,
            fct_p99_us: estimate(|[times, _]| times.p99)?,
            slowdown_mean: estimate(|[_, slowdowns]| slowdowns.mean)?,
            slowdown_p99: estimate(|[_, slowdowns]| slowdowns.p99)?,
        })
    }
}

fn fct_us(flow: &FlowOutcome) -> Option<f64> {
    flow.time_ns().map(|ns| real(ns) / 1e3)
}
