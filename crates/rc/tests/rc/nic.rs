//! Many queue pairs on one NIC.

use crate::common::network::{Node, cable, completions, connect, connection, middle, network, nic};
use farwrite_net::{
    CableConfig, CableId, Loss, Network, NodeId, Options, Output, Payload, Pfc, Shape,
    SwitchConfig, Topology, Trim,
};
use farwrite_rc::{
    Completion, ConfigError, Connection, Memory, Nic, QpConfig, RegisterError, Remote, Request,
};

fn pair() -> Topology {
    let cable = cable(100, 1000);
    Shape::PointToPoint { cable }.build().unwrap()
}

fn hosts(topology: &Topology) -> [NodeId; 2] {
    let hosts: Vec<_> = topology.hosts().collect();
    [hosts[0], hosts[1]]
}

/// Posts a WRITE of `bytes` ghost bytes.
fn write(network: &mut Network<Node>, [a, b]: [NodeId; 2], qpn: u32, bytes: u32) {
    // Several senders may write there.
    let registered = nic(network, b).memory.register_ghost(1, 0, 1 << 31);
    assert!(matches!(
        registered,
        Ok(()) | Err(RegisterError::KeyInUse(1))
    ));
    let request = Request::Write {
        data: Payload::Ghost(bytes),
        to: Remote { rkey: 1, addr: 0 },
        imm: None,
    };
    nic(network, a).post(qpn, 0, request).unwrap();
}

fn sent_bytes(network: &mut Network<Node>, node: NodeId, qpn: u32, mtu_bytes: u32) -> f64 {
    let sent = nic(network, node).qp_counters(qpn).unwrap().sent;
    // 44 bytes of IP, UDP, BTH and ICRC.
    sent as f64 * f64::from(mtu_bytes + 44)
}

#[test]
fn queue_pairs_share_the_port_by_bytes_whatever_their_mtu() {
    let topology = pair();
    let ends = hosts(&topology);
    let mut network = network(&topology, &Options::default(), 1);
    let mtus = [256, 1024, 4096];
    let qpns: Vec<_> = (0..)
        .zip(mtus)
        .map(|(number, mtu_bytes)| {
            let config = QpConfig {
                mtu_bytes,
                ..QpConfig::new(2)
            };
            connect(&mut network, ends, number, connection(), config)
        })
        .collect();
    for &qpn in &qpns {
        write(&mut network, ends, qpn, 100 << 20);
    }
    network.run_until(1_000_000);
    let shares: Vec<_> = qpns
        .iter()
        .zip(mtus)
        .map(|(&qpn, mtu_bytes)| sent_bytes(&mut network, ends[0], qpn, mtu_bytes))
        .collect();
    // Shares differ by less than two of the longest packets.
    for share in &shares {
        assert!((share - shares[0]).abs() < 2.0 * 4140.0, "{shares:?}");
    }
    // Together the shares fill the port: 12.5 MB per millisecond with framing.
    assert!(shares.iter().sum::<f64>() > 11_000_000.0, "{shares:?}");
}

#[test]
fn a_queue_pair_keeps_its_pace_and_leaves_the_rest_to_others() {
    let topology = pair();
    let ends = hosts(&topology);
    let mut network = network(&topology, &Options::default(), 1);
    let paced = Connection {
        rate_bps: Some(7_000_000_000),
        ..connection()
    };
    let slow = connect(&mut network, ends, 0, paced, QpConfig::new(2));
    let fast = connect(&mut network, ends, 1, connection(), QpConfig::new(2));
    write(&mut network, ends, slow, 100 << 20);
    write(&mut network, ends, fast, 100 << 20);
    network.run_until(1_000_000);
    let slow = sent_bytes(&mut network, ends[0], slow, 1024) * 8.0;
    let fast = sent_bytes(&mut network, ends[0], fast, 1024) * 8.0;
    // The port may be busy when the pace allows a packet: at most one packet time for each.
    assert!((6_900_000.0..=7_010_000.0).contains(&slow), "{slow}");
    assert!(fast > 85_000_000.0, "{fast}");
}

#[test]
fn a_queue_pair_that_was_idle_does_not_get_what_it_missed() {
    let topology = pair();
    let ends = hosts(&topology);
    let mut network = network(&topology, &Options::default(), 1);
    let config = QpConfig::new(2);
    let busy = connect(&mut network, ends, 0, connection(), config);
    let late = connect(&mut network, ends, 1, connection(), config);
    write(&mut network, ends, busy, 100 << 20);
    network.run_until(500_000);
    let before = sent_bytes(&mut network, ends[0], busy, 1024);
    write(&mut network, ends, late, 100 << 20);
    network.run_until(600_000);
    let busy = sent_bytes(&mut network, ends[0], busy, 1024) - before;
    let late = sent_bytes(&mut network, ends[0], late, 1024);
    assert!((busy - late).abs() < 3.0 * 1068.0, "{busy}, {late}");
}

/// The first packet has a RETH, so packet k, counted from 0, may leave 8 / 7 * (1084 + (k - 1) *
/// 1068) ns after the start. Up to 10 ms, these are 8193 packets.
#[test]
fn a_pace_keeps_fractions_of_a_nanosecond() {
    let topology = pair();
    let ends = hosts(&topology);
    let mut network = network(&topology, &Options::default(), 1);
    let paced = Connection {
        rate_bps: Some(7_000_000_000),
        ..connection()
    };
    let qpn = connect(&mut network, ends, 0, paced, QpConfig::new(2));
    write(&mut network, ends, qpn, 100 << 20);
    network.run_until(10_000_000);
    let counters = nic(&mut network, ends[0]).qp_counters(qpn).unwrap();
    assert_eq!(counters.sent, 8193);
}

/// The sender asks for an acknowledgement after 16 packets, which take 14 ms at this pace. The
/// timeout of 1 ms begins with that request.
#[test]
fn a_slow_pace_causes_no_timeouts() {
    let topology = pair();
    let ends = hosts(&topology);
    let mut network = network(&topology, &Options::default(), 1);
    let slow = Connection {
        rate_bps: Some(10_000_000),
        ..connection()
    };
    let qpn = connect(&mut network, ends, 0, slow, QpConfig::new(2));
    write(&mut network, ends, qpn, 100 << 10);
    network.run();
    let done = [Completion::Acknowledged { id: 0 }];
    assert_eq!(completions(&mut network, ends[0], qpn), done);
    let counters = nic(&mut network, ends[0]).qp_counters(qpn).unwrap();
    assert_eq!((counters.sent, counters.timeouts), (100, 0));
}

#[test]
fn a_paused_priority_stops_its_queue_pairs_alone() {
    let mut topology = pair();
    let ends = hosts(&topology);
    let at = topology.insert_box(CableId(0), ends[1], "box");
    let mut network = network(&topology, &Options::default(), 1);
    let other = Connection {
        priority: 5,
        ..connection()
    };
    let stopped = connect(&mut network, ends, 0, connection(), QpConfig::new(2));
    let free = connect(&mut network, ends, 1, other, QpConfig::new(2));
    let pause = |stop| Output::Pause {
        port: 0,
        priority: 3,
        stop,
    };
    middle(&mut network, at).outputs.push_back(pause(true));
    network.run_until(10_000);
    write(&mut network, ends, stopped, 100_000);
    write(&mut network, ends, free, 100_000);
    network.run_until(100_000);
    assert_eq!(
        nic(&mut network, ends[0])
            .qp_counters(stopped)
            .unwrap()
            .sent,
        0
    );
    let done = [Completion::Acknowledged { id: 0 }];
    assert_eq!(completions(&mut network, ends[0], free), done);
    middle(&mut network, at).outputs.push_back(pause(false));
    network.run();
    assert_eq!(completions(&mut network, ends[0], stopped), done);
    let counters = nic(&mut network, ends[0]).qp_counters(stopped).unwrap();
    assert_eq!((counters.repeated, counters.timeouts), (0, 0));
}

#[test]
fn an_incast_on_a_lossless_priority_repeats_nothing() {
    let cable = cable(100, 1000);
    let topology = Shape::Star { hosts: 9, cable }.build().unwrap();
    let hosts: Vec<_> = topology.hosts().collect();
    let options = Options::with_switches(SwitchConfig {
        buffer_bytes: 1 << 20,
        pfc: Some(Pfc::new(&[3])),
        ..SwitchConfig::default()
    });
    let mut network = network(&topology, &options, 1);
    let receiver = hosts[8];
    for (number, &sender) in (0..).zip(&hosts[..8]) {
        let to = |peer| Connection {
            peer,
            ..connection()
        };
        // Each sender has one queue pair, the receiver one for each sender.
        let config = QpConfig::new(2 + number);
        nic(&mut network, sender)
            .connect(to(receiver), config)
            .unwrap();
        let config = QpConfig::new(2);
        nic(&mut network, receiver)
            .connect(to(sender), config)
            .unwrap();
        write(&mut network, [sender, receiver], 2, 1_000_000);
    }
    network.run();
    assert!(network.totals().pauses_sent > 0);
    assert_eq!(network.totals().all_dropped(), 0);
    for &sender in &hosts[..8] {
        let done = [Completion::Acknowledged { id: 0 }];
        assert_eq!(completions(&mut network, sender, 2), done);
        let counters = nic(&mut network, sender).qp_counters(2).unwrap();
        assert_eq!((counters.repeated, counters.timeouts), (0, 0));
    }
}

#[test]
fn trimmed_frames_are_counted_and_sent_again() {
    let cable = cable(100, 1000);
    let topology = Shape::Star { hosts: 3, cable }.build().unwrap();
    let hosts: Vec<_> = topology.hosts().collect();
    let options = Options::with_switches(SwitchConfig {
        trim: Some(Trim {
            queue_bytes: 20_000,
            priority: 7,
        }),
        ..SwitchConfig::default()
    });
    let mut network = network(&topology, &options, 1);
    for (number, &sender) in (0..).zip(&hosts[..2]) {
        let to = |peer| Connection {
            peer,
            ..connection()
        };
        let config = QpConfig::new(2 + number);
        nic(&mut network, sender)
            .connect(to(hosts[2]), config)
            .unwrap();
        let config = QpConfig::new(2);
        nic(&mut network, hosts[2])
            .connect(to(sender), config)
            .unwrap();
        write(&mut network, [sender, hosts[2]], 2, 100_000);
    }
    network.run();
    assert!(nic(&mut network, hosts[2]).counters().trimmed > 0);
    for &sender in &hosts[..2] {
        let done = [Completion::Acknowledged { id: 0 }];
        assert_eq!(completions(&mut network, sender, 2), done);
    }
}

/// A cable that loses packets and a switch that does not mark.
#[test]
fn a_gap_is_a_congestion_notification_if_the_settings_say_so() {
    let lossy = CableConfig {
        loss: Loss::Iid { loss_packet: 0.02 },
        ..cable(10, 1000)
    };
    let topology = Shape::PointToPoint { cable: lossy }.build().unwrap();
    let ends = hosts(&topology);
    for gap_is_cnp in [false, true] {
        let mut network = network(&topology, &Options::default(), 1);
        let config = QpConfig {
            gap_is_cnp,
            ..QpConfig::new(2)
        };
        let qpn = connect(&mut network, ends, 0, connection(), config);
        nic(&mut network, ends[1]).set_notification_interval(0);
        write(&mut network, ends, qpn, 1_000_000);
        network.run();
        let done = [Completion::Acknowledged { id: 0 }];
        assert_eq!(completions(&mut network, ends[0], qpn), done);
        let counters = nic(&mut network, ends[0]).qp_counters(qpn).unwrap();
        assert_eq!(counters.notifications > 0, gap_is_cnp);
        // Only the packets after a gap that are answered with a NAK notify.
        let receiver = nic(&mut network, ends[1]).qp_counters(qpn).unwrap();
        assert!(counters.notifications <= receiver.refusals);
        assert!(receiver.refusals < receiver.out_of_order);
    }
}

#[test]
fn frames_of_strangers_are_counted() {
    let cable = cable(100, 1000);
    let topology = Shape::Star { hosts: 3, cable }.build().unwrap();
    let hosts: Vec<_> = topology.hosts().collect();
    let mut network = network(&topology, &Options::default(), 1);
    let config = QpConfig {
        retry_limit: Some(0),
        ..QpConfig::new(2)
    };
    // Both host 0 and host 1 send to queue pair 2 of host 2, which accepts packets of host 0 only.
    connect(&mut network, [hosts[0], hosts[2]], 0, connection(), config);
    let to = Connection {
        peer: hosts[2],
        ..connection()
    };
    nic(&mut network, hosts[1]).connect(to, config).unwrap();
    write(&mut network, [hosts[1], hosts[2]], 2, 5000);
    network.run();
    assert_eq!(nic(&mut network, hosts[2]).counters().strangers, 5);
    assert!(matches!(
        completions(&mut network, hosts[1], 2)[..],
        [Completion::Failed { id: 0, .. }]
    ));
}

#[test]
fn settings_out_of_range_are_named() {
    let mut nic = Nic::new(NodeId(0));
    let config = QpConfig::new(2);
    let mut error = |rate_bps, config| {
        let to = Connection {
            rate_bps,
            ..connection()
        };
        nic.connect(to, config).unwrap_err().to_string()
    };
    assert!(error(Some(0), config).starts_with("rate_bps = 0: "));
    let mtu_bytes = 1500;
    let wrong = QpConfig {
        mtu_bytes,
        ..config
    };
    assert_eq!(error(None, wrong), ConfigError::Mtu(1500).to_string());
    let window_packets = 0;
    let wrong = QpConfig {
        window_packets,
        ..config
    };
    assert_eq!(error(None, wrong), "window_packets = 0: 1 to 4194304");
    let peer_qpn = 1 << 24;
    let wrong = QpConfig { peer_qpn, ..config };
    assert!(error(None, wrong).starts_with("peer_qpn = 16777216: "));
}

#[test]
fn keys_and_addresses_that_cannot_be_registered_are_named() {
    let mut memory = Memory::default();
    memory.register(7, u64::MAX - 4, vec![0; 4]).unwrap();
    let again = memory.register_ghost(7, 0, 1);
    assert_eq!(again, Err(RegisterError::KeyInUse(7)));
    let addr = u64::MAX - 4;
    let long = memory.register_ghost(8, addr, 5);
    assert_eq!(long, Err(RegisterError::TooLong { addr, length: 5 }));
}

/// A released queue pair is gone, and the others keep their numbers. A queue pair that still has
/// something to do is not released.
#[test]
fn only_an_idle_queue_pair_is_released() {
    let topology = pair();
    let ends = hosts(&topology);
    let mut network = network(&topology, &Options::default(), 1);
    let connect = |network: &mut Network<Node>, number| {
        connect(network, ends, number, connection(), QpConfig::new(2))
    };
    let (first, second) = (connect(&mut network, 0), connect(&mut network, 1));
    write(&mut network, ends, first, 10 << 10);
    assert_eq!(nic(&mut network, ends[0]).release(first), None);
    network.run_until(2000);
    assert_eq!(nic(&mut network, ends[0]).release(first), None);
    network.run();
    // The completion was not polled yet.
    assert_eq!(nic(&mut network, ends[0]).release(first), None);
    let done = [Completion::Acknowledged { id: 0 }];
    assert_eq!(completions(&mut network, ends[0], first), done);
    let counters = nic(&mut network, ends[0]).release(first).unwrap();
    assert_eq!((counters.sent, counters.repeated), (10, 0));
    let sender = nic(&mut network, ends[0]);
    assert_eq!(
        (sender.release(first), sender.qp_counters(first)),
        (None, None)
    );
    write(&mut network, ends, second, 10 << 10);
    network.run();
    assert_eq!(completions(&mut network, ends[0], second), done);
    assert_eq!(nic(&mut network, ends[0]).counters().strangers, 0);
}
