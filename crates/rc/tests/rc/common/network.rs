//! Networks of NICs, with boxes that duplicate and check frames.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use farwrite_net::header::Header;
use farwrite_net::{
    CableConfig, Device, Frame, Network, NodeId, Options, Output, Payload, Ports, Role, Topology,
};
use farwrite_rate::RateControl;
use farwrite_rc::{Completion, Connection, FIRST_QPN, Nic, QpConfig};
use farwrite_wire::icrc::{Flow, IdRange, verify};
use farwrite_wire::packet::Packet;

pub(crate) enum Node {
    Nic(Box<Nic>),
    Middle(Middle),
}

/// A box with two ports.
#[derive(Default)]
pub(crate) struct Middle {
    pub(crate) outputs: VecDeque<Output>,
    /// Whether the box sends each frame twice, after a conversion to bytes and back.
    pub(crate) copies: bool,
    /// Opcodes seen.
    pub(crate) opcodes: BTreeSet<u8>,
    /// Frames seen.
    pub(crate) frames: u64,
}

impl Device for Node {
    fn handle(&mut self, now_ns: u64, port: usize, frame: Frame) {
        match self {
            Self::Nic(nic) => nic.handle(now_ns, port, frame),
            Self::Middle(middle) => middle.handle(1 - port, frame),
        }
    }

    fn poll(&mut self, now_ns: u64, ports: &Ports<'_>) -> Option<Output> {
        match self {
            Self::Nic(nic) => nic.poll(now_ns, ports),
            Self::Middle(middle) => middle.outputs.pop_front(),
        }
    }

    fn next_ns(&self) -> Option<u64> {
        match self {
            Self::Nic(nic) => nic.next_ns(),
            Self::Middle(_) => None,
        }
    }
}

impl Middle {
    fn handle(&mut self, port: usize, frame: Frame) {
        self.frames += 1;
        if self.copies {
            self.opcodes.insert(check_bytes(&frame));
            let frame = frame.clone();
            self.outputs.push_back(Output::Send { port, frame });
        }
        self.outputs.push_back(Output::Send { port, frame });
    }
}

/// Checks that the frame becomes a packet that parses and has the right ICRC, and becomes the same
/// frame again. Returns its opcode.
fn check_bytes(frame: &Frame) -> u8 {
    let datagram = frame.to_datagram().unwrap();
    let flow = Flow::new(datagram.src, datagram.dst).unwrap();
    assert_eq!(
        verify(&flow, &datagram.payload, 0, IdRange::SOFTWARE),
        Ok(0)
    );
    let packet = Packet::parse(&datagram.payload).unwrap();
    let mut back = Frame::from_datagram(&datagram).unwrap();
    if let Header::Roce(header) = &mut back.header {
        // Serialization sets the pad count.
        header.bth.pad_bytes = 0;
    }
    if let Payload::Bytes(_) = frame.payload {
        assert_eq!(&back, frame);
    }
    packet.opcode().value
}

pub(crate) fn cable(gbit: u64, delay_ns: u64) -> CableConfig {
    CableConfig::new(gbit * 1_000_000_000, Duration::from_nanos(delay_ns))
}

pub(crate) fn network(topology: &Topology, options: &Options, seed: u64) -> Network<Node> {
    let device = |id, node: &farwrite_net::Node| match node.role {
        Role::Box => Node::Middle(Middle::default()),
        _ => Node::Nic(Box::new(Nic::new(id))),
    };
    Network::new(topology, options, seed, device).unwrap()
}

pub(crate) fn nic(network: &mut Network<Node>, node: NodeId) -> &mut Nic {
    match network.device_mut(node) {
        Some(Node::Nic(nic)) => nic,
        _ => panic!("{node} is no NIC"),
    }
}

pub(crate) fn middle(network: &mut Network<Node>, node: NodeId) -> &mut Middle {
    match network.device_mut(node) {
        Some(Node::Middle(middle)) => middle,
        _ => panic!("{node} is no box"),
    }
}

/// Connects queue pair `number` of both NICs.
pub(crate) fn connect(
    network: &mut Network<Node>,
    [a, b]: [NodeId; 2],
    number: u32,
    connection: Connection,
    config: QpConfig,
) -> u32 {
    let peer_qpn = FIRST_QPN + number;
    let config = QpConfig { peer_qpn, ..config };
    for (node, peer) in [(a, b), (b, a)] {
        let to = Connection { peer, ..connection };
        assert_eq!(nic(network, node).connect(to, config), Ok(peer_qpn));
    }
    peer_qpn
}

/// Connects the first queue pair of both NICs, with settings and controllers from the number of the
/// peer's queue pair.
pub(crate) fn connect_with(
    network: &mut Network<Node>,
    [a, b]: [NodeId; 2],
    connection: Connection,
    settings: impl Fn(u32) -> (QpConfig, Option<Box<dyn RateControl + Send>>),
) -> u32 {
    for (node, peer) in [(a, b), (b, a)] {
        let to = Connection { peer, ..connection };
        let (config, control) = settings(FIRST_QPN);
        let own = match control {
            Some(control) => nic(network, node).connect_under(to, config, control),
            None => nic(network, node).connect(to, config),
        };
        assert_eq!(own, Ok(FIRST_QPN));
    }
    FIRST_QPN
}

/// Connects a new queue pair of both NICs, with a controller at each end.
pub(crate) fn connect_under(
    network: &mut Network<Node>,
    [a, b]: [(NodeId, u32); 2],
    config: QpConfig,
    control: impl Fn() -> Box<dyn RateControl + Send>,
) {
    for ((node, qpn), (peer, peer_qpn)) in [(a, b), (b, a)] {
        let config = QpConfig { peer_qpn, ..config };
        let to = Connection {
            peer,
            ..connection()
        };
        let own = nic(network, node).connect_under(to, config, control());
        assert_eq!(own, Ok(qpn));
    }
}

/// Returns a connection without rate limit at priority 3.
pub(crate) fn connection() -> Connection {
    Connection {
        peer: NodeId(0),
        src_port: 49_152,
        priority: 3,
        rate_bps: None,
    }
}

pub(crate) fn completions(network: &mut Network<Node>, node: NodeId, qpn: u32) -> Vec<Completion> {
    let nic = nic(network, node);
    std::iter::from_fn(|| nic.poll_completion(qpn)).collect()
}
