//! The simulated paths themselves: delay that varies, policers and traces.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::case::{Case, FlowKind, Messages, uniform};
use common::network::run;
use common::{traces, varied};
use farwrite_link::{DeliveryTrace, Policer, Reorder};

/// A path of 48 Mbit/s and 30 ms, for a flow of BBR.
fn path() -> Case {
    Case::new(48_000_000, 30_000_000).under(FlowKind::Bbr)
}

/// Packets and reports that stay in order cost BBR a tenth of the rate at most.
#[test]
fn variation_delays_packets_and_reports() {
    let constant = run(&path());
    for (there, back) in [(10, 0), (0, 10)] {
        let varying = run(&Case {
            variation: uniform(there, 30),
            back_variation: uniform(back, 30),
            ..path()
        });
        assert!(varying.utilisation > 0.9, "{varying:?}");
        assert_ne!(varying.queue_mean, constant.queue_mean, "it has no effect");
    }
}

#[test]
fn a_policer_drops_what_is_above_its_rate() {
    let policed = run(&Case {
        policer: Some(Policer {
            rate_bps: 12_000_000,
            burst_bytes: 24_000,
        }),
        ..path()
    });
    assert!(policed.dropped > 0.05, "{policed:?}");
    assert!((0.2..0.26).contains(&policed.utilisation), "{policed:?}");
}

/// Four opportunities each millisecond carry 48 Mbit/s.
#[test]
fn a_steady_trace_is_a_rate() {
    let trace = DeliveryTrace::parse("1\n1\n1\n1\n").unwrap();
    assert_eq!(trace.mean_bps(), 48_000_000);
    let traced = run(&Case {
        trace: Some(Arc::new(trace)),
        ..path()
    });
    assert!((0.9..1.0).contains(&traced.utilisation), "{traced:?}");
}

/// TCP notices that a packet was only late. Without that, each would be a loss.
#[test]
fn bbr_bears_packets_that_are_late() {
    let late = run(&Case {
        reorder: Reorder {
            probability: 0.05,
            extra_delay: Duration::from_millis(8),
        },
        ..path()
    });
    assert!(late.utilisation > 0.85, "{late:?}");
}

/// 200 Mbit/s and 50 ms. In each second, the path stands still for 80 ms.
fn standing_still() -> Case {
    let still_ms = 80;
    let times = (still_ms..1_000).flat_map(|ms| std::iter::repeat_n(ms, 16 + ms % 3));
    let lines: String = times.map(|ms| format!("{}\n", ms + 1)).collect();
    let trace = DeliveryTrace::parse(&lines).unwrap();
    Case {
        trace: Some(Arc::new(trace)),
        ..Case::between_hosts(200_000_000, 50_000_000)
    }
}

/// While each such pause cost a part of the share, a flow used 0.6 of the path, and messages of 6 MB took 0.9 s.
#[test]
fn a_path_that_stands_still_now_and_then_keeps_its_rate() {
    let steady = run(&standing_still().lasting(600.0, 0.0));
    assert!(steady.utilisation > 0.85, "{steady:?}");
    let mut case = standing_still().lasting(600.0, 0.0);
    case.flows[0].messages = Some(Messages {
        bytes: 6_300_000,
        pause_ns: 937_000_000,
    });
    let times_ns = run(&case).message_times_ns;
    let mean_ms = times_ns.iter().sum::<u64>() / times_ns.len() as u64 / 1_000_000;
    assert!(mean_ms < 600, "{mean_ms} ms: {times_ns:?}");
}

/// A flow grows although the path stands still in each second: it is six times faster from second 10 on. A flow that
/// returned to its share at each pause used 0.2 of it.
#[test]
fn a_path_that_stands_still_now_and_then_lets_a_flow_grow() {
    let carried = |ms| match ms {
        0..10_000 => 2,
        _ if ms % 1_000 < 80 => 0,
        _ => 16,
    };
    let times = (0..60_000).flat_map(|ms| std::iter::repeat_n(ms, carried(ms)));
    let lines: String = times.map(|ms| format!("{}\n", ms + 1)).collect();
    let trace = DeliveryTrace::parse(&lines).unwrap();
    let case = Case {
        trace: Some(Arc::new(trace)),
        ..Case::between_hosts(192_000_000, 50_000_000)
    };
    let grown = run(&case.lasting(1_000.0, 500.0));
    assert!(grown.utilisation > 0.75, "{grown:?}");
}

/// The traces have the rates that their models say.
#[test]
fn traces_have_the_rates_of_their_models() {
    for seed in 1..20 {
        let lte = traces::lte(seed, 120, 1.0).mean_bps();
        assert!((1_000_000..12_000_000).contains(&lte), "{seed}: {lte}");
        let leo = traces::leo(seed, 300).mean_bps();
        assert!((110_000_000..190_000_000).contains(&leo), "{seed}: {leo}");
    }
    assert_eq!(traces::lte(1, 60, 1.0), traces::lte(1, 60, 1.0));
    assert_ne!(traces::lte(1, 60, 1.0), traces::lte(2, 60, 1.0));
}

/// The documentation counts the rows.
#[test]
fn there_are_67_rows_and_the_thin_one_ends() {
    let rows = varied::rows();
    assert_eq!(rows.len(), 67);
    let thin = rows.iter().find(|row| row.name.starts_with("64 kbit/s"));
    let mut case = thin.expect("it is one of them").case.clone();
    case.flows[0].kind = FlowKind::Bbr;
    let seconds = run(&case).message_times_ns[0] as f64 / 1e9;
    assert!((18.0..24.0).contains(&seconds), "{seconds}");
}
