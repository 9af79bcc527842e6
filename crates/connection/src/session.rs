//! One connection at one end (P12.5, P12.6): from the handshake to its end. The driver calls it on the
//! endpoint's thread.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use farwrite::fabric::udp::ReadyEvent;
use farwrite::routes::{Role, RouteId, RouteKeeper};
use farwrite::{
    Endpoint, MAX_MTU, QpConfig, QpInfo, QpOptions, QpWaker, QueuePair, RateControl, Sealing,
    SendOptions, UdpFabric, Waiters,
};

use crate::error::{Ended, Error};
use crate::keys::Peer;
use crate::message::{self, ByeCause, Malformed, Message};
use crate::message_queue::{Buffers, MessageQueue};
use crate::options::ConnectionOptions;
use crate::purpose::Purpose;

mod cutovers;
mod ending;
mod gone;
#[cfg(test)]
mod lies;
mod notices;
mod queue_pairs;
mod stuck;

use cutovers::check_mtu;
use ending::{LINGER_NS, WaitsFor};
use gone::gone_ns;
pub use gone::{INITIATOR_GONE_AFTER, RESPONDER_GONE_AFTER};
pub use notices::MAX_NOTICE_BYTES;
use notices::Notices;
pub(crate) use queue_pairs::fit_path;
use queue_pairs::{OpenPair, Opening, Request};
use stuck::StuckWatch;

/// The MTU of the session queue pair (P12.5). Each path of IPv6 carries such packets.
pub(crate) const SESSION_MTU: u32 = 1024;
/// Buffers of each end for messages of the session.
const BUFFERS: usize = 16;
/// The most messages of the session that wait for the peer. A peer that asks and takes no answers would
/// fill this end's memory.
const MOST_UNSENT: usize = 1024;
/// The time between two looks at something that has no event.
const LOOK_AGAIN_NS: u64 = 1_000_000;
/// The shortest time between two requests for a sign of life.
const ASK_NS: u64 = 1_000_000_000;
/// The longest silence after which this end asks.
const MOST_SILENCE_NS: u64 = 15_000_000_000;

/// The session queue pair, as P12.5 fixes it for both ends. `rtt` is the round trip of the handshake, if this end has
/// measured it.
pub(crate) fn session_options(rate_control: RateControl, rtt: Option<Duration>) -> QpOptions {
    let defaults = QpOptions::default();
    let sdr = QpConfig {
        mtu: SESSION_MTU,
        slots: 32,
        parity: false,
        max_message_bytes: message::MAX_BYTES,
        ..QpConfig::default()
    };
    QpOptions {
        sdr,
        rate_control,
        sealing: Sealing::Required,
        initial_rtt: rtt.unwrap_or(defaults.initial_rtt),
        ..defaults
    }
}

/// What the driver has for all sessions.
pub(crate) struct Shared<'a> {
    pub(crate) endpoint: &'a mut Endpoint<UdpFabric>,
    pub(crate) keeper: &'a mut RouteKeeper,
    pub(crate) options: &'a ConnectionOptions,
    pub(crate) now_ns: u64,
}

enum Phase {
    /// This end is not ready yet, or the peer is not.
    Greeting {
        until_ns: u64,
    },
    Open,
    /// The peer has ended the connection. It still acknowledges what it has received.
    Leaving {
        until_ns: u64,
        why: Ended,
    },
    /// The last message is under way.
    Closing {
        until_ns: u64,
        why: Ended,
        waits_for: WaitsFor,
    },
    Over(Ended),
}

pub(crate) struct Session {
    pub(crate) peer: Peer,
    pub(crate) purpose: Purpose,
    role: Role,
    pub(crate) route: RouteId,
    pub(crate) qp: QueuePair,
    queue: MessageQueue,
    phase: Phase,
    /// Messages of an initiator that leave with the proof of the handshake, until it has left.
    early: Option<Vec<Vec<u8>>>,
    /// Whether the initiator still looks for the largest packets.
    is_searching: bool,
    /// Whether cutovers or refusals of queue pairs wait until the peer has taken others.
    is_behind: bool,
    is_peer_ready: bool,
    /// The queue pair that this end opens as soon as it can ([`ConnectionOptions::first`]), until the program
    /// asks for it: its number and its name.
    first: Option<(u32, String)>,
    /// The MTU that the path carries; 0 while it is not known.
    pub(crate) mtu: u32,
    /// Whether the peer goes on with smaller packets when the path comes to carry no others.
    pub(crate) peer_goes_on: bool,
    rtt: Duration,
    /// The silence of the peer that ends the session.
    pub(crate) silence_limit: Duration,
    /// When the session began.
    since_ns: u64,
    /// When the peer was asked for a sign of life, and when this end looked for its own address.
    asked_ns: u64,
    looked_ns: u64,
    stuck: StuckWatch,
    notices: Notices,
    pairs: BTreeMap<u32, OpenPair>,
    /// Those of `pairs` that have ended, and only answer late packets.
    retired: BTreeSet<u32>,
    openings: BTreeMap<u32, Opening>,
    requests: VecDeque<Request>,
    /// The number of the next queue pair that this end opens, and the least one of the peer's next.
    next_number: u32,
    next_theirs: u64,
    /// Threads that wait for something of this session, and whether they must look again.
    pub(crate) waiters: Arc<Waiters>,
    has_changed: bool,
    /// Whether the peer's next queue pair can be accepted.
    pub(crate) ready: ReadyEvent,
    /// [`ConnectionOptions::max_queue_pairs`].
    max_queue_pairs: usize,
    /// Whether the session has opened or is ending, since the last call of [`Session::announce`].
    has_turned: bool,
    /// Makes the endpoint's thread poll this session.
    waker: QpWaker,
    /// The attempt to connect that has led to this session, until the peer has used its proof.
    pub(crate) attempt: Option<usize>,
    /// Whether the session goes when it is over, as nobody names it any more.
    pub(crate) is_forgotten: bool,
    /// Whether the endpoint's thread still runs the task of this session.
    pub(crate) has_task: bool,
    /// Calls of [`Session::poll`].
    #[cfg(test)]
    pub(crate) visits: u64,
}

impl Session {
    /// A session after the handshake: `route` is known, and `qp` is the session queue pair. [`Session::begin`]
    /// follows.
    pub(crate) fn new(
        shared: &mut Shared<'_>,
        peer: Peer,
        role: Role,
        (route, rtt): (RouteId, Duration),
        qp: QueuePair,
        theirs: &QpInfo,
    ) -> Result<Self, Error> {
        shared.keeper.connect(shared.endpoint, route, qp, theirs)?;
        let bytes = usize::try_from(message::MAX_BYTES).unwrap_or(usize::MAX);
        let buffers = Buffers::new(bytes, BUFFERS, BUFFERS);
        let queue = MessageQueue::new(shared.endpoint, qp, buffers, SendOptions::default())?;
        Ok(Self {
            peer,
            purpose: Purpose::PROGRAM,
            role,
            route,
            qp,
            queue,
            phase: Phase::Greeting {
                until_ns: shared.now_ns + nanoseconds(shared.options.connect_limit),
            },
            early: (role == Role::Initiator).then(Vec::new),
            is_searching: role == Role::Initiator,
            is_behind: false,
            is_peer_ready: false,
            first: None,
            mtu: 0,
            peer_goes_on: false,
            rtt,
            silence_limit: shared.options.silence_limit,
            since_ns: shared.now_ns,
            asked_ns: 0,
            looked_ns: 0,
            stuck: StuckWatch::default(),
            notices: Notices::default(),
            pairs: BTreeMap::new(),
            retired: BTreeSet::new(),
            openings: BTreeMap::new(),
            requests: VecDeque::new(),
            // The ends number their queue pairs apart.
            next_number: u32::from(role == Role::Responder),
            next_theirs: 0,
            waiters: Arc::default(),
            has_changed: false,
            ready: ReadyEvent::default(),
            max_queue_pairs: shared.options.max_queue_pairs,
            has_turned: false,
            waker: shared.endpoint.waker_of(qp),
            attempt: None,
            is_forgotten: false,
            has_task: true,
            #[cfg(test)]
            visits: 0,
        })
    }

    /// Wakes who waits, if something has changed since the last call. Returns whether the session has opened or
    /// is ending since then.
    pub(crate) fn announce(&mut self) -> bool {
        if std::mem::take(&mut self.has_changed) {
            self.tell_waiters();
        }
        std::mem::take(&mut self.has_turned)
    }

    pub(crate) fn tell_waiters(&mut self) {
        self.waiters.wake();
        self.follow_requests();
    }

    /// Makes the descriptor readable while a queue pair of the peer can be accepted.
    pub(crate) fn follow_requests(&mut self) {
        let is_asked = self.is_asked(None);
        self.ready.update(is_asked);
    }

    /// A descriptor that is readable while [`Session::is_asked`] holds for any name.
    pub(crate) fn descriptor(&mut self) -> Result<Arc<OwnedFd>, Error> {
        let is_asked = self.is_asked(None);
        let descriptor = self.ready.descriptor(is_asked);
        Ok(descriptor.map_err(farwrite::Error::from)?)
    }

    /// Makes the endpoint's thread poll this session soon.
    pub(crate) fn wake(&self) {
        self.waker.wake();
    }

    fn turn(&mut self, phase: Phase) {
        self.phase = phase;
        (self.has_changed, self.has_turned) = (true, true);
    }

    /// Whether both ends are ready.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    /// Why the session is over, if it is.
    pub(crate) fn ended(&self) -> Option<Ended> {
        match &self.phase {
            Phase::Over(why) | Phase::Closing { why, .. } => Some(why.clone()),
            _ => None,
        }
    }

    /// Whether nothing is left to do.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over(_))
    }

    /// Whether anything has come from the peer over the route.
    pub(crate) fn has_heard(&self, shared: &Shared<'_>) -> bool {
        shared.keeper.heard_ns(self.route).is_some()
    }

    /// Returns when to call again.
    pub(crate) fn poll(&mut self, shared: &mut Shared<'_>) -> u64 {
        #[cfg(test)]
        {
            self.visits += 1;
        }
        match self.work(shared) {
            Ok(next_ns) => next_ns,
            Err(why) => {
                self.fail(shared, why);
                0
            }
        }
    }

    fn work(&mut self, shared: &mut Shared<'_>) -> Result<u64, Ended> {
        if self.is_over() {
            return Ok(u64::MAX);
        }
        let watch_ns = self.watch(shared)?;
        let watch_ns = match self.phase {
            Phase::Open => {
                let pairs = self.pairs.values().map(|pair| pair.qp);
                let path = (self.route, self.mtu, self.can_go_on());
                let look = self.stuck.look(shared, path, pairs.chain([self.qp]));
                let (look_ns, shrunk) = look?;
                if let Some(shrunk) = shrunk {
                    self.shrink(shared, &shrunk);
                }
                watch_ns.min(look_ns)
            }
            _ => watch_ns,
        };
        if self.is_searching && matches!(self.phase, Phase::Greeting { .. } | Phase::Open) {
            self.find_largest(shared)?;
        }
        let mut again = self.queue.poll(shared.endpoint)?;
        again |= self.send_notice();
        while let Some(bytes) = self.queue.take() {
            again = true;
            if let Some(message) = Message::decode(&bytes)? {
                self.receive(shared, message)?;
            }
            if self.is_over() {
                return Ok(0);
            }
        }
        if self.is_behind && self.is_open() {
            again |= self.begin_cutovers(shared);
        }
        if self.queue.unsent() > MOST_UNSENT {
            return Err(Malformed::new("it takes no messages of the session").into());
        }
        let now_ns = shared.now_ns;
        let due_ns = match &self.phase {
            Phase::Greeting { until_ns } if now_ns >= *until_ns => {
                return Err(Ended::Silence(shared.options.connect_limit));
            }
            Phase::Greeting { until_ns } => *until_ns,
            Phase::Leaving { until_ns, why } => {
                if now_ns >= *until_ns || !self.waits_for_acks(shared) {
                    let why = why.clone();
                    self.answer_bye(shared, why);
                    return Ok(0);
                }
                // Events of its queue pairs do not reach the session.
                (*until_ns).min(now_ns + LOOK_AGAIN_NS)
            }
            Phase::Closing { .. } => match self.wait_to_close(shared) {
                Some(due_ns) => due_ns,
                None => return Ok(0),
            },
            _ => u64::MAX,
        };
        let next_ns = match again {
            true => 0,
            // No event says when the fabric no longer holds the memory of a message that has ended.
            false if self.queue.holds_memory() => now_ns + LOOK_AGAIN_NS,
            false => u64::MAX,
        };
        Ok(next_ns.min(watch_ns).min(due_ns))
    }

    /// Notices that the peer is silent.
    fn watch(&mut self, shared: &mut Shared<'_>) -> Result<u64, Ended> {
        let now_ns = shared.now_ns;
        let heard_ns = shared.keeper.heard_ns(self.route);
        let heard_ns = heard_ns.map_or(self.since_ns, |heard_ns| heard_ns.max(self.since_ns));
        let limit = self.silence_limit;
        let limit_ns = nanoseconds(limit);
        let silent_ns = now_ns.saturating_sub(heard_ns);
        if silent_ns >= limit_ns {
            return Err(Ended::Silence(limit));
        }
        if silent_ns >= ASK_NS && now_ns >= self.looked_ns + ASK_NS {
            self.looked_ns = now_ns;
            self.follow_own_address(shared);
        }
        if silent_ns >= ASK_NS
            && let Some(since_ns) = shared.keeper.refused_since(shared.endpoint, self.route)
        {
            if now_ns >= gone_ns(since_ns, self.role) {
                return Err(Ended::Gone);
            }
            self.ask(shared);
            return Ok(now_ns + ASK_NS);
        }
        let ask_ns = heard_ns + (limit_ns / 4).clamp(ASK_NS, MOST_SILENCE_NS);
        if now_ns < ask_ns {
            // An end whose own address may have changed, or whose messages may reach nobody, looks each second. The
            // thread polls then anyway.
            let look_ns = self.looked_ns.max(heard_ns) + ASK_NS;
            let looks = self.has_own_addresses(shared) || self.waits_for_acks(shared);
            return Ok(ask_ns.min(if looks { look_ns } else { u64::MAX }));
        }
        self.ask(shared);
        Ok(now_ns + ASK_NS)
    }

    /// Asks the peer for a sign of life, at most once a second.
    fn ask(&mut self, shared: &mut Shared<'_>) {
        if shared.now_ns >= self.asked_ns + ASK_NS {
            self.asked_ns = shared.now_ns;
            shared.keeper.ask(self.route);
        }
    }

    /// Whether this end may send from another address than it does now.
    fn has_own_addresses(&self, shared: &Shared<'_>) -> bool {
        self.role == Role::Initiator && shared.endpoint.fabric().is_wildcard(0)
    }

    /// The initiator sends from its new address when its machine has moved.
    fn follow_own_address(&mut self, shared: &mut Shared<'_>) {
        if !self.has_own_addresses(shared) {
            return;
        }
        let peer = shared.keeper.peer(self.route);
        if let Some(source) = peer.and_then(|peer| farwrite::fabric::udp::source_for(peer).ok()) {
            // The route exists as long as the session.
            let _ = shared.keeper.set_local(self.route, source);
        }
    }

    /// Says that this end is ready, if nothing must be found out before. Each path carries packets of
    /// [`SESSION_MTU`], or else the search ends the session.
    pub(crate) fn begin(&mut self, shared: &mut Shared<'_>) {
        match (self.role, shared.options.largest_mtu) {
            (Role::Responder, _) => self.tell(&Message::Ready { mtu: 0 }),
            (Role::Initiator, Some(SESSION_MTU)) => self.be_ready(shared, SESSION_MTU),
            (Role::Initiator, _) => {}
        }
    }

    /// The initiator knows the MTU.
    fn be_ready(&mut self, shared: &mut Shared<'_>, mtu: u32) {
        self.mtu = mtu;
        self.tell(&Message::Ready { mtu });
        if let Some((name, options)) = shared.options.first.clone()
            // The program gets the error when it asks for the queue pair.
            && let Ok(Some(number)) = self.begin_open(shared, &name, options)
        {
            self.first = Some((number, name));
        }
        self.open_if_ready();
    }

    /// The number of [`ConnectionOptions::first`], once, if it has this name and was asked for.
    pub(crate) fn take_first(&mut self, name: &str) -> Option<u32> {
        let (number, _) = self.first.take_if(|(_, first)| first == name)?;
        Some(number)
    }

    fn open_if_ready(&mut self) {
        let is_greeting = matches!(self.phase, Phase::Greeting { .. });
        if is_greeting && self.is_peer_ready && self.mtu > 0 {
            self.turn(Phase::Open);
        }
    }

    /// Looks whether the search for the largest packets has ended.
    fn find_largest(&mut self, shared: &mut Shared<'_>) -> Result<(), Ended> {
        let limit = shared.options.connect_limit;
        let found = shared.keeper.found(self.route, limit);
        if let Some(found) = found.map_err(farwrite::Error::from)? {
            self.is_searching = false;
            self.rtt = found.rtt;
            if self.mtu == 0 {
                self.be_ready(shared, found.mtu.unwrap_or(0));
            }
        }
        Ok(())
    }

    /// What the initiator has to say first, which goes with its proof. Later messages take the session queue pair.
    pub(crate) fn take_early(&mut self) -> Vec<Vec<u8>> {
        self.early.take().unwrap_or_default()
    }

    /// Takes the messages that came with the proof.
    pub(crate) fn hear_early(&mut self, shared: &mut Shared<'_>, messages: &[Vec<u8>]) {
        for bytes in messages {
            if self.is_over() {
                return;
            }
            let message = Message::decode(bytes).map_err(Ended::from);
            let heard = message.and_then(|message| match message {
                Some(message) => self.receive(shared, message),
                None => Ok(()),
            });
            if let Err(why) = heard {
                return self.fail(shared, why);
            }
        }
    }

    fn tell(&mut self, message: &Message) {
        let bytes = message.encode();
        match &mut self.early {
            Some(early) => early.push(bytes),
            None => drop(self.queue.send(bytes)),
        }
    }

    fn receive(&mut self, shared: &mut Shared<'_>, message: Message) -> Result<(), Ended> {
        self.has_changed = true;
        if let Phase::Leaving { .. } = self.phase {
            // Nothing follows a bye.
            return Ok(());
        }
        if let Phase::Closing { why, .. } = &self.phase {
            // The first reason stays, and nothing is opened any more.
            let why = why.clone();
            if matches!(message, Message::Bye { .. } | Message::Left) {
                self.end(shared, why);
            }
            return Ok(());
        }
        match message {
            Message::Ready { mtu } => {
                if self.role == Role::Responder {
                    check_mtu(mtu, MAX_MTU)?;
                    if self.mtu == 0 {
                        self.mtu = mtu;
                    }
                }
                self.is_peer_ready = true;
                self.open_if_ready();
            }
            Message::Open {
                number,
                name,
                queue_pair,
            } => self.requested(number, name, queue_pair)?,
            Message::Opened { number, queue_pair } => self.opened(shared, number, &queue_pair)?,
            Message::Refused { number, reason } => {
                if let Some(opening) = self.openings.get_mut(&number) {
                    opening.answer.get_or_insert(Err(reason));
                } else {
                    self.hear_refusal(shared, number);
                }
            }
            Message::Smaller { mtu } => self.hear_smaller(shared, mtu)?,
            Message::Cutover {
                number,
                queue_pair,
                ended,
            } => self.follow_cutover(shared, number, (&queue_pair, &ended))?,
            Message::CutoverAccepted {
                number,
                queue_pair,
                ended,
            } => self.finish_cutover(shared, number, (&queue_pair, &ended))?,
            Message::Close { number } => {
                self.requests.retain(|request| request.number != number);
                // The queue pair itself stays until its user closes it: messages may have arrived.
            }
            Message::Left => self.stay_behind(shared),
            Message::Notice { bytes } => self.hear_notice(bytes)?,
            Message::Bye { cause, reason } => {
                let why = Ended::ByPeer { cause, reason };
                let until_ns = shared.now_ns + LINGER_NS;
                match (cause, &self.phase) {
                    (ByeCause::Closed, Phase::Open) => {
                        self.turn(Phase::Leaving { until_ns, why });
                    }
                    _ => self.answer_bye(shared, why),
                }
            }
        }
        Ok(())
    }
}

pub(crate) fn nanoseconds(time: Duration) -> u64 {
    // Half of the range, so that no sum overflows.
    u64::try_from(time.as_nanos())
        .unwrap_or(u64::MAX)
        .min(u64::MAX / 2)
}
