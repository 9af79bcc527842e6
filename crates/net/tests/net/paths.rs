//! Choice of paths, and failures of cables.

use std::time::Duration;

use crate::common::{Host, cable, check_conservation, frame, got, hosts, network, psn, send, sum};
use farwrite_net::{
    Change, Frame, FrameDrop, LeafSpine, Loss, Network, NodeId, Options, Policy, Shape,
    SwitchConfig, Topology,
};

const SPINES: usize = 4;

/// Returns two leaves of 4 hosts, and 4 spines.
fn clos() -> Topology {
    let shape = LeafSpine {
        leaves: 2,
        spines: SPINES,
        hosts_per_leaf: 4,
        host_cable: cable(100, 1000),
        spine_cable: cable(100, 1000),
    };
    Shape::LeafSpine(shape).build().unwrap()
}

fn options(routing: Policy) -> Options {
    let switch = SwitchConfig {
        routing,
        ..SwitchConfig::default()
    };
    Options::with_switches(switch)
}

/// Frames that each spine received.
fn by_spine(network: &Network<Host>, topology: &Topology) -> Vec<u64> {
    let spines = (0..SPINES).map(|spine| topology.find(&format!("spine{spine}")).unwrap());
    spines.map(|spine| sum(network, spine).received).collect()
}

fn flow(src: NodeId, dst: NodeId, src_port: u16, frames: u32) -> impl Iterator<Item = Frame> {
    (0..frames).map(move |psn| Frame {
        src_port,
        ..frame(src, dst, psn, 1000)
    })
}

#[test]
fn ecmp_keeps_a_flow_on_one_path_and_uses_them_all() {
    let topology = clos();
    let ends = hosts(&topology);
    let mut used = [0; SPINES];
    for src_port in 0..100 {
        let mut network = network(&topology, &options(Policy::Ecmp), 1);
        send(&mut network, 0, flow(ends[0], ends[7], src_port, 20));
        network.run();
        let frames = by_spine(&network, &topology);
        let path = frames.iter().position(|&frames| frames == 20);
        used[path.unwrap_or_else(|| panic!("{src_port} took {frames:?}"))] += 1;
        let order: Vec<_> = got(&network, ends[7])
            .iter()
            .map(|(_, frame)| psn(frame))
            .collect();
        assert_eq!(order, Vec::from_iter(0..20));
    }
    // The expected count is 25 each, with a standard deviation of 4.3.
    assert!(
        used.iter().all(|flows| (8..=42).contains(flows)),
        "{used:?}"
    );
}

#[test]
fn spraying_one_flow_loads_all_paths_alike() {
    let topology = clos();
    let ends = hosts(&topology);
    let mut network = network(&topology, &options(Policy::Spray), 1);
    send(&mut network, 0, flow(ends[0], ends[7], 1, 20_000));
    network.run();
    let frames = by_spine(&network, &topology);
    // The expected count is 5000 each, with a standard deviation of 61.
    assert!(
        frames.iter().all(|frames| (4700..=5300).contains(frames)),
        "{frames:?}"
    );
    assert_eq!(got(&network, ends[7]).len(), 20_000);
}

#[test]
fn round_robin_gives_each_path_every_fourth_frame() {
    let topology = clos();
    let ends = hosts(&topology);
    let mut network = network(&topology, &options(Policy::RoundRobin), 1);
    send(&mut network, 0, flow(ends[0], ends[7], 1, 20_000));
    network.run();
    assert_eq!(by_spine(&network, &topology), [5000; 4]);
    assert_eq!(got(&network, ends[7]).len(), 20_000);
}

/// With four flows of line rate, DRILL keeps the queues at the leaf shorter than spraying does.
#[test]
fn drill_keeps_queues_shorter_than_spraying() {
    let topology = clos();
    let ends = hosts(&topology);
    let leaf = topology.find("leaf0").unwrap();
    let peak = |routing| {
        let mut network = network(&topology, &options(routing), 1);
        for at in 0..4 {
            send(&mut network, 0, flow(ends[at], ends[4 + at], 1, 5000));
        }
        network.run();
        check_conservation(&network, &topology);
        sum(&network, leaf).peak_queued_bytes
    };
    let (drill, spray) = (peak(Policy::Drill { d: 2, m: 1 }), peak(Policy::Spray));
    assert!(drill * 3 < spray, "{drill} and {spray} bytes");
}

#[test]
fn flowlets_change_paths_at_gaps_only() {
    let topology = clos();
    let ends = hosts(&topology);
    let routing = Policy::Flowlet {
        gap: Duration::from_micros(5),
        flows: 1024,
    };
    let mut network = network(&topology, &options(routing), 1);
    for burst in 0..100 {
        let frames = flow(ends[0], ends[7], 1, 10).map(|frame| Frame {
            ipv4_id: burst,
            ..frame
        });
        send(&mut network, u64::from(burst) * 10_000, frames);
    }
    network.run();
    let frames = by_spine(&network, &topology);
    assert!(
        frames.iter().all(|frames| *frames > 0 && frames % 10 == 0),
        "{frames:?}"
    );
    let order: Vec<_> = got(&network, ends[7])
        .iter()
        .map(|(_, f)| (f.ipv4_id, psn(f)))
        .collect();
    assert!(order.is_sorted());
}

/// A cable of the path in use fails: frames are lost until the tables change, and then take another
/// path. After the repair, the path is used again.
#[test]
fn a_failed_cable_loses_frames_until_switches_know_and_serves_again_when_mended() {
    let topology = clos();
    let ends = hosts(&topology);
    let reroute = Some(Duration::from_micros(50));
    let options = Options {
        reroute,
        ..options(Policy::Spray)
    };
    let mut network = network(&topology, &options, 1);
    let frames = flow(ends[0], ends[7], 1, 5000);
    send(&mut network, 0, frames);
    let failing = [
        topology.find("spine2").unwrap(),
        topology.find("leaf1").unwrap(),
    ];
    let failing = topology.cable_between(failing[0], failing[1]).unwrap();
    network.plan(100_000, failing, Change::Down).unwrap();
    network.plan(300_000, failing, Change::Up).unwrap();

    network.run_until(100_000 + 50_000);
    let at_reroute = by_spine(&network, &topology)[2];
    let lost = network.totals().dropped_for(FrameDrop::CableDown);
    // One frame every 86.56 ns, a quarter of them over this cable, for 50 us; and the frames in
    // flight on the cable.
    assert!((100..=200).contains(&lost), "{lost}");
    network.run_until(300_000 + 50_000);
    // Only frames that had been sent to the spine when the tables changed.
    assert!(by_spine(&network, &topology)[2] <= at_reroute + 10);
    network.run();
    assert!(by_spine(&network, &topology)[2] > at_reroute + 100);
    let lost = network.totals().dropped_for(FrameDrop::CableDown);
    assert_eq!(got(&network, ends[7]).len() as u64 + lost, 5000);
    assert!(lost <= 210, "{lost}");
    check_conservation(&network, &topology);
}

#[test]
fn without_any_path_frames_are_dropped_where_that_is_known() {
    let topology = clos();
    let ends = hosts(&topology);
    let options = Options {
        reroute: Some(Duration::ZERO),
        ..Options::default()
    };
    let mut network = network(&topology, &options, 1);
    let leaf = topology.find("leaf1").unwrap();
    let cable = topology.cable_between(ends[7], leaf).unwrap();
    network.plan(0, cable, Change::Down).unwrap();
    send(&mut network, 10, flow(ends[0], ends[7], 1, 3));
    // A box is not a valid destination, nor is a node that does not exist.
    send(
        &mut network,
        10,
        [
            frame(ends[0], leaf, 0, 0),
            frame(ends[0], NodeId(999), 0, 0),
        ],
    );
    network.run();
    let dropped = sum(&network, topology.find("leaf0").unwrap()).dropped_for(FrameDrop::NoRoute);
    assert_eq!((dropped, network.delivered()), (5, 0));
    check_conservation(&network, &topology);
}

/// A cable that degrades: lower rate, longer delay, and loss.
#[test]
fn a_degraded_cable_is_as_the_change_says() {
    let shape = Shape::PointToPoint {
        cable: cable(100, 1000),
    };
    let topology = shape.build().unwrap();
    let ends = hosts(&topology);
    let mut network = network(&topology, &Options::default(), 1);
    let worse = farwrite_net::CableConfig {
        loss: Loss::Iid { loss_packet: 0.1 },
        ..cable(10, 9000)
    };
    let only = farwrite_net::CableId(0);
    network.plan(50_000, only, Change::Config(worse)).unwrap();
    send(&mut network, 0, [frame(ends[0], ends[1], 0, 1000)]);
    send(&mut network, 100_000, flow(ends[0], ends[1], 1, 10_000));
    network.run();
    let got = got(&network, ends[1]);
    assert_eq!(got[0].0, 87 + 1000);
    // 10,000 frames of 865.6 ns; the first or last may be lost.
    let last = 100_000 + 8_656_000 + 9000;
    assert!((last - 50_000..=last).contains(&got.last().unwrap().0));
    assert!((8850..=9150).contains(&got.len()), "{}", got.len());
    let lost = network.totals().dropped_for(FrameDrop::Cable);
    assert_eq!(got.len() as u64 + lost, 10_001);
    let bad = farwrite_net::CableConfig {
        rate_bps: 0,
        ..worse
    };
    assert!(network.plan(0, only, Change::Config(bad)).is_err());
}

/// Frames of a slot share its delay, stay in order unless they may overtake, and a policer drops what
/// is above its rate.
#[test]
fn a_cable_varies_its_delay_and_polices() {
    let run = |overtakes: bool, policer| {
        let shape = Shape::PointToPoint {
            cable: farwrite_net::CableConfig {
                variation: farwrite_net::Variation {
                    spread: farwrite_net::Spread::Uniform {
                        most: Duration::from_micros(20),
                    },
                    every: Duration::from_micros(5),
                    overtakes,
                },
                policer,
                ..cable(100, 1000)
            },
        };
        let topology = shape.build().unwrap();
        let ends = hosts(&topology);
        let mut network = network(&topology, &Options::default(), 1);
        send(&mut network, 0, flow(ends[0], ends[1], 1, 1000));
        network.run();
        check_conservation(&network, &topology);
        let lost = network.totals().dropped_for(FrameDrop::Cable);
        let got: Vec<_> = got(&network, ends[1])
            .iter()
            .map(|(at_ns, frame)| (*at_ns, psn(frame)))
            .collect();
        (got, lost)
    };
    let (in_order, lost) = run(false, None);
    assert_eq!((in_order.len(), lost), (1000, 0));
    // A frame leaves each 86.56 ns. Without variation, the last one arrives after 87,560 ns.
    assert!(in_order.iter().map(|(_, what)| what).is_sorted());
    let delays = in_order
        .iter()
        .zip(1..)
        .map(|((at_ns, _), i)| at_ns - 8656 * i / 100);
    let longest = delays.clone().max().unwrap();
    assert!((10_000..=21_001).contains(&longest), "{longest}");
    assert!(delays.min().unwrap() < 10_000);
    let (free, _) = run(true, None);
    assert!(!free.iter().map(|(_, what)| what).is_sorted());
    assert_ne!(free, in_order);
    let policer = farwrite_net::Policer {
        rate_bps: 50_000_000_000,
        burst_bytes: 20_000,
    };
    let (half, lost) = run(false, Some(policer));
    assert_eq!(half.len() as u64 + lost, 1000);
    // 20,000 bytes, and half of the rest.
    assert!((500..=530).contains(&half.len()), "{}", half.len());
}
