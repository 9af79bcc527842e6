//! The simulated paths themselves: delay that varies, policers and traces.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::case::{Case, FlowKind};
use common::network::run;
use farwrite_link::{DeliveryTrace, Policer, Spread, Variation};

/// A path of 48 Mbit/s and 30 ms, for a flow of BBR.
fn path() -> Case {
    Case::new(48_000_000, 30_000_000).under(FlowKind::Bbr)
}

fn up_to_ms(most: u64) -> Variation {
    Variation {
        spread: Spread::Uniform {
            most: Duration::from_millis(most),
        },
        every: Duration::from_millis(30),
        overtakes: false,
    }
}

/// Packets and reports that stay in order cost BBR a tenth of the rate at most.
#[test]
fn variation_delays_packets_and_reports() {
    let constant = run(&path());
    for (there, back) in [(10, 0), (0, 10)] {
        let varying = run(&Case {
            variation: up_to_ms(there),
            back_variation: up_to_ms(back),
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
