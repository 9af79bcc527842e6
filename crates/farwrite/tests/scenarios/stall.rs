//! Receivers that do not run for a while, like a process that is stopped or swapped out.

use farwrite_link::{LinkConfig, Loss};

use crate::flows::{Flows, PAYLOAD_SHARE, RATE_BPS, RTT_NS, adaptive, path};
use crate::world::{MS, SECOND};

/// Number of round trips after the stall that are measured.
const ROUNDS: usize = 30;

/// Returns the rate at which payload arrives in each round trip after a stall, as a share of the
/// capacity of the path. The receiver is not polled during the stall, and its socket has room only
/// for the packets of the first `room_ns`.
fn shares_after(stalled_ns: u64, room_ns: u64) -> Vec<f64> {
    let [forth, back] = path(0.0);
    let dead = LinkConfig {
        loss: Loss::Iid { loss_packet: 1.0 },
        ..forth
    };
    let mut flows = Flows::new([forth, back]);
    flows.add(1, adaptive());
    flows.set_busy(0, true);
    flows.run_for(3 * SECOND);
    flows.stalled = true;
    flows.run_for(room_ns);
    flows.set_links([dead, back]);
    flows.run_for(stalled_ns - room_ns);
    flows.stalled = false;
    flows.set_links([forth, back]);
    let most = RATE_BPS as f64 * PAYLOAD_SHARE;
    let rounds = (0..ROUNDS).map(|_| flows.rate_bps(0, RTT_NS) / most);
    rounds.collect()
}

/// Returns the first round trip of five consecutive ones with a mean of at least 0.8 of the
/// capacity of the path.
fn recovered(shares: &[f64]) -> Option<usize> {
    let mut rounds = shares.windows(5);
    rounds.position(|five| five.iter().sum::<f64>() >= 0.8 * 5.0)
}

#[test]
fn a_receiver_that_stalls_is_back_within_ten_round_trips() {
    for stalled_ns in [150 * MS, SECOND, 5 * SECOND, 20 * SECOND] {
        // The socket has room for all arriving packets, or for a little more than those of one
        // round trip.
        for room_ns in [stalled_ns, 30 * MS] {
            let shares = shares_after(stalled_ns, room_ns);
            let back = recovered(&shares);
            let (stalled_ms, room_ms) = (stalled_ns / MS, room_ns / MS);
            println!("stalled {stalled_ms} ms, room for {room_ms} ms: {back:?} {shares:.2?}");
            assert!(
                back.is_some_and(|round| round <= 10),
                "stalled {stalled_ms} ms, room for {room_ms} ms: back after {back:?} round trips, \
                 {shares:.2?}"
            );
        }
    }
}

/// A process that shares a processor pauses often. The share of the path depends on the phase of the
/// pauses, so the test takes the mean of several periods. Which waits count as a queue hardly changes this
/// share; `peer/host_waits.rs` tests that.
#[test]
fn short_pauses_of_the_receiver_leave_most_of_the_path() {
    let share_of = |period: u64| {
        let mut flows = Flows::new(path(0.0));
        flows.add(1, adaptive());
        flows.set_busy(0, true);
        flows.run_for(3 * SECOND);
        let mut bits = 0.0;
        for _ in 0..20 {
            for (is_pause, ns) in [(false, period - 8 * MS), (true, 8 * MS)] {
                flows.stalled = is_pause;
                bits += flows.rate_bps(0, ns) * ns as f64 / SECOND as f64;
            }
        }
        bits / (RATE_BPS as f64 * PAYLOAD_SHARE * (20 * period) as f64 / SECOND as f64)
    };
    let shares: Vec<_> = (92..=108).step_by(8).map(|ms| share_of(ms * MS)).collect();
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    assert!(mean > 0.80, "{shares:.3?} of the path");
}
