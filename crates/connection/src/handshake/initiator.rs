//! The initiator's end of a handshake. It repeats its packets until they are answered; the responder
//! repeats nothing by itself.

use std::net::SocketAddr;

use snow::StatelessTransportState;

use super::noise::{InitiatorKeys, write_proof};
use super::packet::{self, Content, Packet, Refusal};

mod attempt;

use attempt::{Attempt, Repeat, Stage};

/// The time after which the next address is tried too, if no address has answered (RFC 8305 section 5).
const STAGGER_NS: u64 = 250_000_000;
/// How long after a refusal an answer still counts. An attacker who sees the packets can forge a refusal, or
/// can cause one with a changed opening. The true answer then still arrives, unless the attacker can also stop
/// packets.
const DOUBT_NS: u64 = 1_000_000_000;

/// The time after an answer at which its responder has forgotten the handshake (P12.4).
const FORGOTTEN_NS: u64 = 11_000_000_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InitiatorFailure {
    /// The responder at an address refuses, without proving that it is the peer.
    Refused {
        at: SocketAddr,
        reason: Refusal,
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
    /// This end has shown its code before.
    CodeUsed,
    /// The messages could not be made.
    Noise(String),
}

/// The handshake after the peer's answer.
struct Answered {
    to: SocketAddr,
    number: u64,
    ciphers: Box<StatelessTransportState>,
    since_ns: u64,
    /// About the round trip: the time from the opening to its answer.
    rtt_ns: u64,
    /// The proof, once its payload is known.
    proof: Option<(Vec<u8>, Repeat)>,
}

/// How long an initiator goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// While nothing answers: from the beginning on, and again after each answer that there is no room now.
    pub(crate) answer_ns: u64,
    /// While the peer has no room, from the beginning on.
    pub(crate) busy_ns: u64,
}

/// One end of a handshake with the first of several addresses that answers.
pub(crate) struct Initiator {
    pub(crate) keys: InitiatorKeys,
    attempts: Vec<Attempt>,
    /// When the next address is tried.
    next_start_ns: u64,
    limits: Limits,
    /// When an initiator gives up that gets no answer, and one whose peer has no room.
    give_up_ns: u64,
    busy_until_ns: u64,
    answered: Option<Answered>,
}

impl Initiator {
    /// `number` is random.
    pub(crate) fn new(
        keys: InitiatorKeys,
        addresses: &[SocketAddr],
        number: u64,
        now_ns: u64,
        limits: Limits,
    ) -> Self {
        let numbers = std::iter::successors(Some(number), |last| Some(last.wrapping_add(1)));
        let attempts = addresses.iter().zip(numbers);
        let attempts = attempts.map(|(to, number)| Attempt::new(*to, number, now_ns));
        Self {
            keys,
            attempts: attempts.collect(),
            next_start_ns: now_ns,
            limits,
            give_up_ns: now_ns.saturating_add(limits.answer_ns),
            busy_until_ns: now_ns.saturating_add(limits.busy_ns),
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
        if let Content::Retry(_) = packet.content
            && !self.may_exchange(now_ns, place)
        {
            return None;
        }
        let attempt = &mut self.attempts[place];
        match packet.content {
            Content::Retry(cookie) => {
                attempt.retried(&self.keys, now_ns, cookie);
                None
            }
            Content::Exchanged(theirs) => {
                attempt.exchanged(&self.keys, now_ns, theirs);
                None
            }
            Content::Answer(noise) => {
                let opened_ns = attempt.opened_ns().unwrap_or(now_ns);
                let Some((state, payload)) = attempt.read_answer(&self.keys, noise) else {
                    self.answered_busy(now_ns, place);
                    return None;
                };
                let to = attempt.to;
                match state.into_stateless_transport_mode() {
                    Ok(ciphers) => {
                        self.answered = Some(Answered {
                            to,
                            number: packet.number,
                            ciphers: Box::new(ciphers),
                            since_ns: now_ns,
                            rtt_ns: now_ns.saturating_sub(opened_ns),
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
                self.refused(now_ns, place, (reason?, packet.version));
                None
            }
            Content::Hello | Content::Exchange { .. } | Content::Opening(_) | Content::Proof(_) => {
                None
            }
        }
    }

    /// About the round trip, once the peer has answered. It is too long if packets were lost.
    pub(crate) fn rtt_ns(&self) -> u64 {
        self.answered.as_ref().map_or(0, |answered| answered.rtt_ns)
    }

    /// Asks again later if the peer at `place` has no room, up to the limit for that.
    fn answered_busy(&mut self, now_ns: u64, place: usize) {
        let attempt = &mut self.attempts[place];
        if !matches!(attempt.stage, Stage::Busy) {
            return;
        }
        if now_ns >= self.busy_until_ns {
            attempt.stage = Stage::Failed(InitiatorFailure::Busy { at: attempt.to });
            return;
        }
        attempt.ask_again(now_ns);
        self.wait_for_room(now_ns, place);
    }

    fn refused(&mut self, now_ns: u64, place: usize, (reason, version): (Refusal, u16)) {
        let attempt = &mut self.attempts[place];
        match reason {
            Refusal::OverBudget => self.wait_for_room(now_ns, place),
            // A responder that knows this version does not refuse for the version.
            Refusal::Version if version == packet::VERSION => {}
            _ => {
                let why = InitiatorFailure::Refused {
                    at: attempt.to,
                    reason,
                    version,
                };
                attempt.refused.get_or_insert((why, now_ns + DOUBT_NS));
            }
        }
    }

    /// The peer at `place` lives, and cannot serve this end now.
    fn wait_for_room(&mut self, now_ns: u64, place: usize) {
        self.attempts[place].was_busy = true;
        if now_ns < self.busy_until_ns {
            let silent_ns = now_ns.saturating_add(self.limits.answer_ns);
            self.give_up_ns = self.give_up_ns.max(silent_ns.min(self.busy_until_ns));
        }
    }

    fn has_shown_code(&self) -> bool {
        matches!(&self.keys, InitiatorKeys::Code(code) if code.is_used())
    }

    /// Whether the attempt at `place` may go on with a cookie. A code is exchanged with one address at a time, and
    /// with none after it was shown.
    fn may_exchange(&mut self, now_ns: u64, place: usize) -> bool {
        if !matches!(self.keys, InitiatorKeys::Code(_)) {
            return true;
        }
        let others = self.attempts.iter_mut().enumerate();
        let mut others = others.filter(|(other, _)| *other != place);
        let is_held_up = others.any(|(_, other)| {
            let is_likely = now_ns < other.likely_until_ns();
            if !is_likely && matches!(other.stage, Stage::Exchange { .. }) {
                other.begin_again(now_ns);
            }
            is_likely
        });
        !is_held_up && !self.has_shown_code()
    }

    /// Until when addresses wait that have not sent a cookie.
    fn held_up_until_ns(&self) -> u64 {
        let until = self.attempts.iter().map(Attempt::likely_until_ns);
        match self.has_shown_code() {
            true => u64::MAX,
            false => until.max().unwrap_or(0),
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

    /// When the responder has forgotten this handshake, if it has not used the proof until then. A code serves
    /// no second handshake.
    fn forgotten_ns(&self) -> Option<u64> {
        let answered = self.answered.as_ref()?;
        answered.proof.as_ref()?;
        let at_ns = answered.since_ns + FORGOTTEN_NS;
        let may_begin_again =
            at_ns < self.give_up_ns && !matches!(self.keys, InitiatorKeys::Code(_));
        may_begin_again.then_some(at_ns)
    }

    /// Begins again if the responder has forgotten the handshake. Returns whether it does: what has come of the
    /// answer is worth nothing then.
    pub(crate) fn begin_again_if_forgotten(&mut self, now_ns: u64) -> bool {
        if self.forgotten_ns().is_none_or(|at_ns| now_ns < at_ns) {
            return false;
        }
        let number = self.answered.take().map(|answered| answered.number);
        let mut attempts = self.attempts.iter_mut();
        if let Some(attempt) = attempts.find(|attempt| Some(attempt.number) == number) {
            attempt.begin_again(now_ns);
        }
        true
    }

    /// The next datagram to send at `now_ns`. Call this until it returns `None`.
    pub(crate) fn poll_transmit(&mut self, now_ns: u64) -> Option<(SocketAddr, Vec<u8>)> {
        self.end_refused(now_ns);
        if let Some(answered) = &mut self.answered {
            let (bytes, repeat) = answered.proof.as_mut()?;
            return repeat.is_due(now_ns).then(|| (answered.to, bytes.clone()));
        }
        let is_held_up = now_ns < self.held_up_until_ns();
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
            if is_held_up && matches!(attempt.stage, Stage::Hello) {
                return None;
            }
            let bytes = attempt.packet()?;
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
            let repeat_ns = proof.map_or(u64::MAX, |(_, repeat)| repeat.next_ns);
            return repeat_ns.min(self.forgotten_ns().unwrap_or(u64::MAX));
        }
        let held_up_ns = self.held_up_until_ns();
        let due = self
            .attempts
            .iter()
            .filter_map(|attempt| match attempt.stage {
                Stage::Waiting => Some(self.next_start_ns.max(held_up_ns)),
                Stage::Hello => Some(attempt.repeat.next_ns.max(held_up_ns)),
                Stage::Exchange { .. } | Stage::Opening { .. } => Some(attempt.repeat.next_ns),
                Stage::Busy | Stage::Failed(_) => None,
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
        // Where a code was shown, nothing else is tried.
        let shown = self.attempts.iter().find(|attempt| attempt.has_shown_code);
        let is_spent = self.has_shown_code() && !shown.is_some_and(Attempt::is_opening);
        let failures: Vec<_> = self.attempts.iter().filter_map(failed).collect();
        if !is_spent && failures.len() < self.attempts.len() && now_ns < self.give_up_ns {
            return None;
        }
        let spent = match shown {
            Some(attempt) => failed(attempt),
            None => is_spent.then_some(InitiatorFailure::CodeUsed),
        };
        let mut attempts = self.attempts.iter();
        let begun = attempts.find(|attempt| {
            matches!(
                attempt.stage,
                Stage::Exchange { .. } | Stage::Opening { .. }
            )
        });
        // What a peer says is worth more than silence at another address.
        let unfinished = begun.map(|attempt| InitiatorFailure::Unfinished { at: attempt.to });
        let busy = self.attempts.iter().find(|attempt| attempt.was_busy);
        let busy = busy.map(|attempt| InitiatorFailure::Busy { at: attempt.to });
        let to = self.attempts.iter().map(|attempt| attempt.to).collect();
        let said = spent.or(failures.into_iter().next());
        let said = said.or(busy).or(unfinished);
        Some(said.unwrap_or(InitiatorFailure::Silent { to }))
    }
}

/// Whether both are one place. The scope of a link-local address is this machine's matter.
fn is_same_place(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port() && one.ip().to_canonical() == other.ip().to_canonical()
}
