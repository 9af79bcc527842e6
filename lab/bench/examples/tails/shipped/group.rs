//! A group of `farwrite-collectives` whose ranks are hosts of a simulated network, and other traffic between them.
//!
//! The endpoint of a rank also sends the bursts of its host, as `sr-nack` messages with the same rate control. So the
//! operations and the bursts of a host share its rate as flows of one endpoint do.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::rc::Rc;
use std::time::Duration;

use farwrite::fabric::net::{HostOptions, NetFabric, NetHost, Program, host};
use farwrite::{
    Endpoint, QpConfig, QpOptions, QueuePair, RecvHandle, Region, SchemeName, SendOptions,
};
use farwrite_collectives::{
    Buffers, Finished, GroupOptions, Member, Operation, OperationOptions, Report,
};
use farwrite_experiment::{Flow, Start};
use farwrite_net::{Network, NodeId, Options, Topology};

/// Bytes of the longest burst. Lengths are exponential with a mean of some MB.
const MOST_BURST_BYTES: u64 = 1 << 30;
/// Shortest time between two polls of a host for packets, about as long as three packets take at 25 Gbit/s: with shorter
/// ones, most of the processor time is spent in polls.
const POLL_INTERVAL: Duration = Duration::from_micros(4);
/// Bursts from one host to another that can be open at the same time.
const OPEN_BURSTS: u32 = 64;

/// Where a group runs, and how its hosts send.
pub(super) struct PanelPlace<'a> {
    pub(super) topology: &'a Topology,
    pub(super) options: Options,
    /// Traffic class of all packets.
    pub(super) priority: u8,
    pub(super) seed: u64,
}

/// The ranks of a group in their network.
pub(super) struct Group {
    network: Network<NetHost<Rank>>,
    hosts: Vec<NodeId>,
    /// For the bursts between two hosts, the lower one first: the queue pair of each of them.
    pairs: BTreeMap<[usize; 2], [QueuePair; 2]>,
    /// Bursts that have not arrived.
    bursts: Vec<RecvHandle>,
    /// Ranks at which the operation has ended.
    ended: Rc<Cell<usize>>,
}

/// The program of a host.
struct Rank {
    member: Member<NetFabric>,
    finished: Option<Finished>,
    ended: Rc<Cell<usize>>,
}

impl Program for Rank {
    fn poll(&mut self, now_ns: u64) -> Option<u64> {
        let next_ns = self.member.poll(now_ns);
        if let Some(finished) = self.member.take_finished() {
            self.finished = Some(finished);
            self.ended.set(self.ended.get() + 1);
        }
        next_ns
    }
}

/// An operation of a round: all ranks start it at the same time, with buffers of one length in place.
pub(super) struct GroupStep<'a> {
    pub(super) operation: &'a Operation,
    pub(super) options: OperationOptions,
    pub(super) bytes: usize,
    /// From the start of the round to that of the operation, in nanoseconds.
    pub(super) after_ns: u64,
    /// The bursts. Their times count from the start of the round.
    pub(super) bursts: &'a [Flow],
}

impl Group {
    /// A group of all hosts of the network.
    pub(super) fn new(
        place: &PanelPlace<'_>,
        options: &GroupOptions,
    ) -> Result<Self, Box<dyn Error>> {
        let hosts: Vec<_> = place.topology.hosts().collect();
        let (mut members, mut ports) = (Vec::new(), Vec::new());
        for (rank, &node) in hosts.iter().enumerate() {
            let mut seed = [0; 32];
            seed[..8].copy_from_slice(&place.seed.to_le_bytes());
            seed[8..12].copy_from_slice(&node.0.to_le_bytes());
            let own = HostOptions {
                priority: place.priority,
                poll_interval: POLL_INTERVAL,
                ..HostOptions::default()
            };
            let (fabric, own_ports) = host(node, own, seed)?;
            let endpoint = Endpoint::new(fabric, seed);
            members.push(Member::new(endpoint, rank, hosts.len(), options.clone())?);
            ports.push(own_ports);
        }
        let infos: Result<Vec<_>, _> = members.iter().map(Member::info).collect();
        let infos = infos?;
        for member in &mut members {
            member.connect(&infos)?;
        }
        let pairs = connect(&mut members, options)?;
        let ended = Rc::new(Cell::new(0));
        let ranks = members.into_iter().zip(ports).map(|(member, ports)| {
            let rank = Rank {
                member,
                finished: None,
                ended: Rc::clone(&ended),
            };
            NetHost::new(ports, rank)
        });
        let mut ranks: BTreeMap<_, _> = hosts.iter().copied().zip(ranks).collect();
        let network = Network::new(place.topology, &place.options, place.seed, |node, _| {
            ranks.remove(&node).expect("each host is asked for once")
        })?;
        Ok(Self {
            network,
            hosts,
            pairs,
            bursts: Vec::new(),
            ended,
        })
    }

    /// Packets that the network has dropped so far.
    pub(super) fn dropped(&self) -> u64 {
        self.network.totals().all_dropped()
    }

    /// Runs one operation and its bursts until all of them have ended. Returns the reports of all ranks.
    pub(super) fn round(&mut self, step: &GroupStep<'_>) -> Result<Vec<Report>, Box<dyn Error>> {
        let begin_ns = self.network.now_ns();
        let mut bursts = step.bursts.to_vec();
        bursts.sort_by_key(at_ns);
        let mut bursts = VecDeque::from(bursts);
        let mut start_ns = Some(begin_ns + step.after_ns);
        self.ended.set(0);
        loop {
            let burst_ns = bursts.front().map(|burst| begin_ns + at_ns(burst));
            let Some(next_ns) = burst_ns.into_iter().chain(start_ns).min() else {
                if self.is_over() {
                    return self.take_reports();
                }
                if !self.network.step() {
                    return Err("nothing happens any more, and the operation has not ended".into());
                }
                continue;
            };
            self.network.run_until(next_ns);
            if start_ns == Some(next_ns) {
                self.start(step)?;
                start_ns = None;
            } else if let Some(burst) = bursts.pop_front() {
                self.send(&burst)?;
            }
        }
    }

    fn is_over(&mut self) -> bool {
        if self.ended.get() < self.hosts.len() {
            return false;
        }
        self.bursts.retain(|burst| burst.outcome().is_none());
        self.bursts.is_empty()
    }

    fn rank(&mut self, rank: usize) -> &mut Rank {
        let host = self.network.device_mut(self.hosts[rank]);
        host.expect("each rank is a host").program_mut()
    }

    /// Starts the operation at all ranks. A buffer is that of the last operation, if it has the right length.
    fn start(&mut self, step: &GroupStep<'_>) -> Result<(), Box<dyn Error>> {
        let now_ns = self.network.now_ns();
        for rank in 0..self.hosts.len() {
            let Rank {
                member, finished, ..
            } = self.rank(rank);
            let last = finished.take().and_then(|finished| finished.buffers.output);
            let last = last.filter(|buffer| buffer.len() == step.bytes);
            let buffer = last.unwrap_or_else(|| vec![0; step.bytes].into());
            let buffers = Buffers::in_place(buffer);
            member.start(now_ns, step.operation, step.options, buffers)?;
        }
        Ok(())
    }

    fn take_reports(&mut self) -> Result<Vec<Report>, Box<dyn Error>> {
        let mut reports = Vec::new();
        for rank in 0..self.hosts.len() {
            let finished = self.rank(rank).finished.as_ref();
            let result = finished.ok_or("a rank has no result")?.result.clone();
            reports.push(result?);
        }
        Ok(reports)
    }

    /// Sends a burst.
    fn send(&mut self, burst: &Flow) -> Result<(), Box<dyn Error>> {
        let (src, dst) = (burst.src, burst.dst);
        let (low, high) = (src.min(dst), src.max(dst));
        let pair = self.pairs[&[low, high]];
        let [src_qp, dst_qp] = if src == low { pair } else { [pair[1], pair[0]] };
        let receiver = self.rank(dst).member.endpoint_mut();
        let memory = receiver.register_region(Region::ghost(burst.bytes))?;
        let receive = receiver.post_recv(dst_qp, memory.whole())?;
        self.bursts.push(receive);
        let sender = self.rank(src).member.endpoint_mut();
        let memory = sender.register_region(Region::ghost(burst.bytes))?;
        let how = SendOptions {
            scheme: SchemeName::SrNack.tag(),
            ..SendOptions::default()
        };
        sender.post_send(src_qp, memory.whole(), how)?;
        Ok(())
    }
}

/// Connects queue pairs for the bursts between each two hosts.
fn connect(
    members: &mut [Member<NetFabric>],
    group: &GroupOptions,
) -> Result<BTreeMap<[usize; 2], [QueuePair; 2]>, Box<dyn Error>> {
    let options = QpOptions {
        sdr: QpConfig {
            mtu: group.packet_bytes,
            slots: OPEN_BURSTS,
            max_message_bytes: MOST_BURST_BYTES.min(u64::from(group.packet_bytes) << 18),
            ..QpConfig::default()
        },
        timing: group.timing,
        initial_rtt: group.initial_rtt,
        rate_control: group.rate_control,
        expected_scheme: SchemeName::SrNack.tag(),
        ..QpOptions::default()
    };
    let mut pairs = BTreeMap::new();
    for high in 1..members.len() {
        for low in 0..high {
            let (before, after) = members.split_at_mut(high);
            let ends = [before[low].endpoint_mut(), after[0].endpoint_mut()];
            let [first, second] = ends;
            let qps = [
                first.create_qp(options.clone())?,
                second.create_qp(options.clone())?,
            ];
            let infos = [first.qp_info(qps[0])?, second.qp_info(qps[1])?];
            first.connect_qp(qps[0], &infos[1])?;
            second.connect_qp(qps[1], &infos[0])?;
            pairs.insert([low, high], qps);
        }
    }
    Ok(pairs)
}

/// When a burst begins.
fn at_ns(burst: &Flow) -> u64 {
    match burst.start {
        Start::At(at_ns) => at_ns,
        Start::On(_) => unreachable!("bursts wait for nothing"),
    }
}
