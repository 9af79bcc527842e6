//! All connections of one endpoint. Runs on the endpoint's thread, after each of its polls.

mod connecting;
mod listening;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use farwrite::fabric::udp::ReadyEvent;
use farwrite::routes::{Role, RouteId, RouteKeeper, RouteOffer, Sizes};
use farwrite::{
    Endpoint, QpInfo, QueuePair, RateControl, RealTime, Sealing, TaskState, UdpFabric, Waiters,
};
use farwrite_keys::Text;
use slab::Slab;

use crate::error::{Ended, Error};
use crate::handshake;
use crate::keys::Peer;
use crate::message::{ByeCause, Flow, GOES_ON, Introduction};
use crate::options::ConnectionOptions;
use crate::purpose::Purpose;
use crate::session::{SESSION_MTU, Session, Shared, session_options};
use connecting::Attempts;
use listening::Listening;

/// What this end calls itself.
const SOFTWARE: &str = concat!("farwrite ", env!("CARGO_PKG_VERSION"));

/// The connections of an endpoint.
pub(crate) struct Driver {
    keeper: RouteKeeper,
    pub(crate) options: ConnectionOptions,
    pub(crate) sessions: Slab<Session>,
    /// The session of each route.
    of_routes: HashMap<RouteId, usize>,
    /// Sessions that have no task yet, and their queue pairs.
    new: Vec<(usize, QueuePair)>,
    listening: Option<Listening>,
    attempts: Attempts,
    /// Threads that wait for a connection, or for the end of all.
    pub(crate) waiters: Arc<Waiters>,
    /// Whether a connection of a listener can be accepted.
    ready: ReadyEvent,
}

/// What this end offers to a peer.
pub(crate) struct Reserved {
    qp: QueuePair,
    route: RouteId,
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
use shared;

impl Driver {
    pub(crate) fn new(options: ConnectionOptions) -> Self {
        Self {
            keeper: RouteKeeper::with_sealing(Sealing::Required),
            options,
            sessions: Slab::new(),
            of_routes: HashMap::new(),
            new: Vec::new(),
            listening: None,
            attempts: Attempts::default(),
            waiters: Arc::default(),
            ready: ReadyEvent::default(),
        }
    }

    /// Wakes all who wait for something of this driver: its thread ends.
    pub(crate) fn wake_all(&mut self) {
        self.ready.end();
        self.waiters.wake();
        for (_, session) in &mut self.sessions {
            session.ready.end();
            session.waiters.wake();
        }
    }

    /// Follows each poll of the endpoint. Returns when to call again. Sessions have tasks of their own
    /// ([`Driver::take_new`]).
    pub(crate) fn poll(&mut self, endpoint: &mut Endpoint<UdpFabric>) -> TaskState {
        let packets = endpoint.fabric().take_handshake_packets();
        // One time for all that follows: what a packet makes due leaves in this poll.
        let now_ns = endpoint.fabric().now_ns();
        for packet in packets {
            let number = handshake::number(&packet.bytes).unwrap_or(0);
            let from = (packet.src, number);
            if !self.receive_as_initiator(endpoint, now_ns, packet.dst, from, &packet.bytes) {
                self.receive_as_responder(endpoint, now_ns, &packet);
            }
        }
        // A proof leaves before route packets, which its receiver cannot use without it.
        let attempts_ns = self.poll_attempts(endpoint, now_ns);
        let mut served = Vec::new();
        let keeper_ns = self.keeper.poll_each(endpoint, &mut served);
        for (route, result) in served {
            self.route_served(endpoint, route, result);
        }
        let next_ns = keeper_ns.unwrap_or(u64::MAX).min(attempts_ns);
        TaskState::Until(next_ns.min(self.poll_listening(endpoint, now_ns)))
    }

    /// Something may have changed on a route. If it has failed, its connection ends, and no other one. A broken
    /// port ends all of them: the endpoint reports it.
    fn route_served(
        &mut self,
        endpoint: &mut Endpoint<UdpFabric>,
        route: RouteId,
        result: Result<(), farwrite::Error>,
    ) {
        let key = self.of_routes.get(&route);
        let Some(session) = key.and_then(|key| self.sessions.get_mut(*key)) else {
            return;
        };
        if let Err(error) = result {
            session.end(&mut shared!(self, endpoint), error.into());
        }
        session.wake();
    }

    /// Sessions that need a task of their queue pair, which runs [`Driver::poll_session`].
    pub(crate) fn take_new(&mut self) -> Vec<(usize, QueuePair)> {
        std::mem::take(&mut self.new)
    }

    /// Follows a poll of the endpoint that may concern session `key`, whose queue pair is `qp`. Returns when to
    /// call again.
    pub(crate) fn poll_session(
        &mut self,
        endpoint: &mut Endpoint<UdpFabric>,
        key: usize,
        qp: QueuePair,
    ) -> TaskState {
        let session = self.sessions.get_mut(key);
        let Some(session) = session.filter(|session| session.qp == qp) else {
            return TaskState::Done;
        };
        let mut shared = shared!(self, endpoint);
        let next_ns = session.poll(&mut shared);
        let is_known = session.is_over() || session.is_open() || session.has_heard(&shared);
        if is_known && let Some(attempt) = session.attempt.take() {
            self.attempts.confirm(attempt);
        }
        let has_turned = session.announce();
        let state = match session.is_over() {
            false => TaskState::Until(next_ns),
            true => {
                self.of_routes.remove(&session.route);
                let listening = self.listening.as_mut();
                // A connection that ended before anyone accepted it is forgotten.
                let is_unaccepted = listening.is_some_and(|listening| listening.forget(key));
                session.has_task = false;
                if is_unaccepted || session.is_forgotten {
                    self.sessions.remove(key);
                }
                TaskState::Done
            }
        };
        if has_turned {
            self.waiters.wake();
            self.follow_arrivals();
        }
        state
    }

    /// Makes the session of a finished handshake with the end at `at`, which has introduced itself.
    fn join(
        &mut self,
        endpoint: &mut Endpoint<UdpFabric>,
        reserved: Reserved,
        role: Role,
        (at, peer, rtt): (SocketAddr, Peer, Duration),
        (theirs, purpose): (&Introduction, Purpose),
    ) -> Result<usize, Error> {
        let Reserved { qp, route } = reserved;
        let join = || -> Result<Session, Error> {
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
            let known = self.keeper.know(route, theirs.seen, rtt);
            known.map_err(farwrite::Error::from)?;
            let mut shared = shared!(self, endpoint);
            let info = &theirs.queue_pair;
            let mut session = Session::new(&mut shared, peer, role, (route, rtt), qp, info)?;
            session.purpose = purpose;
            session.peer_goes_on = theirs.capabilities & GOES_ON != 0;
            session.begin(&mut shared);
            Ok(session)
        };
        match join() {
            Ok(session) => {
                let key = self.sessions.insert(session);
                self.of_routes.insert(route, key);
                self.new.push((key, qp));
                Ok(key)
            }
            Err(error) => {
                release(&mut self.keeper, endpoint, Reserved { qp, route });
                Err(error)
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
        let result = call(session, &mut shared!(self, endpoint));
        session.wake();
        Some(result)
    }

    /// Closes a session that nobody names any more. Its last message may still be under way.
    pub(crate) fn drop_session(&mut self, endpoint: &mut Endpoint<UdpFabric>, key: usize) {
        self.on_session(endpoint, key, |session, shared| {
            session.close(shared, ByeCause::Closed, Ended::Closed);
        });
        self.forget(key);
    }

    /// Gives up all attempts to connect, and closes all sessions.
    pub(crate) fn close_all(&mut self, endpoint: &mut Endpoint<UdpFabric>) {
        for attempt in self.attempts.keys() {
            self.give_up(endpoint, attempt);
        }
        let sessions: Vec<_> = self.sessions.iter().map(|(key, _)| key).collect();
        for key in sessions {
            self.on_session(endpoint, key, |session, shared| {
                session.close(shared, ByeCause::Closed, Ended::Closed);
            });
        }
    }

    /// Forgets a session as soon as it is over.
    pub(super) fn forget(&mut self, key: usize) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        session.is_forgotten = true;
        // Its task does it, if that has not ended.
        if !session.has_task {
            self.sessions.remove(key);
        }
    }

    /// The address at which the peer of a session is now.
    pub(crate) fn address(&self, key: usize) -> Option<SocketAddr> {
        self.keeper.peer(self.sessions.get(key)?.route)
    }

    /// The address of this end on the route of a session. A link-local one is at the interface of the peer's.
    pub(crate) fn local_address(&self, key: usize) -> Option<SocketAddr> {
        let mut local = self.keeper.local(self.sessions.get(key)?.route)?;
        if let (SocketAddr::V6(local), Some(SocketAddr::V6(peer))) = (&mut local, self.address(key))
            && local.ip().is_unicast_link_local()
        {
            local.set_scope_id(peer.scope_id());
        }
        Some(local)
    }

    /// Whether each session has ended.
    pub(crate) fn is_idle(&self) -> bool {
        self.sessions.iter().all(|(_, session)| session.is_over())
    }
}

/// Takes a session queue pair and a route, and what a peer must know of them. `seen` are the addresses with which
/// the peer's packet has arrived, and `purposes` those that this end states.
pub(crate) fn reserve(
    keeper: &mut RouteKeeper,
    endpoint: &mut Endpoint<UdpFabric>,
    (rate_control, rtt): (RateControl, Option<Duration>),
    (seen, purposes): (Flow, &[Purpose]),
) -> Result<(Reserved, Introduction), Error> {
    let (_, local) = seen;
    let qp = endpoint.create_qp(session_options(rate_control, rtt))?;
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
        capabilities: GOES_ON,
        queue_pair,
        route: offer,
        purposes: purposes.to_vec(),
        seen,
        messages: Vec::new(),
    };
    Ok((Reserved { qp, route }, introduction))
}

/// Returns what a handshake has taken that came to nothing.
fn release(keeper: &mut RouteKeeper, endpoint: &mut Endpoint<UdpFabric>, reserved: Reserved) {
    let _ = keeper.remove(reserved.route);
    let _ = endpoint.destroy_qp(reserved.qp);
}
