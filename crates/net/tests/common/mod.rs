//! A host that sends by a script and records what it receives, and helpers for tests.
#![allow(dead_code, reason = "each test file uses some of it")]

use std::collections::VecDeque;
use std::time::Duration;

use farwrite_net::{
    CableConfig, Device, Frame, Network, NodeId, Options, Output, Payload, PortCounters, Ports,
    Role, Topology,
};
use farwrite_wire::header::Bth;

pub(crate) const GBIT: u64 = 1_000_000_000;

/// RC RDMA WRITE Middle: its only header is a BTH. With `framing_bytes: 38`, a payload of 1000
/// bytes takes 1082 bytes on the cable.
const WRITE: [u8; 12] = [0x07, 0x40, 0xFF, 0xFF, 0, 0, 0, 1, 0, 0, 0, 0];

/// A host; with `forwards`, a box with two ports.
#[derive(Default)]
pub(crate) struct Host {
    /// Frames to send, in order, each with its earliest time.
    pub(crate) script: VecDeque<(u64, Frame)>,
    /// Received frames and their times.
    pub(crate) got: Vec<(u64, Frame)>,
    /// Whether the node forwards frames through its other port.
    pub(crate) forwards: bool,
    /// Outputs in addition to the script.
    pub(crate) outputs: VecDeque<Output>,
}

impl Device for Host {
    fn handle(&mut self, now_ns: u64, port: usize, frame: Frame) {
        if self.forwards {
            let port = 1 - port;
            self.outputs.push_back(Output::Send { port, frame });
        } else {
            self.got.push((now_ns, frame));
        }
    }

    fn poll(&mut self, now_ns: u64, ports: &Ports<'_>) -> Option<Output> {
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        let (_, frame) = self.script.front().filter(|(at_ns, _)| *at_ns <= now_ns)?;
        if !ports.ready(0, frame.priority) {
            return None;
        }
        let (_, frame) = self.script.pop_front()?;
        Some(Output::Send { port: 0, frame })
    }

    fn next_ns(&self) -> Option<u64> {
        self.script.front().map(|(at_ns, _)| *at_ns)
    }
}

pub(crate) fn cable(gbit: u64, delay_ns: u64) -> CableConfig {
    CableConfig::new(gbit * GBIT, Duration::from_nanos(delay_ns))
}

pub(crate) fn frame(src: NodeId, dst: NodeId, psn: u32, payload: u32) -> Frame {
    let bth = Bth {
        psn,
        ..Bth::parse(&WRITE)
    };
    Frame::new(src, dst, 49_152, bth, Payload::Ghost(payload))
}

pub(crate) fn psn(frame: &Frame) -> u32 {
    match &frame.header {
        farwrite_net::header::Header::Roce(roce) => roce.bth.psn,
        farwrite_net::header::Header::Other(_) => panic!("{frame:?} has no PSN"),
    }
}

pub(crate) fn network(topology: &Topology, options: &Options, seed: u64) -> Network<Host> {
    let device = |_, node: &farwrite_net::Node| Host {
        forwards: node.role == Role::Box,
        ..Host::default()
    };
    Network::new(topology, options, seed, device).unwrap()
}

/// Makes a host send frames one after the other, the first not before `at_ns`.
pub(crate) fn send(
    network: &mut Network<Host>,
    at_ns: u64,
    frames: impl IntoIterator<Item = Frame>,
) {
    for frame in frames {
        let host = network.device_mut(frame.src).unwrap();
        host.script.push_back((at_ns, frame));
    }
}

pub(crate) fn got(network: &Network<Host>, host: NodeId) -> &[(u64, Frame)] {
    &network.device(host).unwrap().got
}

pub(crate) fn hosts(topology: &Topology) -> Vec<NodeId> {
    topology.hosts().collect()
}

/// Returns the sum of the counters of all ports of a node.
pub(crate) fn sum(network: &Network<Host>, node: NodeId) -> PortCounters {
    let mut sum = PortCounters::default();
    for port in network.counters(node) {
        sum += port;
    }
    sum
}

/// Checks that every frame is delivered, in flight, or counted as dropped: at each port, and in
/// total.
pub(crate) fn check_conservation(network: &Network<Host>, topology: &Topology) {
    use farwrite_net::FrameDrop::{Buffer, Cable, CableDown, Headroom, NoRoute};
    let totals = network.totals();
    let in_flight = network.in_flight() as u64;
    assert_eq!(
        network.sent(),
        network.delivered() + totals.all_dropped() + in_flight
    );
    let mut on_cables = 0;
    for cable in 0..topology.cables().len() {
        let cable = farwrite_net::CableId(u32::try_from(cable).unwrap());
        let ends = network.ends(cable);
        for (from, to) in [(ends[0], ends[1]), (ends[1], ends[0])] {
            let sent = network.counters(from.0).nth(from.1).unwrap();
            let came = network.counters(to.0).nth(to.1).unwrap();
            let lost = sent.dropped_for(Cable) + sent.dropped_for(CableDown);
            on_cables += sent.transmitted - lost - came.received;
        }
    }
    let waiting = totals.queued - totals.transmitted;
    assert_eq!(in_flight, on_cables + waiting);
    for node in topology.with_role(Role::Switch) {
        let sum = sum(network, node);
        let dropped = [Buffer, Headroom, NoRoute].map(|reason| sum.dropped_for(reason));
        assert_eq!(sum.received, sum.queued + dropped.iter().sum::<u64>());
    }
}
