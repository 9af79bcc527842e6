//! What switches do when queues grow: drop, mark, trim.

use crate::common;
use crate::common::{cable, check_conservation, frame, got, hosts, network, send, sum};
use farwrite_net::{
    Ecn, Frame, FrameDrop, MarkAt, Network, NodeId, Options, Payload, Red, Shape, SwitchConfig,
    Topology, Trim,
};

/// Senders at 100 Gbit/s, and a receiver behind 10 Gbit/s.
fn funnel(senders: usize) -> Topology {
    let middle_cable = cable(10, 1000);
    let host_cable = cable(100, 1000);
    let shape = Shape::Dumbbell {
        left: senders,
        right: 1,
        host_cable,
        middle_cable,
    };
    shape.build().unwrap()
}

fn run(topology: &Topology, switch: SwitchConfig, frames: u32, ecn: Ecn) -> Network<common::Host> {
    let ends = hosts(topology);
    let (receiver, senders) = ends.split_last().unwrap();
    let mut network = network(topology, &Options::with_switches(switch), 9);
    for &src in senders {
        let frames = (0..frames).map(|psn| Frame {
            ecn,
            ..frame(src, *receiver, psn, 1000)
        });
        send(&mut network, 0, frames);
    }
    network.run();
    check_conservation(&network, topology);
    network
}

fn left(topology: &Topology) -> NodeId {
    topology.find("left").unwrap()
}

#[test]
fn a_queue_grows_to_its_dynamic_threshold() {
    let topology = funnel(2);
    for (alpha, share) in [(1.0, 0.5), (0.5, 1.0 / 3.0), (4.0, 0.8)] {
        let switch = SwitchConfig {
            buffer_bytes: 1_000_000,
            alpha,
            ..SwitchConfig::default()
        };
        let network = run(&topology, switch, 2000, Ecn::NotCapable);
        let sum = sum(&network, left(&topology));
        assert!(sum.dropped_for(FrameDrop::Buffer) > 0);
        #[allow(clippy::cast_precision_loss)]
        let peak = sum.peak_queued_bytes as f64 / 1e6;
        assert!(
            (peak - share).abs() < 0.005,
            "{peak} of the buffer, {share} wanted"
        );
    }
}

/// A queue that a sender of the same rate keeps at a constant length is marked with the probability
/// of RED.
#[test]
fn marks_have_the_probability_of_red() {
    let shape = Shape::Dumbbell {
        left: 2,
        right: 1,
        host_cable: cable(10, 0),
        middle_cable: cable(10, 0),
    };
    let topology = shape.build().unwrap();
    let ends = hosts(&topology);
    for (queued, want) in [(20, 0.0), (60, 0.1), (90, 0.175), (110, 1.0)] {
        let ecn = Red {
            kmin_bytes: 20 * 1082,
            kmax_bytes: 100 * 1082,
            pmax: 0.2,
            at: MarkAt::Departure,
            rate_bps: None,
        };
        let switch = SwitchConfig {
            ecn: Some(ecn),
            ..SwitchConfig::default()
        };
        let mut network = network(&topology, &Options::with_switches(switch), 11);
        // One sender fills the queue while the other keeps it busy.
        send(
            &mut network,
            0,
            (0..20_000).map(|psn| frame(ends[0], ends[2], psn, 1000)),
        );
        send(
            &mut network,
            0,
            (0..queued).map(|psn| Frame {
                ecn: Ecn::NotCapable,
                ..frame(ends[1], ends[2], psn, 1000)
            }),
        );
        network.run();
        let marked = sum(&network, left(&topology)).marked;
        let seen = got(&network, ends[2])
            .iter()
            .filter(|(_, frame)| frame.ecn == Ecn::Experienced);
        assert_eq!(seen.count() as u64, marked);
        #[allow(clippy::cast_precision_loss)]
        let share = marked as f64 / 20_000.0;
        assert!(
            (share - want).abs() < 0.015,
            "{queued} frames: {share}, {want} wanted"
        );
    }
}

#[test]
fn the_step_of_dctcp_marks_all_beyond_it_and_nothing_before() {
    let topology = funnel(1);
    // The port has 10 Gbit/s.
    for (bytes, rate_bps) in [
        (10_820, None),
        (10_820, Some(10_000_000_000)),
        (27_050, Some(25_000_000_000)),
        (1_082, Some(1_000_000_000)),
    ] {
        let ecn = Red {
            kmin_bytes: bytes,
            kmax_bytes: bytes,
            pmax: 1.0,
            at: MarkAt::Arrival,
            rate_bps,
        };
        let switch = SwitchConfig {
            ecn: Some(ecn),
            ..SwitchConfig::default()
        };
        let network = run(&topology, switch, 100, Ecn::Capable0);
        let receiver = *hosts(&topology).last().unwrap();
        let marks: Vec<_> = got(&network, receiver)
            .iter()
            .map(|(_, frame)| frame.ecn)
            .collect();
        // 10 of 11 frames stay in the queue, so frame n finds about 0.9 n frames ahead of it.
        let first = marks
            .iter()
            .position(|ecn| *ecn == Ecn::Experienced)
            .unwrap();
        assert!((11..=14).contains(&first), "{first}");
        assert!(marks[first..].iter().all(|ecn| *ecn == Ecn::Experienced));
    }
    let unmarked = run(&topology, SwitchConfig::default(), 100, Ecn::Capable0);
    assert_eq!(unmarked.totals().marked, 0);
}

#[test]
fn ends_that_do_not_react_are_not_marked() {
    let topology = funnel(1);
    let ecn = Red {
        kmin_bytes: 0,
        kmax_bytes: 0,
        pmax: 1.0,
        at: MarkAt::Arrival,
        rate_bps: None,
    };
    let switch = SwitchConfig {
        ecn: Some(ecn),
        ..SwitchConfig::default()
    };
    assert_eq!(
        run(&topology, switch, 100, Ecn::NotCapable).totals().marked,
        0
    );
}

#[test]
fn trimming_cuts_payloads_and_delivers_every_header_first() {
    // Headers alone, which go first, do not fill the middle cable.
    let shape = Shape::Dumbbell {
        left: 2,
        right: 1,
        host_cable: cable(100, 1000),
        middle_cable: cable(40, 1000),
    };
    let topology = shape.build().unwrap();
    let trim = Trim {
        queue_bytes: 8 * 1082,
        priority: 7,
    };
    let switch = SwitchConfig {
        trim: Some(trim),
        ..SwitchConfig::default()
    };
    let network = run(&topology, switch, 200, Ecn::Capable0);
    let receiver = *hosts(&topology).last().unwrap();
    let got = got(&network, receiver);
    let (trimmed, whole): (Vec<_>, Vec<_>) = got
        .iter()
        .partition(|(_, frame)| frame.payload == Payload::Trimmed(1000));
    assert_eq!(network.totals().all_dropped(), 0);
    assert_eq!(trimmed.len() + whole.len(), 400);
    assert_eq!(network.totals().trimmed, trimmed.len() as u64);
    // The senders are done after 200 * 86.56 ns. Then 8 frames wait, not 400.
    let (first, last) = (trimmed[0].0, got.last().unwrap().0);
    assert!(first < 5000 && last < 24_000, "{first}, {last}");
    assert!(trimmed.len() > 300 && whole.len() > 40, "{}", whole.len());
    assert!(
        trimmed
            .iter()
            .all(|(_, frame)| frame.priority == 7 && frame.ip_bytes() == 44)
    );
    assert_eq!(got.last().unwrap().1.payload, Payload::Ghost(1000));
}

#[test]
fn impossible_switches_are_refused_by_field_and_value() {
    type Spoil = fn(&mut SwitchConfig);
    let cases: [(Spoil, &str); 6] = [
        (|s| s.alpha = 0.0, "switch alpha = 0"),
        (|s| s.alpha = f64::NAN, "switch alpha = NaN"),
        (
            |s| {
                s.ecn = Some(Red {
                    kmin_bytes: 2,
                    kmax_bytes: 1,
                    pmax: 1.0,
                    at: MarkAt::Arrival,
                    rate_bps: None,
                });
            },
            "ecn.kmin = 2: at most ecn.kmax",
        ),
        (
            |s| s.pfc = Some(farwrite_net::Pfc::new(&[3, 8])),
            "pfc.priorities = 8: 0 to 7",
        ),
        (
            |s| {
                s.trim = Some(Trim {
                    queue_bytes: 0,
                    priority: 9,
                });
            },
            "trim.priority = 9: 0 to 7",
        ),
        (
            |s| s.routing = farwrite_net::Policy::Drill { d: 0, m: 1 },
            "routing.d = 0: 1 to 64",
        ),
    ];
    for (spoil, want) in cases {
        let mut switch = SwitchConfig::default();
        spoil(&mut switch);
        let text = switch.validate().expect_err(want).to_string();
        assert!(text.contains(want), "{text:?} lacks {want:?}");
    }
}
