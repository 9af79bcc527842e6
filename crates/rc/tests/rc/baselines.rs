//! The models of SRNIC, Falcon and UCCL: what their assumptions cost, packet by packet and on
//! networks.

use crate::common;
use std::collections::BTreeSet;

use crate::common::network::{
    Node, cable, completions as completed, connect_with, connection, network, nic,
};
use crate::common::{Ends, completions, message, psns, write};
use farwrite_net::{
    CableConfig, CableId, Change, LeafSpine, Loss, Network, NodeId, Options, Payload, Shape,
    Topology,
};
use farwrite_rate::DcqcnOptions;
use farwrite_rc::{
    Completion, PathProfile, Paths, QpConfig, QpCounters, RdmaTransport, Recovery, Remote, Request,
    Software, SoftwareScope,
};

const RATE_GBIT: u64 = 25;
const BASELINES: [RdmaTransport; 3] = [
    RdmaTransport::Srnic,
    RdmaTransport::Falcon,
    RdmaTransport::Uccl,
];

fn path(rtt_ns: u64) -> PathProfile {
    PathProfile {
        rate_bps: RATE_GBIT * 1_000_000_000,
        rtt_ns,
        mtu_bytes: 1024,
        framing_bytes: 38,
    }
}

/// How exactly times of completion are measured.
const STEP_NS: u64 = 100;

/// The outcome of one WRITE between the first and the last host.
struct Written {
    done_ns: u64,
    asked: QpCounters,
    answered: QpCounters,
}

fn write_over(topology: &Topology, transport: RdmaTransport, bytes: u32, seed: u64) -> Written {
    let options = Options::with_switches(transport.switch(&[3], &path(20_000)));
    let mut network = network(topology, &options, seed);
    let (ends, qpn) = post_write(&mut network, topology, transport, bytes);
    let mut done = Vec::new();
    while done.is_empty() && network.next_ns().is_some() {
        network.run_until(network.now_ns() + STEP_NS);
        done = completed(&mut network, ends[0], qpn);
    }
    assert_eq!(done, [Completion::Acknowledged { id: 0 }], "{transport}");
    let counters = ends.map(|end| nic(&mut network, end).qp_counters(qpn).unwrap());
    Written {
        done_ns: network.now_ns(),
        asked: counters[0],
        answered: counters[1],
    }
}

/// Connects the first and the last host, and posts a WRITE to the first.
fn post_write(
    network: &mut Network<Node>,
    topology: &Topology,
    transport: RdmaTransport,
    bytes: u32,
) -> ([NodeId; 2], u32) {
    let path = path(20_000);
    let hosts: Vec<_> = topology.hosts().collect();
    let ends = [hosts[0], hosts[hosts.len() - 1]];
    let qpn = connect_with(network, ends, connection(), |peer_qpn| {
        let dcqcn = DcqcnOptions::paper(path.rate_bps);
        (
            transport.config(peer_qpn, &path),
            transport.control(&path, dcqcn),
        )
    });
    let memory = &mut nic(network, ends[1]).memory;
    memory.register_ghost(1, 0, u64::from(bytes)).unwrap();
    let request = Request::Write {
        data: Payload::Ghost(bytes),
        to: Remote { rkey: 1, addr: 0 },
        imm: None,
    };
    nic(network, ends[0]).post(qpn, 0, request).unwrap();
    (ends, qpn)
}

fn point_to_point(loss_packet: f64) -> Topology {
    let cable = CableConfig {
        loss: match loss_packet > 0.0 {
            true => Loss::Iid { loss_packet },
            false => Loss::None,
        },
        ..cable(RATE_GBIT, 10_000)
    };
    Shape::PointToPoint { cable }.build().unwrap()
}

/// Two leaves with paths over four spines.
fn leaves(loss_packet: f64) -> Topology {
    let lossy = CableConfig {
        loss: Loss::Iid { loss_packet },
        ..cable(RATE_GBIT, 2_000)
    };
    let clos = LeafSpine {
        leaves: 2,
        spines: 4,
        hosts_per_leaf: 1,
        host_cable: cable(RATE_GBIT, 1_000),
        spine_cable: lossy,
    };
    Shape::LeafSpine(clos).build().unwrap()
}

#[test]
fn without_loss_nothing_is_repeated() {
    for transport in BASELINES {
        for topology in [point_to_point(0.0), leaves(0.0)] {
            let done = write_over(&topology, transport, 4_000_000, 1);
            assert_eq!(
                (done.asked.repeated, done.asked.timeouts),
                (0, 0),
                "{transport}"
            );
        }
    }
}

#[test]
fn messages_survive_loss_on_one_path_and_on_several() {
    for (seed, transport) in (0..8).flat_map(|seed| BASELINES.map(|transport| (seed, transport))) {
        for topology in [point_to_point(0.01), leaves(0.01)] {
            let done = write_over(&topology, transport, 1_000_000, seed);
            assert!(done.asked.repeated > 0, "{seed} {transport}");
            assert!(done.answered.out_of_order > 0, "{seed} {transport}");
        }
    }
}

/// Falcon finds a lost repetition by time, and needs no timeout in the middle of a message.
#[test]
fn falcon_repairs_losses_without_timeouts() {
    for seed in 0..8 {
        let done = write_over(&leaves(0.01), RdmaTransport::Falcon, 4_000_000, seed);
        assert_eq!(done.asked.timeouts, 0, "{seed}");
    }
}

/// All packets in flight are lost, and then the window of Swift is at its least: one packet in 40
/// ms. The repetitions give no round trip, so nothing raises it.
#[test]
fn after_an_outage_repetitions_leave_faster_than_the_least_window() {
    for transport in [RdmaTransport::Falcon, RdmaTransport::Uccl] {
        let topology = point_to_point(0.0);
        let mut network = network(&topology, &Options::default(), 1);
        for (at_ns, change) in [(0, Change::Down), (6_000_000, Change::Up)] {
            network.plan(at_ns, CableId(0), change).unwrap();
        }
        let (ends, qpn) = post_write(&mut network, &topology, transport, 300_000);
        network.run_until(150_000_000);
        let done = completed(&mut network, ends[0], qpn);
        let counters = nic(&mut network, ends[0]).qp_counters(qpn).unwrap();
        assert!(counters.timeouts >= 5, "{transport}: {counters:?}");
        assert_eq!(done, [Completion::Acknowledged { id: 0 }], "{transport}");
    }
}

/// A lost packet of a chunk of UCCL costs the whole chunk; Falcon repeats packets alone.
#[test]
fn uccl_repeats_whole_chunks() {
    let bytes = 4_000_000;
    let falcon = write_over(&point_to_point(0.002), RdmaTransport::Falcon, bytes, 3);
    let uccl = write_over(&point_to_point(0.002), RdmaTransport::Uccl, bytes, 3);
    assert!(falcon.asked.repeated < 40, "{}", falcon.asked.repeated);
    assert!(uccl.asked.repeated > 4 * falcon.asked.repeated);
}

/// Software delays each data packet and each acknowledgement: 2 us each.
#[test]
fn uccl_completes_later_by_two_delays() {
    let falcon = write_over(&point_to_point(0.0), RdmaTransport::Falcon, 1024, 1);
    let uccl = write_over(&point_to_point(0.0), RdmaTransport::Uccl, 1024, 1);
    assert_eq!(uccl.done_ns - falcon.done_ns, 4_000);
}

fn small(recovery: Recovery, software: Option<Software>) -> QpConfig {
    QpConfig {
        recovery,
        software,
        ack_timeout_ns: 100_000,
        ..common::config()
    }
}

fn irn() -> Recovery {
    Recovery::Irn {
        rto_low_ns: 50_000,
        rto_low_packets: 3,
        goes_back: false,
    }
}

/// The time from a lost packet to the completion of its WRITE, where packets need no time.
fn repair_ns(software: Option<Software>) -> u64 {
    let mut ends = Ends::new(small(irn(), software));
    ends.a.post(1, write(0, message(1, 1024), None)).unwrap();
    let sent = ends.a_sends();
    assert_eq!(psns(&sent), [0, 1, 2, 3]);
    ends.b_takes(&[&sent[..1], &sent[2..]].concat());
    loop {
        let back = ends.b_sends();
        ends.a_takes(&back);
        let there = ends.a_sends();
        ends.b_takes(&there);
        let done = completions(&mut ends.a);
        if !done.is_empty() {
            assert_eq!(done, [Completion::Acknowledged { id: 1 }]);
            assert_eq!(
                (ends.a.counters().repeated, ends.a.counters().timeouts),
                (1, 0)
            );
            return ends.now_ns;
        }
        if back.is_empty() && there.is_empty() {
            ends.wait_for_either();
        }
    }
}

/// Software sees the gap, handles the NAK, and closes the gap.
#[test]
fn a_repair_of_srnic_is_later_than_one_of_irn_by_three_delays() {
    assert_eq!(repair_ns(None), 0);
    let software = Software {
        scope: SoftwareScope::Repairs,
        delay_ns: 5_000,
        packet_ns: 0,
    };
    assert_eq!(repair_ns(Some(software)), 15_000);
    // Packet 3 waits until packet 2 is handled; so does its NAK. Neither delays the repair.
    let software = Software {
        packet_ns: 200,
        ..software
    };
    assert_eq!(repair_ns(Some(software)), 15_000);
}

/// The presets of SRNIC and IRN differ in software only.
#[test]
fn srnic_is_irn_with_software() {
    let path = path(20_000);
    let (irn, srnic) = (
        RdmaTransport::Irn.config(2, &path),
        RdmaTransport::Srnic.config(2, &path),
    );
    let software = srnic.software.expect("SRNIC has software");
    assert_eq!(software.scope, SoftwareScope::Repairs);
    let without = QpConfig {
        software: None,
        recovery: irn.recovery,
        ack_timeout_ns: irn.ack_timeout_ns,
        ..srnic
    };
    assert_eq!(without, irn);
}

#[test]
fn a_full_slow_path_drops_packets() {
    let software = Software {
        scope: SoftwareScope::All,
        delay_ns: 10,
        packet_ns: 0,
    };
    let config = QpConfig {
        window_packets: 2,
        ..small(irn(), Some(software))
    };
    let mut ends = Ends::new(config);
    ends.a.post(1, write(0, message(1, 256), None)).unwrap();
    let sent = ends.a_sends();
    for _ in 0..9 {
        ends.b_takes(&sent);
    }
    ends.wait_for_either();
    // Four fit: twice the window.
    assert_eq!(ends.b.counters().duplicates, 3);
}

#[test]
fn paths_take_turns_over_source_ports() {
    let topology = leaves(0.0);
    let mut network = network(&topology, &Options::default(), 1);
    let hosts: Vec<_> = topology.hosts().collect();
    let ends = [hosts[0], hosts[1]];
    let paths = Paths {
        ports: 64,
        packets_each: 2,
    };
    let qpn = connect_with(&mut network, ends, connection(), |peer_qpn| {
        let config = QpConfig {
            paths,
            ..small(
                RdmaTransport::Falcon.config(2, &path(20_000)).recovery,
                None,
            )
        };
        (QpConfig { peer_qpn, ..config }, None)
    });
    let memory = &mut nic(&mut network, ends[1]).memory;
    memory.register_ghost(1, 0, 1 << 20).unwrap();
    let request = Request::Write {
        data: Payload::Ghost(100_000),
        to: Remote { rkey: 1, addr: 0 },
        imm: None,
    };
    nic(&mut network, ends[0]).post(qpn, 0, request).unwrap();
    network.run();
    let spines = (0..4).map(|number| topology.find(&format!("spine{number}")).unwrap());
    let used: BTreeSet<_> = spines
        .filter(|spine| {
            let mut ports = network.counters(*spine);
            ports.all(|port| port.transmitted > 5)
        })
        .collect();
    assert_eq!(used.len(), 4, "{used:?}");
}
