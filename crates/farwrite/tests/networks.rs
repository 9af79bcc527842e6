//! Endpoints as hosts of simulated networks: switches, congestion, several paths, failures.

use std::collections::HashMap;
use std::time::Duration;

use farwrite::fabric::contract::Region;
use farwrite::fabric::net::{HostOptions, NetFabric, NetHost, NetPorts, Program, host};
use farwrite::{
    Endpoint, MemoryRegion, Outcome, QpOptions, QueuePair, RateControl, RecvHandle, SchemeName,
    SendHandle, SendOptions,
};
use farwrite_net::{
    CableConfig, Change, FrameDrop, LeafSpine, Loss, MarkAt, Network, NodeId, Options, Pfc, Policy,
    Red, Shape, SwitchConfig, Topology,
};

const GBIT: u64 = 1_000_000_000;

/// The state of a host: an endpoint, its transfers, and when they ended.
struct Worker {
    endpoint: Endpoint<NetFabric>,
    sends: Vec<SendHandle>,
    receives: Vec<(RecvHandle, MemoryRegion, u8)>,
}

impl Program for Worker {
    fn poll(&mut self, now_ns: u64) -> Option<u64> {
        self.endpoint.poll(now_ns).expect("no broken port")
    }
}

impl Worker {
    fn is_done(&self) -> bool {
        let sent = self.sends.iter().all(|send| send.outcome().is_some());
        let received = self.receives.iter();
        sent && received.clone().all(|(recv, ..)| recv.outcome().is_some())
    }

    /// Checks that all messages arrived with the right bytes.
    fn check(&self) {
        for send in &self.sends {
            assert_eq!(send.outcome(), Some(Outcome::Whole));
        }
        for (recv, memory, value) in &self.receives {
            assert_eq!(recv.outcome(), Some(Outcome::Whole));
            let bytes = self.endpoint.memory(*memory).expect("registered");
            assert!(bytes.iter().all(|byte| byte == value), "message {value}");
        }
    }
}

/// Hosts that have not joined their network yet.
struct Hosts(HashMap<NodeId, (Worker, NetPorts)>);

impl Hosts {
    fn new(topology: &Topology) -> Self {
        let make = |node: NodeId| {
            let seed = [u8::try_from(node.0 % 251).expect("below 251"); 32];
            let (fabric, ports) = host(node, HostOptions::default(), seed).expect("an address");
            let worker = Worker {
                endpoint: Endpoint::new(fabric, seed),
                sends: Vec::new(),
                receives: Vec::new(),
            };
            (node, (worker, ports))
        };
        Self(topology.hosts().map(make).collect())
    }

    fn connect(&mut self, ends: [NodeId; 2], options: &QpOptions) -> [QueuePair; 2] {
        let mut create = |node| {
            let endpoint = &mut self.0.get_mut(&node).expect("a host").0.endpoint;
            let qp = endpoint.create_qp(options.clone()).expect("good options");
            (qp, endpoint.qp_info(qp).expect("its own"))
        };
        let [a, b] = ends.map(&mut create);
        for (node, ours, theirs) in [(ends[0], &a, &b), (ends[1], &b, &a)] {
            let endpoint = &mut self.0.get_mut(&node).expect("a host").0.endpoint;
            endpoint
                .connect_qp(ours.0, &theirs.1)
                .expect("equal options");
        }
        [a.0, b.0]
    }

    /// Sends one message of `bytes` bytes `value` from one host to another.
    fn send(&mut self, ends: [NodeId; 2], bytes: usize, value: u8, scheme: &str) {
        let memory = [value, 0].map(|byte| Region::owned(vec![byte; bytes]));
        self.send_from(ends, memory, value, scheme);
    }

    /// Sends one message from a host's memory to that of another.
    fn send_from(&mut self, ends: [NodeId; 2], memory: [Region; 2], value: u8, scheme: &str) {
        let [source, target] = memory;
        let options = QpOptions {
            rate_control: RateControl::Fixed {
                rate_bps: 10 * GBIT,
            },
            ..QpOptions::datacenter()
        };
        let [from, to] = self.connect(ends, &options);
        let receiver = &mut self.0.get_mut(&ends[1]).expect("a host").0;
        let target = receiver.endpoint.register_region(target).expect("room");
        let recv = receiver
            .endpoint
            .post_recv(to, target.whole())
            .expect("a slot");
        receiver.receives.push((recv, target, value));
        let sender = &mut self.0.get_mut(&ends[0]).expect("a host").0;
        let source = sender.endpoint.register_region(source).expect("room");
        let options = SendOptions {
            scheme: scheme.parse::<SchemeName>().expect("a scheme").tag(),
            ..SendOptions::default()
        };
        let send = sender
            .endpoint
            .post_send(from, source.whole(), options)
            .expect("a slot");
        sender.sends.push(send);
    }

    fn join(mut self, topology: &Topology, options: &Options) -> Network<NetHost<Worker>> {
        let device = |node, _: &_| {
            let (worker, ports) = self.0.remove(&node).expect("each host once");
            NetHost::new(ports, worker)
        };
        Network::new(topology, options, 1, device).expect("a valid network")
    }
}

/// Runs until all transfers have ended, and checks them. Returns the time that this took.
fn finish(network: &mut Network<NetHost<Worker>>, hosts: &[NodeId]) -> Duration {
    let is_done = |network: &Network<NetHost<Worker>>| {
        let mut workers = hosts.iter().filter_map(|host| network.device(*host));
        workers.all(|host| host.program().is_done())
    };
    while !is_done(network) {
        let next_ns = network.now_ns() + 10_000;
        assert!(next_ns < 20_000_000_000, "transfers did not end");
        network.run_until(next_ns);
    }
    for host in hosts {
        network.device(*host).expect("a host").program().check();
    }
    Duration::from_nanos(network.now_ns())
}

fn cable() -> CableConfig {
    CableConfig::new(10 * GBIT, Duration::from_micros(2))
}

/// Seven hosts send to one at the same time.
fn incast(switch: SwitchConfig) -> (Network<NetHost<Worker>>, Vec<NodeId>) {
    let topology = Shape::Star {
        hosts: 8,
        cable: cable(),
    }
    .build()
    .expect("a star");
    let hosts: Vec<_> = topology.hosts().collect();
    let mut workers = Hosts::new(&topology);
    for (from, value) in hosts[1..].iter().zip(1..) {
        workers.send([*from, hosts[0]], 1 << 20, value, "sr-nack");
    }
    (
        workers.join(&topology, &Options::with_switches(switch)),
        hosts,
    )
}

#[test]
fn an_incast_ends_whole_however_small_the_buffer_is() {
    for buffer in [64 << 10, 1 << 20, 64 << 20] {
        let switch = SwitchConfig {
            buffer_bytes: buffer,
            ..SwitchConfig::default()
        };
        let (mut network, hosts) = incast(switch);
        finish(&mut network, &hosts);
        let totals = network.totals();
        let dropped = totals.dropped_for(FrameDrop::Buffer);
        assert_eq!(dropped > 0, buffer < 64 << 20, "{buffer}: {totals:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_course() {
    let run = || {
        let (mut network, hosts) = incast(SwitchConfig::default());
        (
            finish(&mut network, &hosts),
            network.trace_hash(),
            network.events(),
        )
    };
    assert_eq!(run(), run());
}

/// Uses a path that loses packets, with each kind of memory at both ends.
#[test]
fn bytes_that_do_not_exist_take_as_long_as_those_that_do() {
    let run = |scheme: &str, memory: fn() -> Region| {
        let mut cable = cable();
        cable.loss = Loss::Iid { loss_packet: 0.02 };
        let topology = Shape::Star { hosts: 2, cable }.build().expect("a star");
        let hosts: Vec<_> = topology.hosts().collect();
        let mut workers = Hosts::new(&topology);
        workers.send_from([hosts[0], hosts[1]], [memory(), memory()], 7, scheme);
        let mut network = workers.join(&topology, &Options::default());
        let took = finish(&mut network, &hosts);
        (took, network.events(), network.totals())
    };
    for scheme in ["sr-nack", "ec-mds:8,2"] {
        let bytes = run(scheme, || Region::owned(vec![7; 1_000_001]));
        let ghosts = run(scheme, || Region::ghost(1_000_001));
        assert!(bytes.2.dropped_for(FrameDrop::Cable) > 0, "{bytes:?}");
        assert_eq!(ghosts, bytes, "{scheme}");
    }
}

#[test]
fn pauses_keep_an_incast_from_dropping_anything() {
    let switch = SwitchConfig {
        buffer_bytes: 1 << 20,
        pfc: Some(Pfc::new(&[0])),
        ..SwitchConfig::default()
    };
    let (mut network, hosts) = incast(switch);
    finish(&mut network, &hosts);
    let totals = network.totals();
    assert_eq!(totals.all_dropped(), 0);
    assert!(totals.pauses_sent > 0, "{totals:?}");
}

#[test]
fn marks_of_a_switch_reach_the_receiver() {
    let switch = SwitchConfig {
        ecn: Some(Red {
            kmin_bytes: 20_000,
            kmax_bytes: 20_000,
            pmax: 1.0,
            at: MarkAt::Departure,
            rate_bps: None,
        }),
        ..SwitchConfig::default()
    };
    let (mut network, hosts) = incast(switch);
    finish(&mut network, &hosts);
    assert!(network.totals().marked > 0);
}

/// Returns two leaves and four spines.
fn clos() -> Topology {
    let shape = Shape::LeafSpine(LeafSpine {
        leaves: 2,
        spines: 4,
        hosts_per_leaf: 4,
        host_cable: cable(),
        spine_cable: cable(),
    });
    shape.build().expect("a Clos network")
}

#[test]
fn every_scheme_copes_with_packets_that_take_several_paths() {
    for policy in [Policy::Ecmp, Policy::Spray, Policy::Drill { d: 2, m: 1 }] {
        let topology = clos();
        let hosts: Vec<_> = topology.hosts().collect();
        let mut workers = Hosts::new(&topology);
        let schemes = ["sr-nack", "sr-rto", "gbn", "ec-mds:8,2"];
        for ((from, scheme), value) in hosts.iter().zip(schemes).zip(1..) {
            let to = hosts[4 + usize::from(value) % 4];
            workers.send([*from, to], 1 << 20, value, scheme);
        }
        let switch = SwitchConfig {
            routing: policy,
            ..SwitchConfig::default()
        };
        let mut network = workers.join(&topology, &Options::with_switches(switch));
        finish(&mut network, &hosts);
    }
}

#[test]
fn a_transfer_survives_the_failure_of_its_path() {
    let topology = clos();
    let hosts: Vec<_> = topology.hosts().collect();
    let mut workers = Hosts::new(&topology);
    workers.send([hosts[0], hosts[7]], 8 << 20, 9, "sr-nack");
    let options = Options::with_switches(SwitchConfig {
        routing: Policy::Spray,
        ..SwitchConfig::default()
    });
    let mut network = workers.join(&topology, &options);
    let [leaf, spine] = ["leaf0", "spine1"].map(|name| topology.find(name).expect("by name"));
    let cable = topology.cable_between(leaf, spine).expect("a cable");
    network
        .plan(1_000_000, cable, Change::Down)
        .expect("a change");
    finish(&mut network, &hosts);
    let lost = network.totals().dropped_for(FrameDrop::CableDown);
    assert!(lost > 0, "the cable carried packets when it failed");
}

/// The messages together would fill gigabytes. The number of hosts is that of a row of racks.
#[test]
fn a_hundred_and_twenty_eight_hosts_exchange_messages() {
    let shape = Shape::LeafSpine(LeafSpine {
        leaves: 16,
        spines: 8,
        hosts_per_leaf: 8,
        host_cable: cable(),
        spine_cable: cable(),
    });
    let topology = shape.build().expect("a Clos network");
    let hosts: Vec<_> = topology.hosts().collect();
    let mut workers = Hosts::new(&topology);
    for (index, value) in (0..128).zip(0..) {
        let to = hosts[(index + 59) % 128];
        workers.send([hosts[index], to], 64 << 10, value, "sr-nack");
    }
    let mut network = workers.join(&topology, &Options::default());
    finish(&mut network, &hosts);
}
