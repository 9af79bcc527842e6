//! All connections of one endpoint. Runs on the endpoint's thread, after each of its polls.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use farwrite::fabric::udp::OwnersDatagram;
use farwrite::routes::{Role, RouteId, RouteKeeper, RouteOffer, Sizes};
use farwrite::{Endpoint, QpInfo, QueuePair, RealTime, Sealing, TaskState, UdpFabric, Waiters};
use farwrite_session::Text;
use slab::Slab;

use crate::error::{Ended, Error};
use crate::handshake::{HandshakeId, Initiator, Owner, Reaction, RefusalCounts, Responder, owner};
use crate::keys::{Keys, Peer};
use crate::message::{ByeCause, Introduction};
use crate::options::ConnectionOptions;
use crate::session::{SESSION_MTU, Session, Shared, nanoseconds, session_options};

/// What this end calls itself.
const SOFTWARE: &str = concat!("farwrite ", env!("CARGO_PKG_VERSION"));
/// One peer gets this part of the backlog of a listener, so that it cannot keep the others out.
const PEER_PART: usize = 4;

/// The connections of an endpoint.
pub(crate) struct Driver {
    keeper: RouteKeeper,
    options: ConnectionOptions,
    sessions: Slab<Session>,
    /// Sessions that nobody names any more.
    forgotten: Vec<usize>,
    listening: Option<Listening>,
    connecting: Option<Connecting>,
    /// Threads that wait for a connection, or for the end of all.
    waiters: Arc<Waiters>,
}

/// A listener.
struct Listening {
    responder: Responder,
    /// What the handshakes that wait for their proof have taken.
    reserved: BTreeMap<HandshakeId, Reserved>,
    /// Sessions after their handshake, in order, and whose they are.
    arrived: VecDeque<(usize, Owner)>,
}

/// What this end offers to a peer.
pub(crate) struct Reserved {
    qp: QueuePair,
    route: RouteId,
}

/// The one connection that an endpoint of [`connect`](crate::connect) makes.
struct Connecting {
    initiator: Initiator,
    peer: Peer,
    session: Option<usize>,
    failed: Option<Error>,
}

/// Splits a driver, so that sessions can use the other fields.
macro_rules! shared {
    ($driver:ident, $endpoint:ident) => {
        Shared {
            now_ns: $endpoint.fabric().now_ns(),
            endpoint: $endpoint,
            keeper: &mut $driver.keeper,
            options: &$driver.options,
        }
    };
}

impl Driver {
    fn new(options: ConnectionOptions) -> Self {
        Self {
            keeper: RouteKeeper::with_sealing(Sealing::Required),
            options,
            sessions: Slab::new(),
            forgotten: Vec::new(),
            listening: None,
            connecting: None,
            waiters: Arc::default(),
        }
    }

    /// Threads that wait for a connection, or for the end of all.
    pub(crate) fn waiters(&self) -> &Arc<Waiters> {
        &self.waiters
    }

    /// Wakes all who wait for something of this driver: its thread ends.
    pub(crate) fn wake_all(&self) {
        self.waiters.wake();
        for (_, session) in &self.sessions {
            session.waiters().wake();
        }
    }

    pub(crate) fn listen(responder: Responder, options: ConnectionOptions) -> Self {
        let mut driver = Self::new(options);
        driver.listening = Some(Listening {
            responder,
            reserved: BTreeMap::new(),
            arrived: VecDeque::new(),
        });
        driver
    }

    pub(crate) fn connect(initiator: Initiator, peer: Peer, options: ConnectionOptions) -> Self {
        let mut driver = Self::new(options);
        driver.connecting = Some(Connecting {
            initiator,
            peer,
            session: None,
            failed: None,
        });
        driver
    }

    /// Follows each poll of the endpoint. Returns when to call again.
    pub(crate) fn poll(&mut self, endpoint: &mut Endpoint<UdpFabric>) -> TaskState {
        let now_ns = endpoint.fabric().now_ns();
        let mut has_changed = false;
        for packet in endpoint.fabric().take_handshake_packets() {
            self.receive(endpoint, now_ns, &packet);
            has_changed = true;
        }
        let mut failed = Vec::new();
        let next_ns = self.keeper.poll_each(endpoint, &mut failed);
        let mut next_ns = next_ns.unwrap_or(u64::MAX);
        // A route that fails ends its own connection, and no other one. A broken port ends all of them: the
        // endpoint reports it.
        for (route, error) in failed {
            self.end_route(endpoint, route, error);
        }
        for (_, session) in &mut self.sessions {
            next_ns = next_ns.min(session.poll(&mut shared!(self, endpoint)));
            has_changed |= session.announce();
        }
        let sessions = &mut self.sessions;
        self.forgotten.retain(|key| {
            let is_over = sessions.get(*key).is_none_or(Session::is_over);
            if is_over {
                sessions.try_remove(*key);
            }
            !is_over
        });
        next_ns = next_ns.min(self.poll_connecting(endpoint, now_ns));
        next_ns = next_ns.min(self.poll_listening(endpoint, now_ns));
        if has_changed {
            self.waiters.wake();
        }
        TaskState::Until(next_ns)
    }

    /// Ends the session of a route.
    fn end_route(
        &mut self,
        endpoint: &mut Endpoint<UdpFabric>,
        route: RouteId,
        error: farwrite::Error,
    ) {
        let mut sessions = self.sessions.iter_mut().map(|(_, session)| session);
        if let Some(session) = sessions.find(|session| session.route() == route) {
            session.end(&mut shared!(self, endpoint), error.into());
        }
    }

    fn receive(
        &mut self,
        endpoint: &mut Endpoint<UdpFabric>,
        now_ns: u64,
        packet: &OwnersDatagram,
    ) {
        if let Some(connecting) = &mut self.connecting {
            let answered = connecting
                .initiator
                .receive(now_ns, packet.src, &packet.bytes);
            if let Some((at, payload)) = answered
                && let Err(error) = self.answered(endpoint, packet.dst, at, &payload)
                && let Some(connecting) = &mut self.connecting
            {
                connecting.failed.get_or_insert(error);
            }
            return;
        }
        let Some(listening) = &mut self.listening else {
            return;
        };
        match listening
            .responder
            .receive(now_ns, packet.src, &packet.bytes)
        {
            Reaction::Ignored => {}
            Reaction::Answered(answer) => send(endpoint, packet, &answer),
            Reaction::Asked(asked) => {
                let open = listening.arrived.len() + listening.reserved.len();
                let arrived = listening.arrived.iter();
                let of_peer = arrived.filter(|(_, owner)| *owner == asked.owner()).count()
                    + listening.responder.owned(&asked);
                let has_room = open < self.options.backlog
                    && of_peer < self.options.backlog.div_ceil(PEER_PART);
                let reserved = if has_room {
                    reserve(&mut self.keeper, endpoint, &self.options, packet.dst).ok()
                } else {
                    None
                };
                let Some((reserved, payload)) = reserved else {
                    if let Reaction::Answered(answer) = listening.responder.refuse(asked) {
                        send(endpoint, packet, &answer);
                    }
                    return;
                };
                match listening.responder.accept(now_ns, asked, &payload) {
                    Ok((id, answer)) => {
                        listening.reserved.insert(id, reserved);
                        send(endpoint, packet, &answer);
                    }
                    Err(_) => release(&mut self.keeper, endpoint, reserved),
                }
            }
            Reaction::Proven { id, peer, payload } => {
                let Some(reserved) = listening.reserved.remove(&id) else {
                    return;
                };
                let owner = owner(&peer, packet.src);
                // What a peer that holds a key says wrongly harms only itself.
                if let Ok(session) = self.join(
                    endpoint,
                    reserved,
                    Role::Responder,
                    (packet.src, peer),
                    &payload,
                ) && let Some(listening) = &mut self.listening
                {
                    listening.arrived.push_back((session, owner));
                }
            }
        }
    }

    /// The responder at `at` has answered the initiator, whose packets it sends to `local`.
    fn answered(
        &mut self,
        endpoint: &mut Endpoint<UdpFabric>,
        local: SocketAddr,
        at: SocketAddr,
        payload: &[u8],
    ) -> Result<(), Error> {
        let now_ns = endpoint.fabric().now_ns();
        let (reserved, introduction) = reserve(&mut self.keeper, endpoint, &self.options, local)?;
        let Some(connecting) = &mut self.connecting else {
            return Ok(());
        };
        let proof = connecting.initiator.prove(now_ns, &introduction);
        proof.map_err(|error| Error::Noise(error.to_string()))?;
        let peer = connecting.peer.clone();
        let session = self.join(endpoint, reserved, Role::Initiator, (at, peer), payload)?;
        if let Some(connecting) = &mut self.connecting {
            connecting.session = Some(session);
        }
        Ok(())
    }

    /// Makes the session of a finished handshake with the end at `at`.
    fn join(
        &mut self,
        endpoint: &mut Endpoint<UdpFabric>,
        reserved: Reserved,
        role: Role,
        (at, peer): (SocketAddr, Peer),
        payload: &[u8],
    ) -> Result<usize, Error> {
        let Reserved { qp, route } = reserved;
        let join = || -> Result<Session, Error> {
            let theirs = Introduction::decode(payload)?;
            // Packets go where the handshake went, whatever the peer calls itself.
            let offer = RouteOffer {
                address: at,
                ..theirs.route
            };
            let sizes = match role {
                Role::Initiator => Sizes::Largest {
                    least_mtu: SESSION_MTU,
                    largest_mtu: self.options.largest_mtu,
                },
                Role::Responder => Sizes::Untested,
            };
            self.keeper.join(endpoint, route, role, &offer, sizes)?;
            let mut shared = shared!(self, endpoint);
            Session::new(&mut shared, peer, role, route, qp, theirs.queue_pair)
        };
        match join() {
            Ok(session) => Ok(self.sessions.insert(session)),
            Err(error) => {
                release(&mut self.keeper, endpoint, Reserved { qp, route });
                Err(error)
            }
        }
    }

    fn poll_connecting(&mut self, endpoint: &mut Endpoint<UdpFabric>, now_ns: u64) -> u64 {
        let Some(connecting) = &mut self.connecting else {
            return u64::MAX;
        };
        let session = connecting.session.and_then(|key| self.sessions.get(key));
        // The peer has used what the proof contains.
        if session.is_some_and(|session| session.has_heard() || session.is_over()) {
            connecting.initiator.confirm();
        }
        let anywhere = std::net::Ipv6Addr::UNSPECIFIED.into();
        while let Some((to, bytes)) = connecting.initiator.poll_transmit(now_ns) {
            // An address that this machine cannot send to is one that does not answer.
            let _ = endpoint
                .fabric()
                .send_owners_packet(0, anywhere, to, &bytes);
        }
        if connecting.initiator.failure(now_ns).is_some() {
            self.waiters.wake();
        }
        connecting.initiator.next_ns()
    }

    fn poll_listening(&mut self, endpoint: &mut Endpoint<UdpFabric>, now_ns: u64) -> u64 {
        let Some(listening) = &mut self.listening else {
            return u64::MAX;
        };
        for id in listening.responder.expire(now_ns) {
            if let Some(reserved) = listening.reserved.remove(&id) {
                release(&mut self.keeper, endpoint, reserved);
            }
        }
        // A connection that ended before anyone accepted it is forgotten.
        let sessions = &mut self.sessions;
        listening.arrived.retain(|(key, _)| {
            let is_over = sessions.get(*key).is_none_or(Session::is_over);
            if is_over {
                sessions.try_remove(*key);
            }
            !is_over
        });
        listening.responder.next_ns()
    }

    /// The result of connecting, once there is one: the number of the session.
    pub(crate) fn connected(&mut self, now_ns: u64) -> Option<Result<usize, ConnectFailure>> {
        let connecting = self.connecting.as_mut()?;
        if let Some(error) = connecting.failed.take() {
            return Some(Err(ConnectFailure::Error(error)));
        }
        let Some(key) = connecting.session else {
            let failure = connecting.initiator.failure(now_ns)?;
            return Some(Err(ConnectFailure::Handshake(failure)));
        };
        let session = self.sessions.get(key)?;
        match session.ended() {
            Some(why) => Some(Err(ConnectFailure::Error(why.into()))),
            None => session.is_open().then_some(Ok(key)),
        }
    }

    /// Whether a listener accepts connections.
    pub(crate) fn is_listening(&self) -> bool {
        self.listening.is_some()
    }

    /// The next session of a listener whose both ends are ready.
    pub(crate) fn accept(&mut self) -> Option<(usize, Peer)> {
        let listening = self.listening.as_mut()?;
        let sessions = &self.sessions;
        let is_open = |key: usize| sessions.get(key).is_some_and(Session::is_open);
        let mut arrived = listening.arrived.iter();
        let place = arrived.position(|(key, _)| is_open(*key))?;
        let (key, _) = listening.arrived.remove(place)?;
        Some((key, sessions.get(key)?.peer.clone()))
    }

    pub(crate) fn refusals(&self) -> RefusalCounts {
        let listening = self.listening.as_ref();
        listening.map_or_else(RefusalCounts::default, |listening| {
            listening.responder.counts()
        })
    }

    /// Replaces the keys of a listener. Connections of peers that are no longer known end.
    pub(crate) fn replace_keys(&mut self, endpoint: &mut Endpoint<UdpFabric>, keys: &Keys) {
        let Some(listening) = &mut self.listening else {
            return;
        };
        let before = listening.responder.keys().clone();
        for id in listening.responder.replace_keys(keys.clone()) {
            if let Some(reserved) = listening.reserved.remove(&id) {
                release(&mut self.keeper, endpoint, reserved);
            }
        }
        for (_, session) in &mut self.sessions {
            if !keys.still_accept(&before, &session.peer) {
                let mut shared = shared!(self, endpoint);
                session.close(&mut shared, ByeCause::NoLongerKnown, Ended::NoLongerKnown);
            }
        }
    }

    /// Accepts no more connections. Those that nobody has accepted end.
    pub(crate) fn stop_listening(&mut self, endpoint: &mut Endpoint<UdpFabric>) {
        let Some(listening) = self.listening.take() else {
            return;
        };
        self.waiters.wake();
        for reserved in listening.reserved.into_values() {
            release(&mut self.keeper, endpoint, reserved);
        }
        for (key, _) in listening.arrived {
            self.forgotten.push(key);
            if let Some(session) = self.sessions.get_mut(key) {
                session.close(
                    &mut shared!(self, endpoint),
                    ByeCause::Closed,
                    Ended::Closed,
                );
            }
        }
    }

    /// Runs `call` on a session, and returns what it returns; `None` if it is forgotten.
    pub(crate) fn on_session<R>(
        &mut self,
        endpoint: &mut Endpoint<UdpFabric>,
        key: usize,
        call: impl FnOnce(&mut Session, &mut Shared<'_>) -> R,
    ) -> Option<R> {
        let session = self.sessions.get_mut(key)?;
        Some(call(session, &mut shared!(self, endpoint)))
    }

    /// Forgets a session as soon as it is over.
    pub(crate) fn forget(&mut self, key: usize) {
        self.forgotten.push(key);
    }

    pub(crate) fn options(&self) -> &ConnectionOptions {
        &self.options
    }

    pub(crate) fn session(&self, key: usize) -> Option<&Session> {
        self.sessions.get(key)
    }

    pub(crate) fn session_mut(&mut self, key: usize) -> Option<&mut Session> {
        self.sessions.get_mut(key)
    }

    /// The address at which the peer of a session is now.
    pub(crate) fn address(&self, key: usize) -> Option<SocketAddr> {
        self.keeper.peer(self.sessions.get(key)?.route())
    }

    /// Whether each session has ended.
    pub(crate) fn is_idle(&self) -> bool {
        self.sessions.iter().all(|(_, session)| session.is_over())
    }
}

/// Why [`connect`](crate::connect) failed.
pub(crate) enum ConnectFailure {
    Handshake(crate::handshake::InitiatorFailure),
    Error(Error),
}

/// Sends the answer to a packet, from the address that the packet came to.
fn send(endpoint: &Endpoint<UdpFabric>, packet: &OwnersDatagram, answer: &[u8]) {
    let fabric = endpoint.fabric();
    // The initiator asks again.
    let _ = fabric.send_owners_packet(packet.port, packet.dst.ip(), packet.src, answer);
}

/// Takes a session queue pair and a route, and what a peer must know of them. `local` is the address at
/// which the peer's packets arrive.
pub(crate) fn reserve(
    keeper: &mut RouteKeeper,
    endpoint: &mut Endpoint<UdpFabric>,
    options: &ConnectionOptions,
    local: SocketAddr,
) -> Result<(Reserved, Vec<u8>), Error> {
    let qp = endpoint.create_qp(session_options(options.rate_control))?;
    let mut offered = || -> Result<(RouteId, QpInfo, RouteOffer), Error> {
        let info = endpoint.qp_info(qp)?;
        let (route, mut offer) = keeper.offer(endpoint)?;
        keeper
            .set_local(route, local.ip())
            .map_err(farwrite::Error::from)?;
        offer.address.set_ip(local.ip());
        Ok((route, info, offer))
    };
    let (route, queue_pair, offer) = match offered() {
        Ok(offered) => offered,
        Err(error) => {
            let _ = endpoint.destroy_qp(qp);
            return Err(error);
        }
    };
    let introduction = Introduction {
        software: Text::new(SOFTWARE),
        queue_pair,
        route: offer,
    };
    let reserved = Reserved { qp, route };
    match introduction.encode() {
        Ok(bytes) => Ok((reserved, bytes)),
        Err(error) => {
            release(keeper, endpoint, reserved);
            Err(error.into())
        }
    }
}

/// Returns what a handshake has taken that came to nothing.
fn release(keeper: &mut RouteKeeper, endpoint: &mut Endpoint<UdpFabric>, reserved: Reserved) {
    let _ = keeper.remove(reserved.route);
    let _ = endpoint.destroy_qp(reserved.qp);
}

/// The time at which a handshake that begins at `now_ns` gives up.
pub(crate) fn give_up_ns(now_ns: u64, options: &ConnectionOptions) -> u64 {
    now_ns.saturating_add(nanoseconds(options.connect_limit))
}
