//! The initiator's end of a handshake. It repeats its packets until they are answered; the responder
//! repeats nothing by itself.

use std::net::SocketAddr;

use snow::{HandshakeState, StatelessTransportState};

use super::noise::{InitiatorKeys, read_second, write_proof};
use super::packet::{self, Content, Cookie, Packet, Refusal};
use super::{ACCEPTED, BUSY, UNKNOWN_PEER};

/// The time after which the next address is tried too, if no address has answered (RFC 8305 section 5).
const STAGGER_NS: u64 = 250_000_000;
/// Bounds of the time between two packets of one kind. It grows by a half each time.
const FIRST_REPEAT_NS: u64 = 250_000_000;
const LAST_REPEAT_NS: u64 = 1_000_000_000;
/// How long an address that has sent a cookie has before further addresses are tried.
const PATIENCE_NS: u64 = 2_000_000_000;
/// The shortest time after which a first Noise message whose cookie is no longer accepted is given up.
const RENEWAL_NS: u64 = 1_000_000_000;
/// Bounds of the time after which an initiator asks again when the peer had no room. It doubles each time.
const FIRST_BUSY_NS: u64 = 200_000_000;
const LAST_BUSY_NS: u64 = 1_600_000_000;
/// How long after a refusal an answer still counts. An attacker who sees the packets can forge a refusal, or
/// can cause one with a changed opening. The true answer then still arrives, unless the attacker can also stop
/// packets.
const DOUBT_NS: u64 = 1_000_000_000;

/// Why no handshake was finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InitiatorFailure {
    /// The responder at an address refuses, without proving that it is the peer.
    Refused {
        at: SocketAddr,
        reason: Refusal,
        /// The version that it states.
        version: u16,
    },
    /// The peer has proven itself, and does not know this end's public key.
    UnknownHere { at: SocketAddr },
    /// The peer has proven itself, and has no room.
    Busy { at: SocketAddr },
    /// Nothing came from any address.
    Silent { to: Vec<SocketAddr> },
    /// Something answered at an address, and did not finish the handshake.
    Unfinished { at: SocketAddr },
    /// The messages could not be made.
    Noise(String),
}

/// One address of the peer.
struct Attempt {
    to: SocketAddr,
    number: u64,
    stage: Stage,
    repeat: Repeat,
    /// A refusal that nothing proves, and when it counts.
    refused: Option<(InitiatorFailure, u64)>,
    /// How long it waited when the peer had no room; 0 if that has not happened.
    busy_ns: u64,
}

enum Stage {
    Waiting,
    Hello,
    Opening {
        cookie: Cookie,
        state: Box<HandshakeState>,
        bytes: Vec<u8>,
        since_ns: u64,
    },
    Failed(InitiatorFailure),
}

/// When a packet is sent again.
#[derive(Clone, Copy)]
struct Repeat {
    next_ns: u64,
    interval_ns: u64,
}

impl Repeat {
    fn from(now_ns: u64) -> Self {
        Self {
            next_ns: now_ns,
            interval_ns: FIRST_REPEAT_NS,
        }
    }

    fn is_due(&mut self, now_ns: u64) -> bool {
        let is_due = now_ns >= self.next_ns;
        if is_due {
            self.next_ns = now_ns + self.interval_ns;
            self.interval_ns = (self.interval_ns * 3 / 2).min(LAST_REPEAT_NS);
        }
        is_due
    }
}

/// The handshake after the peer's answer.
struct Answered {
    to: SocketAddr,
    number: u64,
    ciphers: Box<StatelessTransportState>,
    /// The proof, once its payload is known.
    proof: Option<(Vec<u8>, Repeat)>,
}

/// One end of a handshake with the first of several addresses that answers.
pub(crate) struct Initiator {
    keys: InitiatorKeys,
    attempts: Vec<Attempt>,
    /// When the next address is tried.
    next_start_ns: u64,
    give_up_ns: u64,
    answered: Option<Answered>,
}

impl Initiator {
    /// Begins at `now_ns`, and fails at `give_up_ns`. `number` is random.
    pub(crate) fn new(
        keys: InitiatorKeys,
        addresses: &[SocketAddr],
        number: u64,
        now_ns: u64,
        give_up_ns: u64,
    ) -> Self {
        let numbers = std::iter::successors(Some(number), |last| Some(last.wrapping_add(1)));
        let attempts = addresses.iter().zip(numbers).map(|(to, number)| Attempt {
            to: *to,
            number,
            stage: Stage::Waiting,
            repeat: Repeat::from(now_ns),
            refused: None,
            busy_ns: 0,
        });
        Self {
            keys,
            attempts: attempts.collect(),
            next_start_ns: now_ns,
            give_up_ns,
            answered: None,
        }
    }

    /// Whether the handshake packets with this number belong to this handshake.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.attempts.iter().any(|attempt| attempt.number == number)
    }

    /// Processes a datagram. Returns the address and the payload of the peer when it has answered and has
    /// proven itself. [`Initiator::prove`] follows.
    pub(crate) fn receive(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        bytes: &[u8],
    ) -> Option<(SocketAddr, Vec<u8>)> {
        let packet = Packet::read(bytes)?;
        if self.answered.is_some() {
            return None;
        }
        let is_of =
            |attempt: &Attempt| attempt.number == packet.number && is_same_place(attempt.to, from);
        let place = self.attempts.iter().position(is_of)?;
        let attempt = &mut self.attempts[place];
        match packet.content {
            Content::Retry(cookie) => {
                attempt.retried(&self.keys, now_ns, cookie);
                None
            }
            Content::Answer(noise) => {
                let (state, payload) = attempt.read_answer(now_ns, noise)?;
                let to = attempt.to;
                match state.into_stateless_transport_mode() {
                    Ok(ciphers) => {
                        self.answered = Some(Answered {
                            to,
                            number: packet.number,
                            ciphers: Box::new(ciphers),
                            proof: None,
                        });
                        Some((to, payload))
                    }
                    Err(error) => {
                        attempt.stage = Stage::Failed(InitiatorFailure::Noise(error.to_string()));
                        None
                    }
                }
            }
            Content::Refusal(reason) => {
                // A responder that knows this version does not refuse for the version.
                let reason = match reason {
                    Some(Refusal::Version) if packet.version == packet::VERSION => return None,
                    Some(reason) => reason,
                    None => return None,
                };
                let (at, version) = (attempt.to, packet.version);
                let why = InitiatorFailure::Refused {
                    at,
                    reason,
                    version,
                };
                attempt.refused.get_or_insert((why, now_ns + DOUBT_NS));
                None
            }
            Content::Hello | Content::Opening { .. } | Content::Proof(_) => None,
        }
    }

    /// Sends the proof from now on, with a payload for the peer, until [`Initiator::confirm`].
    ///
    /// # Errors
    /// The payload does not fit into a datagram.
    pub(crate) fn prove(&mut self, now_ns: u64, payload: &[u8]) -> Result<(), snow::Error> {
        if let Some(answered) = &mut self.answered {
            let noise = write_proof(&answered.ciphers, payload)?;
            let bytes = packet::proof(answered.number, &noise);
            answered.proof = Some((bytes, Repeat::from(now_ns)));
        }
        Ok(())
    }

    /// The peer has received the proof: it has used what the proof contains.
    pub(crate) fn confirm(&mut self) {
        if let Some(answered) = &mut self.answered {
            answered.proof = None;
        }
    }

    /// The next datagram to send at `now_ns`. Call this until it returns `None`.
    pub(crate) fn poll_transmit(&mut self, now_ns: u64) -> Option<(SocketAddr, Vec<u8>)> {
        self.end_refused(now_ns);
        if let Some(answered) = &mut self.answered {
            let (bytes, repeat) = answered.proof.as_mut()?;
            return repeat.is_due(now_ns).then(|| (answered.to, bytes.clone()));
        }
        let is_held_up = self
            .attempts
            .iter()
            .any(|attempt| attempt.is_likely(now_ns));
        if !is_held_up && now_ns >= self.next_start_ns {
            let mut waiting = self.attempts.iter_mut();
            let waiting = waiting.find(|attempt| matches!(attempt.stage, Stage::Waiting));
            if let Some(attempt) = waiting {
                attempt.stage = Stage::Hello;
                attempt.repeat = Repeat::from(now_ns);
                self.next_start_ns = now_ns + STAGGER_NS;
            }
        }
        self.attempts.iter_mut().find_map(|attempt| {
            let bytes = match &attempt.stage {
                Stage::Hello if !is_held_up => packet::hello(attempt.number),
                Stage::Opening { bytes, .. } => bytes.clone(),
                _ => return None,
            };
            attempt.repeat.is_due(now_ns).then_some((attempt.to, bytes))
        })
    }

    /// Ends the attempts whose refusal was followed by no answer.
    fn end_refused(&mut self, now_ns: u64) {
        for attempt in &mut self.attempts {
            if let Some((why, _)) = attempt.refused.take_if(|(_, due_ns)| now_ns >= *due_ns) {
                attempt.stage = Stage::Failed(why);
                self.next_start_ns = now_ns;
            }
        }
    }

    /// When to call [`Initiator::poll_transmit`], and then [`Initiator::failure`].
    pub(crate) fn next_ns(&self) -> u64 {
        if let Some(answered) = &self.answered {
            let proof = answered.proof.as_ref();
            return proof.map_or(u64::MAX, |(_, repeat)| repeat.next_ns);
        }
        let due = self
            .attempts
            .iter()
            .filter_map(|attempt| match attempt.stage {
                Stage::Waiting => Some(self.next_start_ns),
                Stage::Hello | Stage::Opening { .. } => Some(attempt.repeat.next_ns),
                Stage::Failed(_) => None,
            });
        let refused = self
            .attempts
            .iter()
            .filter_map(|attempt| attempt.refused.as_ref());
        let due = due.chain(refused.map(|(_, due_ns)| *due_ns));
        due.min().unwrap_or(u64::MAX).min(self.give_up_ns)
    }

    /// Returns why there is no handshake, once nothing is left to try or the time is over.
    pub(crate) fn failure(&self, now_ns: u64) -> Option<InitiatorFailure> {
        if self.answered.is_some() {
            return None;
        }
        let failed = |attempt: &Attempt| match &attempt.stage {
            Stage::Failed(why) => Some(why.clone()),
            _ => None,
        };
        let failures: Vec<_> = self.attempts.iter().filter_map(failed).collect();
        if failures.len() < self.attempts.len() && now_ns < self.give_up_ns {
            return None;
        }
        let opened = self
            .attempts
            .iter()
            .find(|attempt| matches!(attempt.stage, Stage::Opening { .. }));
        // What a peer says is worth more than silence at another address.
        let unfinished = opened.map(|attempt| InitiatorFailure::Unfinished { at: attempt.to });
        let busy = self.attempts.iter().find(|attempt| attempt.busy_ns > 0);
        let busy = busy.map(|attempt| InitiatorFailure::Busy { at: attempt.to });
        let to = self.attempts.iter().map(|attempt| attempt.to).collect();
        let said = failures.into_iter().next().or(busy).or(unfinished);
        Some(said.unwrap_or(InitiatorFailure::Silent { to }))
    }
}

impl Attempt {
    /// Continues with a cookie of the responder.
    fn retried(&mut self, keys: &InitiatorKeys, now_ns: u64, came: Cookie) {
        match &self.stage {
            Stage::Hello => self.open(keys, now_ns, came),
            // The responder no longer accepts the cookie, for instance because it started again. Another
            // number keeps the two handshakes apart.
            Stage::Opening {
                cookie, since_ns, ..
            } if *cookie != came && now_ns >= since_ns + RENEWAL_NS => {
                self.number = self.number.wrapping_add(1 << 32);
                self.stage = Stage::Hello;
                self.repeat = Repeat::from(now_ns);
            }
            _ => {}
        }
    }

    fn open(&mut self, keys: &InitiatorKeys, now_ns: u64, cookie: Cookie) {
        let mut bytes = packet::prologue(self.number, &cookie, keys.pattern());
        self.stage = match keys.begin(&bytes) {
            Ok((state, noise)) => {
                bytes.extend_from_slice(&noise);
                Stage::Opening {
                    cookie,
                    state,
                    bytes,
                    since_ns: now_ns,
                }
            }
            Err(error) => Stage::Failed(InitiatorFailure::Noise(error.to_string())),
        };
        self.repeat = Repeat::from(now_ns);
    }

    /// Returns the state and the payload of an answer that accepts.
    fn read_answer(&mut self, now_ns: u64, noise: &[u8]) -> Option<(HandshakeState, Vec<u8>)> {
        let Stage::Opening { state, .. } = &mut self.stage else {
            return None;
        };
        // Anyone on the path can send an answer that does not verify. It changes nothing.
        let mut payload = read_second(state, noise).ok()?;
        let at = self.to;
        let failure = match payload.first() {
            Some(&UNKNOWN_PEER) => InitiatorFailure::UnknownHere { at },
            Some(&BUSY) => {
                self.ask_again(now_ns);
                return None;
            }
            Some(&ACCEPTED) => {
                payload.remove(0);
                let done = Stage::Failed(InitiatorFailure::Unfinished { at });
                match std::mem::replace(&mut self.stage, done) {
                    Stage::Opening { state, .. } => return Some((*state, payload)),
                    _ => return None,
                }
            }
            _ => InitiatorFailure::Unfinished { at },
        };
        self.stage = Stage::Failed(failure);
        None
    }

    /// The peer has no room now. Begins again after a time, with another number.
    fn ask_again(&mut self, now_ns: u64) {
        self.busy_ns = (2 * self.busy_ns).clamp(FIRST_BUSY_NS, LAST_BUSY_NS);
        self.number = self.number.wrapping_add(1 << 32);
        self.stage = Stage::Hello;
        // Those that were refused together come back apart: numbers are random.
        let part_ns = self.number % (self.busy_ns / 2);
        self.repeat = Repeat::from(now_ns + self.busy_ns / 2 + part_ns);
    }

    /// Whether a responder has answered here a short time ago.
    fn is_likely(&self, now_ns: u64) -> bool {
        match self.stage {
            Stage::Opening { since_ns, .. } => now_ns < since_ns + PATIENCE_NS,
            _ => false,
        }
    }
}

/// Whether both are one place. The scope of a link-local address is this machine's matter.
fn is_same_place(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port() && one.ip().to_canonical() == other.ip().to_canonical()
}
