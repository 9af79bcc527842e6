//! Two NICs with boxes beside them, and a path in between.
#![allow(dead_code, reason = "each user needs some of it")]

use std::collections::BTreeSet;
use std::time::Duration;

use farwrite_boxes::{Backpressure, BoxDevice, PathBox};
use farwrite_net::header::Header;
use farwrite_net::{
    CableConfig, Device, Frame, Loss, Network, NodeId, Options, Output, Ports, Role, Topology,
};
use farwrite_rc::{Completion, Connection, FIRST_QPN, Nic, QpConfig};

pub(crate) enum Node<B: PathBox> {
    Nic(Box<Nic>),
    Box(Box<BoxDevice<B>>),
    /// In the place of a box that is missing.
    Wire(Vec<Output>),
    Gaps(Gaps),
}

/// A point of the path that loses chosen packets towards host b.
pub(crate) struct Gaps {
    /// The numbers of the lost packets, counted from 0 without box messages.
    lost: BTreeSet<u64>,
    packets: u64,
    out: Vec<Output>,
}

impl Gaps {
    fn handle(&mut self, port: usize, frame: Frame) {
        let is_packet = matches!(frame.header, Header::Roce(_));
        if port == 0 && is_packet {
            self.packets += 1;
            if self.lost.contains(&(self.packets - 1)) {
                return;
            }
        }
        self.out.push(Output::Send {
            port: 1 - port,
            frame,
        });
    }
}

impl<B: PathBox> Device for Node<B> {
    fn handle(&mut self, now_ns: u64, port: usize, frame: Frame) {
        match self {
            Self::Nic(nic) => nic.handle(now_ns, port, frame),
            Self::Box(device) => device.handle(now_ns, port, frame),
            Self::Wire(out) => out.push(Output::Send {
                port: 1 - port,
                frame,
            }),
            Self::Gaps(gaps) => gaps.handle(port, frame),
        }
    }

    fn poll(&mut self, now_ns: u64, ports: &Ports<'_>) -> Option<Output> {
        match self {
            Self::Nic(nic) => nic.poll(now_ns, ports),
            Self::Box(device) => device.poll(now_ns, ports),
            Self::Wire(out) => out.pop(),
            Self::Gaps(gaps) => gaps.out.pop(),
        }
    }

    fn next_ns(&self) -> Option<u64> {
        match self {
            Self::Nic(nic) => nic.next_ns(),
            Self::Box(device) => device.next_ns(),
            Self::Wire(_) | Self::Gaps(_) => None,
        }
    }
}

const GAPS: &str = "gaps";

/// The path: host a, box, long cable, box, host b.
pub(crate) struct Path<B: PathBox> {
    pub(crate) network: Network<Node<B>>,
    pub(crate) hosts: [NodeId; 2],
    pub(crate) boxes: [NodeId; 2],
}

/// What a path is like.
#[derive(Clone)]
pub(crate) struct Setting<C> {
    pub(crate) rate_bps: u64,
    pub(crate) delay: Duration,
    pub(crate) loss: Loss,
    pub(crate) seed: u64,
    /// The boxes beside a and b; `None` where one is missing.
    pub(crate) boxes: [Option<C>; 2],
    pub(crate) backpressure: Backpressure,
}

impl<B: PathBox> Path<B>
where
    B::Config: Clone,
{
    pub(crate) fn new(setting: &Setting<B::Config>) -> Self {
        Self::build(setting, None)
    }

    /// A path that loses the packets with these numbers towards host b, counted from 0 without box
    /// messages.
    pub(crate) fn with_lost(setting: &Setting<B::Config>, lost: BTreeSet<u64>) -> Self {
        Self::build(setting, Some(lost))
    }

    fn build(setting: &Setting<B::Config>, mut lost: Option<BTreeSet<u64>>) -> Self {
        let mut topology = Topology::new();
        let a = topology.add(Role::Host, "a");
        let b = topology.add(Role::Host, "b");
        let near_a = topology.add(Role::Box, "box a");
        let near_b = topology.add(Role::Box, "box b");
        let short = CableConfig::new(setting.rate_bps, Duration::from_nanos(100));
        topology.connect(a, near_a, short);
        topology.connect(b, near_b, short);
        let long = CableConfig {
            loss: setting.loss,
            ..CableConfig::new(setting.rate_bps, setting.delay)
        };
        if lost.is_some() {
            let gaps = topology.add(Role::Box, GAPS);
            topology.connect(near_a, gaps, short);
            topology.connect(gaps, near_b, long);
        } else {
            topology.connect(near_a, near_b, long);
        }
        let device = |id, node: &farwrite_net::Node| match node.role {
            Role::Box if node.name == GAPS => Node::Gaps(Gaps {
                lost: lost.take().unwrap_or_default(),
                packets: 0,
                out: Vec::new(),
            }),
            Role::Box => match &setting.boxes[usize::from(id == near_b)] {
                Some(config) => {
                    let device = BoxDevice::new(config.clone(), 0, setting.backpressure);
                    Node::Box(Box::new(device))
                }
                None => Node::Wire(Vec::new()),
            },
            _ => Node::Nic(Box::new(Nic::new(id))),
        };
        let network = Network::new(&topology, &Options::default(), setting.seed, device).unwrap();
        Self {
            network,
            hosts: [a, b],
            boxes: [near_a, near_b],
        }
    }

    pub(crate) fn nic(&mut self, at: usize) -> &mut Nic {
        match self.network.device_mut(self.hosts[at]) {
            Some(Node::Nic(nic)) => nic,
            _ => panic!("no NIC"),
        }
    }

    pub(crate) fn path_box(&mut self, at: usize) -> &mut BoxDevice<B> {
        match self.network.device_mut(self.boxes[at]) {
            Some(Node::Box(device)) => device,
            _ => panic!("no box"),
        }
    }

    /// Connects a further queue pair of both NICs.
    pub(crate) fn connect(&mut self, number: u32, config: QpConfig) -> u32 {
        let peer_qpn = FIRST_QPN + number;
        let config = QpConfig { peer_qpn, ..config };
        for (at, peer) in [(0, 1), (1, 0)] {
            let connection = Connection {
                peer: self.hosts[peer],
                src_port: 49_152 + u16::try_from(number).unwrap(),
                priority: 3,
                rate_bps: None,
            };
            assert_eq!(self.nic(at).connect(connection, config), Ok(peer_qpn));
        }
        peer_qpn
    }

    pub(crate) fn completions(&mut self, at: usize, qpn: u32) -> Vec<Completion> {
        let nic = self.nic(at);
        std::iter::from_fn(|| nic.poll_completion(qpn)).collect()
    }
}
