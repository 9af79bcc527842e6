//! What runs of a way on a path result in, and what they cost.

use farwrite_experiment::{FlowEnd, Workload};
use farwrite_units::stats::{mean, percentile, standard_error};

use crate::racks::Outcome;
use crate::rows::Panel;
use crate::{Endpoints, MTU};

/// The writes of a run.
#[derive(Default)]
pub(crate) struct Sum {
    pub(crate) times_us: Vec<f64>,
    pub(crate) failed: usize,
}

/// The writes of some runs: the mean and its standard error between runs, and the 99th percentile of all.
pub(crate) struct Times {
    pub(crate) mean_us: f64,
    pub(crate) error_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) failed: usize,
}

/// What a run cost.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    /// Bytes that all ports sent.
    sent_bytes: u64,
    repeated: u64,
    dropped: u64,
    /// Most bytes that a box kept at a time.
    kept_bytes: u64,
    /// Most coding units that a LoWAR box used at a time.
    units: u64,
    /// Bytes that entered an XOR, or a multiplication and sum: in LoWAR boxes at both ends, in
    /// endpoints to make parity.
    coded_bytes: u64,
}

/// The names of the costs, in the order of [`Counts::costs`].
const COSTS: [&str; 6] = [
    "wire",
    "coded",
    "repeated",
    "dropped",
    "kept_bytes",
    "units",
];

impl Sum {
    /// The results of writes that all ended.
    pub(crate) fn of_ns(times_ns: &[u64]) -> Self {
        Self {
            times_us: times_ns.iter().map(|ns| *ns as f64 / 1000.0).collect(),
            failed: 0,
        }
    }

    /// Notes how a flow of endpoints ended.
    pub(crate) fn take(&mut self, time_ns: Option<u64>, end: FlowEnd) {
        self.times_us.extend(time_ns.map(|ns| ns as f64 / 1000.0));
        self.failed += usize::from(!matches!(end, FlowEnd::Done { .. }));
    }

    /// Writes that ended or failed.
    pub(crate) fn writes(&self) -> u64 {
        (self.times_us.len() + self.failed) as u64
    }
}

impl Times {
    pub(crate) fn of<'a>(runs: impl Iterator<Item = &'a Sum>) -> Self {
        let (mut all, mut means, mut failed) = (Vec::new(), Vec::new(), 0);
        for run in runs {
            assert!(!run.times_us.is_empty(), "no write of a run ended");
            means.push(mean(&run.times_us));
            all.extend(&run.times_us);
            failed += run.failed;
        }
        all.sort_by(f64::total_cmp);
        Self {
            mean_us: mean(&all),
            error_us: standard_error(&means),
            p99_us: percentile(&all, 99).unwrap_or(f64::NAN),
            failed,
        }
    }

    /// Adds the times to the results. `whose` begins the name of each measure.
    pub(crate) fn write(&self, panel: &Panel<'_>, series: &str, x: f64, whose: &str) {
        let measures = [
            ("mean_us", self.mean_us),
            ("error_us", self.error_us),
            ("p99_us", self.p99_us),
            ("failed", self.failed as f64),
        ];
        for (measure, value) in measures {
            panel.add(series, x, &format!("{whose}{measure}"), value);
        }
    }
}

/// Adds the costs to the results.
pub(crate) fn write_costs(panel: &Panel<'_>, series: &str, x: f64, costs: &[f64; COSTS.len()]) {
    for (measure, value) in COSTS.into_iter().zip(costs) {
        panel.add(series, x, measure, *value);
    }
}

impl Counts {
    pub(crate) fn of(run: &Outcome) -> Self {
        Self {
            sent_bytes: run.sent_bytes,
            repeated: run.repeated,
            dropped: run.dropped,
            kept_bytes: run.peak_kept_bytes,
            units: run.peak_units,
            coded_bytes: run.xored_bytes,
        }
    }

    /// Of a run of endpoints with a code.
    pub(crate) fn of_endpoints(
        run: &farwrite_experiment::Outcome,
        workload: &Workload,
        ends: &Endpoints,
    ) -> Self {
        let coded = |(flow, wanted): (
            &farwrite_experiment::FlowOutcome,
            &farwrite_experiment::Flow,
        )| {
            let data = wanted.bytes.div_ceil(u64::from(MTU));
            let parity = flow.packets.saturating_sub(flow.repeated + data);
            parity * ends.inputs * u64::from(MTU)
        };
        Self {
            sent_bytes: run.totals.transmitted_bytes,
            repeated: run.repeated(),
            dropped: run.totals.all_dropped(),
            coded_bytes: run.flows.iter().zip(&workload.flows).map(coded).sum(),
            ..Self::default()
        }
    }

    /// The costs of some runs: bytes sent by useful bytes and cable, coded by useful byte, packets
    /// repeated and dropped in a run, and the most that one box needed in any run.
    pub(crate) fn costs(runs: &[Self], useful: u64, useful_by_cable: u64) -> [f64; COSTS.len()] {
        let sum = |of: fn(&Self) -> u64| runs.iter().map(of).sum::<u64>() as f64;
        let most = |of: fn(&Self) -> u64| runs.iter().map(of).max().unwrap_or(0) as f64;
        let count = runs.len() as f64;
        [
            sum(|run| run.sent_bytes) / useful_by_cable as f64,
            sum(|run| run.coded_bytes) / useful as f64,
            sum(|run| run.repeated) / count,
            sum(|run| run.dropped) / count,
            most(|run| run.kept_bytes),
            most(|run| run.units),
        ]
    }
}

/// The heads of the columns of [`show_costs`].
pub(crate) const COST_HEADS: &str = "  wire  coded  repeated   dropped   kept KB units";

pub(crate) fn show_costs(costs: &[f64; COSTS.len()]) -> String {
    let [wire, coded, repeated, dropped, kept, units] = costs;
    let kept_kb = kept / 1000.0;
    format!("{wire:>6.3} {coded:>6.2} {repeated:>9.0} {dropped:>9.0} {kept_kb:>9.0} {units:>5}")
}
