//! The connections that a listener takes.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use farwrite::fabric::udp::OwnersDatagram;
use farwrite::routes::Role;
use farwrite::{Endpoint, RealTime, UdpFabric};

use super::{Driver, Reserved, release, reserve, shared};
use crate::error::{Ended, Error};
use crate::handshake::{Asked, HandshakeId, Owner, Reaction, RefusalCounts, Responder, owner};
use crate::keys::{Keys, Peer};
use crate::message::{ByeCause, Introduction};
use crate::purpose::Purpose;
use crate::session::{Session, Shared};

/// One peer gets this part of the backlog of a listener, so that it cannot keep the others out.
const PEER_PART: usize = 4;

pub(super) struct Listening {
    responder: Responder,
    /// What the handshakes that wait for their proof have taken.
    reserved: BTreeMap<HandshakeId, Reserved>,
    /// Sessions after their handshake, in order, and whose they are.
    arrived: VecDeque<(usize, Owner)>,
}

impl Listening {
    /// Forgets a session that nobody has accepted. Returns whether it was one.
    pub(super) fn forget(&mut self, key: usize) -> bool {
        let before = self.arrived.len();
        self.arrived.retain(|(arrived, _)| *arrived != key);
        self.arrived.len() < before
    }

    /// Whether a connection of the peer that asks may wait for the program. `backlog` may in all.
    fn has_room(&self, asked: &Asked, backlog: usize) -> bool {
        let open = self.arrived.len() + self.reserved.len();
        let arrived = self.arrived.iter();
        let of_peer = arrived.filter(|(_, owner)| *owner == asked.owner()).count();
        let of_peer = of_peer + self.responder.owned(asked);
        open < backlog && of_peer < backlog.div_ceil(PEER_PART)
    }
}

impl Driver {
    pub(crate) fn listen(&mut self, responder: Responder) {
        self.listening = Some(Listening {
            responder,
            reserved: BTreeMap::new(),
            arrived: VecDeque::new(),
        });
    }

    pub(super) fn receive_as_responder(
        &mut self,
        endpoint: &mut Endpoint<UdpFabric>,
        now_ns: u64,
        packet: &OwnersDatagram,
    ) {
        let Some(listening) = &mut self.listening else {
            return;
        };
        match listening
            .responder
            .receive(now_ns, packet.src, &packet.bytes)
        {
            Reaction::Ignored => {}
            Reaction::Answered(answer) => send(endpoint, packet, &answer),
            Reaction::Asked(asked) => self.asked(endpoint, now_ns, packet, asked),
            Reaction::Proven {
                id,
                peer,
                payload,
                since_ns,
            } => {
                let Some(reserved) = listening.reserved.remove(&id) else {
                    return;
                };
                let owner = owner(&peer, packet.src);
                let rtt = Duration::from_nanos(now_ns.saturating_sub(since_ns));
                let at = (packet.src, peer, rtt);
                // What a peer that holds a key says wrongly harms only itself.
                let Some((theirs, purpose)) = self.introduced(&payload) else {
                    return release(&mut self.keeper, endpoint, reserved);
                };
                let of_peer = (&theirs, purpose);
                if let Ok(key) = self.join(endpoint, reserved, Role::Responder, at, of_peer)
                    && let Some(listening) = &mut self.listening
                {
                    listening.arrived.push_back((key, owner));
                    self.on_session(endpoint, key, |session, shared| {
                        session.hear_early(shared, &theirs.messages);
                    });
                }
            }
        }
    }

    /// The introduction of an initiator that wants what this end serves.
    fn introduced(&self, payload: &[u8]) -> Option<(Introduction, Purpose)> {
        let theirs = Introduction::decode(payload).ok()?;
        let [purpose] = theirs.purposes[..] else {
            return None;
        };
        let serves = &self.options.serves;
        serves.contains(&purpose).then_some((theirs, purpose))
    }

    /// A peer that holds a key asks for a connection.
    fn asked(
        &mut self,
        endpoint: &mut Endpoint<UdpFabric>,
        now_ns: u64,
        packet: &OwnersDatagram,
        asked: Asked,
    ) {
        let Some(listening) = &mut self.listening else {
            return;
        };
        let reserved = if listening.has_room(&asked, self.options.backlog) {
            let options = &self.options;
            let stated = ((packet.src, packet.dst), &options.serves[..]);
            reserve(
                &mut self.keeper,
                endpoint,
                (options.rate_control, None),
                stated,
            )
            .ok()
        } else {
            None
        };
        let Some((reserved, introduction)) = reserved else {
            if let Reaction::Answered(answer) = listening.responder.refuse(asked) {
                send(endpoint, packet, &answer);
            }
            return;
        };
        let payload = introduction.encode().ok();
        let accepted =
            payload.and_then(|payload| listening.responder.accept(now_ns, asked, &payload).ok());
        match accepted {
            Some((id, answer)) => {
                listening.reserved.insert(id, reserved);
                send(endpoint, packet, &answer);
            }
            None => release(&mut self.keeper, endpoint, reserved),
        }
    }

    /// Ends the handshakes whose proof has not come in time. Returns when to call again.
    pub(super) fn poll_listening(
        &mut self,
        endpoint: &mut Endpoint<UdpFabric>,
        now_ns: u64,
    ) -> u64 {
        let Some(listening) = &mut self.listening else {
            return u64::MAX;
        };
        while let Some(id) = listening.responder.expire(now_ns) {
            if let Some(reserved) = listening.reserved.remove(&id) {
                release(&mut self.keeper, endpoint, reserved);
            }
        }
        listening.responder.next_ns()
    }

    /// The next session of a listener whose both ends are ready.
    ///
    /// # Errors
    /// [`Error::NotListening`].
    pub(crate) fn accept(&mut self) -> Option<Result<(usize, Peer), Error>> {
        if self.listening.is_none() {
            return Some(Err(Error::NotListening));
        }
        let place = self.next_arrival()?;
        let (key, _) = self.listening.as_mut()?.arrived.remove(place)?;
        self.follow_arrivals();
        Some(Ok((key, self.sessions.get(key)?.peer.clone())))
    }

    /// The place of the session that [`Driver::accept`] takes.
    fn next_arrival(&self) -> Option<usize> {
        let is_open = |key: usize| self.sessions.get(key).is_some_and(Session::is_open);
        let mut arrived = self.listening.as_ref()?.arrived.iter();
        arrived.position(|(key, _)| is_open(*key))
    }

    /// Makes the descriptor readable while a connection can be accepted.
    pub(super) fn follow_arrivals(&mut self) {
        let can_accept = self.next_arrival().is_some();
        self.ready.update(can_accept);
    }

    /// A descriptor that is readable while a connection can be accepted, or nothing listens any more.
    pub(crate) fn descriptor(&mut self) -> Result<Arc<OwnedFd>, Error> {
        let can_accept = self.next_arrival().is_some();
        let descriptor = self.ready.descriptor(can_accept);
        Ok(descriptor.map_err(farwrite::Error::from)?)
    }

    pub(crate) fn is_code_used(&self) -> bool {
        let listening = self.listening.as_ref();
        let code = listening.and_then(|listening| listening.responder.keys.code.as_ref());
        code.is_some_and(|code| code.is_used())
    }

    pub(crate) fn refusals(&self) -> RefusalCounts {
        let listening = self.listening.as_ref();
        listening.map_or_else(RefusalCounts::default, |it| it.responder.counts)
    }

    /// Connections of peers that are no longer known end.
    pub(crate) fn replace_keys(&mut self, endpoint: &mut Endpoint<UdpFabric>, keys: &Keys) {
        let Some(listening) = &mut self.listening else {
            return;
        };
        let before = listening.responder.keys.clone();
        for id in listening.responder.replace_keys(keys.clone()) {
            if let Some(reserved) = listening.reserved.remove(&id) {
                release(&mut self.keeper, endpoint, reserved);
            }
        }
        for (_, session) in &mut self.sessions {
            if !keys.still_accept(&before, &session.peer) {
                let mut shared = shared!(self, endpoint);
                session.close(&mut shared, ByeCause::NoLongerKnown, Ended::NoLongerKnown);
                session.wake();
            }
        }
    }

    /// Accepts no more connections. Those that nobody has accepted end.
    pub(crate) fn stop_listening(&mut self, endpoint: &mut Endpoint<UdpFabric>) {
        let Some(listening) = self.listening.take() else {
            return;
        };
        self.waiters.wake();
        self.ready.end();
        for reserved in listening.reserved.into_values() {
            release(&mut self.keeper, endpoint, reserved);
        }
        for (key, _) in listening.arrived {
            self.drop_session(endpoint, key);
        }
    }
}

/// Sends the answer to a packet, from the address that the packet came to.
fn send(endpoint: &Endpoint<UdpFabric>, packet: &OwnersDatagram, answer: &[u8]) {
    let fabric = endpoint.fabric();
    // The initiator asks again.
    let _ = fabric.send_owners_packet(packet.port, packet.dst.ip(), packet.src, answer);
}
