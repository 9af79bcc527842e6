//! Priority-based flow control: nothing is lost, and nothing deadlocks.

use crate::common;
use crate::common::{cable, check_conservation, frame, got, hosts, network, send, sum};
use farwrite_net::{
    CableId, Change, Frame, FrameDrop, LeafSpine, Options, Output, Pfc, Shape, SwitchConfig,
    XoffThreshold,
};

fn lossless(pfc: Pfc) -> Options {
    let switch = SwitchConfig {
        buffer_bytes: 2 << 20,
        pfc: Some(pfc),
        ..SwitchConfig::default()
    };
    Options::with_switches(switch)
}

/// 32 hosts send one megabyte each to one receiver.
fn incast(shape: Shape, options: &Options, payload: u32) -> (common::Host, u64, u64) {
    let topology = shape.build().unwrap();
    let ends = hosts(&topology);
    let receiver = *ends.last().unwrap();
    let frames = 1_000_000 / payload;
    let mut network = network(&topology, options, 5);
    for &src in &ends[..32] {
        let frames = (0..frames).map(|psn| Frame {
            priority: 3,
            ..frame(src, receiver, psn, payload)
        });
        send(&mut network, 0, frames);
    }
    network.run();
    check_conservation(&network, &topology);
    let totals = network.totals();
    assert!(totals.pauses_sent > 0 && totals.pauses_sent == totals.pauses_received);
    assert_eq!(network.sent(), u64::from(frames) * 32);
    for switch in topology.with_role(farwrite_net::Role::Switch) {
        assert_eq!(network.buffer_bytes(switch), 0);
    }
    let dropped = totals.all_dropped();
    assert_eq!(dropped, totals.dropped_for(FrameDrop::Headroom));
    let now_ns = network.now_ns();
    let host = std::mem::take(network.device_mut(receiver).unwrap());
    (host, dropped, now_ns)
}

fn star() -> Shape {
    Shape::Star {
        hosts: 33,
        cable: cable(100, 1000),
    }
}

#[test]
fn an_incast_of_32_loses_nothing_with_enough_headroom() {
    for xoff in [
        XoffThreshold::Alpha(1.0 / 16.0),
        XoffThreshold::Bytes(15_000),
    ] {
        for payload in [256, 1000, 4096] {
            let pfc = Pfc {
                xoff,
                ..Pfc::new(&[3])
            };
            let (receiver, dropped, now_ns) = incast(star(), &lossless(pfc), payload);
            assert_eq!(dropped, 0, "{xoff:?}, {payload}");
            // The receiver's cable was busy from the first frame to the last.
            let frames = u64::from(1_000_000 / payload) * 32;
            let busy_ns = frames * (u64::from(payload) + 82) * 8 / 100;
            assert_eq!(receiver.got.len() as u64, frames);
            assert!(
                now_ns >= busy_ns && now_ns < busy_ns + 10_000,
                "{now_ns}, {busy_ns}"
            );
        }
    }
}

#[test]
fn pauses_spread_through_a_clos_network_and_lose_nothing() {
    let cable = cable(100, 1000);
    let clos = LeafSpine {
        leaves: 3,
        spines: 2,
        hosts_per_leaf: 16,
        host_cable: cable,
        spine_cable: cable,
    };
    let (receiver, dropped, _) = incast(Shape::LeafSpine(clos), &lossless(Pfc::new(&[3])), 1000);
    assert_eq!((receiver.got.len(), dropped), (32_000, 0));
}

#[test]
fn too_little_headroom_loses_frames_and_says_so() {
    let pfc = Pfc {
        headroom_bytes: Some(3000),
        xoff: XoffThreshold::Bytes(15_000),
        ..Pfc::new(&[3])
    };
    let (receiver, dropped, _) = incast(star(), &lossless(pfc), 1000);
    assert!(dropped > 0);
    assert_eq!(receiver.got.len() as u64 + dropped, 32_000);
}

/// Frames arrive twice as fast as the PFC frame that stops them leaves.
#[test]
fn headroom_counts_the_rates_of_both_directions() {
    let cable = farwrite_net::CableConfig {
        back_rate_bps: Some(50 * common::GBIT),
        ..cable(100, 1000)
    };
    let pfc = Pfc {
        xoff: XoffThreshold::Bytes(15_000),
        max_frame_bytes: 4178,
        ..Pfc::new(&[3])
    };
    let [at_host, at_switch] =
        [cable, cable.reversed()].map(|cable| pfc.headroom_of(&cable, std::time::Duration::ZERO));
    assert_eq!(at_host, 2 * 4178 + (4178 + 84) / 2 + 12_500);
    assert_eq!(at_switch, 2 * 4178 + 2 * (4178 + 84) + 25_000);
    let (receiver, dropped, now_ns) =
        incast(Shape::Star { hosts: 33, cable }, &lossless(pfc), 4096);
    let busy_ns = receiver.got.len() as u64 * (4096 + 82) * 8 / 50;
    assert_eq!((receiver.got.len(), dropped), (32 * 244, 0));
    assert!(
        (busy_ns..busy_ns + 10_000).contains(&now_ns),
        "{now_ns}, {busy_ns}"
    );
}

/// The headroom that the cable needs is a tight bound: with one round trip of the cable less,
/// frames are lost.
#[test]
fn headroom_is_what_the_cable_needs() {
    let pfc = Pfc {
        xoff: XoffThreshold::Bytes(15_000),
        max_frame_bytes: 4178,
        ..Pfc::new(&[3])
    };
    let need = pfc.headroom_of(&cable(100, 1000), std::time::Duration::ZERO);
    assert_eq!(need, 3 * 4178 + 84 + 25_000);
    for (headroom_bytes, loses) in [(need, false), (need - 12_500, true)] {
        let pfc = Pfc {
            headroom_bytes: Some(headroom_bytes),
            ..pfc.clone()
        };
        let (_, dropped, _) = incast(star(), &lossless(pfc), 4096);
        assert_eq!(dropped > 0, loses, "{headroom_bytes} of {need}: {dropped}");
    }
}

#[test]
fn other_priorities_go_on_while_one_is_stopped() {
    let topology = Shape::PointToPoint {
        cable: cable(100, 1000),
    }
    .build()
    .unwrap();
    let ends = hosts(&topology);
    let mut network = network(&topology, &Options::default(), 1);
    let ask = |stop| Output::Pause {
        port: 0,
        priority: 3,
        stop,
    };
    network
        .device_mut(ends[1])
        .unwrap()
        .outputs
        .push_back(ask(true));
    network.run_until(2000);
    for priority in [3, 0] {
        // This frame is not in the script, so that it waits in the queue of the port.
        let frame = Frame {
            priority,
            ..frame(ends[0], ends[1], 0, 1000)
        };
        let host = network.device_mut(ends[0]).unwrap();
        host.outputs.push_back(Output::Send { port: 0, frame });
    }
    network.run_until(1_000_000);
    let priorities = |network: &farwrite_net::Network<common::Host>| -> Vec<_> {
        got(network, ends[1])
            .iter()
            .map(|(_, frame)| frame.priority)
            .collect()
    };
    assert_eq!(priorities(&network), [0]);
    assert_eq!(network.queue_bytes(ends[0], 0, 3), 1082);
    network
        .device_mut(ends[1])
        .unwrap()
        .outputs
        .push_back(ask(false));
    network.run();
    assert_eq!(priorities(&network), [0, 3]);
    assert_eq!(sum(&network, ends[0]).pauses_received, 2);
}

/// A stop is still on a long cable when the cable becomes short. The resume that follows arrives
/// after it.
#[test]
fn a_resume_does_not_overtake_its_stop() {
    let shape = Shape::PointToPoint {
        cable: cable(100, 100_000),
    };
    let topology = shape.build().unwrap();
    let ends = hosts(&topology);
    let mut network = network(&topology, &Options::default(), 1);
    let shorter = Change::Config(cable(100, 1000));
    network.plan(20_000, CableId(0), shorter).unwrap();
    for (at_ns, stop) in [(10_000, true), (30_000, false)] {
        network.run_until(at_ns);
        let (port, priority) = (0, 3);
        let ask = Output::Pause {
            port,
            priority,
            stop,
        };
        let host = network.device_mut(ends[1]).unwrap();
        host.outputs.push_back(ask);
    }
    let frame = Frame {
        priority: 3,
        ..frame(ends[0], ends[1], 0, 1000)
    };
    send(&mut network, 200_000, [frame]);
    network.run();
    assert_eq!(sum(&network, ends[0]).pauses_received, 2);
    assert_eq!(got(&network, ends[1]).len(), 1);
}

/// A cable that goes down while its port is stopped is not stopped when it comes back.
#[test]
fn a_stop_does_not_outlive_its_cable() {
    let topology = Shape::PointToPoint {
        cable: cable(100, 1000),
    }
    .build()
    .unwrap();
    let ends = hosts(&topology);
    let mut network = network(&topology, &Options::default(), 1);
    let stop = Output::Pause {
        port: 0,
        priority: 3,
        stop: true,
    };
    network.device_mut(ends[1]).unwrap().outputs.push_back(stop);
    let sent = Frame {
        priority: 3,
        ..frame(ends[0], ends[1], 0, 1000)
    };
    send(&mut network, 5000, [sent]);
    network.run_until(20_000);
    assert!(got(&network, ends[1]).is_empty());
    network
        .plan(20_000, CableId(0), farwrite_net::Change::Down)
        .unwrap();
    network
        .plan(30_000, CableId(0), farwrite_net::Change::Up)
        .unwrap();
    send(
        &mut network,
        40_000,
        [Frame {
            priority: 3,
            ..frame(ends[0], ends[1], 1, 1000)
        }],
    );
    network.run();
    // The host sent the first frame when the cable failed.
    assert_eq!(got(&network, ends[1]).len(), 1);
    assert_eq!(network.sent(), 2);
    check_conservation(&network, &topology);
}

#[test]
fn headroom_that_takes_the_whole_buffer_is_refused() {
    let topology = Shape::Star {
        hosts: 33,
        cable: cable(100, 100_000),
    }
    .build()
    .unwrap();
    let options = lossless(Pfc::new(&[3]));
    let made = farwrite_net::Network::new(&topology, &options, 1, |_, _| common::Host::default());
    let error = made.err().expect("33 times 2.5 MB").to_string();
    assert!(
        error.contains("leave nothing of a switch buffer of 2097152 bytes"),
        "{error}"
    );
}
