//! Senders without a configured rate.

use farwrite::{QpConfig, QpOptions, RateControl, SendLimit};
use farwrite_rng::SplitMix;

use crate::flows::{Flows, MESSAGE, PAYLOAD_SHARE, RATE_BPS, RTT_NS, adaptive, path};
use crate::parcel::Order;
use crate::world::{MS, SECOND, World, options, tag};

/// Returns the payload rate that a path of `rate_bps` carries.
fn goodput(rate_bps: u64, loss: f64) -> f64 {
    rate_bps as f64 * PAYLOAD_SHARE * (1.0 - loss)
}

#[test]
fn a_sender_fills_a_path_that_it_was_told_nothing_of() {
    for loss in [0.0, 1e-3, 1e-2] {
        let mut flows = Flows::new(path(loss));
        flows.add(1, adaptive());
        flows.set_busy(0, true);
        flows.run_for(SECOND);
        let rate_bps = flows.rate_bps(0, 3 * SECOND);
        let share = rate_bps / goodput(RATE_BPS, loss);
        let stats = flows.flows[0].stats();
        println!("loss {loss}: {share:.3} {stats:?}");
        assert!(share > 0.9, "loss {loss}: {share} {stats:?}");
        assert_eq!(stats.refused_feedback, 0);
        assert_eq!(stats.limit, SendLimit::Path);
        let base_ns = stats.base_rtt_ns.expect("measured");
        assert!(base_ns.abs_diff(RTT_NS) < MS, "{base_ns}");
        let lost = 1.0 - stats.delivered_bytes as f64 / stats.reported_bytes as f64;
        assert!((lost - loss).abs() < 0.003, "{lost} {stats:?}");
    }
}

#[test]
fn two_senders_share_a_path() {
    let mut flows = Flows::new(path(0.0));
    for flow in 0..2 {
        flows.add(1, adaptive());
        flows.set_busy(flow, true);
        flows.run_for(SECOND);
    }
    flows.run_for(6 * SECOND);
    let before: Vec<u64> = flows.flows.iter().map(|flow| flow.arrived()[0]).collect();
    flows.run_for(4 * SECOND);
    let after = flows.flows.iter().map(|flow| flow.arrived()[0]);
    let rates = after.zip(before);
    let rates: Vec<f64> = rates.map(|(a, b)| (a - b) as f64 * 8.0 / 4.0).collect();
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    let jain = sum * sum / (2.0 * squares);
    println!("{rates:?} {jain:.3}");
    assert!(sum > 0.85 * goodput(RATE_BPS, 0.0), "{rates:?}");
    assert!(jain > 0.9, "{rates:?}");
}

#[test]
fn queue_pairs_to_one_peer_have_one_controller_and_equal_shares() {
    let mut flows = Flows::new(path(0.0));
    flows.add(4, adaptive());
    flows.set_busy(0, true);
    flows.run_for(2 * SECOND);
    let rates = flows.rates_bps(0, 2 * SECOND);
    let sum: f64 = rates.iter().sum();
    println!("{rates:?}");
    assert!(sum > 0.9 * goodput(RATE_BPS, 0.0), "{rates:?}");
    for rate in &rates {
        assert!((0.8..1.2).contains(&(rate / (sum / 4.0))), "{rates:?}");
    }
    let flow = &flows.flows[0];
    let stats = flow.pairs.iter().map(|[qa, _]| flow.tx.peer_stats(*qa));
    let stats: Vec<_> = stats.map(|stats| stats.expect("connected")).collect();
    assert!(stats.iter().all(|other| *other == stats[0]));
}

#[test]
fn a_receiver_that_stalls_is_sent_little_and_recovers() {
    let mut flows = Flows::new(path(0.0));
    flows.add(1, adaptive());
    flows.set_busy(0, true);
    flows.run_for(2 * SECOND);
    flows.stalled = true;
    let before = flows.flows[0].stats().sent_bytes;
    flows.run_for(5 * SECOND);
    let stalled = flows.flows[0].stats();
    let sent = stalled.sent_bytes - before;
    // A second at the rate of the path would be 62.5 MB.
    assert!(sent < 20_000_000, "{sent} bytes in 5 s: {stalled:?}");
    flows.stalled = false;
    flows.run_for(2 * SECOND);
    let rate_bps = flows.rate_bps(0, SECOND);
    let stats = flows.flows[0].stats();
    println!("sent {sent} while stalled, then {rate_bps:.0} {stats:?}");
    assert!(
        rate_bps > 0.9 * goodput(RATE_BPS, 0.0),
        "{rate_bps} {stats:?}"
    );
}

/// Returns the time that a message takes.
fn time_of(flows: &mut Flows, bytes: u64) -> u64 {
    let start_ns = flows.now_ns();
    let send = flows.flows[0].send(0, bytes);
    let limit_ns = start_ns + 20 * SECOND;
    let done = flows.run_until(limit_ns, |_| send.outcome().is_some());
    assert!(done, "{:?}", flows.flows[0].stats());
    flows.now_ns() - start_ns
}

#[test]
fn a_sender_that_was_idle_starts_where_it_was() {
    let mut flows = Flows::new(path(0.0));
    flows.add(1, adaptive());
    let cold_ns = time_of(&mut flows, MESSAGE);
    flows.set_busy(0, true);
    flows.run_for(3 * SECOND);
    flows.set_busy(0, false);
    flows.run_for(2 * SECOND);
    assert_eq!(flows.flows[0].stats().limit, SendLimit::Nothing);
    assert_eq!(flows.flows[0].stats().in_flight_bytes, 0);
    flows.run_for(10 * SECOND);
    let warm_ns = time_of(&mut flows, MESSAGE);
    let shortest_ns = MESSAGE * 8 * SECOND / RATE_BPS + RTT_NS * 3 / 2;
    println!("cold {cold_ns} warm {warm_ns} shortest {shortest_ns}");
    // The train that tests the learned rate takes a round trip. The rest of the message is paced at
    // little less than the rate of the path.
    assert!(
        warm_ns < shortest_ns * 5 / 4 + 2 * RTT_NS,
        "{warm_ns} {shortest_ns}"
    );
    assert!(warm_ns < cold_ns, "{warm_ns} {cold_ns}");
}

#[test]
fn a_hint_makes_the_first_message_as_fast_as_a_warm_one_and_a_round_trip() {
    let mut flows = Flows::new(path(0.0));
    flows.add(1, adaptive());
    flows.set_busy(0, true);
    flows.run_for(3 * SECOND);
    flows.set_busy(0, false);
    flows.run_for(SECOND);
    let start = flows.flows[0].stats().learned;
    assert!(start.is_some());
    let warm_ns = time_of(&mut flows, MESSAGE);
    let mut flows = Flows::new(path(0.0));
    let max_bps = None;
    flows.add(1, RateControl::Adaptive { max_bps, start });
    // The round trip of control packets is measured.
    flows.run_for(SECOND);
    let first_ns = time_of(&mut flows, MESSAGE);
    println!("{start:?} warm {warm_ns} first {first_ns}");
    assert!(first_ns < warm_ns + RTT_NS * 5 / 4, "{first_ns} {warm_ns}");
}

#[test]
fn a_maximum_holds_and_is_named() {
    let mut flows = Flows::new(path(0.0));
    let max_bps = RATE_BPS / 10;
    flows.add(
        1,
        RateControl::Adaptive {
            max_bps: Some(max_bps),
            start: None,
        },
    );
    flows.set_busy(0, true);
    flows.run_for(2 * SECOND);
    let rate = flows.rate_bps(0, 2 * SECOND);
    let share = rate / goodput(max_bps, 0.0);
    assert!((0.9..1.03).contains(&share), "{share}");
    assert_eq!(flows.flows[0].stats().limit, SendLimit::Configured);
}

/// Pauses prove nothing about a larger window. If growth counted them, the pace of later messages
/// would flood the queue, and the share would fall.
#[test]
fn messages_with_pauses_do_not_raise_the_pace() {
    let [mut forth, mut back] = path(0.0);
    forth.rate_bps = Some(10 * RATE_BPS);
    forth.queue_bytes = forth.queue_bytes.map(|bytes| 10 * bytes);
    back.rate_bps = None;
    let mut flows = Flows::new([forth, back]);
    flows.add(1, adaptive());
    // The first ones measure the path.
    for _ in 0..3 {
        time_of(&mut flows, MESSAGE);
    }
    let mut times = Vec::new();
    for _ in 0..60 {
        flows.run_for(6 * RTT_NS);
        times.push(time_of(&mut flows, MESSAGE));
        let pace_bps = flows.flows[0].stats().pace_bps;
        assert!(pace_bps < 12 * RATE_BPS, "{pace_bps}");
    }
    let shortest_ns = MESSAGE * 8 * SECOND / (10 * RATE_BPS) + RTT_NS * 3 / 2;
    let longest_ns = times.iter().max().expect("times");
    assert!(*longest_ns < shortest_ns * 11 / 10, "{times:?}");
}

/// A train at 34 Gbit/s has more bytes than a message. A train over several messages would measure
/// the pauses between them.
#[test]
fn a_train_does_not_measure_pauses_between_messages() {
    let [mut forth, mut back] = path(0.0);
    forth.rate_bps = Some(20 * RATE_BPS);
    forth.queue_bytes = forth.queue_bytes.map(|bytes| 20 * bytes);
    back.rate_bps = None;
    let mut flows = Flows::new([forth, back]);
    flows.add(1, adaptive());
    time_of(&mut flows, MESSAGE);
    let shortest_ns = MESSAGE * 8 * SECOND / (20 * RATE_BPS) + RTT_NS * 3 / 2;
    for _ in 0..12 {
        flows.run_for(6 * RTT_NS);
        let time_ns = time_of(&mut flows, MESSAGE);
        assert!(time_ns < shortest_ns * 12 / 10, "{time_ns} {shortest_ns}");
    }
}

/// Most parity comes when its message is over. The reports that count it name a packet that left before it.
#[test]
fn parity_that_comes_late_does_not_look_lost() {
    const STEPS: u64 = 40;
    const STARTS: usize = 5;
    let scheme = tag("ec-mds:32,8");
    let options = QpOptions {
        rate_control: adaptive(),
        expected_scheme: scheme,
        sdr: QpConfig {
            mtu: 1024,
            max_message_bytes: 1 << 20,
            ..QpConfig::default()
        },
        ..options()
    };
    for (seed, loss) in [(0, 0.0), (9, 1e-3), (10, 1e-2), (3, 3e-2)] {
        let [forth, back] = path(loss);
        let mut world = World::with_links(seed, forth, back, &options);
        let mut times_ms = Vec::new();
        for step in 0..STEPS {
            let bytes = SplitMix::new(step).bytes(600_000);
            let parcels = [0, 1].map(|_| world.ship(Order::new(bytes.clone(), scheme)));
            times_ms.push(world.deliver(&parcels, 10 * SECOND) / MS);
            world.run_for(50 * MS);
        }
        assert!(world.b.stats().late_packets > 0);
        let stats = world.a.endpoint.peer_stats(world.a.qp);
        let stats = stats.expect("a connected queue pair");
        let lost = 1.0 - stats.delivered_bytes as f64 / stats.reported_bytes as f64;
        println!("loss {loss}: {lost:.4} {times_ms:?} {stats:?}");
        assert!((lost - loss).abs() < 0.001, "{lost} {stats:?}");
        // At the rate of the path, two messages take 53 ms.
        let known_ms = &times_ms[STARTS..];
        let mean_ms = known_ms.iter().sum::<u64>() / known_ms.len() as u64;
        assert!(mean_ms < 57, "loss {loss}: {times_ms:?} {stats:?}");
    }
}
