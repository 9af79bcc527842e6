//! The connections that an endpoint is making: any number at once, over one socket.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use farwrite::routes::Role;
use farwrite::{Endpoint, UdpFabric};
use farwrite_keys::Proof;
use slab::Slab;

use super::{Driver, reserve};
use crate::error::Error;
use crate::handshake::{Initiator, InitiatorFailure, InitiatorKeys, Refusal, VERSION};
use crate::keys::Peer;
use crate::message::{Flow, Introduction};
use crate::options::ConnectionOptions;

/// The connections that are being made, by the number that names each.
#[derive(Default)]
pub(super) struct Attempts {
    all: Slab<Attempt>,
    /// When each has packets to send, or has failed.
    due: BTreeSet<(u64, usize)>,
}

struct Attempt {
    initiator: Initiator,
    peer: Peer,
    session: Option<usize>,
    failed: Option<Error>,
    due_ns: u64,
}

impl Attempts {
    fn set_due(&mut self, key: usize, next_ns: u64) {
        if let Some(attempt) = self.all.get_mut(key) {
            let before_ns = std::mem::replace(&mut attempt.due_ns, next_ns);
            self.due.remove(&(before_ns, key));
            self.due.insert((next_ns, key));
        }
    }

    /// The peer has used what the proof contains.
    pub(super) fn confirm(&mut self, key: usize) {
        if let Some(attempt) = self.all.get_mut(key) {
            attempt.initiator.confirm();
            let next_ns = attempt.initiator.next_ns();
            self.set_due(key, next_ns);
        }
    }

    /// The attempt that the packets with this number of a handshake belong to.
    fn find(&mut self, number: u64) -> Option<(usize, &mut Attempt)> {
        let mut all = self.all.iter_mut();
        all.find(|(_, attempt)| attempt.initiator.has(number))
    }

    pub(super) fn keys(&self) -> Vec<usize> {
        self.all.iter().map(|(key, _)| key).collect()
    }

    fn remove(&mut self, key: usize) -> Option<Attempt> {
        let attempt = self.all.try_remove(key)?;
        self.due.remove(&(attempt.due_ns, key));
        Some(attempt)
    }
}

impl Driver {
    /// Begins to connect. Returns the number of the attempt, which ends with [`Driver::give_up`] or a result of
    /// [`Driver::connected`].
    pub(crate) fn connect(&mut self, initiator: Initiator, peer: Peer, now_ns: u64) -> usize {
        let attempt = Attempt {
            initiator,
            peer,
            session: None,
            failed: None,
            due_ns: now_ns,
        };
        let key = self.attempts.all.insert(attempt);
        self.attempts.due.insert((now_ns, key));
        key
    }

    /// The result of connecting, once there is one: the number of the session.
    pub(crate) fn connected(&mut self, key: usize, now_ns: u64) -> Option<Result<usize, Error>> {
        let attempt = self.attempts.all.get_mut(key)?;
        let result = if let Some(error) = attempt.failed.take() {
            Err(error)
        } else if let Some(session) = attempt.session {
            let found = self.sessions.get(session)?;
            match found.ended() {
                Some(why) => Err(why.into()),
                None if found.is_open() => Ok(session),
                None => return None,
            }
        } else {
            let failure = attempt.initiator.failure(now_ns)?;
            Err(explain(failure, attempt, &self.options))
        };
        let attempt = self.attempts.remove(key)?;
        if let (Some(session), Err(_)) = (attempt.session, &result) {
            self.forget(session);
        }
        Some(result)
    }

    /// Ends an attempt that nobody waits for any more.
    pub(crate) fn give_up(&mut self, endpoint: &mut Endpoint<UdpFabric>, key: usize) {
        let attempt = self.attempts.remove(key);
        if let Some(session) = attempt.and_then(|attempt| attempt.session) {
            self.drop_session(endpoint, session);
        }
    }

    /// Gives a handshake packet to the attempt that it belongs to. Returns whether there is one.
    pub(super) fn receive_as_initiator(
        &mut self,
        endpoint: &mut Endpoint<UdpFabric>,
        now_ns: u64,
        local: SocketAddr,
        (from, number): (SocketAddr, u64),
        bytes: &[u8],
    ) -> bool {
        let Some((key, attempt)) = self.attempts.find(number) else {
            return false;
        };
        if let Some((at, payload)) = attempt.initiator.receive(now_ns, from, bytes)
            && let Err(error) = self.answered(endpoint, now_ns, key, (at, (from, local)), &payload)
            && let Some(attempt) = self.attempts.all.get_mut(key)
        {
            attempt.failed.get_or_insert(error);
            self.waiters.wake();
        }
        // The next poll of attempts follows in the same poll of the driver.
        self.attempts.set_due(key, now_ns);
        true
    }

    /// The responder at `at` has answered the initiator, with a packet that came as `seen`. What the program wants at
    /// once goes with the proof.
    fn answered(
        &mut self,
        endpoint: &mut Endpoint<UdpFabric>,
        now_ns: u64,
        key: usize,
        (at, seen): (SocketAddr, Flow),
        payload: &[u8],
    ) -> Result<(), Error> {
        let theirs = Introduction::decode(payload)?;
        let purpose = self.options.purpose;
        if !theirs.purposes.contains(&purpose) {
            let serves = theirs.purposes;
            return Err(Error::NotServed {
                at,
                purpose,
                serves,
            });
        }
        let Some(attempt) = self.attempts.all.get(key) else {
            return Ok(());
        };
        let rtt = Duration::from_nanos(attempt.initiator.rtt_ns());
        let peer = (at, attempt.peer.clone(), rtt);
        let known = (self.options.rate_control, Some(rtt));
        let stated = (seen, &[purpose][..]);
        let (reserved, mut introduction) = reserve(&mut self.keeper, endpoint, known, stated)?;
        let theirs = (&theirs, purpose);
        let session = self.join(endpoint, reserved, Role::Initiator, peer, theirs)?;
        if let Some(session) = self.sessions.get_mut(session) {
            session.attempt = Some(key);
            introduction.messages = session.take_early();
        }
        let Some(attempt) = self.attempts.all.get_mut(key) else {
            return Ok(());
        };
        attempt.session = Some(session);
        let proven = attempt.initiator.prove(now_ns, &introduction.encode()?);
        proven.map_err(|error| Error::Noise(error.to_string()))
    }

    /// Returns when to call again.
    pub(super) fn poll_attempts(&mut self, endpoint: &mut Endpoint<UdpFabric>, now_ns: u64) -> u64 {
        let anywhere = std::net::Ipv6Addr::UNSPECIFIED.into();
        let mut forgotten = Vec::new();
        let Attempts { all, due } = &mut self.attempts;
        while let Some(&(due_ns, key)) = due.first()
            && due_ns <= now_ns
        {
            due.pop_first();
            let Some(attempt) = all.get_mut(key) else {
                continue;
            };
            if attempt.initiator.begin_again_if_forgotten(now_ns) {
                forgotten.extend(attempt.session.take());
            }
            while let Some((to, bytes)) = attempt.initiator.poll_transmit(now_ns) {
                // An address that this machine cannot send to is one that does not answer.
                let _ = endpoint
                    .fabric()
                    .send_owners_packet(0, anywhere, to, &bytes);
            }
            attempt.due_ns = attempt.initiator.next_ns();
            if attempt.initiator.failure(now_ns).is_some() {
                self.waiters.wake();
                attempt.due_ns = u64::MAX;
            }
            due.insert((attempt.due_ns, key));
        }
        let next_ns = due.first().map_or(u64::MAX, |(due_ns, _)| *due_ns);
        for session in forgotten {
            if let Some(session) = self.sessions.get_mut(session) {
                session.attempt = None;
            }
            self.drop_session(endpoint, session);
        }
        next_ns
    }
}

/// Why there is no connection, for the user.
fn explain(failure: InitiatorFailure, attempt: &Attempt, options: &ConnectionOptions) -> Error {
    let within = options.connect_limit;
    match failure {
        InitiatorFailure::Refused {
            at,
            reason,
            version,
        } => match (reason, attempt.peer.proof()) {
            (Refusal::Keys, Proof::Code) => Error::WrongCode { at },
            (Refusal::Keys, _) => Error::KeysDiffer { at },
            (Refusal::Pattern, ours) => Error::OtherKind { at, ours },
            (Refusal::CodeUsed, _) => Error::CodeUsed,
            (Refusal::Version, _) => Error::Version {
                at,
                ours: VERSION,
                theirs: version,
            },
            (Refusal::OverBudget, _) => Error::Busy {
                at,
                within: options.busy_limit,
            },
        },
        InitiatorFailure::UnknownHere { at } => match &attempt.initiator.keys {
            InitiatorKeys::Identities { own, .. } => Error::UnknownHere {
                at,
                own: own.public(),
            },
            InitiatorKeys::PreShared(_) | InitiatorKeys::Code(_) => Error::KeysDiffer { at },
        },
        InitiatorFailure::Busy { at } => Error::Busy {
            at,
            within: options.busy_limit,
        },
        InitiatorFailure::Silent { to } => Error::Silent { to, within },
        InitiatorFailure::Unfinished { at } => Error::Unfinished { at, within },
        InitiatorFailure::CodeUsed => Error::CodeUsed,
        InitiatorFailure::Noise(why) => Error::Noise(why),
    }
}
