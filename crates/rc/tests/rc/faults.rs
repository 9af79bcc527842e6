//! Connections over networks that lose, reorder and duplicate packets deliver whole messages, in
//! order, exactly once.

use crate::common::network::{Node, cable, completions, connect, connection, middle, network, nic};
use crate::common::{ADDR, BYTES, RKEY, data, message, read, send, write};
use farwrite_net::{
    CableConfig, CableId, Change, LeafSpine, Loss, Network, NodeId, Options, Payload, Policy,
    Shape, SwitchConfig, Topology, Trim,
};
use farwrite_rc::{
    Completion, Connection, FIRST_QPN, QpConfig, QpCounters, Recovery, Remote, Request,
};

const ROUNDS: usize = 40;
const SLOT: usize = 1500;

const IRN: Recovery = Recovery::Irn {
    rto_low_ns: 30_000,
    rto_low_packets: 3,
    goes_back: false,
};
const RACK: Recovery = Recovery::Rack {
    reorder_ns: 10_000,
    probe_ns: 40_000,
    unit_packets: 1,
};
const RECOVERIES: [Recovery; 4] = [Recovery::GoBackN, IRN, Recovery::Trimming, RACK];

/// PSNs wrap during the test, so that old and new PSNs coexist.
fn config(recovery: Recovery) -> QpConfig {
    QpConfig {
        mtu_bytes: 256,
        ack_timeout_ns: 100_000,
        send_psn: 0xFF_FFF0,
        recv_psn: 0xFF_FFF0,
        recovery,
        ..QpConfig::new(2)
    }
}

fn length(round: usize) -> usize {
    [700, 0, 1500, 256, 1][round % 5]
}

/// Posts in each round a SEND, a WRITE with immediate and a READ of the written bytes, all at once.
fn post_all(network: &mut Network<Node>, [a, b]: [NodeId; 2], qpn: u32) {
    let receiver = nic(network, b);
    receiver
        .memory
        .register(RKEY, ADDR, vec![0; BYTES])
        .unwrap();
    for id in 0..2 * ROUNDS as u64 {
        receiver.post_receive(qpn, id, 1500).unwrap();
    }
    let sender = nic(network, a);
    for round in 0..ROUNDS {
        let (at, bytes) = (round * SLOT, length(round));
        let wrote = write(at as u64, message(round, bytes), Some(7));
        let asks = [
            send(message(round + 1, bytes)),
            wrote,
            read(at as u64, u32::try_from(bytes).unwrap()),
        ];
        for (kind, request) in asks.into_iter().enumerate() {
            sender
                .post(qpn, (3 * round + kind) as u64, request)
                .unwrap();
        }
    }
}

/// `done` has the completions of both ends, the requester's first.
fn check_all(network: &mut Network<Node>, [_, b]: [NodeId; 2], done: &[Vec<Completion>; 2]) {
    let (mut asked, mut received) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let (id, bytes) = (3 * round as u64, length(round));
        asked.push(Completion::Acknowledged { id });
        asked.push(Completion::Acknowledged { id: id + 1 });
        asked.push(Completion::Read {
            id: id + 2,
            data: data(message(round, bytes)),
        });
        received.push(Completion::Received {
            id: 2 * round as u64,
            data: data(message(round + 1, bytes)),
            imm: None,
        });
        received.push(Completion::Written {
            id: 2 * round as u64 + 1,
            bytes: u32::try_from(bytes).unwrap(),
            imm: 7,
        });
    }
    let is_received = |completion: &Completion| {
        matches!(
            completion,
            Completion::Received { .. } | Completion::Written { .. }
        )
    };
    let asks = done[0].iter().filter(|done| !is_received(done));
    assert!(asks.eq(&asked), "{done:?}");
    let receives = done[1].iter().filter(|done| is_received(done));
    assert!(receives.eq(&received), "{done:?}");
    let memory = nic(network, b).memory.bytes(RKEY).unwrap();
    for (round, slot) in memory.chunks(SLOT).take(ROUNDS).enumerate() {
        assert_eq!(slot[..length(round)], message(round, length(round)));
    }
}

fn exchange(
    topology: &Topology,
    options: &Options,
    seed: u64,
    recovery: Recovery,
) -> [QpCounters; 2] {
    let ends: Vec<_> = topology.hosts().collect();
    let ends = [ends[0], ends[ends.len() - 1]];
    let mut network = network(topology, options, seed);
    let boxes = topology.with_role(farwrite_net::Role::Box);
    for at in boxes {
        middle(&mut network, at).copies = true;
    }
    let qpn = connect(&mut network, ends, 0, connection(), config(recovery));
    post_all(&mut network, ends, qpn);
    network.run();
    let done = ends.map(|end| completions(&mut network, end, qpn));
    check_all(&mut network, ends, &done);
    ends.map(|end| nic(&mut network, end).qp_counters(qpn).unwrap())
}

fn point_to_point(cable: CableConfig) -> Topology {
    Shape::PointToPoint { cable }.build().unwrap()
}

fn lossy(loss_packet: f64) -> CableConfig {
    CableConfig {
        loss: Loss::Iid { loss_packet },
        ..cable(10, 5000)
    }
}

#[test]
fn a_perfect_cable_needs_no_repetition() {
    let topology = point_to_point(cable(10, 5000));
    for recovery in RECOVERIES {
        let [asked, answered] = exchange(&topology, &Options::default(), 1, recovery);
        assert_eq!((asked.repeated, asked.timeouts), (0, 0));
        assert_eq!((answered.out_of_order, answered.duplicates), (0, 0));
    }
}

#[test]
fn messages_survive_loss() {
    for (seed, recovery) in (0..20).flat_map(|seed| RECOVERIES.map(|recovery| (seed, recovery))) {
        let topology = point_to_point(lossy(0.02));
        let [asked, answered] = exchange(&topology, &Options::default(), seed, recovery);
        assert!(asked.repeated > 0 && answered.out_of_order > 0, "{seed}");
    }
}

#[test]
fn messages_survive_spraying_over_paths_of_different_length() {
    for (seed, recovery) in (0..20).flat_map(|seed| RECOVERIES.map(|recovery| (seed, recovery))) {
        let clos = LeafSpine {
            leaves: 2,
            spines: 4,
            hosts_per_leaf: 1,
            host_cable: cable(100, 1000),
            spine_cable: cable(25, 1000),
        };
        let mut topology = Shape::LeafSpine(clos).build().unwrap();
        // A box on one path, which duplicates frames and makes the path longer.
        let [leaf, spine] = ["leaf0", "spine1"].map(|name| topology.find(name).unwrap());
        let long = topology.cable_between(leaf, spine).unwrap();
        topology.insert_box(long, spine, "box");
        let options = Options::with_switches(SwitchConfig {
            routing: Policy::Spray,
            ..SwitchConfig::default()
        });
        let [_, answered] = exchange(&topology, &options, seed, recovery);
        assert!(
            answered.out_of_order > 0 && answered.duplicates > 0,
            "{seed}"
        );
    }
}

#[test]
fn every_packet_can_be_copied_and_is_a_sound_roce_packet() {
    // All opcodes: SENDs without and WRITEs with immediate, READs, ACKs.
    let expected = [0, 1, 2, 4, 6, 7, 9, 0xB, 0xC, 0xD, 0xE, 0xF, 0x10, 0x11];
    for recovery in RECOVERIES {
        let mut topology = point_to_point(lossy(0.01));
        let ends: Vec<_> = topology.hosts().collect();
        let at = topology.insert_box(CableId(0), ends[1], "box");
        let ends = [ends[0], ends[1]];
        let mut network = network(&topology, &Options::default(), 3);
        middle(&mut network, at).copies = true;
        let qpn = connect(&mut network, ends, 0, connection(), config(recovery));
        post_all(&mut network, ends, qpn);
        network.run();
        let done = ends.map(|end| completions(&mut network, end, qpn));
        check_all(&mut network, ends, &done);
        let seen = &middle(&mut network, at).opcodes;
        assert_eq!(seen.iter().copied().collect::<Vec<_>>(), expected);
    }
}

/// Both ends are requester and responder on the same connection.
#[test]
fn messages_cross_in_both_directions() {
    for (seed, recovery) in (0..20).flat_map(|seed| RECOVERIES.map(|recovery| (seed, recovery))) {
        let mut topology = point_to_point(lossy(0.02));
        let ends: Vec<_> = topology.hosts().collect();
        let at = topology.insert_box(CableId(0), ends[1], "box");
        let (there, back) = ([ends[0], ends[1]], [ends[1], ends[0]]);
        let mut network = network(&topology, &Options::default(), seed);
        middle(&mut network, at).copies = true;
        let qpn = connect(&mut network, there, 0, connection(), config(recovery));
        post_all(&mut network, there, qpn);
        post_all(&mut network, back, qpn);
        network.run();
        let done = there.map(|end| completions(&mut network, end, qpn));
        check_all(&mut network, there, &done);
        let [of_a, of_b] = done;
        check_all(&mut network, back, &[of_b, of_a]);
    }
}

/// The cable is down for longer than a timeout, and loses the frames that are on it.
#[test]
fn messages_survive_a_cable_that_fails() {
    for (seed, recovery) in (0..20).flat_map(|seed| RECOVERIES.map(|recovery| (seed, recovery))) {
        let topology = point_to_point(lossy(0.005));
        let ends: Vec<_> = topology.hosts().collect();
        let ends = [ends[0], ends[1]];
        let mut network = network(&topology, &Options::default(), seed);
        let qpn = connect(&mut network, ends, 0, connection(), config(recovery));
        post_all(&mut network, ends, qpn);
        let down_ns = 5_000 + 3_000 * seed;
        network.plan(down_ns, CableId(0), Change::Down).unwrap();
        network
            .plan(down_ns + 150_000, CableId(0), Change::Up)
            .unwrap();
        network.run();
        let done = ends.map(|end| completions(&mut network, end, qpn));
        check_all(&mut network, ends, &done);
        let counters = nic(&mut network, ends[0]).qp_counters(qpn).unwrap();
        assert!(counters.timeouts > 0, "{seed} {recovery:?}");
    }
}

/// Two senders overload the receiver's queue, and no trimmed packet costs a timeout.
#[test]
fn trimmed_packets_are_repeated_without_a_timeout() {
    let topology = Shape::Star {
        hosts: 3,
        cable: cable(10, 1000),
    }
    .build()
    .unwrap();
    let hosts: Vec<_> = topology.hosts().collect();
    let options = Options::with_switches(SwitchConfig {
        trim: Some(Trim {
            queue_bytes: 3_000,
            priority: 7,
        }),
        ..SwitchConfig::default()
    });
    let mut network = network(&topology, &options, 1);
    let config = QpConfig {
        ack_timeout_ns: 10_000_000,
        ..config(Recovery::Trimming)
    };
    for (number, sender) in [(0, hosts[0]), (1, hosts[1])] {
        let receiver = nic(&mut network, hosts[2]);
        let bytes = vec![0; 200_000];
        receiver.memory.register(number, 0, bytes).unwrap();
        let to = Connection {
            peer: hosts[2],
            ..connection()
        };
        let there = QpConfig {
            peer_qpn: FIRST_QPN + number,
            ..config
        };
        nic(&mut network, sender).connect(to, there).unwrap();
        let to = Connection {
            peer: sender,
            ..connection()
        };
        let back = QpConfig {
            peer_qpn: FIRST_QPN,
            ..config
        };
        nic(&mut network, hosts[2]).connect(to, back).unwrap();
        let request = Request::Write {
            data: data(message(number as usize, 200_000)),
            to: Remote {
                rkey: number,
                addr: 0,
            },
            imm: None,
        };
        nic(&mut network, sender)
            .post(FIRST_QPN, 0, request)
            .unwrap();
    }
    network.run();
    for (number, sender) in [(0, hosts[0]), (1, hosts[1])] {
        let counters = nic(&mut network, sender).qp_counters(FIRST_QPN).unwrap();
        assert!(
            counters.repeated > 0 && counters.timeouts == 0,
            "{counters:?}"
        );
        let done = completions(&mut network, sender, FIRST_QPN);
        assert_eq!(done, [Completion::Acknowledged { id: 0 }]);
        let memory = nic(&mut network, hosts[2]).memory.bytes(number).unwrap();
        assert_eq!(memory, message(number as usize, 200_000));
    }
    assert!(nic(&mut network, hosts[2]).counters().trimmed > 0);
}

#[test]
fn the_same_seed_gives_the_same_course() {
    let run = |seed| {
        let topology = point_to_point(lossy(0.02));
        let ends: Vec<_> = topology.hosts().collect();
        let ends = [ends[0], ends[1]];
        let mut network = network(&topology, &Options::default(), seed);
        let qpn = connect(
            &mut network,
            ends,
            0,
            connection(),
            config(Recovery::GoBackN),
        );
        post_all(&mut network, ends, qpn);
        network.run();
        network.trace_hash()
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}

/// Each lost packet costs itself and all packets that are sent until the NAK arrives: the packets
/// of one round trip. So the share of useful packets is 1 / (1 + p / (1 - p) * (R + 1)).
#[test]
fn the_goodput_of_go_back_n_follows_its_formula() {
    // Packet time at full rate: 1024 + 12 + 4 + 28 + 38 bytes at 100 Gbit/s.
    let packet_ns = 1106.0 * 0.08;
    let round_trip = 20_000.0 / packet_ns + 2.0;
    for loss in [0.0005, 0.002, 0.01] {
        let topology = point_to_point(CableConfig {
            loss: Loss::Iid { loss_packet: loss },
            ..cable(100, 10_000)
        });
        let ends: Vec<_> = topology.hosts().collect();
        let mut network = network(&topology, &Options::default(), 11);
        let config = QpConfig {
            window_packets: 300,
            ack_timeout_ns: 60_000,
            ..QpConfig::new(FIRST_QPN)
        };
        let qpn = connect(&mut network, [ends[0], ends[1]], 0, connection(), config);
        let bytes = 200 << 20;
        let receiver = nic(&mut network, ends[1]);
        receiver
            .memory
            .register_ghost(1, 0, u64::from(bytes))
            .unwrap();
        let to = Remote { rkey: 1, addr: 0 };
        let data = Payload::Ghost(bytes);
        let request = Request::Write {
            data,
            to,
            imm: None,
        };
        nic(&mut network, ends[0]).post(qpn, 0, request).unwrap();
        network.run();
        let done = completions(&mut network, ends[0], qpn);
        assert_eq!(done, [Completion::Acknowledged { id: 0 }]);
        let counters = nic(&mut network, ends[0]).qp_counters(qpn).unwrap();
        let useful = f64::from(bytes / 1024) / counters.sent as f64;
        let expected = 1.0 / (1.0 + loss / (1.0 - loss) * (round_trip + 1.0));
        assert!(
            (useful / expected - 1.0).abs() < 0.05,
            "{loss}: {useful}, {expected}"
        );
    }
}
