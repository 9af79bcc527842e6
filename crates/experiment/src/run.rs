//! One run.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::rc::Rc;

use farwrite_link::Dice;
use farwrite_net::{Network, NetworkError, NodeId, Options, Role, Topology};
use farwrite_rc::Path;

use crate::flow::{Start, TriggerKind};
use crate::host::{self, Board, Done, Host, Starting, What};
use crate::ideal::{Ideal, Wire};
use crate::meter::Meter;
use crate::outcome::{FlowEnd, FlowError, FlowOutcome, Outcome};
use crate::transport::{Protocol, TransportError};
use crate::{Transport, Workload, WorkloadError};

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// Nodes and cables.
    pub topology: &'a Topology,
    /// Switches and the rest.
    pub options: &'a Options,
    /// Who sends what to whom.
    pub workload: &'a Workload,
    /// How.
    pub transport: &'a Transport,
    /// Determines all draws.
    pub seed: u64,
    /// When to end, in nanoseconds; `None`: when nothing is left to do.
    pub until_ns: Option<u64>,
    /// Whether to keep the queue of each port over time.
    pub keeps_ports: bool,
}

/// Why a run is impossible.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RunError {
    /// The network is invalid.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The workload does not fit the topology.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The transport is invalid.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// A host cannot be set up.
    #[error("node {node}: {why}")]
    Host {
        /// Which.
        node: u32,
        /// Why.
        why: String,
    },
    /// A host could not set up a flow.
    #[error("flow {flow}: {why}")]
    Flow {
        /// Which, from 0.
        flow: usize,
        /// Why.
        why: String,
    },
}

/// Runs a scene on the calling thread.
///
/// # Errors
/// [`RunError`].
pub fn run(scene: &Scene<'_>) -> Result<Outcome, RunError> {
    scene.workload.validate(scene.topology.hosts().count())?;
    scene.transport.validate()?;
    scene.transport.check_flows(&scene.workload.flows)?;
    let mut running = Running::new(scene)?;
    running.run()?;
    Ok(running.finish())
}

/// About the most memory that a run takes, in bytes: for hosts and ports, for queue pairs, and for
/// the frames that windows and buffers allow.
#[must_use]
pub fn memory_bytes(scene: &Scene<'_>) -> u64 {
    // `cargo run --release -p farwrite-experiment --example bench -- memory` compares the estimate
    // with what runs take. Of endpoints, the flow is that of the scheme that takes most,
    // `ec-xor:32,8`, and the packet that of `sr-rto`, which takes 5 bytes.
    const NODE: u64 = 2_000;
    const FLOW: u64 = 2_750;
    const ENDPOINT_FLOW: u64 = 38_000;
    const ENDPOINT_PACKET: u64 = 6;
    const FRAME: u64 = 250;
    let nodes = scene.topology.nodes().len() as u64;
    let switches = scene.topology.with_role(Role::Switch).count() as u64;
    let hosts = nodes - switches;
    let tables = switches * hosts * 4;
    let flows = scene.workload.flows.len() as u64;
    let mtu = u64::from(scene.transport.mtu);
    let wanted = scene.workload.flows.iter().map(|flow| {
        let packets = flow.bytes.div_ceil(mtu);
        // Without a window, what cables and buffers hold is the limit.
        packets.min(scene.transport.window.map_or(u64::MAX, u64::from))
    });
    let buffers = scene.topology.with_role(Role::Switch).map(|node| {
        let own = scene.options.exceptions.get(&node);
        own.unwrap_or(&scene.options.switch).buffer_bytes
    });
    let on_cables = scene.topology.cables().iter().map(|cable| {
        let bits = u128::from(cable.config.rate_bps) * cable.config.delay.as_nanos();
        u64::try_from(bits / 4_000_000_000).unwrap_or(u64::MAX)
    });
    let room = buffers.chain(on_cables).fold(0_u64, u64::saturating_add);
    let frames = wanted.fold(0_u64, u64::saturating_add).min(room / mtu);
    let packets = scene.workload.flows.iter();
    let packets = packets.fold(0_u64, |sum, flow| {
        sum.saturating_add(flow.bytes.div_ceil(mtu))
    });
    let (flow_bytes, packet_bytes) = match scene.transport.protocol() {
        Ok(Protocol::Endpoint(_)) => (ENDPOINT_FLOW, ENDPOINT_PACKET),
        _ => (FLOW, 0),
    };
    let parts = [
        nodes * NODE,
        scene.topology.cables().len() as u64 * NODE,
        tables,
        flows.saturating_mul(flow_bytes),
        packets.saturating_mul(packet_bytes),
        frames.saturating_mul(FRAME),
    ];
    parts.into_iter().fold(0, u64::saturating_add)
}

struct Running<'a> {
    scene: Scene<'a>,
    network: Network<Host>,
    hosts: Vec<NodeId>,
    board: Board,
    meter: Meter,
    /// Flows that start by time: when, and which.
    starts: BinaryHeap<Reverse<(u64, usize)>>,
    /// Of each trigger: how often it was activated, and the flows that wait for it.
    triggers: Vec<(u64, Vec<usize>)>,
    flows: Vec<FlowOutcome>,
    /// The empty path of each flow.
    paths: Vec<Path>,
    /// Flows that have started and are not done.
    under_way: usize,
    dice: Dice,
}

impl<'a> Running<'a> {
    fn new(scene: &Scene<'a>) -> Result<Self, RunError> {
        let scene = *scene;
        let hosts: Vec<_> = scene.topology.hosts().collect();
        let board: Board = Rc::new(RefCell::new(Vec::new()));
        let mut made = BTreeMap::new();
        for &node in &hosts {
            made.insert(node, Host::new(node, scene.transport, scene.seed, &board)?);
        }
        let host = |node, _: &farwrite_net::Node| {
            let host = made.remove(&node);
            host.expect("a network asks for each of its hosts once")
        };
        let mut network = Network::new(scene.topology, scene.options, scene.seed, host)?;
        let workload = scene.workload;
        let starts = workload.flows.iter().filter_map(|flow| match flow.start {
            Start::At(at_ns) => Some(at_ns),
            Start::On(_) => None,
        });
        let start_ns = starts.min().unwrap_or(0);
        let meter = Meter::new(scene.topology, &network, start_ns, scene.keeps_ports);
        let empty = Empty::of(&scene);
        for (&host, path) in &empty.receivers {
            if let Some(host) = network.device_mut(hosts[host]) {
                host.prepare(scene.transport, path)?;
            }
        }
        let mut running = Self {
            scene,
            network,
            board,
            meter,
            starts: BinaryHeap::new(),
            triggers: vec![(0, Vec::new()); workload.triggers.len()],
            flows: empty.outcomes,
            paths: empty.paths,
            under_way: 0,
            dice: Dice::new(scene.seed ^ 0x5EED_0F90),
            hosts,
        };
        for (number, flow) in workload.flows.iter().enumerate() {
            match flow.start {
                Start::At(at_ns) => running.starts.push(Reverse((at_ns, number))),
                Start::On(trigger) => running.triggers[trigger].1.push(number),
            }
        }
        Ok(running)
    }

    fn run(&mut self) -> Result<(), RunError> {
        let until_ns = self.scene.until_ns.unwrap_or(u64::MAX);
        // What is left when all flows are done is idle timers, and copies of what has arrived.
        while !self.starts.is_empty() || self.under_way > 0 {
            let start_ns = self.starts.peek().map(|Reverse((at_ns, _))| *at_ns);
            let sample_ns = self.meter.next_ns();
            let next_ns = start_ns.unwrap_or(u64::MAX).min(sample_ns).min(until_ns);
            if self.network.step_until(next_ns) {
                self.take_done();
            } else if start_ns == Some(next_ns) {
                self.network.run_until(next_ns);
                let next = self.starts.pop();
                next.map_or(Ok(()), |Reverse((_, flow))| self.start(flow))?;
            } else if next_ns == until_ns {
                self.network.run_until(until_ns);
                return Ok(());
            } else if start_ns.is_none() && self.network.next_ns().is_none() {
                // The flows that are not done have failed.
                return Ok(());
            } else {
                self.network.run_until(sample_ns);
                self.meter.sample(&self.network);
            }
        }
        Ok(())
    }

    fn start(&mut self, number: usize) -> Result<(), RunError> {
        let flow = self.scene.workload.flows[number];
        let starting = Starting {
            number,
            flow,
            ends: [flow.src, flow.dst].map(|host| self.hosts[host]),
            path: self.paths[number],
            ideal_ns: self.flows[number].ideal_ns,
            // Any dynamic port.
            #[expect(clippy::cast_possible_truncation, reason = "below 16384")]
            src_port: 49_152 + self.dice.below(16_384) as u16,
        };
        let started = host::start(&mut self.network, self.scene.transport, &starting);
        started.map_err(|why| RunError::Flow { flow: number, why })?;
        self.flows[number].start_ns = Some(self.network.now_ns());
        self.flows[number].end = FlowEnd::Unfinished;
        self.under_way += 1;
        Ok(())
    }

    /// Takes in what the hosts have reported.
    fn take_done(&mut self) {
        while let Some(Done { flow, at_ns, what }) = self.pop_done() {
            let triggers = self.scene.workload.flows[flow];
            match what {
                What::Sent => {
                    self.flows[flow].end = FlowEnd::Done { at_ns };
                    self.under_way -= 1;
                    self.activate(triggers.when_sent, at_ns);
                }
                What::Received => self.activate(triggers.when_received, at_ns),
                What::Failed(error) => self.fail(flow, error),
            }
        }
    }

    fn pop_done(&self) -> Option<Done> {
        let mut board = self.board.borrow_mut();
        if board.is_empty() {
            return None;
        }
        Some(board.remove(0))
    }

    /// Notes the first reason.
    fn fail(&mut self, number: usize, error: FlowError) {
        if self.flows[number].end == FlowEnd::Unfinished {
            self.flows[number].end = FlowEnd::Failed(error);
            self.under_way -= 1;
        }
    }

    fn activate(&mut self, trigger: Option<usize>, now_ns: u64) {
        let Some(trigger) = trigger else {
            return;
        };
        let at = self.scene.workload.triggers[trigger];
        let (count, waiting) = &mut self.triggers[trigger];
        *count += 1;
        let starting = match at.kind {
            TriggerKind::OneShot => std::mem::take(waiting),
            TriggerKind::MultiShot if waiting.is_empty() => Vec::new(),
            TriggerKind::MultiShot => vec![waiting.remove(0)],
            TriggerKind::Barrier(needed) if *count == needed => std::mem::take(waiting),
            TriggerKind::Barrier(_) => Vec::new(),
        };
        let at_ns = now_ns.saturating_add(at.delay_ns);
        let starts = starting.into_iter().map(|flow| Reverse((at_ns, flow)));
        self.starts.extend(starts);
    }

    fn finish(mut self) -> Outcome {
        let now_ns = self.network.now_ns();
        for number in 0..self.flows.len() {
            if self.flows[number].end == FlowEnd::NotStarted {
                continue;
            }
            let src = self.hosts[self.scene.workload.flows[number].src];
            let host = self.network.device_mut(src);
            let counted = host.map(|host| host.finish(now_ns, number));
            let counted = counted.unwrap_or_default();
            let flow = &mut self.flows[number];
            flow.packets = counted.packets;
            flow.repeated = counted.repeated;
            flow.timeouts = counted.timeouts;
        }
        self.take_done();
        Outcome {
            flows: self.flows,
            totals: self.network.totals(),
            depths: self.meter.finish(),
            end_ns: self.network.now_ns(),
            events: self.network.events(),
            trace_hash: self.network.trace_hash(),
        }
    }
}

/// What is known of flows before they start.
struct Empty {
    /// Outcomes of flows that have not started.
    outcomes: Vec<FlowOutcome>,
    /// The empty path of each flow.
    paths: Vec<Path>,
    /// Each host that receives: the rate of its cable, and the longest round trip.
    receivers: BTreeMap<usize, Path>,
}

impl Empty {
    fn of(scene: &Scene<'_>) -> Self {
        let wire = Wire {
            mtu: scene.transport.mtu,
            framing: scene.options.framing_bytes,
        };
        let mut ideal = Ideal::new(scene.topology, scene.options, wire);
        let flows = &scene.workload.flows;
        // The paths are found source by source.
        let mut by_source: Vec<_> = (0..flows.len()).collect();
        by_source.sort_by_key(|number| flows[*number].src);
        let blank = FlowOutcome {
            start_ns: None,
            end: FlowEnd::NotStarted,
            ideal_ns: None,
            packets: 0,
            repeated: 0,
            timeouts: 0,
        };
        // A flow without a path fails whatever its settings.
        let nowhere = Path {
            rate_bps: 1,
            rtt_ns: 1,
            mtu_bytes: wire.mtu,
            framing_bytes: wire.framing,
        };
        let mut empty = Self {
            outcomes: vec![blank; flows.len()],
            paths: vec![nowhere; flows.len()],
            receivers: BTreeMap::new(),
        };
        for number in by_source {
            let flow = flows[number];
            let path = ideal.path(flow.src, flow.dst).unwrap_or(nowhere);
            empty.paths[number] = path;
            empty.outcomes[number].ideal_ns = ideal.time_ns(flow.src, flow.dst, flow.bytes);
            let of_receiver = empty.receivers.entry(flow.dst).or_insert(Path {
                rate_bps: ideal.nic_rate_bps(flow.dst),
                ..nowhere
            });
            of_receiver.rtt_ns = of_receiver.rtt_ns.max(path.rtt_ns);
        }
        empty
    }
}
