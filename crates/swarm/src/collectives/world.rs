//! The members of a case in a simulated network, and the loop that advances its time. Each member
//! has its own clock. All times here are those of the network, except where a member is called.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;

use farwrite::Endpoint;
use farwrite::fabric::sim::{Datagram, SimFabric, SimNetwork, Verdict};
use farwrite_collectives::{CollectiveError, Member, OperationId, Report};
use farwrite_wire::opcode::UC_SEND_ONLY;
use farwrite_wire::packet::Packet;

use super::data;
use super::plan::{CollectivePlan, Fault, MS};

/// After this time, what has not ended never ends.
const LONGEST_NS: u64 = 300_000 * MS;

/// How an operation ended at a rank.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) started_ns: u64,
    pub(super) at_ns: u64,
    pub(super) result: Result<(Report, Vec<u8>), CollectiveError>,
}

pub(super) struct World<'a> {
    plan: &'a CollectivePlan,
    network: SimNetwork,
    members: Vec<Member<SimFabric>>,
    /// For each rank: the number of its next step, and when it starts.
    next: Vec<(usize, u64)>,
    /// For each rank: the steps that run, and when they began.
    running: Vec<BTreeMap<OperationId, (usize, u64)>>,
    /// For each rank, by step.
    pub(super) ended: Vec<BTreeMap<usize, Ended>>,
    /// Faults that have begun.
    begun: Vec<bool>,
    /// Faults that are over.
    over: Vec<bool>,
    /// Control packets that faults have lost.
    lost_control_packets: Rc<Cell<u64>>,
}

impl Drop for World<'_> {
    fn drop(&mut self) {
        // The tap holds the network that holds it.
        self.network.clear_tap();
    }
}

fn address(rank: usize) -> SocketAddr {
    let host = u8::try_from(rank + 1).expect("few ranks");
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), 4791))
}

fn host(rank: usize) -> IpAddr {
    address(rank).ip()
}

impl<'a> World<'a> {
    pub(super) fn new(plan: &'a CollectivePlan) -> Self {
        let (ranks, network) = (plan.ranks, SimNetwork::new(plan.path_seed));
        let member = |rank| {
            let fabric = network.endpoint(address(rank), 1).expect("a free address");
            let byte = u8::try_from(rank + 1).expect("few ranks");
            let endpoint = Endpoint::new(fabric, [byte; 32]);
            Member::new(endpoint, rank, ranks, plan.options.clone()).expect("good options")
        };
        let mut members: Vec<_> = (0..ranks).map(member).collect();
        for (rank, clock) in plan.clocks.iter().enumerate() {
            network.set_clock(host(rank), *clock);
        }
        for a in 0..ranks {
            for b in a + 1..ranks {
                let joined = network.connect(host(a), host(b), plan.link, plan.link);
                joined.expect("a good link");
            }
        }
        let infos = members.iter_mut().map(|member| member.info());
        let infos: Vec<_> = infos.map(|info| info.expect("information")).collect();
        for member in &mut members {
            member.connect(&infos).expect("equal options");
        }
        let lost_control_packets = cut_control(plan, &network);
        Self {
            plan,
            network,
            members,
            next: (0..ranks).map(|rank| first_start(plan, rank)).collect(),
            running: vec![BTreeMap::new(); ranks],
            ended: (0..ranks).map(|_| BTreeMap::new()).collect(),
            begun: vec![false; plan.faults.len()],
            over: vec![false; plan.faults.len()],
            lost_control_packets,
        }
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.network.now_ns()
    }

    /// Packets that links have lost.
    pub(super) fn lost_packets(&self) -> u64 {
        let ranks = 0..self.plan.ranks;
        let pairs = ranks
            .clone()
            .flat_map(|a| ranks.clone().map(move |b| (a, b)));
        let pairs = pairs.filter(|(a, b)| a != b);
        let counters = pairs.map(|(a, b)| self.network.link_counters(host(a), host(b)));
        counters.map(|of_link| of_link.expect("a link").lost).sum()
    }

    pub(super) fn lost_control_packets(&self) -> u64 {
        self.lost_control_packets.get()
    }

    /// Runs until all operations have ended at all ranks that live.
    pub(super) fn run(&mut self) {
        while self.now_ns() < LONGEST_NS {
            let now_ns = self.now_ns();
            let mut wanted = self.begin_faults(now_ns);
            for rank in 0..self.plan.ranks {
                let next = match self.plan.paused_until_ns(rank, now_ns) {
                    Some(until_ns) => Some(until_ns).filter(|&ns| ns < u64::MAX),
                    None => self.advance(rank, now_ns),
                };
                wanted = wanted.into_iter().chain(next).min();
            }
            if self.is_over() {
                return;
            }
            let next = self.network.next_ns().into_iter().chain(wanted).min();
            // A member that wants to be polled at once makes no progress unless time passes.
            let Some(next) = next.map(|next| next.max(now_ns + 1)) else {
                return;
            };
            self.network.advance_to(next.min(LONGEST_NS));
        }
    }

    fn is_over(&self) -> bool {
        let live = (0..self.plan.ranks).filter(|&rank| !self.plan.dies(rank));
        let mut live = live.map(|rank| {
            self.next[rank].0 == self.plan.steps.len() && self.running[rank].is_empty()
        });
        live.all(|is_done| is_done)
    }

    /// Starts what is due at a rank, and polls it. Returns when it wants to be polled again.
    fn advance(&mut self, rank: usize, now_ns: u64) -> Option<u64> {
        while let Some(at_ns) = self.next_start_ns(rank).filter(|&at_ns| at_ns <= now_ns) {
            self.start(rank, at_ns.max(now_ns));
        }
        let clock = self.plan.clocks[rank];
        let polled = self.members[rank].poll(clock.local_ns(now_ns));
        let polled = polled.map(|local_ns| clock.network_ns(local_ns));
        while let Some(finished) = self.members[rank].take_finished() {
            let (step, started_ns) = self.running[rank]
                .remove(&finished.id)
                .expect("it was started, and has not ended");
            let output = finished.buffers.output.and_then(|buffer| buffer.into_vec());
            let result = finished
                .result
                .map(|report| (report, output.unwrap_or_default()));
            let ended = Ended {
                started_ns,
                at_ns: now_ns,
                result,
            };
            self.ended[rank].insert(step, ended);
        }
        polled.into_iter().chain(self.next_start_ns(rank)).min()
    }

    fn next_start_ns(&self, rank: usize) -> Option<u64> {
        let (step, at_ns) = self.next[rank];
        (step < self.plan.steps.len()).then_some(at_ns)
    }

    fn start(&mut self, rank: usize, now_ns: u64) {
        let plan = self.plan;
        let number = self.next[rank].0;
        let step = &plan.steps[number];
        let gap_ns = plan
            .steps
            .get(number + 1)
            .map_or(0, |next| next.gaps_ns[rank]);
        self.next[rank] = (number + 1, now_ns + gap_ns);
        let Some(operation) = step.at(rank) else {
            return;
        };
        let differs = Fault::Differ { rank, step: number };
        let more = usize::from(plan.faults.contains(&differs));
        let buffers = data::buffers(step, number, (rank, plan.ranks), more);
        let local_ns = plan.clocks[rank].local_ns(now_ns);
        match self.members[rank].start(local_ns, &operation, step.options, buffers) {
            Ok(id) => {
                self.running[rank].insert(id, (number, now_ns));
            }
            Err(error) => {
                let ended = Ended {
                    started_ns: now_ns,
                    at_ns: now_ns,
                    result: Err(error),
                };
                self.ended[rank].insert(number, ended);
            }
        }
    }

    /// Begins and ends faults that are due. Returns when the next one is.
    fn begin_faults(&mut self, now_ns: u64) -> Option<u64> {
        let mut next = None;
        for (number, fault) in self.plan.faults.iter().enumerate() {
            let (begin_ns, end_ns) = match *fault {
                Fault::Cut { from_ns, to_ns, .. } => (from_ns, to_ns),
                Fault::Leave { at_ns, .. } | Fault::Abort { at_ns, .. } => (at_ns, at_ns),
                _ => continue,
            };
            if !self.begun[number] && begin_ns <= now_ns {
                self.begun[number] = true;
                self.begin(*fault);
            }
            if !self.over[number] && end_ns <= now_ns {
                self.over[number] = true;
                if let Fault::Cut { from, to, .. } = *fault {
                    let up = self.network.set_down(host(from), host(to), false);
                    up.expect("a link");
                }
            }
            let due = [begin_ns, end_ns].into_iter().filter(|&ns| ns > now_ns);
            next = next.into_iter().chain(due).min();
        }
        next
    }

    fn begin(&mut self, fault: Fault) {
        match fault {
            Fault::Cut { from, to, .. } => {
                let down = self.network.set_down(host(from), host(to), true);
                down.expect("a link");
            }
            Fault::Leave { rank, .. } => self.members[rank].leave(),
            Fault::Abort { rank, .. } => {
                let reason = "aborted".into();
                self.members[rank].fail(CollectiveError::Ended { rank, reason });
            }
            _ => {}
        }
    }
}

/// Loses the control packets that the faults of a plan name. Returns a counter of them.
fn cut_control(plan: &CollectivePlan, network: &SimNetwork) -> Rc<Cell<u64>> {
    let cuts = plan.faults.iter().filter_map(|fault| match *fault {
        Fault::ControlCut {
            from,
            to,
            from_ns,
            to_ns,
        } => Some((host(from), host(to), from_ns..to_ns)),
        _ => None,
    });
    let cuts: Vec<_> = cuts.collect();
    let lost = Rc::new(Cell::new(0));
    let (counter, clock) = (Rc::clone(&lost), network.clone());
    network.set_tap(move |datagram: &Datagram| {
        let ends = (datagram.src.ip(), datagram.dst.ip());
        let is_cut = cuts
            .iter()
            .any(|(from, to, span)| (*from, *to) == ends && span.contains(&clock.now_ns()));
        if !is_cut || !is_control(datagram) {
            return Verdict::Pass;
        }
        counter.set(counter.get() + 1);
        Verdict::Drop
    });
    lost
}

fn is_control(datagram: &Datagram) -> bool {
    let packet = Packet::parse(&datagram.payload).expect("an endpoint sends whole packets");
    packet.bth().opcode == UC_SEND_ONLY
}

fn first_start(plan: &CollectivePlan, rank: usize) -> (usize, u64) {
    (0, plan.steps[0].gaps_ns[rank])
}
