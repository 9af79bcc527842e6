//! DCQCN and Swift on reports alone, as an endpoint without congestion notifications has them.

mod common;

use common::case::{Case, Kind};
use common::network::run;

/// Four flows on 10 Gbit/s and 100 us, with marks from a sixteenth of the path on, started five
/// round trips apart.
fn case(kind: Kind) -> Case {
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
    let outcome = run(&case(Kind::Dcqcn));
    assert!(
        outcome.jain >= 0.9 && outcome.utilisation > 0.8,
        "{outcome:?}"
    );
    assert!(outcome.dropped < 0.001, "{outcome:?}");
}

#[test]
fn swift_shares_a_path_by_reported_delay() {
    let outcome = run(&case(Kind::Swift));
    assert!(
        outcome.jain >= 0.9 && outcome.utilisation > 0.9,
        "{outcome:?}"
    );
    // The target is a quarter of the round trip, and what flow scaling and the hop add.
    assert!(
        outcome.queue_mean < 1.5 && outcome.dropped == 0.0,
        "{outcome:?}"
    );
}
