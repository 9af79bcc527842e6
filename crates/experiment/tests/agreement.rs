//! Answers of two public simulators, htsim and the RDMA tree of ns-3, from the same settings. The
//! plans are in `plans/`; docs/sim.md has the comparison.

use farwrite_experiment::plan::{Plan, sweep};
use farwrite_experiment::stats::Summary;
use farwrite_experiment::{FlowOutcome, Outcome};

/// The outcomes of some workloads of a plan, with one seed.
fn outcomes(text: &str, workloads: &[&str]) -> Vec<Outcome> {
    let text = text.replace("seeds = 20", "seeds = 1");
    let none = |name: &str| Err(format!("{name}: not needed"));
    let mut plan = Plan::read(&text, &none).unwrap();
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

/// Of a packet, and of incasts of 15 and 50 senders: mean and 99th percentile. The last flow ends
/// when the cable has carried all: 1252 and 4175 us without headers.
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
            outcome.last_done_ns() as f64 / 1e3,
            drained_us * header_share + 5.0,
            0.01,
        );
    }
}

#[test]
fn incasts_agree_with_htsim() {
    let text = include_str!("../plans/htsim-star.toml");
    let theirs = [[4.361, 4.361], [1135.0, 1186.0], [3714.0, 4058.0]];
    check_star(text, theirs, 1.064);
}

#[test]
fn incasts_agree_with_ns3() {
    let text = include_str!("../plans/ns3-star.toml");
    let theirs = [[4.352, 4.352], [915.0, 1117.0], [3214.0, 3719.0]];
    check_star(text, theirs, 1.044);
}

#[test]
fn a_flow_alone_agrees_with_htsim() {
    let text = include_str!("../plans/htsim-clos.toml");
    let alone = outcomes(text, &["alone"]);
    near(times_us(&alone[0]).mean, 2040.0, 0.01);
}
