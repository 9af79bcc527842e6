//! The adaptive controller beside Swift and a model of BBR version 1 on the same paths, and the changes
//! of BBR version 3 and Copa. The examples `rate_controllers` and `rate_published` of crate `bench`
//! print whole grids.

#[path = "../../../crates/rate/tests/common/mod.rs"]
mod common;
#[path = "../controllers/mod.rs"]
mod controllers;

use common::case::{Case, FlowKind, uniform};
use common::measure::CaseResult;
use common::network::run;
use farwrite_link::Variation;

/// A path of 1 Gbit/s and 25 ms.
fn path() -> Case {
    Case::new(1_000_000_000, 25_000_000)
}

fn results(case: &Case) -> [CaseResult; 3] {
    [FlowKind::Adaptive, FlowKind::Swift, FlowKind::Bbr].map(|kind| run(&case.clone().under(kind)))
}

#[test]
fn random_loss_stops_swift_only() {
    let [adaptive, swift, bbr] = results(&Case {
        loss: 0.01,
        ..path()
    });
    assert!(adaptive.utilisation > 0.9, "{adaptive:?}");
    assert!(bbr.utilisation > 0.9, "{bbr:?}");
    assert!(swift.utilisation < 0.5, "{swift:?}");
}

#[test]
fn swift_fills_a_path_that_it_knows_and_that_loses_nothing() {
    let [adaptive, swift, bbr] = results(&path());
    for result in [adaptive, swift, bbr] {
        assert!(result.utilisation > 0.9, "{result:?}");
        assert!(result.queue_mean < 0.25, "{result:?}");
    }
}

#[test]
fn equal_flows_keep_the_shortest_queue_and_the_fairest_shares() {
    let case = path().with_flows(4, 3.0).lasting(160.0, 100.0);
    let [adaptive, swift, bbr] = results(&case);
    assert!(adaptive.queue_mean < 0.1, "{adaptive:?}");
    assert!(adaptive.jain > 0.95, "{adaptive:?}");
    for other in [swift, bbr] {
        assert!(other.utilisation > 0.9, "{other:?}");
        assert!(other.queue_mean > adaptive.queue_mean, "{other:?}");
        assert!(other.jain < adaptive.jain, "{other:?}");
    }
}

#[test]
fn random_loss_stops_neither_bbr_3_nor_copa() {
    for kind in [controllers::BBR3, controllers::COPA] {
        for loss in [0.001, 0.01, 0.03] {
            let case = Case { loss, ..path() }.under(kind);
            let result = run(&case.lasting(200.0, 40.0));
            assert!(result.utilisation > 0.85, "{kind:?} {loss} {result:?}");
        }
    }
}

/// Packets that are late count as lost until they arrive.
#[test]
fn bbr_3_fills_a_path_that_varies_and_that_reorders() {
    for (every_ms, overtakes) in [(30, false), (0, true)] {
        let variation = Variation {
            overtakes,
            ..uniform(10, every_ms)
        };
        let case = Case {
            packet_bytes: Some(1_500),
            ..Case::new(50_000_000, 30_000_000)
        };
        let case = case.varying(variation);
        let result = run(&case.under(controllers::BBR3).lasting(300.0, 100.0));
        assert!(result.utilisation > 0.9, "{overtakes} {result:?}");
    }
}
