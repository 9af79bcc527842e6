//! A running case, and the rules that it must not break.

use std::time::Duration;

use farwrite_boxes::lowar::{self, Lowar};
use farwrite_boxes::netrt::{self, NetRt};
use farwrite_boxes::{BoxDevice, Middlebox};
use farwrite_net::{CableConfig, Network, NodeId, Options, Role, Topology};
use farwrite_rc::{Completion, Connection, FIRST_QPN, Nic, QpConfig};

use super::device::{BoxHost, BoxNode, FaultyPath, Node, Sent};
use super::forge;
use super::headers::Headers;
use super::plan::{BoxPlan, Boxes, RATE_BPS};
use super::singles::Singles;
use super::traffic::{ExpectedResults, MAX_BYTES, rkey};
use crate::case::Coverage;
use crate::violation::{Rule, Violation};

const STEP_NS: u64 = 1_000_000;
/// All requests must complete within this time after the last fault.
const PATIENCE_NS: u64 = 10_000_000_000;
/// Boxes must fall silent within this time after the last request.
const QUIET_NS: u64 = 60_000_000_000;
const ACK_TIMEOUT_NS: u64 = 12_000_000;

/// A box, and the events that its counters show.
pub(crate) trait Watched: Middlebox<Config: Clone> {
    fn met(counters: &Self::Counters) -> Vec<(&'static str, u64)>;
}

impl Watched for Lowar {
    fn met(counters: &lowar::Counters) -> Vec<(&'static str, u64)> {
        vec![
            ("lowar: coded", counters.coded),
            ("lowar: recovered", counters.recovered),
            ("lowar: not verified", counters.not_verified),
            ("lowar: given up", counters.given_up),
            ("lowar: hold ended", counters.hold_ended),
            ("lowar: damaged packet", counters.damaged),
            ("lowar: repair too long", counters.repairs_too_long),
            ("lowar: no units", counters.units_full),
            ("lowar: no connections", counters.connections_full),
            ("lowar: no room", counters.held_full),
        ]
    }
}

impl Watched for NetRt {
    fn met(counters: &netrt::Counters) -> Vec<(&'static str, u64)> {
        vec![
            ("netrt: copied", counters.copied),
            ("netrt: recovered", counters.recovered),
            ("netrt: notice", counters.notices_sent),
            ("netrt: copy dropped", counters.copies_dropped),
            ("netrt: given up", counters.given_up),
            ("netrt: hold ended", counters.hold_ended),
            ("netrt: damaged packet", counters.damaged),
            ("netrt: no connections", counters.connections_full),
            ("netrt: no room", counters.held_full),
        ]
    }
}

pub(crate) struct BoxWorld<'a, B: Middlebox> {
    plan: &'a BoxPlan,
    network: Network<Node<B>>,
    hosts: [NodeId; 2],
    boxes: [NodeId; 2],
    path: NodeId,
    /// The expected results of each connection and end.
    expected: Vec<[ExpectedResults; 2]>,
    /// The outcomes of requests and receive buffers, of each connection and end.
    outcomes: Vec<[[Vec<Completion>; 2]; 2]>,
    coverage: Coverage,
}

impl<'a, B: Watched> BoxWorld<'a, B> {
    pub(crate) fn new(plan: &'a BoxPlan, configs: &[Option<B::Config>; 2]) -> Self {
        let mut topology = Topology::new();
        let hosts = [0, 1].map(|at| topology.add(Role::Host, format!("nic{at}")));
        let boxes = [0, 1].map(|at| topology.add(Role::Box, format!("box{at}")));
        let path = topology.add(Role::Box, "path");
        let short = CableConfig::new(RATE_BPS, Duration::from_nanos(100));
        for at in 0..2 {
            topology.connect(hosts[at], boxes[at], short);
        }
        let long = CableConfig::new(RATE_BPS, plan.delay / 2);
        for end in boxes {
            topology.connect(end, path, long);
        }
        let sent = [Sent::default(), Sent::default()];
        let device = |id: NodeId, _: &farwrite_net::Node| {
            if let Some(at) = hosts.iter().position(|host| *host == id) {
                return Node::Host(Box::new(BoxHost {
                    nic: Nic::new(id),
                    singles: plan.singles[at].map_or_else(Singles::default, |singles| {
                        singles.packets([id, hosts[1 - at]], plan.mtu_bytes)
                    }),
                    sent: sent[at].clone(),
                    peer_sent: sent[1 - at].clone(),
                    made_up: None,
                }));
            }
            let Some(at) = boxes.iter().position(|end| *end == id) else {
                return Node::Path(Box::new(faulty_path(plan)));
            };
            match &configs[at] {
                Some(config) => {
                    let config = (config.clone(), plan.headers, plan.foreign_seed);
                    Node::Box(Box::new(BoxNode {
                        device: BoxDevice::new(config, 0, plan.backpressure),
                        around: plan.around[at],
                        out: Vec::new(),
                    }))
                }
                None => Node::Wire(Vec::new()),
            }
        };
        let network = Network::new(&topology, &Options::default(), plan.path_seed, device);
        let expected = plan.requests.iter().enumerate().map(|(connection, plans)| {
            [0, 1].map(|from| ExpectedResults::new(&plans[from], connection, from))
        });
        let mut world = Self {
            plan,
            network: network.expect("a possible network"),
            hosts,
            boxes,
            path,
            expected: expected.collect(),
            outcomes: vec![Default::default(); plan.requests.len()],
            coverage: Coverage::default(),
        };
        world.connect();
        world
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.network.now_ns()
    }

    pub(crate) fn hash(&self) -> u64 {
        self.network.trace_hash()
    }

    pub(crate) fn coverage(&self) -> Coverage {
        self.coverage.clone()
    }

    /// Runs the case to its end.
    pub(crate) fn run(&mut self) -> Result<(), Violation> {
        let mut restarts = self.plan.restarts.iter();
        let mut restart = restarts.next();
        let until_ns = self.plan.faults_end_ns + PATIENCE_NS;
        while !self.is_done() {
            let now_ns = self.now_ns();
            if now_ns >= until_ns {
                return Err(self.violation(Rule::Liveness, self.open_requests()));
            }
            let next_ns = now_ns + STEP_NS;
            while let Some(due) = restart.filter(|due| due.at_ns < next_ns) {
                self.network.run_until(due.at_ns);
                if let Some(Node::Box(node)) = self.network.device_mut(self.boxes[due.at]) {
                    node.device.restart();
                    self.coverage.saw("restart");
                }
                restart = restarts.next();
            }
            self.network.run_until(next_ns);
            self.collect();
            self.note();
            self.check_packets()?;
        }
        let until_ns = self.now_ns().max(self.plan.faults_end_ns) + QUIET_NS;
        self.network.run_until(until_ns);
        if let Some(next_ns) = self.network.next_ns() {
            let what = format!("something is due at {next_ns} ns");
            return Err(self.violation(Rule::Silence, what));
        }
        self.collect();
        self.note();
        self.check_packets()?;
        self.check_end()
    }

    fn connect(&mut self) {
        for connection in 0..self.expected.len() {
            let number = u16::try_from(connection).expect("few connections");
            let qpn = FIRST_QPN + u32::from(number);
            for (at, peer) in [(0, 1), (1, 0)] {
                let to = Connection {
                    peer: self.hosts[peer],
                    src_port: 49_152 + number,
                    priority: 3,
                    rate_bps: None,
                };
                let config = QpConfig {
                    mtu_bytes: self.plan.mtu_bytes,
                    window_packets: 64,
                    ack_timeout_ns: ACK_TIMEOUT_NS,
                    retry_limit: Some(255),
                    send_psn: self.plan.first_psn,
                    recv_psn: self.plan.first_psn,
                    ..QpConfig::new(qpn)
                };
                let incoming = &self.expected[connection][peer];
                let ((addr, region), receives) = (incoming.region(), incoming.received.len());
                let requests = self.expected[connection][at].requests.clone();
                let nic = &mut self.host(at).nic;
                assert_eq!(nic.connect(to, config), Ok(qpn));
                let registered = nic.memory.register(rkey(connection), addr, region);
                registered.expect("a free key");
                for id in 0..receives as u64 {
                    nic.post_receive(qpn, id, MAX_BYTES).expect("a queue pair");
                }
                for (id, request) in (0..).zip(requests) {
                    nic.post(qpn, id, request).expect("a queue pair");
                }
            }
        }
    }

    fn host(&mut self, at: usize) -> &mut BoxHost {
        match self.network.device_mut(self.hosts[at]) {
            Some(Node::Host(host)) => host,
            _ => unreachable!("hosts are hosts"),
        }
    }

    /// Collects the completions of requests and receive buffers.
    fn collect(&mut self) {
        for connection in 0..self.expected.len() {
            let number = u32::try_from(connection).expect("few connections");
            for at in 0..2 {
                while let Some(done) = self.host(at).nic.poll_completion(FIRST_QPN + number) {
                    let kind = usize::from(matches!(done, Completion::Received { .. }));
                    self.outcomes[connection][at][kind].push(done);
                }
            }
        }
    }

    /// The expected numbers of completions of a connection and end: of requests and of receive
    /// buffers.
    fn wanted(&self, connection: usize, at: usize) -> [usize; 2] {
        let expected = &self.expected[connection];
        [expected[at].done.len(), expected[1 - at].received.len()]
    }

    fn is_done(&self) -> bool {
        let sent = |host: &NodeId| match self.network.device(*host) {
            Some(Node::Host(host)) => host.singles.next_ns().is_none(),
            _ => unreachable!("hosts are hosts"),
        };
        self.hosts.iter().all(sent) && self.requests_are_done()
    }

    fn requests_are_done(&self) -> bool {
        (0..self.expected.len()).all(|connection| {
            (0..2).all(|at| {
                let outcomes = self.outcomes[connection][at].each_ref().map(Vec::len);
                // If there are more outcomes than requests, `check_end` reports the broken rule.
                let pairs = outcomes.iter().zip(self.wanted(connection, at));
                pairs.into_iter().all(|(got, wanted)| *got >= wanted)
            })
        })
    }

    fn open_requests(&self) -> String {
        let line = |connection: usize| {
            let of = |at: usize| {
                let outcomes = self.outcomes[connection][at].each_ref().map(Vec::len);
                format!("{outcomes:?} of {:?}", self.wanted(connection, at))
            };
            format!("connection {connection}: {}; {}", of(0), of(1))
        };
        let lines: Vec<_> = (0..self.expected.len()).map(line).collect();
        lines.join("\n")
    }

    fn check_packets(&mut self) -> Result<(), Violation> {
        for at in 0..2 {
            if let Some(frame) = self.host(at).made_up.take() {
                let what = format!("NIC {at} got {frame:?}");
                return Err(self.violation(Rule::Packets, what));
            }
            if let Some(Node::Box(node)) = self.network.device(self.boxes[at])
                && let Some(foreign) = &node.device.inner().foreign
                && let Some(broken) = &foreign.broken
            {
                let what = format!("box {at}: {broken}");
                return Err(self.violation(Rule::Packets, what));
            }
        }
        Ok(())
    }

    fn check_end(&mut self) -> Result<(), Violation> {
        for connection in 0..self.expected.len() {
            for at in 0..2 {
                let [own, peer] = [at, 1 - at].map(|at| &self.expected[connection][at]);
                let [done, received] = &self.outcomes[connection][at];
                if (done, received) != (&own.done, &peer.received) {
                    let what = format!("connection {connection}, NIC {at}: {done:?} {received:?}");
                    return Err(self.violation(Rule::Outcome, what));
                }
                let want = peer.memory.clone();
                if self.host(at).nic.memory.bytes(rkey(connection)) != Some(&want[..]) {
                    let what = format!("connection {connection}, memory of NIC {at}");
                    return Err(self.violation(Rule::Bytes, what));
                }
            }
        }
        self.check_singles()?;
        for at in 0..2 {
            if let Some(Node::Box(node)) = self.network.device(self.boxes[at])
                && node.device.inner().held() > 0
            {
                let what = format!("box {at} holds {} frames", node.device.inner().held());
                return Err(self.violation(Rule::Leak, what));
            }
        }
        Ok(())
    }

    /// Boxes hand over all messages of one packet that the path delivered.
    fn check_singles(&mut self) -> Result<(), Violation> {
        for at in 0..2 {
            let Some(Node::Path(path)) = self.network.device(self.path) else {
                unreachable!("the path is a path");
            };
            let Some(Node::Host(host)) = self.network.device(self.hosts[at]) else {
                unreachable!("hosts are hosts");
            };
            let (passed, arrived) = (&path.passed[at], &host.singles.arrived);
            let lost = passed.difference(arrived).count();
            if lost > 0 {
                let what = format!("NIC {at} misses {lost} messages that the path delivered");
                return Err(self.violation(Rule::Packets, what));
            }
            if arrived.len() > passed.len() {
                self.coverage.saw("lowar: recovered single packet");
            }
        }
        Ok(())
    }

    fn violation(&self, rule: Rule, what: String) -> Violation {
        Violation {
            rule,
            at_ns: self.now_ns(),
            what,
        }
    }

    /// Records the events that the case has met.
    fn note(&mut self) {
        let mut seen = vec![
            ("one box missing", u64::from(!self.plan.is_whole())),
            (
                "several connections",
                u64::from(self.plan.requests.len() > 1),
            ),
        ];
        let Headers { ipv6, tags } = self.plan.headers;
        let singles = self.plan.singles.iter().flatten().count();
        seen.extend([
            ("IPv6", u64::from(ipv6)),
            ("VLAN tags", tags as u64),
            ("single packets", singles as u64),
        ]);
        let keys = self.plan.keys();
        let differ = keys.windows(2).any(|pair| pair[0] != pair[1]);
        seen.push(("different keys", u64::from(differ)));
        if let Some(Node::Path(path)) = self.network.device(self.path) {
            let counts = &path.counts;
            let forged = if self.plan.key_is_known {
                "message forged with the right key"
            } else {
                "message forged with another key"
            };
            seen.extend([
                ("frames lost", counts.lost),
                ("frames changed", counts.changed),
                ("frames doubled", counts.doubled),
                ("frames late", counts.late),
                ("message replayed", counts.replayed),
                (forged, counts.forged),
            ]);
        }
        for at in self.boxes {
            if let Some(Node::Box(node)) = self.network.device(at) {
                seen.extend(B::met(&node.device.counters()));
                let foreign = node.device.inner().foreign.as_ref();
                let around = u64::from(node.around.contains(&true));
                seen.push((
                    "foreign frames",
                    foreign.map_or(0, |foreign| foreign.frames),
                ));
                seen.push(("frames around a box", around));
            }
        }
        let recovered = |(kind, count): &(&str, u64)| *kind == "lowar: recovered" && *count > 0;
        let recovered = seen.iter().any(recovered);
        seen.push(("lowar: recovered over IPv6", u64::from(ipv6 && recovered)));
        let seen = seen.into_iter();
        self.coverage
            .extend(seen.map(|(kind, count)| (kind, count > 0)));
    }
}

fn faulty_path(plan: &BoxPlan) -> FaultyPath {
    let is_lowar = matches!(plan.boxes, Boxes::Lowar(_));
    let key = plan.keys().first().copied().flatten();
    let key = key.unwrap_or_else(|| forge::default_key(is_lowar));
    let key = if plan.key_is_known { key } else { [9; 32] };
    FaultyPath::new(plan, key)
}
