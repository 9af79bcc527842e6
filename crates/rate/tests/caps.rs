//! Maximum rates that change while a path is in use, in virtual time.

mod common;

use common::case::Case;
use common::network::run;

/// A path of 100 Mbit/s and 20 ms with a maximum from the start, and another one from round trip 100
/// on. Returns the part of the path that is used in the last 40 of 200 round trips.
fn used_after(first_bps: u64, then_bps: u64) -> f64 {
    let case = Case {
        max_rate_bps: first_bps,
        new_max: Some((100.0, then_bps)),
        ..Case::new(100_000_000, 20_000_000)
    };
    run(&case.lasting(200.0, 160.0)).utilisation
}

#[test]
fn a_flow_follows_a_higher_and_a_lower_maximum() {
    let raised = used_after(1_000_000, 400_000_000_000);
    assert!(raised > 0.9, "{raised}");
    let raised = used_after(1_000_000, 50_000_000);
    assert!((0.45..0.51).contains(&raised), "{raised}");
    let lowered = used_after(400_000_000_000, 10_000_000);
    assert!((0.09..0.105).contains(&lowered), "{lowered}");
}
