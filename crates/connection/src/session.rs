//! One connection at one end (P12.5, P12.6): from the handshake to its end. The driver calls it on the
//! endpoint's thread.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use farwrite::routes::{Role, RouteId, RouteKeeper};
use farwrite::{
    Endpoint, QpConfig, QpInfo, QpOptions, QueuePair, RateControl, Sealing, SendOptions, UdpFabric,
    Waiters,
};
use farwrite_session::Text;

use crate::error::{Ended, Error};
use crate::keys::Peer;
use crate::message::{self, ByeCause, Malformed, Message};
use crate::message_queue::{Buffers, MessageQueue};
use crate::options::ConnectionOptions;

#[cfg(test)]
mod lies;
mod stuck;

use stuck::StuckWatch;

/// The MTU of the session queue pair (P12.5). Each path of IPv6 carries such packets.
pub(crate) const SESSION_MTU: u32 = 1024;
/// Buffers of each end for messages of the session.
const BUFFERS: usize = 16;
/// How long an end waits for the peer to get its last message.
const LINGER_NS: u64 = 1_000_000_000;
/// The most messages of the session that wait for the peer. A peer that asks and takes no answers would
/// fill this end's memory.
const MOST_UNSENT: usize = 1024;
/// The most queue pairs that this end asks for and the peer has not answered. Further ones wait here.
const MOST_OPENINGS: usize = 32;
/// The most requests of the peer that wait for this end's program or for a place.
const MOST_REQUESTS: usize = 2 * MOST_OPENINGS;
/// Queue pairs that have ended and only answer late packets take no place, up to this many times the places.
const ENDED_PART: usize = 4;
/// The shortest time between two requests for a sign of life.
const ASK_NS: u64 = 1_000_000_000;

/// The session queue pair, as P12.5 fixes it for both ends.
pub(crate) fn session_options(rate_control: RateControl) -> QpOptions {
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
        ..QpOptions::default()
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
    /// The route is not found yet. The session queue pair is connected when it is.
    Routing {
        theirs: Box<QpInfo>,
        until_ns: u64,
    },
    /// The peer is not ready yet.
    Greeting {
        until_ns: u64,
    },
    Open,
    /// The peer has ended the connection. It still acknowledges what it has received.
    Leaving {
        until_ns: u64,
        why: Ended,
    },
    /// The last message is under way. The peer answers it, unless it is an answer itself.
    Closing {
        until_ns: u64,
        why: Ended,
        is_answer: bool,
    },
    Over(Ended),
}

/// A queue pair that this end has asked for.
struct Opening {
    qp: QueuePair,
    /// The peer's answer.
    answer: Option<Result<(), Text>>,
}

/// A queue pair that the peer asks for.
struct Request {
    number: u32,
    name: String,
    theirs: Vec<u8>,
}

pub(crate) struct Session {
    pub(crate) peer: Peer,
    role: Role,
    route: RouteId,
    qp: QueuePair,
    queue: MessageQueue,
    phase: Phase,
    /// The MTU that the path carries; 0 while it is not known.
    mtu: u32,
    rtt: Duration,
    /// Signs of life of the peer, and the time of the last one.
    heard: (u64, u64),
    /// When the peer was asked for a sign of life, and when this end looked for its own address.
    asked_ns: u64,
    looked_ns: u64,
    stuck: StuckWatch,
    pairs: BTreeMap<u32, QueuePair>,
    /// Those of `pairs` that have ended, and only answer late packets.
    retired: BTreeSet<u32>,
    openings: BTreeMap<u32, Opening>,
    requests: VecDeque<Request>,
    /// The number of the next queue pair that this end opens, and the least one of the peer's next.
    next_number: u32,
    next_theirs: u64,
    /// Threads that wait for something of this session, and whether they must look again.
    waiters: Arc<Waiters>,
    has_changed: bool,
}

impl Session {
    /// A session after the handshake: `route` has been joined, and `qp` is the session queue pair.
    pub(crate) fn new(
        shared: &mut Shared<'_>,
        peer: Peer,
        role: Role,
        route: RouteId,
        qp: QueuePair,
        theirs: QpInfo,
    ) -> Result<Self, Error> {
        let bytes = usize::try_from(message::MAX_BYTES).unwrap_or(usize::MAX);
        let buffers = Buffers::new(bytes, BUFFERS, BUFFERS);
        let queue = MessageQueue::new(shared.endpoint, qp, buffers, SendOptions::default())?;
        Ok(Self {
            peer,
            role,
            route,
            qp,
            queue,
            phase: Phase::Routing {
                theirs: Box::new(theirs),
                until_ns: shared.now_ns + nanoseconds(shared.options.connect_limit),
            },
            mtu: 0,
            rtt: Duration::ZERO,
            heard: (0, shared.now_ns),
            asked_ns: 0,
            looked_ns: 0,
            stuck: StuckWatch::default(),
            pairs: BTreeMap::new(),
            retired: BTreeSet::new(),
            openings: BTreeMap::new(),
            requests: VecDeque::new(),
            // The ends number their queue pairs apart.
            next_number: u32::from(role == Role::Responder),
            next_theirs: 0,
            waiters: Arc::default(),
            has_changed: false,
        })
    }

    /// Threads that wait for something of this session.
    pub(crate) fn waiters(&self) -> &Arc<Waiters> {
        &self.waiters
    }

    /// Wakes who waits, if something has changed since the last call. Returns whether it has.
    pub(crate) fn announce(&mut self) -> bool {
        let has_changed = std::mem::take(&mut self.has_changed);
        if has_changed {
            self.waiters.wake();
        }
        has_changed
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

    pub(crate) fn route(&self) -> RouteId {
        self.route
    }

    pub(crate) fn mtu(&self) -> u32 {
        self.mtu
    }

    /// Whether anything has come from the peer over the route.
    pub(crate) fn has_heard(&self) -> bool {
        self.heard.0 > 0
    }

    /// Does what is due. Returns when to call again.
    pub(crate) fn poll(&mut self, shared: &mut Shared<'_>) -> u64 {
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
                let pairs = self.pairs.values().chain([&self.qp]).copied();
                let path = (self.route, self.mtu);
                watch_ns.min(self.stuck.look(shared, path, pairs)?)
            }
            _ => watch_ns,
        };
        if let Phase::Routing { .. } = self.phase {
            self.find_route(shared)?;
        }
        if let Phase::Routing { until_ns, .. } = self.phase {
            return Ok(watch_ns.min(until_ns));
        }
        let mut again = self.queue.poll(shared.endpoint)?;
        while let Some(bytes) = self.queue.take() {
            again = true;
            if let Some(message) = Message::decode(&bytes)? {
                self.receive(shared, message)?;
            }
            if self.is_over() {
                return Ok(0);
            }
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
                *until_ns
            }
            Phase::Closing {
                until_ns,
                why,
                is_answer,
            } => {
                if now_ns >= *until_ns || *is_answer && self.queue.unsent() == 0 {
                    let why = why.clone();
                    self.end(shared, why);
                    return Ok(0);
                }
                *until_ns
            }
            _ => u64::MAX,
        };
        Ok(if again { 0 } else { watch_ns.min(due_ns) })
    }

    /// Notices that the peer is silent.
    fn watch(&mut self, shared: &mut Shared<'_>) -> Result<u64, Ended> {
        let now_ns = shared.now_ns;
        let signs = shared.keeper.signs_of_life(self.route);
        if signs != self.heard.0 {
            self.heard = (signs, now_ns);
        }
        let limit = shared.options.silence_limit;
        let limit_ns = nanoseconds(limit);
        let silent_ns = now_ns.saturating_sub(self.heard.1);
        if silent_ns >= limit_ns {
            return Err(Ended::Silence(limit));
        }
        if silent_ns >= ASK_NS && now_ns >= self.looked_ns + ASK_NS {
            self.looked_ns = now_ns;
            self.follow_own_address(shared);
        }
        let ask_ns = self.heard.1 + (limit_ns / 4).max(ASK_NS);
        if now_ns < ask_ns {
            // The thread polls once in a second anyway.
            return Ok(ask_ns);
        }
        if now_ns >= self.asked_ns + ASK_NS {
            self.asked_ns = now_ns;
            shared.keeper.ask(self.route);
        }
        Ok(now_ns + ASK_NS)
    }

    /// The initiator sends from its new address when its machine has moved.
    fn follow_own_address(&mut self, shared: &mut Shared<'_>) {
        if self.role == Role::Responder || !shared.endpoint.fabric().is_wildcard(0) {
            return;
        }
        let peer = shared.keeper.peer(self.route);
        if let Some(source) = peer.and_then(|peer| farwrite::fabric::udp::source_for(peer).ok()) {
            // The route exists as long as the session.
            let _ = shared.keeper.set_local(self.route, source);
        }
    }

    fn find_route(&mut self, shared: &mut Shared<'_>) -> Result<(), Ended> {
        let Phase::Routing { theirs, until_ns } = &self.phase else {
            return Ok(());
        };
        let limit = shared.options.connect_limit;
        let found = shared.keeper.found(self.route, limit);
        let Some(found) = found.map_err(farwrite::Error::from)? else {
            return Ok(());
        };
        let (theirs, until_ns) = (theirs.clone(), *until_ns);
        self.rtt = found.rtt;
        self.mtu = found.mtu.unwrap_or(0);
        shared
            .keeper
            .connect(shared.endpoint, self.route, self.qp, &theirs)?;
        self.phase = Phase::Greeting { until_ns };
        let mtu = self.mtu;
        self.tell(&Message::Ready { mtu });
        Ok(())
    }

    fn tell(&mut self, message: &Message) {
        self.queue.send(message.encode());
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
            if matches!(message, Message::Bye { .. }) {
                self.end(shared, why);
            }
            return Ok(());
        }
        match message {
            Message::Ready { mtu } => {
                if self.role == Role::Responder {
                    let is_fit = (SESSION_MTU..=farwrite::MAX_MTU).contains(&mtu) && mtu % 4 == 0;
                    if !is_fit {
                        return Err(Malformed::new(format!("an MTU of {mtu} bytes")).into());
                    }
                }
                if let Phase::Greeting { .. } = self.phase {
                    if self.role == Role::Responder {
                        self.mtu = mtu;
                    }
                    self.phase = Phase::Open;
                }
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
                }
            }
            Message::Close { number } => {
                self.requests.retain(|request| request.number != number);
                // The queue pair itself stays until its user closes it: messages may have arrived.
            }
            Message::Bye { cause, reason } => {
                let why = Ended::ByPeer { cause, reason };
                let until_ns = shared.now_ns + LINGER_NS;
                match (cause, &self.phase) {
                    (ByeCause::Closed, Phase::Open) => {
                        self.phase = Phase::Leaving { until_ns, why };
                    }
                    _ => self.answer_bye(shared, why),
                }
            }
        }
        Ok(())
    }

    /// The peer asks for a queue pair.
    fn requested(&mut self, number: u32, name: String, theirs: Vec<u8>) -> Result<(), Ended> {
        let is_theirs = number % 2 != u32::from(self.role == Role::Responder);
        // A peer numbers its queue pairs in ascending order, and numbers none twice (P12.6.2).
        if !is_theirs || u64::from(number) < self.next_theirs {
            return Err(Malformed::new(format!("it numbers a queue pair {number}")).into());
        }
        self.next_theirs = u64::from(number) + 2;
        if self.requests.len() >= MOST_REQUESTS {
            let reason = Text::new(format!(
                "{MOST_REQUESTS} requests for queue pairs wait at it, the most of one connection"
            ));
            self.tell(&Message::Refused { number, reason });
            return Ok(());
        }
        self.requests.push_back(Request {
            number,
            name,
            theirs,
        });
        Ok(())
    }

    fn opened(&mut self, shared: &mut Shared<'_>, number: u32, bytes: &[u8]) -> Result<(), Ended> {
        let Some(opening) = self.openings.get_mut(&number) else {
            return Ok(());
        };
        if opening.answer.is_some() {
            return Ok(());
        }
        let theirs = QpInfo::decode(bytes).map_err(Malformed::new)?;
        let connected = shared
            .keeper
            .connect(shared.endpoint, self.route, opening.qp, &theirs);
        opening.answer = Some(connected.map_err(Text::new));
        Ok(())
    }

    /// The options of a queue pair on this connection: its packets fit the path and are sealed, and its
    /// rate is that of the connection.
    fn fitted(&self, shared: &Shared<'_>, mut options: QpOptions) -> QpOptions {
        fit_path(&mut options.sdr, self.mtu);
        options.rate_control = shared.options.rate_control;
        options.sealing = Sealing::Required;
        if !self.rtt.is_zero() {
            options.initial_rtt = self.rtt;
        }
        options
    }

    fn check_open(&self) -> Result<(), Error> {
        self.ended().map_or(Ok(()), |why| Err(why.into()))
    }

    /// Whether [`Session::begin_open`] asks the peer, or fails.
    pub(crate) fn may_open(&self) -> bool {
        self.openings.len() < MOST_OPENINGS || self.ended().is_some()
    }

    /// Asks the peer for a queue pair. Returns its number; `None` while too many requests are unanswered.
    pub(crate) fn begin_open(
        &mut self,
        shared: &mut Shared<'_>,
        name: &str,
        options: QpOptions,
    ) -> Result<Option<u32>, Error> {
        self.check_open()?;
        message::check_name(name)?;
        if !self.may_open() {
            return Ok(None);
        }
        let qp = shared.endpoint.create_qp(self.fitted(shared, options))?;
        let queue_pair = encoded(shared, qp)?;
        let number = self.next_number;
        self.next_number = number.wrapping_add(2);
        self.openings.insert(number, Opening { qp, answer: None });
        let name = name.to_owned();
        self.tell(&Message::Open {
            number,
            name,
            queue_pair,
        });
        Ok(Some(number))
    }

    /// The result of [`Session::begin_open`]: the queue pair, once the peer has answered.
    pub(crate) fn finish_open(
        &mut self,
        number: u32,
        name: &str,
    ) -> Option<Result<QueuePair, Error>> {
        if let Err(over) = self.check_open() {
            return Some(Err(over));
        }
        let opening = self.openings.get_mut(&number)?;
        match opening.answer.take()? {
            Ok(()) => {
                let Opening { qp, .. } = self.openings.remove(&number)?;
                self.pairs.insert(number, qp);
                // Others may wait for its place. No poll follows this call.
                self.waiters.wake();
                Some(Ok(qp))
            }
            Err(reason) => {
                // The caller gives it up, which destroys the queue pair.
                opening.answer = Some(Err(reason.clone()));
                let name = name.to_owned();
                Some(Err(Error::Refused { name, reason }))
            }
        }
    }

    /// Closes a queue pair, or gives up opening it.
    pub(crate) fn close_pair(&mut self, shared: &mut Shared<'_>, number: u32) {
        self.retired.remove(&number);
        self.has_changed = true;
        let opening = self.openings.remove(&number).map(|opening| opening.qp);
        if let Some(qp) = self.pairs.remove(&number).or(opening) {
            // It goes with the endpoint if it is broken.
            let _ = shared.endpoint.destroy_qp(qp);
            self.tell(&Message::Close { number });
        }
    }

    /// Says that a queue pair has ended at both ends, and only answers late packets: it takes no place.
    pub(crate) fn retire_pair(&mut self, number: u32) {
        if self.pairs.contains_key(&number) {
            self.retired.insert(number);
            self.has_changed = true;
        }
    }

    /// Whether one more queue pair may be open.
    fn has_place(&self, options: &ConnectionOptions) -> bool {
        let most_retired = ENDED_PART.saturating_mul(options.max_queue_pairs);
        let free = self.retired.len().min(most_retired);
        self.pairs.len() - free < options.max_queue_pairs
    }

    /// Whether [`Session::accept_pair`] has something to do or to report.
    pub(crate) fn is_asked(&self, name: Option<&str>, options: &ConnectionOptions) -> bool {
        let mut requests = self.requests.iter();
        let is_asked = requests.any(|request| name.is_none_or(|name| request.name == name));
        self.ended().is_some() || is_asked && self.has_place(options)
    }

    /// Opens the first queue pair that the peer asks for by this name (any name, if `None`). Returns
    /// `None` if there is none, or no place for it. A request that does not fit is refused.
    pub(crate) fn accept_pair(
        &mut self,
        shared: &mut Shared<'_>,
        name: Option<&str>,
        options: &QpOptions,
    ) -> Result<Option<(u32, String, QueuePair)>, Error> {
        self.check_open()?;
        if !self.has_place(shared.options) {
            return Ok(None);
        }
        let is_named = |request: &Request| name.is_none_or(|name| request.name == name);
        let Some(place) = self.requests.iter().position(is_named) else {
            return Ok(None);
        };
        let Some(Request {
            number,
            name,
            theirs,
        }) = self.requests.remove(place)
        else {
            return Ok(None);
        };
        match self.connect_pair(shared, &theirs, options) {
            Ok((qp, queue_pair)) => {
                self.pairs.insert(number, qp);
                self.tell(&Message::Opened { number, queue_pair });
                Ok(Some((number, name, qp)))
            }
            Err(error) => {
                let reason = Text::new(&error);
                self.tell(&Message::Refused { number, reason });
                Err(error)
            }
        }
    }

    fn connect_pair(
        &self,
        shared: &mut Shared<'_>,
        theirs: &[u8],
        options: &QpOptions,
    ) -> Result<(QueuePair, Vec<u8>), Error> {
        let theirs = QpInfo::decode(theirs).map_err(Malformed::new)?;
        let qp = shared
            .endpoint
            .create_qp(self.fitted(shared, options.clone()))?;
        let connected = shared
            .keeper
            .connect(shared.endpoint, self.route, qp, &theirs);
        let info = connected
            .map_err(Error::from)
            .and_then(|()| encoded(shared, qp));
        match info {
            Ok(info) => Ok((qp, info)),
            Err(error) => {
                let _ = shared.endpoint.destroy_qp(qp);
                Err(error)
            }
        }
    }

    /// Ends the session. A message informs the peer of the cause.
    pub(crate) fn close(&mut self, shared: &mut Shared<'_>, cause: ByeCause, why: Ended) {
        if self.ended().is_some() {
            return;
        }
        if matches!(self.phase, Phase::Routing { .. }) {
            return self.end(shared, why);
        }
        let reason = match cause {
            ByeCause::Closed => Text::default(),
            _ => Text::new(&why),
        };
        if let Phase::Leaving { why, .. } = &self.phase {
            // The peer was first.
            let why = why.clone();
            return self.answer_bye(shared, why);
        }
        self.tell(&Message::Bye { cause, reason });
        if cause != ByeCause::Closed {
            self.destroy_pairs(shared);
        }
        // Otherwise the queue pairs stay until the peer answers: it may miss an acknowledgement.
        self.phase = Phase::Closing {
            until_ns: shared.now_ns + LINGER_NS,
            why,
            is_answer: false,
        };
        // Their users must learn that the connection ends, although the queue pairs stay.
        for qp in self.pairs.values() {
            shared.endpoint.waker_of(*qp).wake();
        }
        self.has_changed = true;
    }

    /// Whether messages of this end have left that the peer has not acknowledged.
    fn waits_for_acks(&self, shared: &Shared<'_>) -> bool {
        let waits = |qp: &QueuePair| shared.endpoint.unacknowledged_since(*qp);
        self.pairs
            .values()
            .any(|qp| matches!(waits(qp), Ok(Some(_))))
    }

    /// Ends the session after the peer, which waits for this answer.
    fn answer_bye(&mut self, shared: &mut Shared<'_>, why: Ended) {
        self.destroy_pairs(shared);
        let (cause, reason) = (ByeCause::Closed, Text::default());
        self.tell(&Message::Bye { cause, reason });
        self.phase = Phase::Closing {
            until_ns: shared.now_ns + LINGER_NS,
            why,
            is_answer: true,
        };
        self.has_changed = true;
    }

    fn fail(&mut self, shared: &mut Shared<'_>, why: Ended) {
        match (&why, &self.phase) {
            (_, Phase::Closing { why: first, .. } | Phase::Leaving { why: first, .. }) => {
                let first = first.clone();
                self.end(shared, first);
            }
            (Ended::Malformed(_) | Ended::Stuck { .. }, _) => {
                self.close(shared, ByeCause::Failed, why);
            }
            _ => self.end(shared, why),
        }
    }

    fn destroy_pairs(&mut self, shared: &mut Shared<'_>) {
        let openings = std::mem::take(&mut self.openings).into_values();
        let pairs = std::mem::take(&mut self.pairs).into_values();
        for qp in openings.map(|opening| opening.qp).chain(pairs) {
            let _ = shared.endpoint.destroy_qp(qp);
        }
        self.retired.clear();
        self.requests.clear();
    }

    /// Returns everything to the endpoint.
    pub(crate) fn end(&mut self, shared: &mut Shared<'_>, why: Ended) {
        if self.is_over() {
            return;
        }
        self.destroy_pairs(shared);
        let _ = shared.endpoint.destroy_qp(self.qp);
        self.queue.end(shared.endpoint);
        let _ = shared.keeper.remove(self.route);
        self.phase = Phase::Over(why);
        self.has_changed = true;
    }
}

/// Makes the packets of a queue pair fit a path, and its messages as long as such packets can carry.
pub(crate) fn fit_path(sdr: &mut QpConfig, mtu: u32) {
    sdr.mtu = sdr.mtu.min(mtu);
    let packets = 1_u64.checked_shl(sdr.split.offset_bits.into());
    let longest = packets.unwrap_or(u64::MAX).saturating_mul(sdr.mtu.into());
    sdr.max_message_bytes = sdr.max_message_bytes.min(longest);
}

pub(crate) fn encoded(shared: &Shared<'_>, qp: QueuePair) -> Result<Vec<u8>, Error> {
    let info = shared.endpoint.qp_info(qp)?;
    Ok(info.encode().map_err(Malformed::new)?)
}

pub(crate) fn nanoseconds(time: Duration) -> u64 {
    // Half of the range, so that no sum overflows.
    u64::try_from(time.as_nanos())
        .unwrap_or(u64::MAX)
        .min(u64::MAX / 2)
}
