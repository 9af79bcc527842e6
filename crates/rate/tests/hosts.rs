//! Short paths between hosts that wake up late. The part `hosts` of the example `rate_grid` of crate `bench` prints them all.

mod common;

use common::grids;
use common::host::Host;
use common::network::run;

/// Before senders made up for late sleeps, a maximum of 200 Mbit/s reached 0.81 to 0.87 between quiet hosts. While they
/// made up for a quarter of a millisecond only, it reached 0.85 to 0.96 between those that are busy.
#[test]
fn hosts_reach_a_maximum_rate() {
    for host in [Host::quiet(), Host::busy()] {
        for case in grids::hosts(host).filter(|case| case.max_rate_bps < case.rate_bps) {
            let outcome = run(&case);
            let used = outcome.utilisation * case.rate_bps as f64 / case.max_rate_bps as f64;
            assert!(used > 0.95, "{case:?} {used}");
            assert!(outcome.repeated < 0.01, "{case:?} {outcome:?}");
        }
    }
}

/// Before hosts counted as a part of a short path, a flow used 0.13 to 0.36 of one, or paced at 400 Gbit/s.
#[test]
fn hosts_fill_a_short_path_and_do_not_run_away() {
    for host in [Host::quiet(), Host::busy()] {
        let cases = grids::hosts(host).filter(|case| case.max_rate_bps > case.rate_bps);
        let cases = cases
            .filter(|case| case.buffer >= 1.0 && case.policer.is_none() && case.rtt_ns < 5_000_000);
        for case in cases {
            let outcome = run(&case);
            // At 10 us, a host reports each twelve round trips, and a flow uses half of the path.
            let least = match (host == Host::quiet(), case.rtt_ns) {
                (_, 10_000) => 0.4,
                (true, _) => 0.85,
                (false, _) => 0.5,
            };
            assert!(outcome.utilisation > least, "{case:?} {outcome:?}");
            assert!(
                outcome.most_pace_bps < 10 * case.rate_bps,
                "{case:?} {outcome:?}"
            );
            assert!(outcome.dropped < 0.1, "{case:?} {outcome:?}");
        }
    }
}
