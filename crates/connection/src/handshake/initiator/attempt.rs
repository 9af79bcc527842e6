//! What an initiator does with one address of the peer, up to the peer's answer.

use std::net::SocketAddr;

use farwrite_keys::Exchange;
use snow::HandshakeState;

use super::InitiatorFailure;
use crate::handshake::noise::{InitiatorKeys, read_second};
use crate::handshake::packet::{self, Cookie, Pake, Pattern};
use crate::handshake::{ACCEPTED, BUSY, UNKNOWN_PEER};
use crate::keys::handshake_key;

/// Bounds of the time between two packets of one kind. It grows by a half each time.
const FIRST_REPEAT_NS: u64 = 250_000_000;
const LAST_REPEAT_NS: u64 = 1_000_000_000;
/// How long an address that has sent a cookie has before further addresses are tried.
const PATIENCE_NS: u64 = 2_000_000_000;
/// The shortest time after which a message whose cookie is no longer accepted is given up.
const RENEWAL_NS: u64 = 1_000_000_000;
/// The age of a cookie up to which an opening with a code still leaves with it: the opening must arrive while the
/// cookie is valid, because it cannot be replaced.
const FRESH_NS: u64 = 5_000_000_000;
/// Bounds of the time after which an initiator asks again when the peer had no room. It doubles each time.
const FIRST_BUSY_NS: u64 = 200_000_000;
const LAST_BUSY_NS: u64 = 1_600_000_000;

/// One address of the peer.
pub(super) struct Attempt {
    pub(super) to: SocketAddr,
    pub(super) number: u64,
    pub(super) stage: Stage,
    pub(super) repeat: Repeat,
    /// A refusal that nothing proves, and when it counts.
    pub(super) refused: Option<(InitiatorFailure, u64)>,
    /// Whether the peer had no room, or verified no more openings.
    pub(super) was_busy: bool,
    /// How long it waited when the peer had no room; 0 if that has not happened.
    busy_ns: u64,
    /// Whether a first Noise message that follows from a code has gone here.
    pub(super) has_shown_code: bool,
}

pub(super) enum Stage {
    Waiting,
    Hello,
    /// The exchange about a code.
    Exchange {
        cookie: Cookie,
        exchange: Exchange,
        ours: Vec<u8>,
        since_ns: u64,
    },
    Opening {
        cookie: Cookie,
        state: Box<HandshakeState>,
        bytes: Vec<u8>,
        since_ns: u64,
    },
    /// The peer has no room.
    Busy,
    Failed(InitiatorFailure),
}

/// When a packet is sent again.
#[derive(Clone, Copy)]
pub(super) struct Repeat {
    pub(super) next_ns: u64,
    interval_ns: u64,
}

impl Repeat {
    pub(super) fn from(now_ns: u64) -> Self {
        Self {
            next_ns: now_ns,
            interval_ns: FIRST_REPEAT_NS,
        }
    }

    pub(super) fn is_due(&mut self, now_ns: u64) -> bool {
        let is_due = now_ns >= self.next_ns;
        if is_due {
            self.next_ns = now_ns + self.interval_ns;
            self.interval_ns = (self.interval_ns * 3 / 2).min(LAST_REPEAT_NS);
        }
        is_due
    }
}

impl Attempt {
    pub(super) fn new(to: SocketAddr, number: u64, now_ns: u64) -> Self {
        Self {
            to,
            number,
            stage: Stage::Waiting,
            repeat: Repeat::from(now_ns),
            refused: None,
            was_busy: false,
            busy_ns: 0,
            has_shown_code: false,
        }
    }

    /// The packet that is repeated now.
    pub(super) fn packet(&self) -> Option<Vec<u8>> {
        match &self.stage {
            Stage::Hello => Some(packet::hello(self.number)),
            Stage::Exchange { cookie, ours, .. } => {
                Some(packet::exchange(self.number, cookie, ours))
            }
            Stage::Opening { bytes, .. } => Some(bytes.clone()),
            Stage::Waiting | Stage::Busy | Stage::Failed(_) => None,
        }
    }

    /// Continues with a cookie of the responder.
    pub(super) fn retried(&mut self, keys: &InitiatorKeys, now_ns: u64, came: Cookie) {
        match &self.stage {
            Stage::Hello => match keys {
                InitiatorKeys::Code(code) => {
                    let (exchange, ours) = code.code().begin();
                    self.stage = Stage::Exchange {
                        cookie: came,
                        exchange,
                        ours,
                        since_ns: now_ns,
                    };
                    self.repeat = Repeat::from(now_ns);
                }
                _ => {
                    let head = packet::prologue(self.number, &came, keys.pattern());
                    self.open(keys, now_ns, came, (head, &[]));
                }
            },
            // The responder no longer accepts the cookie, for instance because it started again.
            Stage::Exchange {
                cookie, since_ns, ..
            }
            | Stage::Opening {
                cookie, since_ns, ..
            } if *cookie != came && now_ns >= since_ns + RENEWAL_NS && !self.has_shown_code => {
                self.begin_again(now_ns);
            }
            _ => {}
        }
    }

    /// Continues with the responder's message of the exchange about a code, which is shown then.
    pub(super) fn exchanged(&mut self, keys: &InitiatorKeys, now_ns: u64, theirs: &Pake) {
        let InitiatorKeys::Code(code) = keys else {
            return;
        };
        let Stage::Exchange { since_ns, .. } = &self.stage else {
            return;
        };
        if now_ns >= since_ns + FRESH_NS {
            return self.begin_again(now_ns);
        }
        let Stage::Exchange {
            cookie,
            exchange,
            ours,
            ..
        } = std::mem::replace(&mut self.stage, Stage::Hello)
        else {
            return;
        };
        let Ok(key) = exchange.finish(theirs) else {
            // Something on the path has sent a message that no code gives.
            return self.begin_again(now_ns + FIRST_REPEAT_NS);
        };
        if !code.use_up() {
            self.stage = Stage::Failed(InitiatorFailure::CodeUsed);
            return;
        }
        self.has_shown_code = true;
        self.refused = None;
        let mut head = packet::prologue(self.number, &cookie, Pattern::Code);
        head.extend_from_slice(&ours);
        let key = InitiatorKeys::PreShared(handshake_key(&key));
        self.open(&key, now_ns, cookie, (head, theirs));
    }

    /// Sends the first Noise message from now on. The prologue is what goes before it, and what the responder has
    /// sent.
    fn open(
        &mut self,
        keys: &InitiatorKeys,
        now_ns: u64,
        cookie: Cookie,
        (head, theirs): (Vec<u8>, &[u8]),
    ) {
        self.stage = match keys.begin(&[&head, theirs].concat()) {
            Ok((state, noise)) => Stage::Opening {
                cookie,
                state,
                bytes: [head, noise].concat(),
                since_ns: now_ns,
            },
            Err(error) => Stage::Failed(InitiatorFailure::Noise(error.to_string())),
        };
        self.repeat = Repeat::from(now_ns);
    }

    /// Begins again at `at_ns`. Another number keeps the two handshakes apart.
    pub(super) fn begin_again(&mut self, at_ns: u64) {
        self.number = self.number.wrapping_add(1 << 32);
        self.stage = Stage::Hello;
        self.repeat = Repeat::from(at_ns);
        self.refused = None;
    }

    /// Returns the state and the payload of an answer that accepts. After an answer that there is no room,
    /// [`Attempt::ask_again`] follows.
    pub(super) fn read_answer(
        &mut self,
        keys: &InitiatorKeys,
        noise: &[u8],
    ) -> Option<(HandshakeState, Vec<u8>)> {
        let Stage::Opening { state, .. } = &mut self.stage else {
            return None;
        };
        // Anyone on the path can send an answer that does not verify. It changes nothing.
        let mut payload = read_second(state, noise).ok()?;
        let at = self.to;
        let failure = match payload.first() {
            Some(&UNKNOWN_PEER) => InitiatorFailure::UnknownHere { at },
            Some(&BUSY) => {
                if let InitiatorKeys::Code(code) = keys {
                    // The responder has proven that it knows the code.
                    code.restore();
                    self.has_shown_code = false;
                }
                self.stage = Stage::Busy;
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

    /// The peer has no room now. Begins again after a time.
    pub(super) fn ask_again(&mut self, now_ns: u64) {
        self.busy_ns = (2 * self.busy_ns).clamp(FIRST_BUSY_NS, LAST_BUSY_NS);
        // Those that were refused together come back apart: numbers are random.
        let part_ns = self.number % (self.busy_ns / 2);
        self.begin_again(now_ns + self.busy_ns / 2 + part_ns);
    }

    /// Until when other addresses wait, because a responder has answered here a short time ago; 0 if none has.
    pub(super) fn likely_until_ns(&self) -> u64 {
        match self.stage {
            Stage::Exchange { since_ns, .. } | Stage::Opening { since_ns, .. } => {
                since_ns + PATIENCE_NS
            }
            _ => 0,
        }
    }

    /// When the first Noise message left first.
    pub(super) fn opened_ns(&self) -> Option<u64> {
        match self.stage {
            Stage::Opening { since_ns, .. } => Some(since_ns),
            _ => None,
        }
    }

    pub(super) fn is_opening(&self) -> bool {
        matches!(self.stage, Stage::Opening { .. })
    }
}
