//! A running case in a network.

mod coverage;
mod judge;

pub(super) use coverage::KINDS;
use farwrite::{Outcome, QueuePair};
use farwrite_net::{FrameDrop, Network, NodeId, Options};
use farwrite_rc::{Completion, PostError};

use super::nic::{self, NicHost, RequestOutcome};
use super::plan::{Carrier, FlowPlan, NetworkPlan};
use super::{Bytes, NetworkHost, Worker, endpoint};
use crate::case::Coverage;
use crate::plan::{SECOND, US};
use crate::violation::{Rule, Violation};

/// Shortest time between two checks for finished flows.
const STEP_NS: u64 = 20 * US;
/// First source port of NICs.
const FIRST_PORT: u16 = 50_000;

/// The queue pairs of a flow, at its sender and at its receiver.
#[derive(Clone, Copy)]
enum Joined {
    Endpoint([QueuePair; 2]),
    Nic([u32; 2]),
}

pub(super) struct NetworkWorld<'a> {
    plan: &'a NetworkPlan,
    network: Network<NetworkHost>,
    hosts: Vec<NodeId>,
    joined: Vec<Joined>,
    /// What the flows that have ended show.
    ended: Coverage,
}

impl<'a> NetworkWorld<'a> {
    /// # Panics
    /// If the plan is not valid. All drawn plans are.
    pub(super) fn new(plan: &'a NetworkPlan) -> Self {
        let topology = plan.shape.build().expect("drawn shapes are valid");
        let hosts: Vec<_> = topology.hosts().collect();
        let path = nic::path(plan.rtt_ns());
        let mut made: Vec<_> = hosts.iter().map(|_| None).collect();
        for (number, (host, &node)) in made.iter_mut().zip(&hosts).enumerate() {
            *host = Some(match number % 2 {
                0 => NetworkHost::Endpoint(Box::new(endpoint::new(node, plan.seed))),
                _ => NetworkHost::Nic(Box::new(NicHost::new(node, plan.transport, path))),
            });
        }
        let joined = (0..plan.flows.len()).map(|flow| join(plan, flow, &mut made, &hosts));
        let joined = joined.collect();
        let options = Options {
            reroute: plan.reroute,
            ..Options::with_switches(plan.switch.clone())
        };
        let mut made = made.into_iter().flatten();
        let device = |_, _: &_| made.next().expect("each host once, in order");
        let network = Network::new(&topology, &options, plan.seed, device);
        Self {
            plan,
            network: network.expect("drawn networks are valid"),
            hosts,
            joined,
            ended: Coverage::default(),
        }
    }

    pub(super) fn hash(&self) -> u64 {
        self.network.trace_hash()
    }

    pub(super) fn frames(&self) -> u64 {
        self.network.sent()
    }

    pub(super) fn violation(&self, rule: Rule, what: impl ToString) -> Violation {
        Violation {
            rule,
            at_ns: self.network.now_ns(),
            what: what.to_string(),
        }
    }

    /// Runs the case until all flows have ended, and checks it.
    pub(super) fn run(&mut self) -> Result<(), Violation> {
        for at in &self.plan.changes {
            let planned = self.network.plan(at.at_ns, at.cable, at.change);
            planned.map_err(|why| self.violation(Rule::Call, why))?;
        }
        let mut starts: Vec<_> = (0..self.plan.flows.len()).collect();
        starts.sort_by_key(|flow| std::cmp::Reverse(self.plan.flows[*flow].start_ns));
        let limit_ns = self.plan.settled_ns() + self.plan.patience_ns();
        loop {
            let now_ns = self.network.now_ns();
            let starts_ns = |flow: &usize| self.plan.flows[*flow].start_ns;
            while starts.last().is_some_and(|flow| starts_ns(flow) <= now_ns) {
                let flow = starts.pop().unwrap_or_default();
                self.start(flow)?;
            }
            self.take_completions()?;
            // The calls above made hosts due now. After that, `next_ns` is the next real event.
            self.network.run_until(now_ns);
            let next_start_ns = starts.last().map(starts_ns);
            if next_start_ns.is_none() && self.open()?.is_empty() {
                break;
            }
            let next_ns = self
                .network
                .next_ns()
                .map(|at_ns| at_ns.max(now_ns + STEP_NS));
            match next_ns.into_iter().chain(next_start_ns).min() {
                Some(at_ns) if at_ns <= limit_ns => self.network.run_until(at_ns),
                _ => {
                    let what = format!("flows {:?} are not over", self.open()?);
                    return Err(self.violation(Rule::Liveness, what));
                }
            }
        }
        // Let late packets arrive before the bytes are checked.
        self.rest()?;
        self.judge()
    }

    /// Posts the requests and buffers of both ends of a flow.
    fn start(&mut self, number: usize) -> Result<(), Violation> {
        let FlowPlan {
            src, dst, carrier, ..
        } = self.plan.flows[number];
        let posted = match (self.joined[number], carrier) {
            (Joined::Endpoint([from, to]), Carrier::Endpoint(scheme)) => {
                let bytes = Bytes::new(self.plan, number, 0);
                let received = self.worker(dst).receive(number, to, &bytes);
                let sent = received.and_then(|()| {
                    let sender = self.worker(src);
                    sender.send(number, from, &bytes, scheme)
                });
                sent.map_err(|why| why.to_string())
            }
            (Joined::Nic(qpns), _) => self.post(number, qpns).map_err(|why| why.to_string()),
            (Joined::Endpoint(_), _) => Err("the plan has no scheme for an endpoint".to_owned()),
        };
        posted.map_err(|why| self.violation(Rule::Call, format!("flow {number}: {why}")))
    }

    /// Posts all requests and buffers of a flow between NICs.
    fn post(&mut self, number: usize, [from, to]: [u32; 2]) -> Result<(), PostError> {
        let FlowPlan {
            src,
            dst,
            carrier,
            messages,
            ..
        } = self.plan.flows[number];
        let (owner, requester, qpn) = match carrier {
            Carrier::Read => (src, dst, to),
            _ => (dst, src, from),
        };
        for message in 0..messages {
            let bytes = Bytes::new(self.plan, number, message);
            if matches!(carrier, Carrier::Send | Carrier::WriteImmediate) {
                self.nic(dst).post_buffer(to, message, &bytes)?;
            }
            if !matches!(carrier, Carrier::Send) {
                self.nic(owner).offer((number, message), &bytes, carrier);
            }
            let nic = self.nic(requester);
            nic.post_request(qpn, (number, message), &bytes, carrier)?;
        }
        Ok(())
    }

    fn take_completions(&mut self) -> Result<(), Violation> {
        for number in 0..self.hosts.len() {
            let failed = match self.network.device_mut(self.hosts[number]) {
                Some(NetworkHost::Nic(host)) => {
                    host.take_completions();
                    None
                }
                Some(NetworkHost::Endpoint(host)) => host.program_mut().error.take(),
                None => None,
            };
            if let Some(why) = failed {
                return Err(self.violation(Rule::Call, format!("host {number}: {why}")));
            }
        }
        Ok(())
    }

    /// The flows that are not finished.
    fn open(&self) -> Result<Vec<usize>, Violation> {
        let mut open = Vec::new();
        for (number, flow) in self.plan.flows.iter().enumerate() {
            let is_over = match flow.carrier {
                Carrier::Endpoint(_) => {
                    let [sent, received] = self.outcomes(number);
                    sent.is_some() && received.is_some()
                }
                _ => {
                    let outcomes = self.request_outcomes(number)?;
                    let is_nothing = |outcome| matches!(outcome, &RequestOutcome::Nothing);
                    !outcomes.iter().any(is_nothing)
                }
            };
            open.extend((!is_over).then_some(number));
        }
        Ok(open)
    }

    /// Waits for frames in flight, and checks that each frame was delivered or counted.
    fn rest(&mut self) -> Result<(), Violation> {
        let until_ns = self.network.now_ns() + SECOND;
        while self.network.in_flight() > 0 {
            let next_ns = self.network.next_ns().filter(|at_ns| *at_ns <= until_ns);
            let Some(next_ns) = next_ns else {
                let what = format!("{} frames are left in flight", self.network.in_flight());
                return Err(self.violation(Rule::Silence, what));
            };
            self.network.run_until(next_ns);
        }
        let (sent, delivered) = (self.network.sent(), self.network.delivered());
        let dropped = self.network.totals().all_dropped();
        if sent != delivered + dropped {
            let what = format!("{sent} frames were sent, {delivered} delivered, {dropped} dropped");
            return Err(self.violation(Rule::Counters, what));
        }
        let totals = self.network.totals();
        let lost = [FrameDrop::Buffer, FrameDrop::Headroom].map(|why| totals.dropped_for(why));
        if self.plan.is_lossless() && lost != [0, 0] {
            let what = format!("switches dropped {lost:?} frames for lack of buffer and headroom");
            return Err(self.violation(Rule::Lossless, what));
        }
        // No request completes a second time.
        self.take_completions()?;
        self.open().map(|_| ())
    }

    /// The outcome of an endpoint's message, at its sender and at its receiver.
    fn outcomes(&self, number: usize) -> [Option<Outcome>; 2] {
        let flow = self.plan.flows[number];
        let program = |host: usize| match self.network.device(self.hosts[host]) {
            Some(NetworkHost::Endpoint(host)) => Some(host.program()),
            _ => None,
        };
        let sent = program(flow.src).and_then(|worker| worker.sent(number));
        let received = program(flow.dst).and_then(|worker| worker.received(number)?.1);
        [sent, received]
    }

    fn request_outcomes(&self, number: usize) -> Result<Vec<RequestOutcome>, Violation> {
        let flow = self.plan.flows[number];
        let requester = match flow.carrier {
            Carrier::Read => flow.dst,
            _ => flow.src,
        };
        let completions = self.completions(requester, number);
        nic::request_outcomes(completions.iter(), flow.messages)
            .map_err(|what| self.violation(Rule::Outcome, format!("flow {number}: {what}")))
    }

    fn completions(&self, host: usize, number: usize) -> Vec<Completion> {
        let all = match self.network.device(self.hosts[host]) {
            Some(NetworkHost::Nic(host)) => &host.completions[..],
            _ => &[],
        };
        let of_flow = all.iter().filter(|(flow, _)| *flow == number);
        of_flow.map(|(_, completion)| completion.clone()).collect()
    }

    fn worker(&mut self, host: usize) -> &mut Worker {
        match self.network.device_mut(self.hosts[host]) {
            Some(NetworkHost::Endpoint(host)) => host.program_mut(),
            _ => panic!("host {host} has no endpoint"),
        }
    }

    fn nic(&mut self, host: usize) -> &mut NicHost {
        match self.network.device_mut(self.hosts[host]) {
            Some(NetworkHost::Nic(host)) => host,
            _ => panic!("host {host} has no NIC"),
        }
    }
}

/// Connects the queue pairs of a flow.
fn join(
    plan: &NetworkPlan,
    number: usize,
    made: &mut [Option<NetworkHost>],
    hosts: &[NodeId],
) -> Joined {
    let FlowPlan { src, dst, .. } = plan.flows[number];
    let both = made.get_disjoint_mut([src, dst]);
    match both.expect("a flow has two hosts") {
        [
            Some(NetworkHost::Endpoint(one)),
            Some(NetworkHost::Endpoint(other)),
        ] => {
            let workers = [one.program_mut(), other.program_mut()];
            let joined = endpoint::connect(workers, plan.rate_control, plan.rtt_ns());
            Joined::Endpoint(joined.expect("endpoints with equal options connect"))
        }
        [Some(NetworkHost::Nic(one)), Some(NetworkHost::Nic(other))] => {
            let ends = [(&mut **one, hosts[src]), (&mut **other, hosts[dst])];
            let src_port = FIRST_PORT + u16::try_from(number).expect("few flows");
            let joined = nic::connect(ends, number, src_port, plan.transport);
            Joined::Nic(joined.expect("settings of transports are valid"))
        }
        _ => panic!("flow {number} is between hosts of two kinds"),
    }
}

#[cfg(test)]
mod tests {
    use farwrite_rc::RequestError;

    use super::*;

    /// If the acknowledgement is lost, a request fails although its message has arrived.
    #[test]
    fn the_receiver_of_a_failed_send_is_looked_at_too() {
        let send = FlowPlan {
            src: 1,
            dst: 3,
            messages: 2,
            bytes: 100,
            start_ns: 0,
            carrier: Carrier::Send,
        };
        let plan = NetworkPlan {
            flows: vec![send],
            ..NetworkPlan::of_seed(0)
        };
        let error = RequestError::RetriesExhausted { retries: 1 };
        let judged = |received: Vec<Completion>| {
            let mut world = NetworkWorld::new(&plan);
            world.nic(send.src).completions = vec![(0, nic::failed(error))];
            let received = received.into_iter().map(|completion| (0, completion));
            world.nic(send.dst).completions = received.collect();
            world.judge().map_err(|violation| violation.rule)
        };
        let [first, second] = [0, 1].map(|number| {
            let message = Bytes::new(&plan, 0, number).message();
            nic::received(number, &message)
        });
        assert_eq!(judged(vec![]), Ok(()));
        assert_eq!(judged(vec![first.clone()]), Ok(()));
        assert_eq!(judged(vec![first.clone(), second.clone()]), Ok(()));
        assert_eq!(judged(vec![nic::received(0, &[0; 100])]), Err(Rule::Bytes));
        assert_eq!(judged(vec![first.clone(), first]), Err(Rule::Outcome));
        assert_eq!(judged(vec![second]), Err(Rule::Outcome));
    }
}
