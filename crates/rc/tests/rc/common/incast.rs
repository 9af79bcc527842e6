//! N senders write to one receiver, with the settings of two public simulators.

use std::time::Duration;

use farwrite_net::{
    CableConfig, Device, Frame, LeafSpine, Network, NodeId, Options, Output, Payload, Pfc, Policy,
    Ports, Red, Role, Shape, SwitchConfig, Topology,
};
use farwrite_rate::DcqcnOptions;
use farwrite_rc::{
    Completion, Connection, FIRST_QPN, Nic, PathProfile, QpConfig, RdmaTransport, Remote, Request,
};

/// A NIC that records when its requests complete.
pub(crate) struct Host {
    pub(crate) nic: Nic,
    pub(crate) done_ns: Option<u64>,
}

impl Device for Host {
    fn handle(&mut self, now_ns: u64, port: usize, frame: Frame) {
        self.nic.handle(now_ns, port, frame);
        if let Some(done) = self.nic.poll_completion(FIRST_QPN) {
            assert!(matches!(done, Completion::Acknowledged { .. }), "{done:?}");
            self.done_ns = Some(now_ns);
        }
    }

    fn poll(&mut self, now_ns: u64, ports: &Ports<'_>) -> Option<Output> {
        self.nic.poll(now_ns, ports)
    }

    fn next_ns(&self) -> Option<u64> {
        self.nic.next_ns()
    }
}

/// A transport of the comparison.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Setup {
    /// Go-Back-N, PFC, no congestion control.
    RoceAlone,
    /// Go-Back-N, PFC, DCQCN.
    Roce,
    /// Go-Back-N and DCQCN without PFC.
    RoceLossy,
    /// IRN, DCQCN.
    Irn,
    /// EQDS.
    Eqds,
}

pub(crate) const RATE_BPS: u64 = 50_000_000_000;
const PRIORITY: u8 = 3;

/// Senders, receiver and sizes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene {
    senders: usize,
    bytes: u32,
    /// Interval between the starts of two senders.
    gap_ns: u64,
    /// `None`: a star. Otherwise two leaves of 15 hosts with 8 spines; the receiver is at the other
    /// leaf.
    routing: Option<Policy>,
    /// Whether NICs have the rules of ns-3: a NAK every 4 us while packets after a gap arrive,
    /// congestion notifications in ACKs and NAKs only, and DCQCN that changes the rate as late as there.
    ns3_rules: bool,
    /// Each start is later by a random time of at most this.
    jitter_ns: u64,
}

impl Scene {
    /// Each sender writes 500 KB to one of the 64 hosts of a switch. Starts are 10 us apart.
    pub(crate) fn star(senders: usize) -> Self {
        Self {
            senders,
            bytes: 500_000,
            gap_ns: 10_000,
            routing: None,
            ns3_rules: false,
            jitter_ns: 0,
        }
    }

    /// Each host of a leaf writes 1 MB to one host of another leaf. All start together.
    pub(crate) fn leaves(routing: Policy) -> Self {
        Self {
            senders: 15,
            bytes: 1_000_000,
            gap_ns: 0,
            routing: Some(routing),
            ns3_rules: false,
            jitter_ns: 0,
        }
    }

    /// The same scene with the rules of ns-3.
    pub(crate) fn by_ns3_rules(self) -> Self {
        Self {
            ns3_rules: true,
            ..self
        }
    }

    /// The same scene with starts that are up to the time of a packet later.
    pub(crate) fn jittered(self) -> Self {
        Self {
            jitter_ns: 171,
            ..self
        }
    }

    fn start_ns(&self, seed: u64, number: u64) -> u64 {
        // The finalizer of SplitMix (Steele, Lea and Flood, OOPSLA 2014).
        let mut mixed = (seed << 8 | number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        number * self.gap_ns + (mixed ^ mixed >> 31) % (self.jitter_ns + 1)
    }

    fn dcqcn(&self) -> DcqcnOptions {
        DcqcnOptions {
            cuts_at_interval_ends: self.ns3_rules,
            paces_by_departures: self.ns3_rules,
            ..DcqcnOptions::ns3(RATE_BPS)
        }
    }

    fn topology(&self) -> Topology {
        let cable = CableConfig::new(RATE_BPS, Duration::from_micros(1));
        let shape = match self.routing {
            None => Shape::Star { hosts: 64, cable },
            Some(_) => Shape::LeafSpine(LeafSpine {
                leaves: 2,
                spines: 8,
                hosts_per_leaf: 15,
                host_cable: cable,
                spine_cable: cable,
            }),
        };
        shape.build().unwrap()
    }

    pub(crate) fn path(&self, setup: Setup) -> PathProfile {
        PathProfile {
            rate_bps: RATE_BPS,
            rtt_ns: if self.routing.is_none() { 4_352 } else { 8_700 },
            mtu_bytes: if matches!(setup, Setup::Eqds) {
                4096
            } else {
                1024
            },
            framing_bytes: 0,
        }
    }
}

/// The outcome of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Completion times in nanoseconds, ascending.
    pub(crate) fct_ns: Vec<u64>,
    /// Time from the first start to the last completion.
    pub(crate) last_ns: u64,
    pub(crate) repeated: u64,
    pub(crate) trimmed: u64,
    pub(crate) dropped: u64,
    pub(crate) pauses: u64,
    pub(crate) peak_queue_bytes: u64,
}

impl Outcome {
    pub(crate) fn mean_us(&self) -> f64 {
        let sum: u64 = self.fct_ns.iter().sum();
        sum as f64 / self.fct_ns.len() as f64 / 1000.0
    }

    /// Returns the largest of up to 99 values. For more values, returns the value that 1% exceed.
    pub(crate) fn p99_us(&self) -> f64 {
        let at = (self.fct_ns.len() * 99).div_ceil(100) - 1;
        self.fct_ns[at] as f64 / 1000.0
    }
}

impl Setup {
    fn transport(self) -> RdmaTransport {
        match self {
            Self::RoceAlone => RdmaTransport::RoceNocc,
            Self::Roce => RdmaTransport::Roce,
            Self::RoceLossy => RdmaTransport::RoceLossy,
            Self::Irn => RdmaTransport::Irn,
            Self::Eqds => RdmaTransport::Eqds,
        }
    }

    fn switch(self, scene: &Scene) -> SwitchConfig {
        let red = Red {
            kmin_bytes: 100_000,
            kmax_bytes: 400_000,
            pmax: 0.2,
            at: farwrite_net::MarkAt::Departure,
            rate_bps: None,
        };
        let ecn = (!matches!(self, Self::RoceAlone | Self::Eqds)).then_some(red);
        let lossless = matches!(self, Self::RoceAlone | Self::Roce);
        let pfc = lossless.then(|| Pfc::new(&[PRIORITY]));
        let base = self.transport().switch(&[PRIORITY], &scene.path(self));
        // ns-3 reserves 1048 bytes for each of 8 queues of 64 ports. This matters only where frames
        // are dropped.
        let aside = if matches!(self, Self::RoceLossy) {
            8 * 64 * 1048
        } else {
            0
        };
        SwitchConfig {
            buffer_bytes: base.buffer_bytes - aside,
            ecn,
            pfc,
            routing: scene.routing.unwrap_or(base.routing),
            ..base
        }
    }

    pub(crate) fn run(self, scene: &Scene, seed: u64) -> Outcome {
        let topology = scene.topology();
        let options = Options {
            framing_bytes: 0,
            ..Options::with_switches(self.switch(scene))
        };
        let device = |node, _: &_| Host {
            nic: Nic::new(node),
            done_ns: None,
        };
        let mut network = Network::new(&topology, &options, seed, device).unwrap();
        let hosts: Vec<_> = topology.hosts().collect();
        let (receiver, rest) = hosts.split_last().unwrap();
        let senders = &rest[..scene.senders];
        let path = scene.path(self);
        for host in &hosts {
            let nic = &mut network.device_mut(*host).unwrap().nic;
            // As in ns-3, where each acknowledgement can carry a notification.
            self.transport().prepare(nic, &path, scene.dcqcn());
        }
        let memory = &mut network.device_mut(*receiver).unwrap().nic.memory;
        memory.register_ghost(1, 0, u64::from(scene.bytes)).unwrap();
        for (sender, number) in senders.iter().zip(0..) {
            self.connect(&mut network, scene, *sender, (*receiver, number));
        }
        for (sender, number) in senders.iter().zip(0..) {
            network.run_until(scene.start_ns(seed, number));
            post(&mut network, *sender, scene.bytes);
        }
        network.run_until(100_000_000);
        let done = senders.iter().zip(0..).map(|(sender, number)| {
            let done_ns = network.device(*sender).unwrap().done_ns;
            done_ns.expect("a sender is not done") - scene.start_ns(seed, number)
        });
        let mut fct_ns: Vec<_> = done.collect();
        let last = fct_ns
            .iter()
            .zip(0..)
            .map(|(fct_ns, number)| fct_ns + scene.start_ns(seed, number));
        let last_ns = last.max().unwrap();
        fct_ns.sort_unstable();
        outcome(&network, &topology, fct_ns, last_ns)
    }

    fn connect(
        self,
        network: &mut Network<Host>,
        scene: &Scene,
        sender: NodeId,
        (receiver, number): (NodeId, u16),
    ) {
        let path = &scene.path(self);
        let qpn = FIRST_QPN + u32::from(number);
        for (node, peer, peer_qpn) in [(sender, receiver, qpn), (receiver, sender, FIRST_QPN)] {
            let to = Connection {
                peer,
                src_port: 49_152 + number,
                priority: PRIORITY,
                rate_bps: None,
            };
            let nic = &mut network.device_mut(node).unwrap().nic;
            let config = QpConfig {
                nak_every_ns: scene.ns3_rules.then_some(4_000),
                gap_is_cnp: scene.ns3_rules,
                ..self.transport().config(peer_qpn, path)
            };
            let own = nic.connect(to, config).unwrap();
            if let Some(control) = self.transport().control(path, scene.dcqcn()) {
                nic.set_control(own, control).unwrap();
            }
        }
    }
}

fn outcome(
    network: &Network<Host>,
    topology: &Topology,
    fct_ns: Vec<u64>,
    last_ns: u64,
) -> Outcome {
    let mut outcome = Outcome {
        fct_ns,
        last_ns,
        repeated: 0,
        trimmed: 0,
        dropped: 0,
        pauses: 0,
        peak_queue_bytes: 0,
    };
    for host in topology.hosts() {
        let counters = network.device(host).unwrap().nic.qp_counters(FIRST_QPN);
        outcome.repeated += counters.map_or(0, |counters| counters.repeated);
    }
    for switch in topology.with_role(Role::Switch) {
        for counters in network.counters(switch) {
            outcome.trimmed += counters.trimmed;
            outcome.dropped += counters.all_dropped();
            outcome.pauses += counters.pauses_sent;
            let peak = &mut outcome.peak_queue_bytes;
            *peak = counters.peak_queued_bytes.max(*peak);
        }
    }
    outcome
}

fn post(network: &mut Network<Host>, sender: NodeId, bytes: u32) {
    let request = Request::Write {
        data: Payload::Ghost(bytes),
        to: Remote { rkey: 1, addr: 0 },
        imm: None,
    };
    let nic = &mut network.device_mut(sender).unwrap().nic;
    nic.post(FIRST_QPN, 0, request).unwrap();
}
