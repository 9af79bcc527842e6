//! The hosts of a case, their users, and the loop that advances the virtual time.

mod deadlines;
mod faults;
mod outcomes;
mod paths;
mod reads;
mod recovery;
mod routes;
mod users;
mod writes;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use farwrite::fabric::sim::{LinkCounters, SimNetwork};
use farwrite::{Counters, Endpoint, QpInfo, QpStats, QueuePair};

use crate::case::Coverage;
use crate::plan::show::Millis;
use crate::plan::{MS, PairPlan, Plan};
use crate::recorded_fabric::{Fullness, RecordedFabric};
use crate::tap::Tap;
use crate::violation::{Rule, Violation};
use farwrite_rng::{SplitMix, mix};
pub(crate) use outcomes::Message;
use paths::PathWatch;
use recovery::Recovery;
use routes::RouteEnd;
pub(crate) use writes::Write;

/// Time after which a user retries a post that found no free slot.
const RETRY_NS: u64 = 10 * MS;
/// Limit of the rounds of the loop, far above the rounds of a case.
const MAX_ROUNDS: u64 = 1_000_000;
/// Limit of the polls of one endpoint at one time. The packets and the coding of a case need fewer.
/// At the end of a case, all late packets arrive at once.
const MAX_POLLS: u32 = 1024;
/// First UDP port of hosts. It must not be 4791: packets from there may be from RDMA NICs, and
/// their ICRC is checked less strictly (P2.5).
const FIRST_PORT: u16 = 5000;

/// A running case.
pub(crate) struct World<'p> {
    pub(crate) plan: &'p Plan,
    pub(crate) network: SimNetwork,
    pub(crate) tap: Rc<RefCell<Tap>>,
    pub(crate) hosts: Vec<Host>,
    pub(crate) pairs: Vec<Pair>,
    pub(crate) messages: Vec<Message>,
    /// Messages with a posted side that has no outcome yet.
    pub(crate) open: BTreeSet<usize>,
    /// When users end messages: time, message.
    endings: BTreeSet<(u64, usize)>,
    /// Deadlines of outcomes: time, message, end.
    deadlines: BTreeSet<(u64, usize, usize)>,
    /// Future times of the plan at which something begins or ends.
    instants: BTreeSet<u64>,
    /// Time up to which faults were applied.
    applied_ns: Option<u64>,
    healed: bool,
    /// Time of the last post or outcome.
    progress_ns: u64,
    /// Whether a post is due and all slots are in use.
    is_waiting: bool,
    /// Both ends of the route of each path, if hosts are behind address translation.
    routes: Vec<[RouteEnd; 2]>,
    /// What had moved when the attacker left.
    recovery: Recovery,
    pub(crate) earlier: EarlierCounters,
    pub(crate) coverage: Coverage,
    rng: SplitMix,
    trace: Option<Vec<String>>,
}

/// A simulated host.
pub(crate) struct Host {
    addr: SocketAddr,
    /// The address with which the network sees it.
    pub(crate) seen_as: IpAddr,
    ports: u16,
    endpoint: Option<Endpoint<RecordedFabric>>,
    /// How long it takes to code a group; 0 if it codes at once.
    coding_ns: u64,
    pub(crate) fullness: Rc<RefCell<Fullness>>,
    paused: bool,
    /// When its last pause ended.
    woke_ns: u64,
    /// Number of endpoints that it has started.
    starts: u8,
}

/// A queue pair.
#[derive(Default)]
pub(crate) struct Pair {
    pub(crate) opened: bool,
    /// `None` for an end that does not exist yet, or any more.
    pub(crate) ends: [Option<QueuePair>; 2],
    /// The information with which each end connects; `None` after it has connected.
    peers: [Option<QpInfo>; 2],
    /// When the remaining end gives up.
    pub(crate) gives_up_ns: Option<u64>,
    /// By sending end.
    courses: [DirectionMessages; 2],
    /// Whether an end gave up because the other one closed.
    pub(crate) gave_up: bool,
    watches: [PathWatch; 2],
    /// Statistics of its ends before they were destroyed.
    pub(crate) stats: [QpStats; 2],
}

/// The messages of one direction of a queue pair, in order.
#[derive(Default)]
struct DirectionMessages {
    messages: Vec<usize>,
    sent: usize,
    posted: usize,
}

/// Counters of links and endpoints that no longer exist, for the sums at the end.
#[derive(Default)]
pub(crate) struct EarlierCounters {
    /// Counters of links that were replaced.
    pub(crate) links: Vec<LinkCounters>,
    /// Counters of endpoints that were restarted.
    pub(crate) endpoints: Vec<Counters>,
}

fn address(plan: &Plan, host: usize) -> IpAddr {
    let host = u8::try_from(host + 1).expect("few hosts");
    if plan.ipv6 {
        Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host.into()).into()
    } else {
        Ipv4Addr::new(10, 0, 0, host).into()
    }
}

/// The address with which the network sees a host.
fn seen_as(plan: &Plan, host: usize) -> IpAddr {
    let number = u8::try_from(host + 1).expect("few hosts");
    match (plan.translated, plan.ipv6) {
        (false, _) => address(plan, host),
        (_, true) => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, number.into()).into(),
        (_, false) => Ipv4Addr::new(192, 0, 2, number).into(),
    }
}

impl<'p> World<'p> {
    pub(crate) fn new(plan: &'p Plan, traced: bool) -> Self {
        let network = SimNetwork::new(plan.seed);
        let own = |host| [address(plan, host), seen_as(plan, host)];
        let addresses: Vec<[IpAddr; 2]> = (0..plan.hosts()).map(own).collect();
        for [inside, outside] in addresses.iter().filter(|_| plan.translated) {
            network.translate(*inside, *outside);
        }
        let tap = Tap::new(plan, &network, addresses.clone());
        let hosts: Vec<Host> = (0..plan.hosts())
            .map(|host| Host::new(plan, host, &network, addresses[host]))
            .collect();
        let routes = routes::of(plan, &hosts);
        let pairs = (0..plan.pairs.len()).map(|pair| Pair::new(plan, pair));
        let world = Self {
            hosts,
            pairs: pairs.collect(),
            messages: plan.messages.iter().map(|_| Message::default()).collect(),
            open: BTreeSet::new(),
            endings: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            instants: instants(plan),
            applied_ns: None,
            healed: false,
            progress_ns: 0,
            is_waiting: false,
            routes,
            recovery: Recovery::default(),
            earlier: EarlierCounters::default(),
            coverage: Coverage::default(),
            rng: SplitMix::new(plan.seed ^ 2),
            trace: traced.then(Vec::new),
            plan,
            network,
            tap,
        };
        for path in &plan.paths {
            let [a, b] = path.hosts.map(|host| addresses[host][1]);
            let joined = world.network.connect(a, b, path.links[0], path.links[1]);
            joined.expect("plans have good links");
        }
        world
    }

    /// Runs the case until all messages are over.
    pub(crate) fn run(&mut self) -> Result<(), Violation> {
        for _ in 0..MAX_ROUNDS {
            self.apply_faults()?;
            self.check_deadlines()?;
            self.open_pairs()?;
            self.end_messages()?;
            self.post_messages()?;
            self.check_recovery()?;
            // Deliver before hosts poll: a receive may end at once, and the next may be posted.
            self.deliver_late();
            let wanted = [self.poll_hosts()?, self.poll_routes()?]
                .into_iter()
                .flatten()
                .min();
            let news = self.observe()?;
            if self.is_over() {
                return Ok(());
            }
            let now_ns = self.now_ns();
            let limit_ns = self.plan.heal_ns.max(self.progress_ns) + self.plan.patience_ns;
            if now_ns >= limit_ns {
                return Err(self.violation(Rule::Liveness, self.describe_open()));
            }
            // An ended message frees a slot, and so does an arrived offer.
            let retry = match news {
                true => Some(now_ns),
                false => self.is_waiting.then_some(now_ns + RETRY_NS),
            };
            let ending = self.endings.first().map(|&(at_ns, _)| at_ns);
            let instant = self.instants.first().copied();
            let packet = [self.network.next_ns(), self.tap.borrow().next_ns()];
            let next = [wanted, retry, ending, instant].into_iter().chain(packet);
            let next_ns = next.flatten().min();
            let next_ns = next_ns.unwrap_or(limit_ns).clamp(now_ns + 1, limit_ns);
            self.network.advance_to(next_ns);
        }
        Err(self.violation(Rule::Liveness, "time does not advance".into()))
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.network.now_ns()
    }

    pub(crate) fn violation(&self, rule: Rule, what: String) -> Violation {
        let at_ns = self.now_ns();
        Violation { rule, at_ns, what }
    }

    /// Turns the error of a call that must succeed into a violation.
    pub(crate) fn failed(&self, call: &str, error: impl std::fmt::Display) -> Violation {
        self.violation(Rule::Call, format!("{call}: {error}"))
    }

    /// Adds a line to the trace, if there is one.
    pub(crate) fn say(&mut self, line: impl FnOnce() -> String) {
        let now = Millis(self.network.now_ns());
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{now}: {}", line()));
        }
    }

    pub(crate) fn take_trace(&mut self) -> Vec<String> {
        self.trace.take().unwrap_or_default()
    }

    /// Polls every host that is not paused. Returns when to poll next.
    pub(crate) fn poll_hosts(&mut self) -> Result<Option<u64>, Violation> {
        let now_ns = self.now_ns();
        let mut next: Option<u64> = None;
        for host in 0..self.hosts.len() {
            if self.hosts[host].paused {
                continue;
            }
            let mut wanted = Some(now_ns);
            let mut polls = 0;
            while wanted.is_some_and(|at_ns| at_ns <= now_ns) && polls < MAX_POLLS {
                polls += 1;
                match self.hosts[host].endpoint().poll(now_ns) {
                    Ok(again) => wanted = again,
                    Err(error) => return Err(self.failed("poll", error)),
                }
                self.watch_paths(host)?;
            }
            if polls == MAX_POLLS {
                let what = format!("host {host} asks to be polled at once {polls} times");
                return Err(self.violation(Rule::Liveness, what));
            }
            next = [next, wanted].into_iter().flatten().min();
        }
        Ok(next)
    }

    /// Delivers the held control packets that are due, the held data packets whose slot now has
    /// another message, and copies of captured packets.
    fn deliver_late(&mut self) {
        let pairs = &self.pairs;
        let posted = |pair: usize, from: usize| pairs[pair].courses[from].posted as u64;
        let mut due = self.tap.borrow_mut().take_held(self.now_ns());
        due.extend(self.tap.borrow_mut().take_due(posted));
        due.extend(self.tap.borrow_mut().take_copies(self.now_ns(), posted));
        for datagram in due {
            self.network.inject(datagram);
        }
    }

    /// Whether all messages with existing ends were posted and have ended.
    fn is_over(&self) -> bool {
        self.open.is_empty()
            && self.pairs.iter().all(|pair| {
                let posted = |course: &DirectionMessages| {
                    course.sent == course.messages.len() && course.posted == course.messages.len()
                };
                let is_done = pair.is_connected() && pair.courses.iter().all(posted);
                pair.opened && (pair.is_gone() || is_done)
            })
    }

    fn describe_open(&self) -> String {
        let mut open = String::new();
        for (index, message) in self.plan.messages.iter().enumerate() {
            let Message { sent, received, .. } = &self.messages[index];
            let pair = &self.pairs[message.pair];
            let is_sent = sent.is_some() || self.plan.is_read(index);
            if pair.is_gone() || (is_sent && received.is_some()) {
                continue;
            }
            let state = &self.messages[index];
            let chunks = state.recv.as_ref().map(|recv| recv.bitmap().count());
            let posted = [state.send.is_some(), state.recv.is_some()];
            open += &format!(
                "\n  message {index} is open: sent {sent:?}, received {received:?}, \
                 posted {posted:?}, {chunks:?} chunks: {message}, path {:?}",
                self.peer_stats(message.pair, message.from)
            );
        }
        open
    }
}

impl Drop for World<'_> {
    /// Breaks the reference cycle of the tap and the network.
    fn drop(&mut self) {
        self.network.clear_tap();
    }
}

impl Host {
    fn new(plan: &Plan, host: usize, network: &SimNetwork, [addr, seen_as]: [IpAddr; 2]) -> Self {
        let pairs = plan.pairs.iter();
        let here = pairs.filter(|pair| plan.paths[pair.path].hosts.contains(&host));
        let ports = here
            .map(|pair| pair.options.sdr.channels)
            .max()
            .unwrap_or(1);
        let fullness = Fullness::new(plan.seed ^ mix(host as u64));
        let mut host = Self {
            addr: SocketAddr::new(addr, FIRST_PORT),
            seen_as,
            ports: ports.into(),
            endpoint: None,
            coding_ns: plan.coding_ns,
            fullness: Rc::new(RefCell::new(fullness)),
            paused: false,
            woke_ns: 0,
            starts: 0,
        };
        host.restart(network);
        host
    }

    /// Replaces the endpoint by a new one.
    fn restart(&mut self, network: &SimNetwork) {
        // Drop the old endpoint first, because the new one uses its address.
        self.endpoint = None;
        let fabric = network
            .endpoint(self.addr, self.ports)
            .expect("a free address");
        self.starts += 1;
        let mut seed = [self.starts; 32];
        seed[..2].copy_from_slice(&self.ports.to_le_bytes());
        let recorded = RecordedFabric::new(fabric, Rc::clone(&self.fullness));
        let mut endpoint = Endpoint::new(recorded, seed);
        if self.coding_ns > 0 {
            let delay = Duration::from_nanos(self.coding_ns);
            endpoint.delay_coding(delay).expect("no threads");
        }
        self.endpoint = Some(endpoint);
    }

    pub(crate) fn running(&self) -> &Endpoint<RecordedFabric> {
        self.endpoint.as_ref().expect("every host runs an endpoint")
    }

    pub(crate) fn endpoint(&mut self) -> &mut Endpoint<RecordedFabric> {
        self.endpoint.as_mut().expect("every host runs an endpoint")
    }
}

impl Pair {
    fn new(plan: &Plan, pair: usize) -> Self {
        let course = |from| DirectionMessages {
            messages: plan.course(pair, from).collect(),
            // Nobody posts the answers to reads.
            sent: match plan.pairs[pair].reads[from] {
                true => plan.course(pair, from).count(),
                false => 0,
            },
            ..DirectionMessages::default()
        };
        Self {
            courses: [course(0), course(1)],
            ..Self::default()
        }
    }

    /// Whether all existing ends are connected. An end that is not connected cannot receive the
    /// news that a message has ended, so its peer repeats it.
    fn is_connected(&self) -> bool {
        let mut ends = self.ends.iter().zip(&self.peers);
        ends.all(|(end, peer)| end.is_none() || peer.is_none())
    }

    /// Whether an end closed before its messages ended.
    pub(crate) fn is_deserted(&self) -> bool {
        self.opened && self.ends.iter().any(Option::is_none)
    }

    /// Whether both ends have closed.
    pub(crate) fn is_gone(&self) -> bool {
        self.opened && self.ends.iter().all(Option::is_none)
    }
}

/// All times at which something begins or ends in a plan.
fn instants(plan: &Plan) -> BTreeSet<u64> {
    let mut instants = BTreeSet::from([plan.heal_ns]);
    let opens = |pair: &PairPlan| [pair.opens_ns, pair.opens_ns + pair.lag_ns];
    instants.extend(plan.pairs.iter().flat_map(opens));
    let messages = plan.messages.iter();
    instants.extend(messages.flat_map(|message| [message.send_ns, message.recv_ns]));
    instants.extend(plan.faults.iter().flat_map(faults::instants));
    instants.extend(recovery::due_ns(plan));
    instants
}
