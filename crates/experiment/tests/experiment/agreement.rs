//! Compares results with those of two public simulators, htsim and the RDMA tree of ns-3, for the
//! same settings. The plans are in `plans/`, and the topologies and flows in `plans/inputs/`, in the
//! formats of these simulators. lab/results/sim.md has the comparison.

use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

use farwrite_experiment::plan::{Plan, sweep};
use farwrite_experiment::stats::Summary;
use farwrite_experiment::{FlowOutcome, Outcome};

/// Runs some workloads of a plan with one seed. Returns their outcomes.
fn outcomes(text: &str, workloads: &[&str]) -> Vec<Outcome> {
    outcomes_of_seeds(1, text, workloads)
}

fn outcomes_of_seeds(seeds: usize, text: &str, workloads: &[&str]) -> Vec<Outcome> {
    let text = text.replace("seeds = 20", &format!("seeds = {seeds}"));
    let plans = Path::new(env!("CARGO_MANIFEST_DIR")).join("plans");
    let read_file =
        |name: &str| fs::read_to_string(plans.join(name)).map_err(|why| why.to_string());
    let mut plan = Plan::read(&text, &read_file).unwrap();
    plan.keep_workloads(|name| workloads.contains(&name));
    let outcomes = sweep(&plan, 2, None, |_| true);
    outcomes
        .into_iter()
        .map(|case| case.outcome.unwrap())
        .collect()
}

fn times_us(outcome: &Outcome) -> Summary {
    let times = outcome.flows.iter().filter_map(FlowOutcome::time_ns);
    Summary::of(times.map(|ns| ns as f64 / 1e3).collect()).unwrap()
}

#[track_caller]
fn near(ours: f64, theirs: f64, share: f64) {
    assert!((ours / theirs - 1.0).abs() <= share, "{ours} and {theirs}");
}

/// Checks mean and 99th percentile of a single packet and of incasts of 15 and 50 senders. The last
/// flow ends when the cable has carried all bytes: 1252 and 4175 us without headers.
fn check_star(text: &str, theirs: [[f64; 2]; 3], header_share: f64) {
    let all = outcomes(text, &["incast15", "incast50", "packet"]);
    let [incast15, incast50, packet] = &all[..] else {
        panic!("three workloads");
    };
    for (outcome, [mean, p99]) in [packet, incast15, incast50].into_iter().zip(theirs) {
        let ours = times_us(outcome);
        near(ours.mean, mean, 0.05);
        near(ours.p99, p99, 0.05);
        assert_eq!((outcome.repeated(), outcome.totals.all_dropped()), (0, 0));
    }
    for (outcome, drained_us) in [(incast15, 1200.0), (incast50, 4000.0)] {
        near(
            outcome.last_done_ns().unwrap() as f64 / 1e3,
            drained_us * header_share + 5.0,
            0.01,
        );
    }
}

#[test]
fn incasts_agree_with_htsim() {
    let text = include_str!("../../plans/htsim-star.toml");
    let theirs = [[4.361, 4.361], [1135.0, 1186.0], [3714.0, 4058.0]];
    check_star(text, theirs, 1.064);
}

#[test]
fn incasts_agree_with_ns3() {
    let text = include_str!("../../plans/ns3-star.toml");
    let theirs = [[4.352, 4.352], [915.0, 1117.0], [3214.0, 3719.0]];
    check_star(text, theirs, 1.044);
}

#[test]
fn a_flow_alone_agrees_with_htsim() {
    let text = include_str!("../../plans/htsim-clos.toml");
    let alone = outcomes(text, &["alone"]);
    near(times_us(&alone[0]).mean, 2040.0, 0.01);
}

#[test]
fn a_flow_and_a_packet_alone_on_a_clos_agree_with_ns3() {
    let text = include_str!("../../plans/ns3-clos.toml");
    let both = outcomes(text, &["alone", "packet"]);
    near(times_us(&both[0]).mean, 2084.0, 0.05);
    near(times_us(&both[1]).mean, 8.3, 0.05);
}

const SEEDS: usize = 10;
/// Places of values of a run.
const MEAN: usize = 0;
const P99: usize = 1;
const REPEATED: usize = 2;

/// Returns three values of each run: the mean completion time in microseconds, its 99th percentile,
/// and the number of retransmitted packets.
fn values(runs: &[Outcome]) -> Vec<[f64; 3]> {
    let all_done = |run: &Outcome| run.done() == run.flows.len();
    assert!(runs.iter().all(all_done));
    let of_run = |run| {
        let times = times_us(run);
        [times.mean, times.p99, run.repeated() as f64]
    };
    runs.iter().map(of_run).collect()
}

/// Returns the means of these values over all seeds.
fn means(runs: &[Outcome]) -> [f64; 3] {
    let values = values(runs);
    let sums = values
        .iter()
        .fold([0.0; 3], |sums, run| [0, 1, 2].map(|at| sums[at] + run[at]));
    sums.map(|sum| sum / values.len() as f64)
}

/// Returns the range over all seeds of one of these values.
fn range(runs: &[Outcome], at: usize) -> RangeInclusive<f64> {
    let all = values(runs).into_iter().map(|run| run[at]);
    let (least, most) = all.fold((f64::INFINITY, 0.0_f64), |(least, most), value| {
        (least.min(value), most.max(value))
    });
    least..=most
}

/// Go-Back-N with PFC and DCQCN, and IRN with DCQCN. The settings of a plan are in alphabetical
/// order: `irn`, `roce`.
#[test]
fn incasts_under_dcqcn_agree_with_ns3() {
    check_dcqcn("incast15", [[1088.0, 1378.0], [1167.0, 1400.0]], 1.0);
}

#[test]
fn incasts_of_50_under_dcqcn_agree_with_ns3() {
    check_dcqcn("incast50", [[3593.0, 4372.0], [3332.0, 3904.0]], 10.0);
}

/// Checks mean and 99th percentile of `irn` and `roce`, and that fewer than `most_repeated` packets of
/// a run are retransmitted.
fn check_dcqcn(workload: &str, [of_irn, of_roce]: [[f64; 2]; 2], most_repeated: f64) {
    let text = include_str!("../../plans/ns3-dcqcn.toml");
    let all = outcomes_of_seeds(SEEDS, text, &[workload]);
    let (irn, roce) = all.split_at(SEEDS);
    for (runs, theirs) in [(irn, of_irn), (roce, of_roce)] {
        let [mean, p99, repeated] = means(runs);
        near(mean, theirs[0], 0.15);
        near(p99, theirs[1], 0.15);
        assert!(repeated < most_repeated, "{repeated}");
        assert!(runs.iter().all(|run| run.totals.marked > 0));
    }
    let stops = |runs: &[Outcome]| runs.iter().map(|run| run.totals.pauses_sent).sum::<u64>();
    assert!(stops(roce) > 0);
    assert_eq!(stops(irn), 0);
}

#[test]
fn incasts_under_eqds_agree_with_htsim() {
    let text = include_str!("../../plans/htsim-eqds.toml");
    let rows = [
        ("incast15", [1106.0, 1178.0]),
        ("incast50", [3760.0, 4006.0]),
    ];
    for (workload, theirs) in rows {
        let all = outcomes_of_seeds(SEEDS, text, &[workload]);
        let [mean, p99, repeated] = means(&all);
        near(mean, theirs[0], 0.05);
        near(p99, theirs[1], 0.05);
        let trimmed = all.iter().map(|run| run.totals.trimmed).sum::<u64>();
        assert!(repeated > 0.0 && trimmed > 0);
    }
}

/// The all-to-all under EQDS is that of htsim with a window for the whole flow (lab/results/sim.md).
#[test]
fn workloads_on_a_small_tree_agree_with_htsim() {
    let roce = include_str!("../../plans/htsim-tree.toml");
    let eqds = include_str!("../../plans/htsim-tree-eqds.toml");
    let rows = [
        (roce, "all", [331.0, 335.0]),
        (roce, "incast", [954.0, 1029.0]),
        (eqds, "all", [333.0, 339.0]),
        (eqds, "incast", [986.0, 1015.0]),
    ];
    for (text, workload, [mean, p99]) in rows {
        let ours = means(&outcomes_of_seeds(20, text, &[workload]));
        near(ours[0], mean, 0.05);
        near(ours[1], p99, 0.05);
    }
}

/// Packets of a flow arrive out of order over many paths. Go-Back-N retransmits thousands of them.
/// The settings are `irn`, `irn-rules`, `roce` and `roce-rules` with DRILL, and then with ECMP. The
/// ranges are those of all 20 seeds of the plan: fewer do not contain the value of ns-3 for ECMP.
#[test]
fn over_many_paths_the_rules_of_ns3_explain_go_back_n() {
    const ALL: usize = 20;
    let text = include_str!("../../plans/ns3-leaves.toml");
    let all = outcomes_of_seeds(ALL, text, &["senders15"]);
    let settings: Vec<_> = all.chunks(ALL).collect();
    let [
        drill_irn,
        drill_irn_rules,
        drill_roce,
        drill_rules,
        _,
        _,
        ecmp_roce,
        _,
    ] = settings[..]
    else {
        panic!("eight settings");
    };
    let rows = [
        (ecmp_roce, 3311.0, 0.0..1.0),
        (drill_roce, 4398.0, 1000.0..10_000.0),
        (drill_irn, 3515.0, 0.0..1000.0),
    ];
    for (runs, theirs, of_repeated) in rows {
        let [mean, _, repeated] = means(runs);
        near(mean, theirs, 0.15);
        assert!(of_repeated.contains(&repeated), "{repeated}");
    }
    for (runs, theirs) in [
        (ecmp_roce, 3311.0),
        (drill_irn, 3515.0),
        (drill_irn_rules, 3515.0),
    ] {
        let means = range(runs, MEAN);
        assert!(means.contains(&theirs), "{means:?} and {theirs}");
    }
    // The rules of ns-3 explain Go-Back-N over DRILL.
    let [without, with] = [drill_roce, drill_rules].map(|runs| range(runs, MEAN));
    assert!(
        *without.end() < 4398.0 && with.contains(&4398.0),
        "{without:?} {with:?}"
    );
}

/// Without PFC, 50 senders: the mean and the 99th percentile of ns-3 lie in the range if receivers
/// repeat their NAKs as in ns-3 (`again`), and the mean lies above it if a gap has one NAK (`once`).
/// The settings are `again`, `each`, `once` and `rules`. The first ten seeds show it.
#[test]
fn repeated_naks_explain_an_incast_without_pfc() {
    let text = include_str!("../../plans/ns3-lossy.toml");
    let all = outcomes_of_seeds(SEEDS, text, &["incast50"]);
    let settings: Vec<_> = all.chunks(SEEDS).collect();
    let [again, _, once, _] = settings[..] else {
        panic!("four settings");
    };
    for (at, theirs) in [(MEAN, 5313.0), (P99, 9257.0)] {
        let values = range(again, at);
        assert!(values.contains(&theirs), "{values:?} and {theirs}");
    }
    let of_once = range(once, MEAN);
    assert!(*of_once.end() < 5313.0, "{of_once:?}");
    // About as many packets are retransmitted as the 31,868 of ns-3.
    near(means(once)[REPEATED], 31_868.0, 0.2);
}

/// With all settings, 15 senders have lower means than in ns-3: fewer of them wait for the timeout. The
/// tests of `farwrite-rc` show that nanoseconds decide how many do.
#[test]
fn an_incast_of_15_without_pfc_ends_before_that_of_ns3() {
    let text = include_str!("../../plans/ns3-lossy.toml");
    let all = outcomes_of_seeds(SEEDS, text, &["incast15"]);
    for runs in all.chunks(SEEDS) {
        let of_means = range(runs, MEAN);
        assert!(*of_means.end() < 2402.0, "{of_means:?}");
    }
    // The 99th percentile is that of a flow that waits for the timeout of 4 ms.
    near(means(&all[3 * SEEDS..])[P99], 4879.0, 0.05);
}

/// The value of ns-3 lies in our range over 20 seeds of ECMP, and the range of htsim over five seeds
/// overlaps with ours. Under EQDS, the middle of htsim's range is within 5%.
#[test]
#[ignore = "minutes; run by make sim-check"]
fn permutations_on_a_clos_agree_with_htsim_and_ns3() {
    let of_runs = |text: &str, seeds| outcomes_of_seeds(seeds, text, &["permutation"]);
    let htsim = of_runs(include_str!("../../plans/htsim-clos.toml"), 20);
    let ns3 = of_runs(include_str!("../../plans/ns3-clos.toml"), 20);
    for (runs, at, theirs) in [
        (&htsim, MEAN, vec![4074.0, 4836.0]),
        (&htsim, P99, vec![8161.0, 11_000.0]),
        (&ns3, MEAN, vec![4787.0]),
        (&ns3, P99, vec![11_676.0]),
    ] {
        let ours = range(runs, at);
        println!("{ours:?} and {theirs:?}");
        let is_in_range = theirs.iter().any(|value| ours.contains(value));
        assert!(is_in_range, "{ours:?} and {theirs:?}");
    }
    let eqds = of_runs(include_str!("../../plans/htsim-clos-eqds.toml"), 8);
    let [mean, p99, _] = means(&eqds);
    println!("{mean} and {p99}");
    near(mean, 2170.0, 0.05);
    near(p99, 2272.0, 0.05);
}
