//! Two NICs with boxes beside them, and a path in between.
#![allow(dead_code, reason = "each user needs some of it")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use farwrite_boxes::{Backpressure, BoxDevice, Middlebox, ReceiveTimes, ShimDevice};
use farwrite_net::header::Header;
use farwrite_net::{
    CableConfig, Device, Frame, Loss, Network, NodeId, Options, Output, Ports, Role, Topology,
};
use farwrite_rc::{Completion, Connection, FIRST_QPN, Nic, QpConfig};

pub(crate) enum Node<B: Middlebox> {
    Nic(Box<Nic>),
    Box(Box<BoxDevice<B>>),
    /// A NIC with a box inside.
    Shim(Box<ShimDevice<Nic, B>>),
    /// Forwards all frames. It takes the place of a missing box.
    Wire(Vec<Output>),
    Gaps(Gaps),
    Fork(Fork),
}

/// A point of the path that loses chosen packets towards host b.
pub(crate) struct Gaps {
    /// The numbers of the lost packets, counted from 0. Box messages do not count.
    lost: BTreeSet<u64>,
    packets: u64,
    out: Vec<Output>,
}

impl Gaps {
    fn new(lost: BTreeSet<u64>) -> Self {
        Self {
            lost,
            packets: 0,
            out: Vec::new(),
        }
    }

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

/// A fork beside a box: sends frames from port 0 through the box, at port 1, or around it, at port
/// 2.
pub(crate) struct Fork {
    around: bool,
    out: Vec<Output>,
}

impl Fork {
    fn handle(&mut self, port: usize, frame: Frame) {
        let port = match port {
            0 if self.around => 2,
            0 => 1,
            _ => 0,
        };
        self.out.push(Output::Send { port, frame });
    }
}

/// Which frames bypass the box beside a NIC: frames from the NIC, and frames to it.
pub(crate) type Around = [bool; 2];

impl<B: Middlebox> Device for Node<B> {
    fn handle(&mut self, now_ns: u64, port: usize, frame: Frame) {
        match self {
            Self::Nic(nic) => nic.handle(now_ns, port, frame),
            Self::Box(device) => device.handle(now_ns, port, frame),
            Self::Shim(shim) => shim.handle(now_ns, port, frame),
            Self::Wire(out) => out.push(Output::Send {
                port: 1 - port,
                frame,
            }),
            Self::Gaps(gaps) => gaps.handle(port, frame),
            Self::Fork(fork) => fork.handle(port, frame),
        }
    }

    fn poll(&mut self, now_ns: u64, ports: &Ports<'_>) -> Option<Output> {
        match self {
            Self::Nic(nic) => nic.poll(now_ns, ports),
            Self::Box(device) => device.poll(now_ns, ports),
            Self::Shim(shim) => shim.poll(now_ns, ports),
            Self::Wire(out) => out.pop(),
            Self::Gaps(gaps) => gaps.out.pop(),
            Self::Fork(fork) => fork.out.pop(),
        }
    }

    fn next_ns(&self) -> Option<u64> {
        match self {
            Self::Nic(nic) => nic.next_ns(),
            Self::Box(device) => device.next_ns(),
            Self::Shim(shim) => shim.next_ns(),
            Self::Wire(_) | Self::Gaps(_) | Self::Fork(_) => None,
        }
    }
}

const GAPS: &str = "gaps";

/// The path: host a, box, long cable, box, host b.
pub(crate) struct Path<B: Middlebox> {
    pub(crate) network: Network<Node<B>>,
    pub(crate) hosts: [NodeId; 2],
    pub(crate) boxes: [NodeId; 2],
}

/// The settings of a path.
#[derive(Clone)]
pub(crate) struct Setting<C> {
    pub(crate) rate_bps: u64,
    /// How many times as fast the cables between NICs and boxes are.
    pub(crate) near_factor: u64,
    pub(crate) delay: Duration,
    pub(crate) loss: Loss,
    pub(crate) seed: u64,
    /// The boxes beside a and b; `None` where one is missing.
    pub(crate) boxes: [Option<C>; 2],
    pub(crate) backpressure: Backpressure,
    /// Limit of the queues of the boxes' far ports, in bytes.
    pub(crate) buffer: Option<u64>,
}

impl<B: Middlebox> Path<B>
where
    B::Config: Clone,
{
    pub(crate) fn new(setting: &Setting<B::Config>) -> Self {
        Self::build(setting, None, [[false; 2]; 2])
    }

    /// Makes a path that loses the packets with these numbers towards host b, counted from 0. Box
    /// messages do not count.
    pub(crate) fn with_lost(setting: &Setting<B::Config>, lost: BTreeSet<u64>) -> Self {
        Self::build(setting, Some(lost), [[false; 2]; 2])
    }

    /// Makes a path whose boxes are inside the NICs, without a cable between them, and which may lose the
    /// packets with these numbers. There are no forks, and no backpressure and buffer of boxes.
    pub(crate) fn with_shims(
        setting: &Setting<B::Config>,
        times: ReceiveTimes,
        mut lost: Option<BTreeSet<u64>>,
    ) -> Self {
        let mut topology = Topology::new();
        let hosts = ["a", "b"].map(|name| topology.add(Role::Host, name));
        let long = CableConfig {
            loss: setting.loss,
            ..CableConfig::new(setting.rate_bps, setting.delay)
        };
        let mut near_end = hosts[0];
        if lost.is_some() {
            near_end = topology.add(Role::Box, GAPS);
            let short = CableConfig::new(setting.rate_bps, Duration::from_nanos(100));
            topology.connect(hosts[0], near_end, short);
        }
        topology.connect(near_end, hosts[1], long);
        let device = |id, _: &farwrite_net::Node| {
            let at = hosts.iter().position(|host| *host == id);
            match at.map(|at| &setting.boxes[at]) {
                Some(Some(config)) => {
                    Node::Shim(Box::new(ShimDevice::new(Nic::new(id), config, times)))
                }
                Some(None) => Node::Nic(Box::new(Nic::new(id))),
                None => Node::Gaps(Gaps::new(lost.take().unwrap_or_default())),
            }
        };
        let network = Network::new(&topology, &Options::default(), setting.seed, device).unwrap();
        Self {
            network,
            hosts,
            boxes: hosts,
        }
    }

    /// Makes a path on which some frames bypass the boxes beside a and b.
    pub(crate) fn with_detours(setting: &Setting<B::Config>, around: [Around; 2]) -> Self {
        Self::build(setting, None, around)
    }

    fn build(
        setting: &Setting<B::Config>,
        mut lost: Option<BTreeSet<u64>>,
        around: [Around; 2],
    ) -> Self {
        let mut topology = Topology::new();
        let a = topology.add(Role::Host, "a");
        let b = topology.add(Role::Host, "b");
        let near_a = topology.add(Role::Box, "box a");
        let near_b = topology.add(Role::Box, "box b");
        let short = CableConfig::new(setting.rate_bps, Duration::from_nanos(100));
        let near_bps = setting.rate_bps * setting.near_factor;
        let short_near = CableConfig::new(near_bps, Duration::from_nanos(100));
        let mut forks = BTreeMap::new();
        let (mut ends, mut sides) = ([near_a, near_b], Vec::new());
        for (at, host) in [a, b].into_iter().enumerate() {
            if around[at] == [false; 2] {
                topology.connect(host, ends[at], short_near);
                continue;
            }
            let [near, far] = ["near", "far"].map(|side| topology.add(Role::Box, side));
            forks.insert(near, around[at][0]);
            forks.insert(far, around[at][1]);
            topology.connect(host, near, short_near);
            topology.connect(near, ends[at], short_near);
            sides.push((near, ends[at], far));
            ends[at] = far;
        }
        let long = CableConfig {
            loss: setting.loss,
            ..CableConfig::new(setting.rate_bps, setting.delay)
        };
        if lost.is_some() {
            let gaps = topology.add(Role::Box, GAPS);
            topology.connect(ends[0], gaps, short);
            topology.connect(gaps, ends[1], long);
        } else {
            topology.connect(ends[0], ends[1], long);
        }
        for (near, path_box, far) in sides {
            topology.connect(path_box, far, short);
            topology.connect(near, far, short);
        }
        let device = |id, node: &farwrite_net::Node| match node.role {
            Role::Box if node.name == GAPS => {
                Node::Gaps(Gaps::new(lost.take().unwrap_or_default()))
            }
            Role::Box if forks.contains_key(&id) => Node::Fork(Fork {
                around: forks[&id],
                out: Vec::new(),
            }),
            Role::Box => match &setting.boxes[usize::from(id == near_b)] {
                Some(config) => {
                    let mut device = BoxDevice::new(config.clone(), 0, setting.backpressure);
                    if let Some(bytes) = setting.buffer {
                        device = device.with_buffer(bytes);
                    }
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
            Some(Node::Shim(shim)) => &mut shim.nic,
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
