//! Paths whose rate or round trip changes while a sender is busy.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use farwrite_link::Step;

use crate::flows::{Flows, PAYLOAD_SHARE, RATE_BPS, RTT_NS, adaptive, path};
use crate::world::SECOND;

/// Time of the change.
const AT_NS: u64 = 5 * SECOND;

fn ends() -> [IpAddr; 2] {
    [1, 2].map(|host| Ipv4Addr::new(10, 0, 0, host).into())
}

/// Returns a busy sender on a path, just before the path changes as `step` says.
fn before(step: Step, rate_bps: u64) -> Flows {
    let [mut forth, back] = path(0.0);
    forth.rate_bps = Some(rate_bps);
    let mut flows = Flows::new([forth, back]);
    let [a, b] = ends();
    let step = Step {
        at: Duration::from_nanos(AT_NS),
        ..step
    };
    let set = flows.network.set_link(a, b, forth, &[step]);
    set.expect("a good link");
    flows.add(1, adaptive());
    flows.set_busy(0, true);
    flows.run_for(AT_NS);
    flows
}

/// The share of a rate at which payload arrives during the next second.
fn share_of(flows: &mut Flows, rate_bps: u64) -> f64 {
    flows.rate_bps(0, SECOND) / (rate_bps as f64 * PAYLOAD_SHARE)
}

#[test]
fn after_a_drop_to_a_quarter_the_queue_is_short_within_ten_round_trips() {
    let [a, b] = ends();
    let slow_bps = RATE_BPS / 4;
    let step = Step {
        rate_bps: Some(slow_bps),
        ..Step::default()
    };
    let mut flows = before(step, RATE_BPS);
    // 0.3 of the queue, which holds a round trip at the first rate.
    let most_bytes = RATE_BPS / 8 * RTT_NS / SECOND * 3 / 10;
    let mut above = Vec::new();
    for quarter in 0..400_u64 {
        flows.run_for(RTT_NS / 4);
        let backlog = flows.network.link_backlog_bytes(a, b).expect("a link");
        if backlog > most_bytes {
            above.push(quarter as f64 / 4.0);
        }
    }
    println!("above the bound after these round trips: {above:?}");
    assert!(!above.is_empty(), "the change fills the queue");
    assert!(above.iter().all(|&rounds| rounds < 10.0), "{above:?}");
    let share = share_of(&mut flows, slow_bps);
    assert!(share > 0.85, "{share}");
}

#[test]
fn four_times_the_rate_is_used_within_two_seconds() {
    let step = Step {
        rate_bps: Some(RATE_BPS),
        ..Step::default()
    };
    let mut flows = before(step, RATE_BPS / 4);
    flows.run_for(SECOND);
    let share = share_of(&mut flows, RATE_BPS);
    assert!(share > 0.85, "{share}");
}

#[test]
fn a_longer_path_is_full_again_within_twenty_seconds() {
    for factor in [2, 4] {
        // The way back keeps its delay.
        let step = Step {
            delay: Some(Duration::from_nanos(RTT_NS * factor - RTT_NS / 2)),
            ..Step::default()
        };
        let mut flows = before(step, RATE_BPS);
        flows.run_for(19 * SECOND);
        let share = share_of(&mut flows, RATE_BPS);
        println!("a round trip {factor} times as long: {share:.3}");
        assert!(share > 0.8, "{factor}: {share}");
    }
}
