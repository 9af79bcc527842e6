//! Writes between NICs behind top-of-rack switches, with or without NetRT boxes.
#![allow(dead_code, reason = "each user needs some of it")]

#[path = "devices.rs"]
mod devices;
#[path = "scene.rs"]
mod scene;

use std::collections::BTreeMap;
use std::time::Duration;

use farwrite_boxes::netrt::{Counters, NetRt};
use farwrite_boxes::{Backpressure, BoxDevice};
use farwrite_net::{
    CableConfig, MarkAt, Network, NodeId, Options, Payload, Pfc, Policy, Red, Role, SwitchConfig,
    Topology,
};
use farwrite_rate::DcqcnOptions;
use farwrite_rc::{Connection, FIRST_QPN, RdmaTransport, Remote, Request};

pub(crate) use devices::{Host, Node};
use devices::{Lossy, Tap};
pub(crate) use scene::{Middle, Repair, Scene};

pub(crate) const PRIORITY: u8 = 3;
const RKEY: u32 = 1;
const LOSSY: &str = "lossy";
const TAP: &str = "tap";
/// Memory of a full packet with 1024 bytes of payload.
const FRAME_BYTES: u64 = 1106;
/// Short queues: a queue in the box would make the round trip longer than the pool covers.
pub(crate) const BACKPRESSURE: Backpressure = Backpressure::Pfc {
    stop_bytes: 4_000,
    resume_bytes: 1_500,
};

/// The progress of a sender.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    /// Number of writes started.
    begun: u64,
    /// When the current write started.
    began_ns: Option<u64>,
}

impl Turn {
    fn is_over(&self, scene: &Scene) -> bool {
        self.begun == scene.writes && self.began_ns.is_none()
    }
}

/// The results of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Completion times in nanoseconds, ascending.
    pub(crate) fct_ns: Vec<u64>,
    /// Packets that NICs repeated.
    pub(crate) repeated: u64,
    pub(crate) timeouts: u64,
    /// Packets that the receiver's NIC got out of order.
    pub(crate) out_of_order: u64,
    /// How often a data packet took another spine than the packet before it, if that is counted.
    pub(crate) path_changes: u64,
    pub(crate) dropped: u64,
    /// Bytes that all ports sent.
    pub(crate) sent_bytes: u64,
    /// Peak memory of one box for copies and held frames, in bytes.
    pub(crate) peak_kept_bytes: u64,
    /// Peak number of coding units in use in one LoWAR box.
    pub(crate) peak_units: u64,
    /// Bytes that LoWAR boxes added to coding units.
    pub(crate) xored_bytes: u64,
    /// Sums of the counters of all NetRT boxes, and the maxima of their peaks.
    pub(crate) boxes: Counters,
    /// Bytes in the receiver's reordering buffer, sampled every 10 us.
    pub(crate) held_bytes: Vec<usize>,
}

impl Outcome {
    pub(crate) fn mean_us(&self) -> f64 {
        let sum: u64 = self.fct_ns.iter().sum();
        sum as f64 / self.fct_ns.len() as f64 / 1000.0
    }

    /// Returns the completion time in us that this share of the writes exceeds.
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
    /// The boxes, in the order of the hosts; empty without boxes.
    pub(crate) boxes: Vec<NodeId>,
    pub(crate) topology: Topology,
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
            Middle::Spines(spines, _) => leaves(&mut topology, scene, spines),
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
            topology.connect(tor, path_box, scene.cable_to_box(receives));
            hosts.push(host);
            boxes.push(path_box);
        }
        let device = |id, node: &farwrite_net::Node| {
            if node.name == LOSSY {
                return Node::Lossy(Lossy::new(scene.loss, seed));
            }
            if node.name == TAP {
                return Node::Tap(Tap::default());
            }
            match (repair, boxes.iter().position(|path_box| *path_box == id)) {
                (Repair::NetRt(config), Some(at)) if missing != Some(at) => {
                    let device = BoxDevice::new(config.clone(), 0, BACKPRESSURE);
                    Node::Box(Box::new(device))
                }
                (Repair::Lowar(config), Some(at)) if missing != Some(at) => {
                    let device = BoxDevice::new(config.clone(), 0, Backpressure::default());
                    Node::Lowar(Box::new(device))
                }
                (_, Some(_)) => Node::Wire(Vec::new()),
                (_, None) => Node::Host(Box::new(Host::new(id))),
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
            Repair::Irn => RdmaTransport::Irn,
            _ => RdmaTransport::Roce,
        };
        let path = scene.path();
        let ns3 = DcqcnOptions::ns3(scene.rate_bps);
        let dcqcn = DcqcnOptions {
            cuts_at_interval_ends: scene.has_ns3_nics,
            paces_by_departures: scene.has_ns3_nics,
            ..ns3
        };
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
                if transport == RdmaTransport::Roce {
                    config.ack_timeout_ns = scene.ack_timeout_ns;
                }
                if transport == RdmaTransport::Roce && scene.has_ns3_nics {
                    config.ack_every_packets = 1;
                    config.nak_every_ns = Some(4_000);
                    config.gap_is_cnp = true;
                }
                config.retry_limit = Some(255);
                config.window_packets = scene.window_packets.unwrap_or(config.window_packets);
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
        match self.network.device_mut(*self.boxes.get(at)?) {
            Some(Node::Box(device)) => Some(device),
            _ => None,
        }
    }

    /// Runs the writes of a scene. Calls `every` every 10 us.
    pub(crate) fn run(&mut self, scene: &Scene, mut every: impl FnMut(&mut Self, u64)) -> Outcome {
        let mut outcome = Outcome::default();
        let mut turns = vec![Turn::default(); scene.senders];
        let mut now_ns = 0;
        while turns.iter().any(|turn| !turn.is_over(scene)) {
            assert!(now_ns < 60_000_000_000, "writes are not done: {outcome:?}");
            for (sender, turn) in turns.iter_mut().enumerate() {
                let fct_ns = self.go_on(scene, now_ns, sender, turn);
                outcome.fct_ns.extend(fct_ns);
            }
            if now_ns.is_multiple_of(10_000) {
                every(self, now_ns / 10_000);
                let held = self.path_box(scene.senders);
                let held = held.map(|device| device.inner().held_bytes());
                outcome.held_bytes.extend(held);
            }
            now_ns += 1000;
            self.network.run_until(now_ns);
        }
        outcome.fct_ns.sort_unstable();
        self.count(&mut outcome);
        outcome
    }

    /// If the write of a sender is complete, returns its duration and starts the next one.
    fn go_on(&mut self, scene: &Scene, now_ns: u64, at: usize, turn: &mut Turn) -> Option<u64> {
        let mut fct_ns = None;
        if let Some(began_ns) = turn.began_ns {
            let last = turn.begun - 1;
            fct_ns = Some(self.host_ref(at).done_ns.get(&last)? - began_ns);
            turn.began_ns = None;
        }
        if turn.begun < scene.writes && now_ns >= at as u64 * scene.gap_ns {
            let request = Request::Write {
                data: Payload::Ghost(scene.bytes),
                to: Remote {
                    rkey: RKEY,
                    addr: 0,
                },
                imm: None,
            };
            let nic = &mut self.host(at).nic;
            nic.post(FIRST_QPN, turn.begun, request).unwrap();
            turn.began_ns = Some(now_ns);
            turn.begun += 1;
        }
        fct_ns
    }

    pub(crate) fn host_ref(&self, at: usize) -> &Host {
        match self.network.device(self.hosts[at]) {
            Some(Node::Host(host)) => host,
            _ => panic!("no host"),
        }
    }

    /// Adds the counters of NICs, boxes and cables.
    pub(crate) fn count(&mut self, outcome: &mut Outcome) {
        for at in 0..self.hosts.len() {
            let pairs = (FIRST_QPN..).map_while(|qpn| self.host_ref(at).nic.qp_counters(qpn));
            for counters in pairs {
                outcome.repeated += counters.repeated;
                outcome.timeouts += counters.timeouts;
                outcome.out_of_order += counters.out_of_order;
            }
        }
        // The first spine of each packet of each queue pair.
        let mut spines = BTreeMap::new();
        for node in self.topology.with_role(Role::Box) {
            if let Some(Node::Tap(tap)) = self.network.device(node) {
                for packet in &tap.passed {
                    spines.entry(*packet).or_insert(node);
                }
            }
            match self.network.device(node) {
                Some(Node::Box(device)) => {
                    let counters = device.counters();
                    add(&mut outcome.boxes, &counters);
                    let kept_bytes = counters.peak_pool_bytes + counters.peak_held_bytes;
                    outcome.peak_kept_bytes = outcome.peak_kept_bytes.max(kept_bytes);
                }
                Some(Node::Lowar(device)) => {
                    let counters = device.counters();
                    let kept_bytes = counters.peak_held * FRAME_BYTES;
                    outcome.peak_kept_bytes = outcome.peak_kept_bytes.max(kept_bytes);
                    outcome.peak_units = outcome.peak_units.max(counters.peak_units);
                    outcome.xored_bytes += counters.xored_bytes;
                }
                Some(Node::Lossy(lossy)) => outcome.dropped += lossy.lost,
                _ => {}
            }
        }
        let packets: Vec<_> = spines.into_iter().collect();
        let pairs = packets.windows(2);
        let changes = pairs.filter(|pair| pair[0].0.0 == pair[1].0.0 && pair[0].1 != pair[1].1);
        outcome.path_changes += changes.count() as u64;
        let totals = self.network.totals();
        outcome.sent_bytes = totals.transmitted_bytes;
        outcome.dropped += totals.all_dropped();
    }
}

/// Two leaf switches and their spines. Returns the leaves.
fn leaves(topology: &mut Topology, scene: &Scene, spines: usize) -> [NodeId; 2] {
    let rate_bps = scene.spine_rate_bps.unwrap_or(scene.rate_bps);
    let cable = CableConfig::new(rate_bps, scene.delay);
    let [left, right] = ["left", "right"].map(|name| topology.add(Role::Switch, name));
    for number in 0..spines {
        let spine = topology.add(Role::Switch, format!("spine{number}"));
        if scene.counts_paths {
            // Behind the cable, and with no delay of its own.
            let tap = topology.add(Role::Box, TAP);
            topology.connect(left, tap, cable);
            let short = CableConfig::new(100_000_000_000_000, Duration::ZERO);
            topology.connect(tap, spine, short);
        } else {
            topology.connect(left, spine, cable);
        }
        topology.connect(right, spine, cable);
    }
    [left, right]
}

pub(crate) fn switch(scene: &Scene, repair: &Repair) -> SwitchConfig {
    let red = Red {
        kmin_bytes: 100_000,
        kmax_bytes: 400_000,
        pmax: 0.2,
        at: MarkAt::Departure,
        rate_bps: None,
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
    sum.connections_full += counters.connections_full;
}
