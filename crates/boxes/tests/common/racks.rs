//! Writes between NICs behind top-of-rack switches, each with a NetRT box or without.
#![allow(dead_code, reason = "each user needs some of it")]

use std::collections::BTreeMap;
use std::time::Duration;

use farwrite_boxes::netrt::{Config, Counters, NetRt};
use farwrite_boxes::{Backpressure, BoxDevice};
use farwrite_net::{
    CableConfig, Device, Frame, MarkAt, Network, NodeId, Options, Output, Payload, Pfc, Policy,
    Ports, Red, Role, SwitchConfig, Topology,
};
use farwrite_rate::DcqcnOptions;
use farwrite_rc::{Completion, Connection, FIRST_QPN, Nic, Path, Remote, Request, Transport};

pub(crate) const PRIORITY: u8 = 3;
const RKEY: u32 = 1;
const LOSSY: &str = "lossy";
/// A queue in the box makes a round trip longer than the pool covers.
const BACKPRESSURE: Backpressure = Backpressure::Pfc {
    stop_bytes: 4_000,
    resume_bytes: 1_500,
};

pub(crate) enum Node {
    Host(Box<Host>),
    Box(Box<BoxDevice<NetRt>>),
    /// In the place of a box.
    Wire(Vec<Output>),
    /// Loses frames that go to its port 1.
    Lossy(Lossy),
}

/// A NIC that notes when its requests are done.
pub(crate) struct Host {
    pub(crate) nic: Nic,
    done_ns: BTreeMap<u64, u64>,
}

/// A wire that loses a share of the frames of one direction.
pub(crate) struct Lossy {
    share: f64,
    state: u64,
    out: Vec<Output>,
    lost: u64,
}

impl Lossy {
    fn handle(&mut self, port: usize, frame: Frame) {
        // Marsaglia's xorshift64.
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let draw = (self.state >> 11) as f64 / (1u64 << 53) as f64;
        if port == 0 && draw < self.share {
            self.lost += 1;
            return;
        }
        self.out.push(Output::Send {
            port: 1 - port,
            frame,
        });
    }
}

impl Device for Node {
    fn handle(&mut self, now_ns: u64, port: usize, frame: Frame) {
        match self {
            Self::Host(host) => {
                host.nic.handle(now_ns, port, frame);
                while let Some(done) = host.nic.poll_completion(FIRST_QPN) {
                    let Completion::Acknowledged { id } = done else {
                        panic!("{done:?}");
                    };
                    host.done_ns.insert(id, now_ns);
                }
            }
            Self::Box(device) => device.handle(now_ns, port, frame),
            Self::Lossy(lossy) => lossy.handle(port, frame),
            Self::Wire(out) => out.push(Output::Send {
                port: 1 - port,
                frame,
            }),
        }
    }

    fn poll(&mut self, now_ns: u64, ports: &Ports<'_>) -> Option<Output> {
        match self {
            Self::Host(host) => host.nic.poll(now_ns, ports),
            Self::Box(device) => device.poll(now_ns, ports),
            Self::Lossy(lossy) => lossy.out.pop(),
            Self::Wire(out) => out.pop(),
        }
    }

    fn next_ns(&self) -> Option<u64> {
        match self {
            Self::Host(host) => host.nic.next_ns(),
            Self::Box(device) => device.next_ns(),
            Self::Wire(_) | Self::Lossy(_) => None,
        }
    }
}

/// How losses are repaired.
#[derive(Clone, Debug)]
pub(crate) enum Repair {
    /// Go-Back-N.
    Gbn,
    /// Go-Back-N over switches that lose nothing.
    GbnPfc,
    /// IRN.
    Irn,
    /// Go-Back-N behind NetRT boxes.
    NetRt(Config),
}

/// What the hosts are joined to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Middle {
    /// One core switch.
    Core,
    /// Two leaves, senders at one and the receiver at the other, with a cable to each of these
    /// spines.
    Spines(usize, Policy),
}

/// Senders that write to one receiver.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    pub(crate) senders: usize,
    pub(crate) bytes: u32,
    /// Writes of each sender, one after the other.
    pub(crate) writes: u64,
    /// How long after one another senders begin.
    pub(crate) gap_ns: u64,
    pub(crate) rate_bps: u64,
    /// Of each cable.
    pub(crate) delay: Duration,
    pub(crate) middle: Middle,
    /// The share of frames that are lost on the way to the receiver.
    pub(crate) loss: f64,
    pub(crate) buffer_bytes: u64,
    /// DCQCN.
    pub(crate) control: bool,
    pub(crate) ack_timeout_ns: u64,
}

impl Scene {
    /// The incast of the paper's figure 8: 500 KB from each sender, 10 us apart, 50 Gbit/s, a round
    /// trip of about 5 us.
    pub(crate) fn incast(senders: usize) -> Self {
        Self {
            senders,
            bytes: 500_000,
            writes: 1,
            gap_ns: 10_000,
            rate_bps: 50_000_000_000,
            delay: Duration::from_nanos(500),
            middle: Middle::Core,
            loss: 0.0,
            buffer_bytes: 9 << 20,
            control: true,
            ack_timeout_ns: 4_000_000,
        }
    }

    /// Figure 9: 15 senders of 1 MB behind one switch, over several spines to one receiver.
    pub(crate) fn spines(spines: usize, policy: Policy) -> Self {
        Self {
            bytes: 1_000_000,
            gap_ns: 0,
            middle: Middle::Spines(spines, policy),
            ..Self::incast(15)
        }
    }

    /// The chain of the paper's testbed: host, box, core, box, host at 10 Gbit/s, with random
    /// losses behind the core, and a bandwidth-delay product of 128 KB.
    pub(crate) fn chain(bytes: u32, loss: f64, writes: u64) -> Self {
        Self {
            bytes,
            writes,
            rate_bps: 10_000_000_000,
            delay: Duration::from_micros(12),
            loss,
            control: false,
            ..Self::incast(1)
        }
    }

    /// The path between two NICs, without queues.
    pub(crate) fn path(&self) -> Path {
        let cables = match self.middle {
            Middle::Core => 4,
            Middle::Spines(..) => 6,
        };
        // A frame of 1106 bytes there, and an acknowledgement of 86 bytes back.
        let frames_ns = (1106 + 86) * 8_000_000_000 / self.rate_bps;
        let delay_ns = u64::try_from(self.delay.as_nanos()).unwrap();
        Path {
            rate_bps: self.rate_bps,
            rtt_ns: cables * (2 * delay_ns + frames_ns),
            mtu_bytes: 1024,
            framing_bytes: 38,
        }
    }

    /// A box for this path, with a pool of so many bandwidth-delay products.
    pub(crate) fn netrt(&self, products: u64) -> Config {
        let config = Config::new(self.rate_bps, self.path().rtt_ns);
        let pool_bytes = products * self.path().round_trip_bytes();
        Config {
            key: Some([4; 32]),
            pool_bytes: usize::try_from(pool_bytes).unwrap(),
            ..config
        }
    }
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Completion times in nanoseconds, ascending.
    pub(crate) fct_ns: Vec<u64>,
    /// Packets that NICs repeated, and their timeouts.
    pub(crate) repeated: u64,
    pub(crate) timeouts: u64,
    /// Packets that the receiver's NIC got after a gap.
    pub(crate) out_of_order: u64,
    pub(crate) dropped: u64,
    pub(crate) sent_frames: u64,
    /// Sums over all boxes, and maxima of the peaks.
    pub(crate) boxes: Counters,
    /// Pool of the first sender and reordering buffer of the receiver, when looked at each 10 us.
    pub(crate) pool_bytes: Vec<usize>,
    pub(crate) held_bytes: Vec<usize>,
}

impl Outcome {
    pub(crate) fn mean_us(&self) -> f64 {
        let sum: u64 = self.fct_ns.iter().sum();
        sum as f64 / self.fct_ns.len() as f64 / 1000.0
    }

    /// The completion time that a share of the writes exceeds.
    pub(crate) fn tail_us(&self, share: f64) -> f64 {
        let rank = (self.fct_ns.len() as f64 * (1.0 - share)).ceil();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let at = (rank as usize).max(1) - 1;
        self.fct_ns[at] as f64 / 1000.0
    }
}

/// A network of hosts and boxes.
pub(crate) struct Racks {
    pub(crate) network: Network<Node>,
    /// The senders, then the receiver.
    pub(crate) hosts: Vec<NodeId>,
    pub(crate) boxes: Vec<NodeId>,
    topology: Topology,
}

impl Racks {
    /// `missing`: the place of a host whose box is missing.
    pub(crate) fn new(scene: &Scene, repair: &Repair, missing: Option<usize>, seed: u64) -> Self {
        let mut topology = Topology::new();
        let cable = CableConfig::new(scene.rate_bps, scene.delay);
        let tors = match scene.middle {
            Middle::Core => {
                let core = topology.add(Role::Switch, "core");
                [core, core]
            }
            Middle::Spines(spines, _) => {
                let leaves = ["left", "right"].map(|name| topology.add(Role::Switch, name));
                for number in 0..spines {
                    let spine = topology.add(Role::Switch, format!("spine{number}"));
                    topology.connect(leaves[0], spine, cable);
                    topology.connect(leaves[1], spine, cable);
                }
                leaves
            }
        };
        let (mut hosts, mut boxes) = (Vec::new(), Vec::new());
        for number in 0..=scene.senders {
            let receives = number == scene.senders;
            let host = topology.add(Role::Host, format!("host{number}"));
            let path_box = topology.add(Role::Box, format!("box{number}"));
            topology.connect(host, path_box, cable);
            let mut tor = tors[usize::from(receives)];
            if receives && scene.loss > 0.0 {
                let lossy = topology.add(Role::Box, LOSSY);
                let short = CableConfig::new(scene.rate_bps, Duration::ZERO);
                topology.connect(tor, lossy, short);
                tor = lossy;
            }
            topology.connect(tor, path_box, cable);
            hosts.push(host);
            boxes.push(path_box);
        }
        let device = |id, node: &farwrite_net::Node| {
            if node.name == LOSSY {
                return Node::Lossy(Lossy {
                    share: scene.loss,
                    state: seed * 2 + 0x9E37_79B9_7F4A_7C15,
                    out: Vec::new(),
                    lost: 0,
                });
            }
            match (repair, boxes.iter().position(|path_box| *path_box == id)) {
                (Repair::NetRt(config), Some(at)) if missing != Some(at) => {
                    let device = BoxDevice::new(config.clone(), 0, BACKPRESSURE);
                    Node::Box(Box::new(device))
                }
                (_, Some(_)) => Node::Wire(Vec::new()),
                (_, None) => Node::Host(Box::new(Host {
                    nic: Nic::new(id),
                    done_ns: BTreeMap::new(),
                })),
            }
        };
        let options = Options::with_switches(switch(scene, repair));
        let network = Network::new(&topology, &options, seed, device).unwrap();
        let mut racks = Self {
            network,
            hosts,
            boxes,
            topology,
        };
        racks.connect(scene, repair);
        racks
    }

    fn connect(&mut self, scene: &Scene, repair: &Repair) {
        let transport = match repair {
            Repair::Irn => Transport::Irn,
            _ => Transport::Roce,
        };
        let path = scene.path();
        let dcqcn = DcqcnOptions::ns3(scene.rate_bps);
        for at in 0..self.hosts.len() {
            transport.prepare(&mut self.host(at).nic, &path, dcqcn);
        }
        let receiver = scene.senders;
        let memory = &mut self.host(receiver).nic.memory;
        let registered = memory.register_ghost(RKEY, 0, u64::from(scene.bytes));
        registered.unwrap();
        for (sender, number) in (0..scene.senders).zip(0u16..) {
            let qpn = FIRST_QPN + u32::from(number);
            for (at, peer, peer_qpn) in [(sender, receiver, qpn), (receiver, sender, FIRST_QPN)] {
                let to = Connection {
                    peer: self.hosts[peer],
                    src_port: 49_152 + number,
                    priority: PRIORITY,
                    rate_bps: None,
                };
                let mut config = transport.config(peer_qpn, &path);
                if transport == Transport::Roce {
                    config.ack_timeout_ns = scene.ack_timeout_ns;
                }
                config.retry_limit = 255;
                let nic = &mut self.host(at).nic;
                let own = nic.connect(to, config).unwrap();
                if let Some(control) = transport.control(&path, dcqcn).filter(|_| scene.control) {
                    nic.set_control(own, control).unwrap();
                }
            }
        }
    }

    pub(crate) fn host(&mut self, at: usize) -> &mut Host {
        match self.network.device_mut(self.hosts[at]) {
            Some(Node::Host(host)) => host,
            _ => panic!("no host"),
        }
    }

    pub(crate) fn path_box(&mut self, at: usize) -> Option<&mut BoxDevice<NetRt>> {
        match self.network.device_mut(self.boxes[at]) {
            Some(Node::Box(device)) => Some(device),
            _ => None,
        }
    }

    /// Runs the writes of a scene. `every` is called each 10 us.
    pub(crate) fn run(&mut self, scene: &Scene, mut every: impl FnMut(&mut Self, u64)) -> Outcome {
        let mut outcome = Outcome::default();
        // When the write of each sender began, and its number.
        let mut begun: Vec<Option<(u64, u64)>> = vec![None; scene.senders];
        let mut open = scene.senders;
        let mut now_ns = 0;
        let (mut step, mut next_look_ns) = (0, 0);
        while open > 0 {
            assert!(now_ns < 60_000_000_000, "writes are not done: {outcome:?}");
            for (sender, begun) in begun.iter_mut().enumerate() {
                let number = match *begun {
                    None if now_ns >= sender as u64 * scene.gap_ns => 0,
                    Some((at_ns, number)) => {
                        let Some(&done_ns) = self.host_ref(sender).done_ns.get(&number) else {
                            continue;
                        };
                        if number + 1 > scene.writes {
                            continue;
                        }
                        outcome.fct_ns.push(done_ns - at_ns);
                        if number + 1 == scene.writes {
                            open -= 1;
                            *begun = Some((at_ns, scene.writes));
                            continue;
                        }
                        number + 1
                    }
                    None => continue,
                };
                *begun = Some((now_ns, number));
                let request = Request::Write {
                    data: Payload::Ghost(scene.bytes),
                    to: Remote {
                        rkey: RKEY,
                        addr: 0,
                    },
                    imm: None,
                };
                let nic = &mut self.host(sender).nic;
                nic.post(FIRST_QPN, number, request).unwrap();
            }
            if now_ns >= next_look_ns {
                next_look_ns += 10_000;
                every(self, step);
                step += 1;
                let pool = self.path_box(0).map(|device| device.inner().pool_bytes());
                outcome.pool_bytes.extend(pool);
                let last = scene.senders;
                let held = self
                    .path_box(last)
                    .map(|device| device.inner().held_bytes());
                outcome.held_bytes.extend(held);
            }
            now_ns += 1000;
            self.network.run_until(now_ns);
        }
        outcome.fct_ns.sort_unstable();
        self.count(&mut outcome);
        outcome
    }

    fn host_ref(&self, at: usize) -> &Host {
        match self.network.device(self.hosts[at]) {
            Some(Node::Host(host)) => host,
            _ => panic!("no host"),
        }
    }

    fn count(&mut self, outcome: &mut Outcome) {
        for at in 0..self.hosts.len() {
            let pairs = (FIRST_QPN..).map_while(|qpn| self.host_ref(at).nic.qp_counters(qpn));
            for counters in pairs {
                outcome.repeated += counters.repeated;
                outcome.timeouts += counters.timeouts;
                outcome.out_of_order += counters.out_of_order;
            }
            if let Some(device) = self.path_box(at) {
                add(&mut outcome.boxes, &device.counters());
            }
        }
        for node in self.topology.with_role(Role::Box) {
            if let Some(Node::Lossy(lossy)) = self.network.device(node) {
                outcome.dropped += lossy.lost;
            }
        }
        for switch in self.topology.with_role(Role::Switch) {
            for counters in self.network.counters(switch) {
                outcome.dropped += counters.all_dropped();
            }
        }
        outcome.sent_frames = self.network.sent();
    }
}

fn switch(scene: &Scene, repair: &Repair) -> SwitchConfig {
    let red = Red {
        kmin_bytes: 100_000,
        kmax_bytes: 400_000,
        pmax: 0.2,
        at: MarkAt::Departure,
    };
    SwitchConfig {
        buffer_bytes: scene.buffer_bytes,
        ecn: scene.control.then_some(red),
        pfc: matches!(repair, Repair::GbnPfc).then(|| Pfc::new(&[PRIORITY])),
        routing: match scene.middle {
            Middle::Core => Policy::Ecmp,
            Middle::Spines(_, policy) => policy,
        },
        ..SwitchConfig::default()
    }
}

fn add(sum: &mut Counters, counters: &Counters) {
    sum.copied += counters.copied;
    sum.peak_pool_bytes = sum.peak_pool_bytes.max(counters.peak_pool_bytes);
    sum.starts_sent += counters.starts_sent;
    sum.marks_sent += counters.marks_sent;
    sum.requests_received += counters.requests_received;
    sum.repeated += counters.repeated;
    sum.notices_sent += counters.notices_sent;
    sum.pauses += counters.pauses;
    sum.requests_sent += counters.requests_sent;
    sum.notices_received += counters.notices_received;
    sum.recovered += counters.recovered;
    sum.copies_dropped += counters.copies_dropped;
    sum.held += counters.held;
    sum.peak_held = sum.peak_held.max(counters.peak_held);
    sum.peak_held_bytes = sum.peak_held_bytes.max(counters.peak_held_bytes);
    sum.given_up += counters.given_up;
    sum.hold_ended += counters.hold_ended;
    sum.held_full += counters.held_full;
    sum.damaged += counters.damaged;
    sum.flows_full += counters.flows_full;
}
