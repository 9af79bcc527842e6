//! Arrival times of frames.

use crate::common;
use crate::common::{cable, frame, got, hosts, network, psn, send};
use farwrite_net::{Frame, Options, Payload, Shape, SwitchConfig};
use std::time::Duration;

/// Host, switch, switch, host: three cables of different rates, and two switches with a latency of
/// 300 ns.
fn path() -> (farwrite_net::Topology, Options) {
    let mut topology = farwrite_net::Topology::new();
    use farwrite_net::Role::{Host, Switch};
    let roles = [Host, Switch, Switch, Host];
    let nodes = roles.map(|role| topology.add(role, "node"));
    topology.connect(nodes[0], nodes[1], cable(100, 1000));
    topology.connect(nodes[1], nodes[2], cable(400, 5_000_000));
    topology.connect(nodes[2], nodes[3], cable(25, 700));
    let switch = SwitchConfig {
        latency: Duration::from_nanos(300),
        ..SwitchConfig::default()
    };
    (topology, Options::with_switches(switch))
}

#[test]
fn the_latency_of_a_path_is_what_a_hand_computes() {
    let (topology, options) = path();
    let ends = hosts(&topology);
    let mut network = network(&topology, &options, 1);
    send(&mut network, 50, [frame(ends[0], ends[1], 0, 4096)]);
    network.run();
    // 4096 + 44 of headers + 38 of framing = 4178 bytes: 334.24 ns at 100 Gbit/s, 83.56 ns at 400,
    // 1336.96 ns at 25. Each is rounded up.
    let want = 50 + (335 + 1000) + 300 + (84 + 5_000_000) + 300 + (1337 + 700);
    let times: Vec<_> = got(&network, ends[1])
        .iter()
        .map(|(at_ns, _)| *at_ns)
        .collect();
    assert_eq!(times, [want]);
}

/// Back-to-back frames: the slowest cable sends without a gap, exact to a fraction of a nanosecond.
#[test]
fn a_busy_cable_sends_at_exactly_its_rate() {
    let topology = Shape::PointToPoint {
        cable: cable(400, 0),
    }
    .build()
    .unwrap();
    let ends = hosts(&topology);
    let mut network = network(&topology, &Options::default(), 1);
    // 44 + 38 bytes take 1.64 ns.
    send(
        &mut network,
        0,
        (0..100_000).map(|psn| frame(ends[0], ends[1], psn, 0)),
    );
    network.run();
    assert_eq!(got(&network, ends[1]).last().unwrap().0, 164_000);
    for (n, (at_ns, _)) in (1..).zip(got(&network, ends[1])) {
        assert_eq!(*at_ns, (82u64 * 8 * n).div_ceil(400), "frame {n}");
    }

    // The same after a switch, where frames queue: 10 Gbit/s at the end of a path of 25 Gbit/s.
    let middle_cable = cable(10, 5);
    let shape = Shape::Dumbbell {
        left: 1,
        right: 1,
        host_cable: cable(25, 5),
        middle_cable,
    };
    let topology = shape.build().unwrap();
    let ends = hosts(&topology);
    let mut network = common::network(&topology, &Options::default(), 1);
    send(
        &mut network,
        0,
        (0..1000).map(|psn| frame(ends[0], ends[1], psn, 1001)),
    );
    network.run();
    let (first, last) = (got(&network, ends[1])[0].0, got(&network, ends[1])[999].0);
    // 1001 + 3 of padding + 44 + 38 bytes. Each of the two times is rounded up on its own.
    assert!((last - first).abs_diff(1086 * 8 * 999 / 10) <= 1);
}

/// At 10 Tbit/s, a frame of 82 bytes takes 0.0656 ns: many frames leave within a nanosecond, in
/// order.
#[test]
fn a_cable_can_be_faster_than_the_clock() {
    let fast = cable(10_000, 1000);
    let topology = Shape::Star {
        hosts: 3,
        cable: fast,
    }
    .build()
    .unwrap();
    let ends = hosts(&topology);
    let mut network = network(&topology, &Options::default(), 1);
    for &src in &ends[..2] {
        send(
            &mut network,
            0,
            (0..5000).map(|psn| frame(src, ends[2], psn, 0)),
        );
    }
    network.run();
    let got = got(&network, ends[2]);
    assert_eq!(got.len(), 10_000);
    for src in &ends[..2] {
        let of_one = got.iter().filter(|(_, frame)| frame.src == *src);
        let order: Vec<_> = of_one.map(|(_, frame)| psn(frame)).collect();
        assert_eq!(order, Vec::from_iter(0..5000));
    }
    // 10,000 frames at the rate, one nanosecond at each cable for the first frame, and the delays.
    assert!((2656..=2658).contains(&got[9999].0), "{}", got[9999].0);
}

#[test]
fn frames_of_one_priority_stay_in_order_and_higher_ones_overtake() {
    let middle_cable = cable(1, 100);
    let shape = Shape::Dumbbell {
        left: 3,
        right: 1,
        host_cable: cable(10, 100),
        middle_cable,
    };
    let topology = shape.build().unwrap();
    let ends = hosts(&topology);
    let mut network = network(&topology, &Options::default(), 1);
    for (&src, priority) in ends[..3].iter().zip([0, 3, 5]) {
        let frames = (0..100).map(|psn| Frame {
            priority,
            ..frame(src, ends[3], psn, 1000)
        });
        send(&mut network, 0, frames);
    }
    network.run();
    let got = got(&network, ends[3]);
    assert_eq!(got.len(), 300);
    for priority in [0, 3, 5] {
        let of_one = got.iter().filter(|(_, frame)| frame.priority == priority);
        let order: Vec<_> = of_one.map(|(_, frame)| psn(frame)).collect();
        assert_eq!(order, Vec::from_iter(0..100), "priority {priority}");
    }
    // A few other frames may leave before the first frame of priority 5 arrives.
    let last = |priority| {
        got.iter()
            .rposition(|(_, frame)| frame.priority == priority)
            .unwrap()
    };
    assert!(last(5) < 103 && last(5) < last(3) && last(3) < last(0));
}

#[test]
fn weighted_priorities_share_the_rate() {
    let middle_cable = cable(1, 100);
    let shape = Shape::Dumbbell {
        left: 2,
        right: 1,
        host_cable: cable(10, 100),
        middle_cable,
    };
    let topology = shape.build().unwrap();
    let ends = hosts(&topology);
    let switch = SwitchConfig {
        weights: [1, 3, 0, 0, 0, 0, 0, 0],
        ..SwitchConfig::default()
    };
    let mut network = network(&topology, &Options::with_switches(switch), 1);
    for (&src, priority) in ends[..2].iter().zip([0, 1]) {
        let frames = (0..1000).map(|psn| Frame {
            priority,
            ..frame(src, ends[2], psn, 1000)
        });
        send(&mut network, 0, frames);
    }
    // The time of 400 frames of 1000 + 44 + 38 bytes, with both queues busy.
    network.run_until(400 * 1082 * 8);
    let got = got(&network, ends[2]);
    let low = got.iter().filter(|(_, frame)| frame.priority == 0).count();
    assert!((95..=105).contains(&low), "{low} of {}", got.len());
}

#[test]
fn ghosts_and_bytes_take_the_same_course() {
    let run = |real: bool| {
        let (topology, options) = path();
        let ends = hosts(&topology);
        let mut network = network(&topology, &options, 3);
        let frames = (0..500u32).map(|psn| {
            let payload_bytes = psn * 7 % 1500;
            let mut frame = frame(ends[0], ends[1], psn, payload_bytes);
            if real {
                frame.payload = Payload::Bytes(vec![0xA5; payload_bytes as usize].into());
            }
            frame
        });
        send(&mut network, 0, frames);
        network.run();
        let times: Vec<_> = got(&network, ends[1])
            .iter()
            .map(|(at_ns, _)| *at_ns)
            .collect();
        (network.trace_hash(), times)
    };
    assert_eq!(run(false), run(true));
}

/// Over 50 Gbit/s and 1 us per cable: a write of 1000 bytes (1044 as an IP datagram) and its
/// acknowledgement (48). Two other simulators give 4.352 us (ns-3's RDMA model, with an
/// acknowledgement of 58 bytes) and 4.361 us (htsim, with 1064 and 64 bytes).
#[test]
fn a_round_trip_over_a_star_takes_what_other_simulators_say() {
    let topology = Shape::Star {
        hosts: 64,
        cable: cable(50, 1000),
    }
    .build()
    .unwrap();
    let ends = hosts(&topology);
    let options = Options {
        framing_bytes: 0,
        ..Options::default()
    };
    let mut network = network(&topology, &options, 1);
    send(&mut network, 0, [frame(ends[0], ends[1], 0, 1000)]);
    network.run();
    let mut ack = frame(ends[1], ends[0], 0, 0);
    if let farwrite_net::header::Header::Roce(roce) = &mut ack.header {
        roce.bth.opcode = 0x11;
        roce.aeth = Some(farwrite_wire::header::Aeth {
            syndrome: 0,
            msn: 1,
        });
    }
    send(&mut network, 0, [ack]);
    network.run();
    assert_eq!(got(&network, ends[0])[0].0, 4352);
}

#[test]
fn a_wrong_rate_is_refused() {
    let cable = farwrite_net::CableConfig::new(0, Duration::ZERO);
    let error = Shape::PointToPoint { cable }
        .build()
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("host0") && error.contains("rate_bps = 0"),
        "{error}"
    );
}
