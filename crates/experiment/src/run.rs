//! One run.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::ops::Range;
use std::rc::Rc;

use farwrite_link::Rng;
use farwrite_net::{Network, NetworkError, NodeId, Options, Role, Topology};
use farwrite_rc::PathProfile;

use crate::boxes::{BoxLink, BoxTotals, PlacedBox};
use crate::changes::CableChange;
use crate::flow::{Start, TriggerKind};
use crate::hosts::{self, FlowProgress, FlowReport, FlowReports, FlowSetup, HostOrBox};
use crate::ideal::{Ideal, PacketFormat};
use crate::meter::Meter;
use crate::outcome::{FlowEnd, FlowError, FlowOutcome, Outcome};
use crate::series::MAX_EVENTS;
use crate::transport::TransportError;
use crate::{Series, Transport, Workload, WorkloadError};

/// The parts of a run.
#[derive(Clone, Copy, Debug)]
pub struct RunSetup<'a> {
    /// Nodes and cables.
    pub topology: &'a Topology,
    /// Switches and other options of the network.
    pub options: &'a Options,
    /// Flows and triggers.
    pub workload: &'a Workload,
    /// The transport of the hosts.
    pub transport: &'a Transport,
    /// The boxes of the topology, each one once.
    pub boxes: &'a [PlacedBox],
    /// Cables that change during the run.
    pub changes: &'a [CableChange],
    /// The seed of all random draws.
    pub seed: u64,
    /// End of the run in nanoseconds; `None`: the run ends when all flows have ended.
    pub until_ns: Option<u64>,
    /// What to record besides counters.
    pub recording: Recording,
}

/// What a run records besides its counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// Whether to keep the queue of each port over time.
    pub ports: bool,
    /// Whether to keep counters of links and flows over time.
    pub series: bool,
    /// The host whose packets are captured, by its index among the hosts.
    pub host: Option<usize>,
}

/// Why a run is not possible.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
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
    /// No host has the index of the host to capture.
    #[error("host {host} cannot be captured: the hosts are 0 to {last}")]
    Captured {
        /// The index.
        host: usize,
        /// Index of the last host.
        last: usize,
    },
    /// A host cannot be set up.
    #[error("node {node}: {why}")]
    Host {
        /// Number of the node.
        node: u32,
        /// The reason.
        why: String,
    },
    /// A node is a box, and the setup has no settings for it.
    #[error("node {node} is a box without settings; add it to the boxes of the setup")]
    Box {
        /// Number of the node.
        node: u32,
    },
    /// A cable cannot change as the setup says.
    #[error("cable {cable}: {why}")]
    Change {
        /// Index of the cable.
        cable: u32,
        /// The reason.
        why: String,
    },
    /// A host could not set up a flow.
    #[error("flow {flow}: {why}")]
    Flow {
        /// Index of the flow.
        flow: usize,
        /// The reason.
        why: String,
    },
}

/// Runs a setup on the calling thread.
///
/// # Errors
/// [`RunError`].
pub fn run(setup: &RunSetup<'_>) -> Result<Outcome, RunError> {
    let mut running = Running::checked(setup)?;
    running.run(&mut |_| true)?;
    Ok(running.finish())
}

/// How far a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunProgress {
    /// Virtual time since the start of the first flow, in nanoseconds.
    pub(crate) virtual_ns: u64,
    /// Flows of the workload.
    pub(crate) flows: u64,
    /// Flows that have ended.
    pub(crate) ended_flows: u64,
}

/// The same as [`run`], as long as `goes_on` returns true; `None` if the run stopped before its end.
pub(crate) fn run_while(
    setup: &RunSetup<'_>,
    goes_on: &mut dyn FnMut(RunProgress) -> bool,
) -> Result<Option<Outcome>, RunError> {
    let mut running = Running::checked(setup)?;
    let is_whole = running.run(goes_on)?;
    goes_on(running.progress());
    Ok(is_whole.then(|| running.finish()))
}

/// A run stands still if no frame has reached a device for this long: longer than the timers of NICs.
const STILL_NS: u64 = 1_000_000_000;
/// Timeouts of NICs without a limit of retransmissions after which they give up if no frame reaches any device.
const TIMEOUTS: u64 = 8;

struct Running<'a> {
    setup: RunSetup<'a>,
    network: Network<HostOrBox>,
    hosts: Vec<NodeId>,
    board: FlowReports,
    meter: Meter,
    series: Option<Series>,
    /// Start of the first flow.
    start_ns: u64,
    /// Flows that start at a given time: time and index.
    starts: BinaryHeap<Reverse<(u64, usize)>>,
    /// For each trigger: the number of activations, and the flows that wait for it.
    triggers: Vec<(u64, VecDeque<usize>)>,
    flows: Vec<FlowOutcome>,
    /// What is missing of flows that have ended.
    missing: BTreeMap<usize, Vec<Range<u64>>>,
    /// The path of each flow with empty queues.
    paths: Vec<PathProfile>,
    /// The rates of each host's cable, from the host and to it.
    port_bps: Vec<[u64; 2]>,
    /// How long NICs without a limit of retransmissions go on while no frame reaches a device; `None` with a
    /// limit.
    patience_ns: Option<u64>,
    /// Flows that have started.
    started: u64,
    /// Flows that have started and have not ended.
    under_way: u64,
    /// Frames that devices had received at the latest sample, and when this number last changed.
    delivered: u64,
    delivered_ns: u64,
    rng: Rng,
}

impl<'a> Running<'a> {
    fn checked(setup: &RunSetup<'a>) -> Result<Self, RunError> {
        setup.workload.validate(setup.topology.hosts().count())?;
        setup.transport.check_flows(&setup.workload.flows)?;
        setup.workload.check_end(setup.until_ns)?;
        Self::new(setup)
    }

    fn new(setup: &RunSetup<'a>) -> Result<Self, RunError> {
        let setup = *setup;
        let hosts: Vec<_> = setup.topology.hosts().collect();
        let board: FlowReports = Rc::new(RefCell::new(Vec::new()));
        let unstarted = UnstartedFlows::of(&setup);
        let mut made = stations(&setup, &unstarted, &board)?;
        let host_or_box = |node, _: &farwrite_net::Node| {
            let host_or_box = made.remove(&node);
            host_or_box.expect("a network asks for each of its hosts and boxes once")
        };
        let mut network = Network::new(setup.topology, setup.options, setup.seed, host_or_box)?;
        for change in setup.changes {
            let planned = network.plan(change.at_ns, change.cable, change.change);
            planned.map_err(|why| RunError::Change {
                cable: change.cable.0,
                why: why.to_string(),
            })?;
        }
        let workload = setup.workload;
        let starts = workload.flows.iter().filter_map(|flow| match flow.start {
            Start::At(at_ns) => Some(at_ns),
            Start::On(_) => None,
        });
        let start_ns = starts.min().unwrap_or(0);
        let meter = Meter::new(setup.topology, &network, start_ns, setup.recording.ports);
        let flows = workload.flows.len();
        let is_wanted = setup.recording.series;
        let series = is_wanted.then(|| {
            network.record_pauses(MAX_EVENTS);
            Series::new(setup.topology, &network, flows)
        });
        for (&host, path) in &unstarted.receivers {
            if let Some(host) = network.device_mut(hosts[host]) {
                host.prepare(setup.transport, path);
            }
        }
        let timeouts = unstarted.paths.iter();
        let timeouts = timeouts.map(|path| setup.transport.timeout_ns(path));
        let patience_ns = timeouts.max().unwrap_or(0).saturating_mul(TIMEOUTS);
        let patience_ns = Some(patience_ns.max(STILL_NS));
        let patience_ns = patience_ns.filter(|_| setup.transport.never_gives_up());
        let mut running = Self {
            setup,
            network,
            board,
            meter,
            series,
            start_ns,
            starts: BinaryHeap::new(),
            triggers: vec![(0, VecDeque::new()); workload.triggers.len()],
            flows: unstarted.outcomes,
            missing: BTreeMap::new(),
            paths: unstarted.paths,
            port_bps: unstarted.port_bps,
            patience_ns,
            started: 0,
            under_way: 0,
            delivered: 0,
            delivered_ns: start_ns,
            rng: Rng::new(setup.seed ^ 0x5EED_0F90),
            hosts,
        };
        for (number, flow) in workload.flows.iter().enumerate() {
            match flow.start {
                Start::At(at_ns) => running.starts.push(Reverse((at_ns, number))),
                Start::On(trigger) => running.triggers[trigger].1.push_back(number),
            }
        }
        Ok(running)
    }

    /// Runs to the end, and returns true; or returns false after a sample of the queues at which
    /// `goes_on` is false. Samples come at least each thousandth of the time so far.
    fn run(&mut self, goes_on: &mut dyn FnMut(RunProgress) -> bool) -> Result<bool, RunError> {
        let until_ns = self.setup.until_ns.unwrap_or(u64::MAX);
        // When all flows are done, only idle timers and duplicates of delivered packets remain.
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
                return Ok(true);
            } else if start_ns.is_none() && self.network.next_ns().is_none() {
                // Nothing more will happen.
                self.look_for_deadlock();
                return Ok(true);
            } else {
                self.network.run_until(sample_ns);
                self.sample();
                let still_ns = self.still_ns(sample_ns);
                if still_ns >= STILL_NS {
                    self.look_for_deadlock();
                }
                self.give_up(sample_ns, still_ns);
                if !goes_on(self.progress()) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn sample(&mut self) {
        if let Some(series) = &mut self.series {
            let flows = &self.setup.workload.flows;
            let host_of = |flow: usize| self.network.device(self.hosts[flows[flow].src]);
            series.sample_links(&self.network);
            series.sample_flows(self.meter.next_sample(), |flow| {
                let counters = host_of(flow).map(|host| host.counters(flow));
                let is_open = self.flows[flow].end == FlowEnd::Unfinished;
                (counters.unwrap_or_default(), is_open)
            });
        }
        let is_merged = self.meter.sample(&self.network);
        if let Some(series) = self.series.as_mut().filter(|_| is_merged) {
            series.halve();
        }
    }

    /// How long no frame has reached a device. Timers of NICs may still go on.
    fn still_ns(&mut self, now_ns: u64) -> u64 {
        let delivered = self.network.delivered();
        if self.delivered != delivered {
            (self.delivered, self.delivered_ns) = (delivered, now_ns);
        }
        now_ns - self.delivered_ns
    }

    /// Ends NICs that would retransmit for ever: no frame has reached a device for `still_ns`, and no cable is
    /// still to change.
    fn give_up(&mut self, now_ns: u64, still_ns: u64) {
        let Some(most_ns) = self.patience_ns else {
            return;
        };
        let reroute = self.setup.options.reroute.unwrap_or_default();
        let reroute_ns = u64::try_from(reroute.as_nanos()).unwrap_or(u64::MAX);
        let changed_ns = self.setup.changes.iter().map(|change| change.at_ns).max();
        let changed_ns = changed_ns.map_or(0, |at_ns| at_ns.saturating_add(reroute_ns));
        if still_ns.min(now_ns.saturating_sub(changed_ns)) >= most_ns {
            self.fail_all(FlowError::NothingArrives);
        }
    }

    /// If switches have stopped each other while nothing moves, the flows under way have failed.
    fn look_for_deadlock(&mut self) {
        if self.network.deadlock().is_empty() {
            return;
        }
        self.fail_all(FlowError::Deadlock);
    }

    /// Records a failure of all flows under way.
    fn fail_all(&mut self, error: FlowError) {
        for number in 0..self.flows.len() {
            self.fail(number, error);
        }
    }

    fn progress(&self) -> RunProgress {
        RunProgress {
            virtual_ns: self.network.now_ns().saturating_sub(self.start_ns),
            flows: self.setup.workload.flows.len() as u64,
            ended_flows: self.started - self.under_way,
        }
    }

    fn start(&mut self, number: usize) -> Result<(), RunError> {
        let flow = self.setup.workload.flows[number];
        let starting = FlowSetup {
            number,
            flow,
            ends: [flow.src, flow.dst].map(|host| self.hosts[host]),
            port_bps: [self.port_bps[flow.src][0], self.port_bps[flow.dst][1]],
            path: self.paths[number],
            ideal_ns: self.flows[number].ideal_ns,
            // Any dynamic port.
            #[expect(clippy::cast_possible_truncation, reason = "below 16384")]
            src_port: 49_152 + self.rng.below(16_384) as u16,
        };
        let started = hosts::start(&mut self.network, self.setup.transport, &starting);
        let start_ns = started.map_err(|why| RunError::Flow { flow: number, why })?;
        self.flows[number].start_ns = Some(start_ns);
        self.flows[number].end = FlowEnd::Unfinished;
        self.started += 1;
        self.under_way += 1;
        if let Some(series) = &mut self.series {
            series.start(number);
        }
        self.delivered_ns = self.network.now_ns();
        Ok(())
    }

    /// Processes the reports of the hosts.
    fn take_done(&mut self) {
        while let Some(FlowReport { flow, at_ns, what }) = self.pop_done() {
            let triggers = self.setup.workload.flows[flow];
            let is_open = self.flows[flow].end == FlowEnd::Unfinished;
            match what {
                // A flow that has failed in a deadlock may still end, if the deadlock comes undone.
                FlowProgress::Sent | FlowProgress::Ended { .. } if !is_open => {}
                FlowProgress::Sent => {
                    self.flows[flow].end = FlowEnd::Done { at_ns };
                    self.under_way -= 1;
                    self.activate(triggers.when_sent, at_ns);
                }
                FlowProgress::Received => self.activate(triggers.when_received, at_ns),
                FlowProgress::Ended {
                    missing_bytes,
                    missing,
                    by,
                } => {
                    self.flows[flow].end = FlowEnd::Done { at_ns };
                    self.flows[flow].missing_bytes = missing_bytes;
                    if !missing.is_empty() {
                        self.missing.insert(flow, missing);
                    }
                    self.flows[flow].ended_by = by;
                    self.under_way -= 1;
                    self.activate(triggers.when_sent, at_ns);
                    self.activate(triggers.when_received, at_ns);
                }
                FlowProgress::Failed(error) => self.fail(flow, error),
                FlowProgress::Notified => {
                    if let Some(series) = &mut self.series {
                        series.note(at_ns, flow);
                    }
                }
            }
        }
    }

    fn pop_done(&self) -> Option<FlowReport> {
        let mut board = self.board.borrow_mut();
        if board.is_empty() {
            return None;
        }
        Some(board.remove(0))
    }

    /// Records a failure of a flow; the first reason counts.
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
        let at = self.setup.workload.triggers[trigger];
        let (count, waiting) = &mut self.triggers[trigger];
        *count += 1;
        let starting = match at.kind {
            TriggerKind::OneShot => std::mem::take(waiting),
            TriggerKind::MultiShot => waiting.pop_front().into_iter().collect(),
            TriggerKind::Barrier(needed) if *count == needed => std::mem::take(waiting),
            TriggerKind::Barrier(_) => VecDeque::new(),
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
            let planned = &self.setup.workload.flows[number];
            let host = self.network.device_mut(self.hosts[planned.src]);
            let counted = host.map(|host| host.finish(now_ns, number));
            let counted = counted.unwrap_or_default();
            let flow = &mut self.flows[number];
            flow.packets = counted.packets;
            flow.repeated = counted.repeated;
            flow.timeouts = counted.timeouts;
            if planned.is_endless() {
                // All packets of its WRITEs are full.
                let mtu = u64::from(self.setup.transport.mtu());
                flow.endless_bytes = Some(counted.acknowledged * mtu);
            }
        }
        self.take_done();
        if let Some(series) = &mut self.series {
            series.add_pauses(self.network.take_pauses());
        }
        // NICs may have given up before the network stood still. Where flows are under way, queues may still move.
        let is_any = |wanted: fn(FlowEnd) -> bool| self.flows.iter().any(|flow| wanted(flow.end));
        let has_failed = is_any(|end| matches!(end, FlowEnd::Failed(_)));
        let deadlock = match has_failed && !is_any(|end| end == FlowEnd::Unfinished) {
            true => self.network.deadlock(),
            false => Vec::new(),
        };
        let mut boxes = BoxTotals::default();
        for placed in self.setup.boxes {
            let host_or_box = self.network.device(placed.node);
            boxes.add(host_or_box.map(HostOrBox::box_totals).unwrap_or_default());
        }
        let captured = self.setup.recording.host.map(|host| self.hosts[host]);
        let captured = captured.and_then(|node| self.network.device_mut(node));
        let capture = captured.and_then(|host| host.take_capture());
        Outcome {
            flows: self.flows,
            missing: self.missing,
            capture,
            totals: self.network.totals(),
            boxes,
            depths: self.meter.finish(),
            series: self.series,
            deadlock,
            end_ns: self.network.now_ns(),
            events: self.network.events(),
            trace_hash: self.network.trace_hash(),
        }
    }
}

/// Makes the hosts and boxes of a setup.
fn stations(
    setup: &RunSetup<'_>,
    unstarted: &UnstartedFlows,
    board: &FlowReports,
) -> Result<BTreeMap<NodeId, HostOrBox>, RunError> {
    let mut made = BTreeMap::new();
    for (index, node) in setup.topology.hosts().enumerate() {
        let host = HostOrBox::host(
            node,
            setup.transport,
            setup.seed,
            board,
            setup.recording.series,
        )?;
        let is_captured = setup.recording.host == Some(index);
        made.insert(node, if is_captured { host.captured() } else { host });
    }
    if let Some(host) = setup.recording.host.filter(|host| *host >= made.len()) {
        let last = made.len().saturating_sub(1);
        return Err(RunError::Captured { host, last });
    }
    for placed in setup.boxes {
        let at = box_path(setup, unstarted, placed.node);
        made.insert(placed.node, HostOrBox::box_node(placed.kind, &at));
    }
    let mut boxes = setup.topology.with_role(Role::Box);
    match boxes.find(|node| !made.contains_key(node)) {
        Some(NodeId(node)) => Err(RunError::Box { node }),
        None => Ok(made),
    }
}

pub(crate) fn box_path(setup: &RunSetup<'_>, unstarted: &UnstartedFlows, node: NodeId) -> BoxLink {
    let mut cables = setup.topology.cables().iter();
    let cable = cables.find(|cable| cable.ends.contains(&node));
    let longest = unstarted.receivers.values().max_by_key(|path| path.rtt_ns);
    BoxLink {
        rate_bps: cable.map_or(1, |cable| cable.seen_from(node).rate_bps),
        rtt_ns: longest.map_or(1, |path| path.rtt_ns),
        mtu: setup.transport.mtu(),
        timeout_ns: longest.map_or(u64::MAX, |path| setup.transport.timeout_ns(path)),
    }
}

/// The reason why the boxes of a setup do not work as intended, and the remedy; `None` if they do.
pub(crate) fn problem_of_boxes(setup: &RunSetup<'_>) -> Option<String> {
    if setup.boxes.is_empty() {
        return None;
    }
    let unstarted = UnstartedFlows::of(setup);
    setup.boxes.iter().find_map(|placed| {
        let at = box_path(setup, &unstarted, placed.node);
        placed.kind.waits_too_long(&at)
    })
}

/// What is known about the flows before they start.
pub(crate) struct UnstartedFlows {
    /// Outcomes of flows that have not started.
    outcomes: Vec<FlowOutcome>,
    /// The path of each flow with empty queues.
    paths: Vec<PathProfile>,
    /// The rates of each host's cable, from the host and to it.
    port_bps: Vec<[u64; 2]>,
    /// For each receiving host: the rate to it, and its longest round trip.
    receivers: BTreeMap<usize, PathProfile>,
}

impl UnstartedFlows {
    pub(crate) fn of(setup: &RunSetup<'_>) -> Self {
        let wire = PacketFormat {
            mtu: setup.transport.mtu(),
            framing: setup.options.framing_bytes,
        };
        let mut ideal = Ideal::new(setup.topology, setup.options, wire);
        let hosts = 0..setup.topology.hosts().count();
        let flows = &setup.workload.flows;
        // Query the ideal times source by source, because they are cached for one source.
        let mut by_source: Vec<_> = (0..flows.len()).collect();
        by_source.sort_by_key(|number| flows[*number].src);
        let blank = FlowOutcome {
            start_ns: None,
            end: FlowEnd::NotStarted,
            is_measured: true,
            ideal_ns: None,
            missing_bytes: 0,
            ended_by: None,
            packets: 0,
            repeated: 0,
            timeouts: 0,
            endless_bytes: None,
        };
        // A flow without a path fails with any settings.
        let nowhere = PathProfile {
            rate_bps: 1,
            rtt_ns: 1,
            mtu_bytes: wire.mtu,
            framing_bytes: wire.framing,
        };
        let mut unstarted = Self {
            outcomes: vec![blank; flows.len()],
            paths: vec![nowhere; flows.len()],
            port_bps: hosts.map(|host| ideal.nic_rates_bps(host)).collect(),
            receivers: BTreeMap::new(),
        };
        for number in by_source {
            let flow = flows[number];
            let path = ideal.path(flow.src, flow.dst).unwrap_or(nowhere);
            unstarted.paths[number] = path;
            unstarted.outcomes[number].ideal_ns = match flow.is_endless() {
                true => None,
                false => ideal.time_ns(flow.src, flow.dst, flow.bytes),
            };
            let of_receiver = unstarted.receivers.entry(flow.dst).or_insert(PathProfile {
                rate_bps: ideal.nic_rates_bps(flow.dst)[1],
                ..nowhere
            });
            of_receiver.rtt_ns = of_receiver.rtt_ns.max(path.rtt_ns);
        }
        unstarted
    }
}
