//! DCQCN and Swift with reports only, as in an endpoint without congestion notifications.

mod common;

use common::case::{Case, FlowKind};
use common::network::run;

/// Four flows on 10 Gbit/s and 100 us, started five round trips apart. Packets are marked above a
/// queue of a sixteenth of the path.
fn case(kind: FlowKind) -> Case {
    Case {
        ecn: true,
        buffer: 4.0,
        ..Case::new(10_000_000_000, 100_000)
            .with_flows(4, 5.0)
            .under(kind)
            .lasting(600.0, 300.0)
    }
}

#[test]
fn dcqcn_shares_a_path_by_reported_marks() {
    let outcome = run(&case(FlowKind::Dcqcn));
    assert!(
        outcome.jain >= 0.9 && outcome.utilisation > 0.8,
        "{outcome:?}"
    );
    assert!(outcome.dropped < 0.001, "{outcome:?}");
}

#[test]
fn swift_shares_a_path_by_reported_delay() {
    let outcome = run(&case(FlowKind::Swift));
    assert!(
        outcome.jain >= 0.9 && outcome.utilisation > 0.9,
        "{outcome:?}"
    );
    // The target is a quarter of the round trip, plus flow scaling and the hop.
    assert!(
        outcome.queue_mean < 1.5 && outcome.dropped == 0.0,
        "{outcome:?}"
    );
}
