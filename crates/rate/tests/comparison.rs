//! The adaptive controller beside Swift and a model of BBR version 1 on the same paths. The example
//! `controllers` prints whole grids.

mod common;

use common::case::{Case, FlowKind};
use common::measure::CaseResult;
use common::network::run;

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
