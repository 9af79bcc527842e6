//! Short paths between hosts that wake up late. The part `hosts` of the example `rate_grid` of crate `bench` prints them all.

mod common;

use common::case::Case;
use common::grids;
use common::host::Host;
use common::measure::CaseResult;
use common::network::run;

/// The results of a case with different delays of the hosts.
fn runs(case: &Case, seeds: u64) -> Vec<CaseResult> {
    let seeded = |seed| Case {
        seed,
        ..case.clone()
    };
    (1..=seeds).map(|seed| run(&seeded(seed))).collect()
}

fn mean(outcomes: &[CaseResult], of: impl Fn(&CaseResult) -> f64) -> f64 {
    outcomes.iter().map(of).sum::<f64>() / outcomes.len() as f64
}

/// The cases in which nothing but the path limits the rate.
fn unlimited(host: Host) -> impl Iterator<Item = Case> {
    let cases = grids::hosts(host).filter(|case| case.max_rate_bps > case.rate_bps);
    cases.filter(|case| case.buffer >= 1.0 && case.policer.is_none())
}

/// Before senders made up for late sleeps, a maximum of 200 Mbit/s reached 0.81 to 0.87 between quiet hosts. While they
/// made up for a quarter of a millisecond only, it reached 0.85 to 0.96 between those that are busy.
#[test]
fn hosts_reach_a_maximum_rate() {
    for host in [Host::quiet(), Host::busy()] {
        for case in grids::hosts(host).filter(|case| case.max_rate_bps < case.rate_bps) {
            let outcomes = runs(&case, 3);
            let used = mean(&outcomes, |outcome| outcome.utilisation);
            let used = used * case.rate_bps as f64 / case.max_rate_bps as f64;
            assert!(used > 0.95, "{case:?} {used}");
            let repeated = mean(&outcomes, |outcome| outcome.repeated);
            assert!(repeated < 0.01, "{case:?} {repeated}");
        }
    }
}

/// Before hosts counted as a part of a short path, a flow used 0.13 to 0.36 of one. Between hosts that are busy, a flow
/// stops too often to fill a path of less than 5 ms.
#[test]
fn hosts_fill_a_short_path() {
    for host in [Host::quiet(), Host::busy()] {
        for case in unlimited(host) {
            let outcomes = runs(&case, 3);
            let used = mean(&outcomes, |outcome| outcome.utilisation);
            let least = match (host == Host::quiet(), case.rtt_ns) {
                (true, _) => 0.9,
                (false, ..2_000_000) => 0.65,
                (false, _) => 0.75,
            };
            assert!(used > least, "{case:?} {used}");
            let repeated = mean(&outcomes, |outcome| outcome.repeated);
            let most = if host == Host::quiet() { 0.01 } else { 0.03 };
            assert!(repeated < most, "{case:?} {repeated}");
        }
    }
}

/// While growth counted time in which nothing arrived, paces of 400 Gbit/s stayed until the end, and the queue dropped
/// up to three quarters of the packets.
#[test]
fn busy_hosts_do_not_run_away() {
    for case in unlimited(Host::busy()) {
        let rounds = 5e8 / case.rtt_ns as f64;
        let case = case.lasting(rounds, 0.0);
        for outcome in runs(&case, 50) {
            let most_ns = 50_000_000 + 10 * case.rtt_ns;
            assert!(outcome.excess_ns < most_ns, "{case:?} {outcome:?}");
            assert!(outcome.repeated < 0.1, "{case:?} {outcome:?}");
        }
    }
}

/// With batches of half a millisecond within a rack, four flows took their bursts for the queue of others, kept the queue
/// full, and a sixth of the packets was dropped.
#[test]
fn several_flows_share_a_rack_without_filling_its_queue() {
    for case in unlimited(Host::quiet()).filter(|case| case.rtt_ns < 500_000) {
        let case = case.with_flows(8, 3.0);
        let outcomes = runs(&case, 2);
        let repeated = mean(&outcomes, |outcome| outcome.repeated);
        let jain = mean(&outcomes, |outcome| outcome.jain);
        assert!(repeated < 0.02 && jain > 0.95, "{case:?} {repeated} {jain}");
    }
}
