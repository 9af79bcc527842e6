//! Tests the adaptive controller on a part of the grid. The example `rate_grid` of crate `bench` prints
//! the whole grid.

mod common;

use std::time::Duration;

use farwrite_link::{Policer, Spread, Variation};

use common::case::{Case, FlowKind, PathStep, Waits, uniform};
use common::measure::CaseResult;
use common::network::run;

/// A path of 1 Gbit/s and 25 ms, which holds 3 MB. Most cases vary it.
fn path() -> Case {
    Case::new(1_000_000_000, 25_000_000)
}

/// Runs a case, and checks the properties of all cases.
fn checked(case: &Case) -> CaseResult {
    let outcome = run(case);
    assert!(outcome.utilisation <= 1.01, "{case:?} {outcome:?}");
    assert!(
        outcome.queue_mean <= outcome.queue_p99,
        "{case:?} {outcome:?}"
    );
    assert!(
        outcome.queue_p99 <= outcome.queue_most,
        "{case:?} {outcome:?}"
    );
    outcome
}

#[test]
fn one_flow_fills_paths_of_all_lengths_and_keeps_the_queue_short() {
    for (rate_bps, rtt_ns) in [
        (100_000_000, 300_000_000),
        (1_000_000_000, 25_000_000),
        (10_000_000_000, 1_000_000),
        (100_000_000_000, 25_000_000),
        (100_000_000_000, 300_000_000),
    ] {
        let outcome = checked(&Case::new(rate_bps, rtt_ns));
        assert!(
            outcome.utilisation > 0.93,
            "{rate_bps} {rtt_ns} {outcome:?}"
        );
        assert!(outcome.queue_mean < 0.12, "{rate_bps} {rtt_ns} {outcome:?}");
    }
}

#[test]
fn random_loss_is_no_congestion() {
    for loss in [0.0001, 0.001, 0.01] {
        let outcome = checked(&Case { loss, ..path() });
        assert!(outcome.utilisation > 0.9, "{loss} {outcome:?}");
    }
}

#[test]
fn heavy_random_loss_stops_no_flow() {
    let outcome = checked(&Case {
        loss: 0.2,
        ..path()
    });
    assert!(outcome.utilisation > 0.5, "{outcome:?}");
}

#[test]
fn a_short_queue_is_enough() {
    let outcome = checked(&Case {
        buffer: 0.2,
        ..path()
    });
    assert!(outcome.utilisation > 0.93, "{outcome:?}");
    assert!(outcome.dropped < 0.01, "{outcome:?}");
}

#[test]
fn noise_that_hosts_may_have_but_do_not_have_hides_no_queue() {
    let case = Case {
        buffer: 0.25,
        packet_bytes: Some(1_500),
        jitter_ns: 1_000_000,
        ..Case::new(1_000_000_000, 1_000_000)
    };
    let outcome = checked(&case.lasting(600.0, 300.0));
    assert!(outcome.utilisation > 0.9, "{outcome:?}");
    assert!(outcome.dropped < 0.02, "{outcome:?}");
}

#[test]
fn hosts_that_stall_leave_a_path_nearly_full() {
    for (rtt_ns, buffer, least) in [(1_000_000, 1.0, 0.85), (10_000_000, 0.25, 0.9)] {
        let case = Case {
            buffer,
            packet_bytes: Some(1_500),
            jitter_ns: 1_000_000,
            stall_ns: 1_000_000,
            ..Case::new(1_000_000_000, rtt_ns)
        };
        let outcome = checked(&case.lasting(600.0, 300.0));
        assert!(outcome.utilisation > least, "{rtt_ns} {outcome:?}");
        assert!(outcome.dropped < 0.02, "{rtt_ns} {outcome:?}");
    }
}

#[test]
fn marks_keep_the_queue_short() {
    let outcome = checked(&Case {
        ecn: true,
        ..path()
    });
    assert!(outcome.utilisation > 0.93, "{outcome:?}");
    assert!(outcome.queue_mean < 0.1, "{outcome:?}");
}

#[test]
fn an_unknown_path_is_full_after_a_few_round_trips_without_a_flood() {
    for (rate_bps, rounds) in [(1_000_000_000, 4.0), (100_000_000_000, 12.0)] {
        let outcome = checked(&Case::new(rate_bps, 25_000_000));
        assert!(
            outcome.rounds_to_90.unwrap() <= rounds,
            "{rate_bps} {outcome:?}"
        );
        assert!(outcome.queue_most < 0.5, "{rate_bps} {outcome:?}");
    }
}

#[test]
fn a_path_that_is_late_ends_no_start_at_a_fraction_of_the_rate() {
    // The path hands over packets together, up to 2 ms late. Before trains were repeated, a flow
    // used 0.12 of these 20 round trips with one of these seeds, and 0.06 with loss.
    for (burst_ns, loss) in [(1_000_000, 0.0), (500_000, 0.01)] {
        for seed in 1..=20 {
            let case = Case {
                packet_bytes: Some(9_000),
                jitter_ns: 1_000_000,
                burst_ns,
                loss,
                seed,
                ..Case::new(10_000_000_000, 25_000_000)
            };
            let outcome = checked(&case.lasting(20.0, 0.0));
            assert!(outcome.utilisation > 0.5, "{seed} {outcome:?}");
            assert!(outcome.dropped < 0.001, "{seed} {outcome:?}");
        }
    }
}

#[test]
fn noisy_hosts_do_not_flood_a_short_path_at_the_start() {
    let case = Case {
        buffer: 0.25,
        packet_bytes: Some(1_500),
        jitter_ns: 1_000_000,
        ..Case::new(100_000_000, 10_000_000)
    };
    let outcome = checked(&case.lasting(25.0, 5.0));
    assert!(outcome.rounds_to_90.unwrap() <= 6.0, "{outcome:?}");
    assert!(outcome.utilisation > 0.8, "{outcome:?}");
    assert!(outcome.dropped < 0.08, "{outcome:?}");
}

#[test]
fn a_true_hint_costs_one_round_trip_and_a_false_one_no_flood() {
    let outcome = checked(&path().hinted(1.0));
    assert!(outcome.rounds_to_90.unwrap() <= 2.0, "{outcome:?}");
    for factor in [2.0, 10.0] {
        let outcome = checked(&path().hinted(factor));
        assert!(outcome.utilisation > 0.9, "{factor} {outcome:?}");
        // The train is a sixteenth of the bytes that the path holds according to the hint.
        assert!(
            outcome.queue_most < 0.3 + factor / 16.0,
            "{factor} {outcome:?}"
        );
    }
}

#[test]
fn equal_flows_get_equal_shares() {
    for (flows, least) in [(2, 0.9), (4, 0.9), (16, 0.8)] {
        let case = path().with_flows(flows, 3.0).lasting(160.0, 100.0);
        let outcome = checked(&case);
        assert!(outcome.jain > least, "{flows} {outcome:?}");
        assert!(outcome.utilisation > 0.9, "{flows} {outcome:?}");
        assert!(outcome.queue_mean < 0.25, "{flows} {outcome:?}");
    }
}

/// Sixteen flows of about five packets each, of 1500 bytes, between hosts with 1 ms of noise.
fn crowded(buffer: f64) -> Case {
    let case = Case {
        buffer,
        packet_bytes: Some(1_500),
        jitter_ns: 1_000_000,
        ..Case::new(100_000_000, 10_000_000)
    };
    case.with_flows(16, 3.0).lasting(400.0, 200.0)
}

#[test]
fn a_queue_that_never_runs_empty_is_not_flooded() {
    // Most flows take the queue's delay for part of the base, and its drops for random loss.
    let outcome = checked(&crowded(0.25));
    assert!(outcome.dropped < 0.2, "{outcome:?}");
    assert!(outcome.jain > 0.9, "{outcome:?}");
}

#[test]
fn many_flows_of_few_packets_do_not_take_one_another_for_others() {
    for buffer in [1.0, 4.0] {
        let outcome = checked(&crowded(buffer));
        assert!(outcome.dropped < 0.06, "{buffer} {outcome:?}");
        assert!(outcome.jain > 0.8, "{buffer} {outcome:?}");
    }
}

#[test]
fn a_changed_path_is_full_again_soon() {
    for (rate_factor, rtt_factor) in [(0.5, 1.0), (2.0, 1.0), (1.0, 0.5), (1.0, 2.0)] {
        let step = PathStep {
            at_rounds: 60.0,
            rate_factor,
            rtt_factor,
        };
        let case = Case {
            step: Some(step),
            ..path()
        };
        let outcome = checked(&case.lasting(140.0, 90.0));
        assert!(outcome.utilisation > 0.9, "{step:?} {outcome:?}");
        assert!(outcome.queue_mean < 0.25, "{step:?} {outcome:?}");
        assert!(
            outcome.rounds_to_90.unwrap() <= 17.0 * rtt_factor.max(1.0),
            "{step:?} {outcome:?}"
        );
    }
}

#[test]
fn cubic_and_reno_leave_a_share_and_keep_one() {
    for kind in [FlowKind::Cubic, FlowKind::Reno] {
        let case = Case::new(100_000_000, 25_000_000).beside(kind, 20.0);
        let case = Case {
            buffer: 2.0,
            ..case
        };
        let outcome = checked(&case.lasting(3_000.0, 1_000.0));
        let share = outcome.first_share;
        assert!((0.2..0.8).contains(&share), "{kind:?} {outcome:?}");
    }
}

/// Seconds of a path of 200 Mbit/s and 40 ms with packets of 1500 bytes, between hosts with 1 ms of
/// noise; the first quarter is not measured.
fn shared(seconds: f64) -> Case {
    let case = Case {
        packet_bytes: Some(1_500),
        jitter_ns: 1_000_000,
        ..Case::new(200_000_000, 40_000_000)
    };
    case.lasting(25.0 * seconds, 25.0 * seconds / 4.0)
}

#[test]
fn a_flow_beside_cubic_or_bbr_gets_a_third_to_two_thirds() {
    for kind in [FlowKind::Cubic, FlowKind::Bbr] {
        for start_rounds in [0.0, 250.0] {
            let outcome = checked(&shared(80.0).beside(kind, start_rounds));
            let share = outcome.first_share;
            assert!(
                (0.33..0.67).contains(&share),
                "{kind:?} {start_rounds} {outcome:?}"
            );
            assert!(outcome.utilisation > 0.95, "{kind:?} {outcome:?}");
        }
        // The adaptive flow starts on a path that the other flow has filled.
        let mut case = shared(80.0).beside(kind, 0.0);
        case.flows[0].start_rounds = 250.0;
        let share = checked(&case).first_share;
        assert!((0.33..0.67).contains(&share), "{kind:?} {share}");
    }
}

#[test]
fn bbr_that_lets_its_queue_run_empty_leaves_a_share() {
    // After each random loss, BBR sends for a round trip only what was acknowledged. So attempts to
    // empty its queue succeed now and then.
    let mut case = Case {
        loss: 1e-3,
        ..shared(80.0).beside(FlowKind::Bbr, 0.0)
    };
    case.flows[0].start_rounds = 12.0;
    let share = checked(&case).first_share;
    assert!(share > 0.3, "{share}");
}

/// A flow that yields to each queue gives everything away while BBR keeps its rate.
#[test]
fn a_flow_that_starts_beside_bbr_on_a_lossy_path_gets_a_third() {
    for ninth in 0..4_u8 {
        let mut case = Case {
            loss: 0.001,
            packet_bytes: Some(1_500),
            jitter_ns: 1_000_000,
            seed: u64::from(ninth) + 1,
            ..Case::new(1_000_000_000, 40_000_000)
        };
        case.flows[0].start_rounds = 75.0 + f64::from(ninth) / 9.0;
        let case = case.beside(FlowKind::Bbr, 0.0).lasting(500.0, 200.0);
        let share = run(&case).first_share;
        assert!(share > 1.0 / 3.0, "{ninth}: {share}");
    }
}

#[test]
fn several_cubic_flows_are_left_most_of_the_path() {
    let mut case = shared(80.0);
    for _ in 0..4 {
        case = case.beside(FlowKind::Cubic, 0.0);
    }
    let share = checked(&case).first_share;
    assert!((0.1..0.4).contains(&share), "{share}");
}

#[test]
fn a_queue_that_bbr_keeps_at_its_limit_is_no_longer_path() {
    // Beside BBR, the delay is as steady as on a longer path. A flow that mistook it for a longer
    // path would never compete, and would get a share of a twentieth.
    // A late success or failure of one attempt changes the rest of a run, so this is a median.
    let mut shares = [0.0, 1.0, 2.0, 3.0, 5.0].map(|start_rounds| {
        let mut case = shared(20.0).beside(FlowKind::Bbr, 0.0);
        case.flows[0].start_rounds = start_rounds;
        checked(&case).first_share
    });
    shares.sort_by(f64::total_cmp);
    assert!(shares[2] > 0.3, "{shares:?}");
}

#[test]
fn equal_flows_stay_equal_and_a_late_one_gets_its_share() {
    for flows in [2, 4, 8] {
        let case = shared(40.0).with_flows(flows, 3.0);
        let outcome = checked(&case);
        assert!(outcome.jain > 0.95, "{flows} {outcome:?}");
        assert!(outcome.queue_mean < 0.25, "{flows} {outcome:?}");
        // Measured from 10 to 20 seconds after its start.
        let mut case = shared(40.0).with_flows(flows, 3.0);
        case.flows[0].start_rounds = 500.0;
        let outcome = checked(&case.lasting(1_000.0, 750.0));
        let share = outcome.first_share * flows as f64;
        assert!(share > 0.8, "{flows} {share}");
    }
}

#[test]
fn the_start_on_a_slow_path_with_a_short_queue_loses_at_most_what_the_path_holds() {
    let case = Case {
        buffer: 0.25,
        packet_bytes: Some(1_500),
        jitter_ns: 1_000_000,
        ..Case::new(20_000_000, 40_000_000)
    };
    let rounds = 25.0;
    let outcome = checked(&case.lasting(rounds, 5.0));
    let lost_paths = outcome.dropped * rounds;
    assert!(lost_paths < 1.0, "{lost_paths} {outcome:?}");
}

/// The part of the policer's rate that a flow used in 10 seconds, and the share of its packets that were
/// dropped.
fn policed(rtt_ms: u64, burst_bytes: u64) -> (f64, f64) {
    let case = Case {
        policer: Some(Policer {
            rate_bps: 10_000_000,
            burst_bytes,
        }),
        ..Case::between_hosts(1_000_000_000, rtt_ms * 1_000_000)
    };
    let outcome = run(&case.lasting(10_000.0 / rtt_ms as f64, 0.0));
    (100.0 * outcome.utilisation, outcome.dropped)
}

#[test]
fn a_policer_is_no_random_loss() {
    // A flow that learns the drops of a policer as random loss sends more and more.
    for (rtt_ms, burst_bytes) in [(30, 24_000), (100, 24_000), (30, 100_000)] {
        let (used, dropped) = policed(rtt_ms, burst_bytes);
        assert!(used > 0.7, "{rtt_ms} {burst_bytes} {used}");
        assert!(dropped < 0.16, "{rtt_ms} {burst_bytes} {dropped}");
    }
}

#[test]
fn a_token_bucket_that_is_shorter_than_a_train_does_not_stop_a_flow() {
    let (used, dropped) = policed(30, 12_000);
    assert!(used > 0.75, "{used}");
    assert!(dropped < 0.16, "{dropped}");
}

#[test]
fn a_delay_that_varies_is_no_queue() {
    let spikes = Variation {
        spread: Spread::Spikes {
            share: 0.05,
            most: Duration::from_millis(20),
        },
        ..uniform(0, 10)
    };
    // A controller that takes each delay for a queue uses 0.06, 0.39 and 0.39 of these paths.
    for (variation, least) in [
        (uniform(10, 30), 0.55),
        (uniform(3, 30), 0.6),
        (spikes, 0.7),
    ] {
        let case = Case::between_hosts(50_000_000, 30_000_000).varying(variation);
        let used = run(&case.lasting(200.0, 0.0)).utilisation;
        assert!(used > least, "{variation:?} {used}");
    }
}

#[test]
fn hosts_that_wait_do_not_hide_a_delay_that_varies() {
    // A sender that waits has fewer bytes in flight at times. If the next ones explained each rise of
    // the delay, a flow would take the variation for a queue, and use 0.3 of this path.
    let waits = Waits {
        every_ns: 7_000_000,
        most_ns: 6_000_000,
    };
    let used = [1, 2, 3, 4].map(|seed| {
        let case = Case {
            waits: Some(waits),
            seed,
            ..Case::between_hosts(50_000_000, 30_000_000).varying(uniform(3, 30))
        };
        run(&case.lasting(333.0, 0.0)).utilisation
    });
    assert!(used.iter().sum::<f64>() / 4.0 > 0.5, "{used:?}");
}

/// The part of a path that one flow used in 4 seconds, in the mean of four seeds. The path has 30 ms, and up to 10 ms
/// more each way.
fn used_of_slow_path(mbit: u64, hint: Option<f64>) -> f64 {
    let path = Case::between_hosts(mbit * 1_000_000, 30_000_000).varying(uniform(10, 30));
    let used = [1, 2, 3, 4].map(|seed| {
        let mut case = path.clone();
        case.seed = seed;
        case.flows[0].hint = hint;
        run(&case.lasting(133.0, 0.0)).utilisation
    });
    used.iter().sum::<f64>() / 4.0
}

#[test]
fn a_delay_that_varies_leaves_most_of_a_slow_path() {
    // If a single long delay cuts the window, a flow uses 0.45 and 0.22 of these paths.
    for (mbit, least) in [(2, 0.55), (5, 0.35)] {
        let used = used_of_slow_path(mbit, None);
        assert!(used > least, "{mbit} {used}");
    }
}

#[test]
fn a_known_path_whose_delay_varies_starts_at_its_rate() {
    // The delay is up to 20 ms longer than the known one. If that counted as a queue of the first train, the flow
    // would use 0.23 of this path.
    let used = used_of_slow_path(10, Some(1.0));
    assert!(used > 0.45, "{used}");
}
