//! Preamble and Noise handshake (P7.2, P7.3), without I/O: from the first byte of a connection to
//! keys that both ends hold.
//!
//! All lengths are fixed, so a peer's data never determines an allocation.

use std::sync::Arc;

use snow::{Builder, HandshakeState, StatelessTransportState};

use crate::code::{Exchange, PAKE_BYTES};
use crate::keys::{Accepted, Key, Proof};
use crate::{Error, Psk, PublicKey};

/// Version of the protocol that this end speaks (P7.2).
pub const VERSION: u16 = 3;

const MAGIC: &[u8; 8] = b"FARWRITE";
const PREAMBLE_BYTES: usize = 10;
/// With psk0, a wrong key already shows in the first message, before any other work on it.
const PRE_SHARED: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// The initiator proves its identity to the one responder whose public key it has.
const IDENTITIES: &str = "Noise_IK_25519_ChaChaPoly_BLAKE2s";
/// Bytes that authenticate a Noise message.
pub(crate) const TAG_BYTES: usize = 16;
const PUBLIC_KEY_BYTES: usize = 32;
/// Both handshake messages: a public key and the tag of an empty payload.
const MESSAGE_BYTES: usize = PUBLIC_KEY_BYTES + TAG_BYTES;
/// The first message between identities also has the initiator's public key, encrypted.
const FIRST_OF_IDENTITIES_BYTES: usize = MESSAGE_BYTES + PUBLIC_KEY_BYTES + TAG_BYTES;
const ACCEPTED: u8 = 0;
const KEYS_DIFFER: u8 = 1;
const UNKNOWN_PEER: u8 = 2;
const NOT_THIS_WAY: u8 = 3;
const CODE_USED: u8 = 4;

/// How the ends authenticate each other. It is a byte of the preamble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    PreShared,
    Identities,
    Code,
}

impl Pattern {
    fn byte(self) -> u8 {
        match self {
            Self::PreShared => 0,
            Self::Identities => 1,
            Self::Code => 2,
        }
    }

    fn of(preamble: &[u8]) -> Option<Self> {
        let patterns = [Self::PreShared, Self::Identities, Self::Code];
        let byte = preamble.get(MAGIC.len())?;
        patterns.into_iter().find(|pattern| pattern.byte() == *byte)
    }
}

/// The result of a handshake: the ciphers, and how many records it used in each direction.
pub struct Agreed {
    pub(crate) state: StatelessTransportState,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// How the peer has proven who it is.
    pub(crate) peer: Proof,
}

/// The result of processing bytes of the peer.
#[derive(Default)]
pub struct Progress {
    /// Bytes to send to the peer.
    pub send: Vec<u8>,
    /// Set when the handshake is finished. `send` must still be sent.
    pub agreed: Option<Agreed>,
}

/// The failure of a handshake.
#[derive(Debug)]
pub struct Failed {
    /// The cause.
    pub error: Error,
    /// Bytes that report the failure to the peer.
    pub answer: Vec<u8>,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        let answer = Vec::new();
        Self { error, answer }
    }
}

/// One end of a handshake.
pub struct Handshake {
    step: Step,
    /// The bytes received so far for the current step.
    came: Vec<u8>,
    /// What the responder accepts.
    accepted: Arc<Accepted>,
    preamble: [u8; PREAMBLE_BYTES],
    has_used_code: bool,
}

/// What a handshake waits for.
enum Step {
    /// The initiator: the peer's preamble.
    Answer(Box<Begun>),
    /// The initiator: whether the responder accepts.
    Status(Box<Begun>),
    /// The initiator: the responder's message of the exchange about a code.
    Exchange(Exchange, Vec<u8>),
    /// The initiator: the second Noise message.
    Second(Box<HandshakeState>, Proof),
    /// The responder: the peer's preamble.
    Preamble,
    /// The responder: the peer's message of the exchange about a code.
    FirstExchange,
    /// The responder: the first Noise message.
    First(Opener),
    /// The responder: the proof that the first message was not recorded.
    Proof(Box<StatelessTransportState>, Proof),
    /// Nothing: the handshake succeeded or failed.
    Over,
}

/// What the initiator has sent.
enum Begun {
    Noise(Box<HandshakeState>, Proof),
    /// Its message of the exchange about a code.
    Code(Exchange, Vec<u8>),
}

/// How the responder reads the first Noise message.
enum Opener {
    PreShared,
    Identities,
    /// The key follows from a code, and the prologue has the messages before. The answer has no preamble.
    Code(Psk, Vec<u8>),
}

impl Handshake {
    /// Makes the initiator's end, and the bytes that it sends first.
    ///
    /// # Errors
    /// [`Error::Noise`].
    pub fn initiate(key: &Key) -> Result<(Self, Vec<u8>), Error> {
        let (pattern, begun, first) = match key {
            Key::PreShared(psk) => {
                let ours = preamble(Pattern::PreShared);
                let (noise, first) = begin(pre_shared(psk, &ours)?)?;
                (
                    Pattern::PreShared,
                    Begun::Noise(noise.into(), Proof::PreShared),
                    first,
                )
            }
            Key::Identity { own, peer } => {
                let ours = preamble(Pattern::Identities);
                let builder = noise(IDENTITIES, &ours)?
                    .local_private_key(own.private())
                    .and_then(|builder| builder.remote_public_key(peer.bytes()));
                let (noise, first) = begin(builder.map_err(Error::Noise)?)?;
                let begun = Begun::Noise(noise.into(), Proof::Identity(*peer));
                (Pattern::Identities, begun, first)
            }
            Key::Code(code) => {
                let (exchange, first) = code.begin();
                let begun = Begun::Code(exchange, first.clone());
                (Pattern::Code, begun, first)
            }
        };
        let ours = preamble(pattern);
        let send = [&ours[..], &first].concat();
        let end = Self::at(Step::Answer(begun.into()), Arc::default(), ours);
        Ok((end, send))
    }

    /// Makes the responder's end, which waits for the initiator.
    #[must_use]
    pub fn respond(accepted: Arc<Accepted>) -> Self {
        Self::at(Step::Preamble, accepted, preamble(Pattern::PreShared))
    }

    fn at(step: Step, accepted: Arc<Accepted>, preamble: [u8; PREAMBLE_BYTES]) -> Self {
        Self {
            step,
            came: Vec::new(),
            accepted,
            preamble,
            has_used_code: false,
        }
    }

    /// Whether this initiator has sent a Noise message that follows from a code.
    pub(crate) fn has_shown_code(&self) -> bool {
        match &self.step {
            Step::Second(_, proof) => *proof == Proof::Code,
            Step::Status(begun) => matches!(**begun, Begun::Noise(_, Proof::Code)),
            _ => false,
        }
    }

    /// Whether this end has used its code up.
    pub(crate) fn has_used_code(&self) -> bool {
        self.has_used_code
    }

    /// Returns how many bytes of the peer the next step lacks; 0 when the handshake has ended. A
    /// caller that reads no more than this leaves the records that follow the handshake in the
    /// socket.
    #[must_use]
    pub fn wants(&self) -> usize {
        let whole = match &self.step {
            Step::Answer(_) | Step::Preamble => PREAMBLE_BYTES,
            Step::Status(_) => 1,
            Step::First(Opener::Identities) => FIRST_OF_IDENTITIES_BYTES,
            Step::First(_) | Step::Second(..) => MESSAGE_BYTES,
            Step::Exchange(..) | Step::FirstExchange => PAKE_BYTES,
            Step::Proof(..) => TAG_BYTES,
            Step::Over => 0,
        };
        whole - self.came.len()
    }

    /// Consumes bytes of the peer from the front of `bytes`, up to the end of the handshake.
    ///
    /// # Errors
    /// [`Error::NotFarwrite`], [`Error::Version`], [`Error::KeysDiffer`], [`Error::UnknownHere`],
    /// [`Error::UnknownThere`], [`Error::NotThisWay`], [`Error::WrongCode`], [`Error::CodeUsed`],
    /// [`Error::BadExchange`], [`Error::Status`], [`Error::Forged`], [`Error::Noise`]. The handshake has then
    /// ended.
    pub fn receive(&mut self, bytes: &mut &[u8]) -> Result<Progress, Failed> {
        let mut progress = Progress::default();
        while self.wants() > 0 {
            let (taken, rest) = bytes.split_at(self.wants().min(bytes.len()));
            self.came.extend_from_slice(taken);
            *bytes = rest;
            if let Step::Answer(_) | Step::Preamble = self.step {
                check_magic(&self.came).inspect_err(|_| {
                    self.step = Step::Over;
                    self.came.clear();
                })?;
            }
            if self.wants() > 0 {
                break;
            }
            let came = std::mem::take(&mut self.came);
            let step = std::mem::replace(&mut self.step, Step::Over);
            self.step = match step {
                Step::Answer(_) | Step::Status(_) | Step::Exchange(..) | Step::Second(..) => {
                    self.step_of_initiator(step, &came, &mut progress)?
                }
                _ => self.step_of_responder(step, &came, &mut progress)?,
            };
        }
        Ok(progress)
    }

    /// Continues with the bytes that the step waited for, which have all arrived.
    fn step_of_initiator(
        &self,
        step: Step,
        came: &[u8],
        progress: &mut Progress,
    ) -> Result<Step, Error> {
        Ok(match step {
            Step::Answer(begun) => {
                check_answer(came, &self.preamble)?;
                Step::Status(begun)
            }
            Step::Status(begun) => match (*begun, came) {
                (Begun::Noise(noise, peer), [ACCEPTED]) => Step::Second(noise, peer),
                (Begun::Code(exchange, ours), [ACCEPTED]) => Step::Exchange(exchange, ours),
                (Begun::Noise(_, Proof::Code), [KEYS_DIFFER]) => return Err(Error::WrongCode),
                (_, [KEYS_DIFFER]) => return Err(Error::KeysDiffer),
                (_, [UNKNOWN_PEER]) => return Err(Error::UnknownThere),
                (_, [NOT_THIS_WAY]) => return Err(Error::NotThisWay),
                (_, [CODE_USED]) => return Err(Error::CodeUsed),
                (_, other) => return Err(Error::Status { came: other[0] }),
            },
            Step::Exchange(exchange, ours) => {
                let prologue = [&self.preamble[..], &ours, came].concat();
                let key = exchange.finish(came)?;
                let (noise, first) = begin(pre_shared(&key, &prologue)?)?;
                progress.send = first;
                Step::Status(Begun::Noise(noise.into(), Proof::Code).into())
            }
            Step::Second(mut noise, peer) => {
                let read = noise.read_message(came, &mut []);
                read.map_err(|_| Error::KeysDiffer)?;
                let state = noise
                    .into_stateless_transport_mode()
                    .map_err(Error::Noise)?;
                // The first message can be a replay. This message cannot, so the responder waits
                // for it.
                progress.send.resize(TAG_BYTES, 0);
                state
                    .write_message(0, &[], &mut progress.send)
                    .map_err(Error::Noise)?;
                progress.agreed = Some(Agreed {
                    state,
                    sent: 1,
                    received: 0,
                    peer,
                });
                Step::Over
            }
            other => other,
        })
    }

    /// The same at the responder.
    fn step_of_responder(
        &mut self,
        step: Step,
        came: &[u8],
        progress: &mut Progress,
    ) -> Result<Step, Failed> {
        Ok(match step {
            Step::Preamble => {
                let pattern = check_version(came).map_err(|error| Failed {
                    error,
                    answer: self.preamble.into(),
                })?;
                self.preamble = preamble(pattern);
                self.opens(pattern)?
            }
            Step::FirstExchange => {
                let Some(code) = &self.accepted.code else {
                    return Err(Error::NotThisWay.into());
                };
                let (ours, key) = code.code.answer(came)?;
                let prologue = [&self.preamble[..], came, &ours].concat();
                progress.send = [&self.preamble[..], &[ACCEPTED], &ours].concat();
                Step::First(Opener::Code(key, prologue))
            }
            Step::First(opener) => self.first(opener, came, progress)?,
            Step::Proof(state, peer) => {
                let read = state.read_message(0, came, &mut []);
                read.map_err(|_| Error::Forged)?;
                progress.agreed = Some(Agreed {
                    state: *state,
                    sent: 0,
                    received: 1,
                    peer,
                });
                Step::Over
            }
            other => other,
        })
    }

    /// What the responder waits for after a preamble.
    fn opens(&self, pattern: Pattern) -> Result<Step, Failed> {
        let accepted = &self.accepted;
        Ok(match pattern {
            Pattern::PreShared if accepted.psk.is_some() => Step::First(Opener::PreShared),
            Pattern::Identities if accepted.identity.is_some() => Step::First(Opener::Identities),
            Pattern::Code => match &accepted.code {
                Some(code) if code.is_used() => return Err(self.refuse(CODE_USED, Error::CodeUsed)),
                Some(_) => Step::FirstExchange,
                None => return Err(self.refuse(NOT_THIS_WAY, Error::NotThisWay)),
            },
            _ => return Err(self.refuse(NOT_THIS_WAY, Error::NotThisWay)),
        })
    }

    /// Verifies the first Noise message, and answers it.
    fn first(
        &mut self,
        opener: Opener,
        came: &[u8],
        progress: &mut Progress,
    ) -> Result<Step, Failed> {
        let accepted = Arc::clone(&self.accepted);
        let (mut state, peer) = match (&opener, &accepted.psk, &accepted.identity) {
            (Opener::Code(key, prologue), ..) => {
                let used_up = accepted.code.as_ref().is_some_and(|code| code.use_up());
                if !used_up {
                    let answer = vec![CODE_USED];
                    let error = Error::CodeUsed;
                    return Err(Failed { error, answer });
                }
                // From here on, nobody can try this code again.
                self.has_used_code = true;
                let state = open(pre_shared(key, prologue)?, came).map_err(|_| Failed {
                    error: Error::WrongCode,
                    answer: vec![KEYS_DIFFER],
                })?;
                (state, Proof::Code)
            }
            (Opener::PreShared, Some(psk), _) => {
                let state = open(pre_shared(psk, &self.preamble)?, came);
                let state = state.map_err(|error| self.refuse(KEYS_DIFFER, error))?;
                (state, Proof::PreShared)
            }
            (Opener::Identities, _, Some((own, known))) => {
                let builder = noise(IDENTITIES, &self.preamble)?.local_private_key(own.private());
                let state = open(builder.map_err(Error::Noise)?, came);
                let state = state.map_err(|error| self.refuse(KEYS_DIFFER, error))?;
                let key = state
                    .get_remote_static()
                    .and_then(|key| key.try_into().ok());
                let key: [u8; PUBLIC_KEY_BYTES] = key.ok_or(Error::KeysDiffer)?;
                let key = PublicKey::from(key);
                if known.name(&key).is_none() {
                    return Err(self.refuse(UNKNOWN_PEER, Error::UnknownHere { key }));
                }
                (state, Proof::Identity(key))
            }
            _ => return Err(Error::NotThisWay.into()),
        };
        let mut second = [0; MESSAGE_BYTES];
        state
            .write_message(&[], &mut second)
            .map_err(Error::Noise)?;
        let preamble = match opener {
            Opener::Code(..) => &[][..],
            Opener::PreShared | Opener::Identities => &self.preamble[..],
        };
        progress.send = [preamble, &[ACCEPTED], &second].concat();
        let state = state.into_stateless_transport_mode();
        Ok(Step::Proof(Box::new(state.map_err(Error::Noise)?), peer))
    }

    fn refuse(&self, status: u8, error: Error) -> Failed {
        let answer = [&self.preamble[..], &[status]].concat();
        Failed { error, answer }
    }
}

/// Begins a Noise handshake as its initiator. Returns the first message too.
fn begin(builder: Builder<'_>) -> Result<(HandshakeState, Vec<u8>), Error> {
    let mut noise = builder.build_initiator().map_err(Error::Noise)?;
    let mut first = vec![0; FIRST_OF_IDENTITIES_BYTES];
    let bytes = noise.write_message(&[], &mut first).map_err(Error::Noise)?;
    first.truncate(bytes);
    Ok((noise, first))
}

/// Verifies the first Noise message.
fn open(builder: Builder<'_>, first: &[u8]) -> Result<HandshakeState, Error> {
    let mut noise = builder.build_responder().map_err(Error::Noise)?;
    let read = noise.read_message(first, &mut []);
    read.map_err(|_| Error::KeysDiffer)?;
    Ok(noise)
}

fn preamble(pattern: Pattern) -> [u8; PREAMBLE_BYTES] {
    let mut bytes = [0; PREAMBLE_BYTES];
    bytes[..MAGIC.len()].copy_from_slice(MAGIC);
    bytes[MAGIC.len()..].copy_from_slice(&VERSION.to_be_bytes());
    bytes[MAGIC.len()] = pattern.byte();
    bytes
}

/// Refuses the start of a preamble at the first byte that differs from Farwrite's.
fn check_magic(came: &[u8]) -> Result<(), Error> {
    let magic = came.len().min(MAGIC.len());
    if came[..magic] == MAGIC[..magic] {
        return Ok(());
    }
    Err(Error::NotFarwrite {
        came: came.escape_ascii().to_string(),
    })
}

/// Refuses a whole preamble of another version, or with a pattern that this version does not have.
fn check_version(preamble: &[u8]) -> Result<Pattern, Error> {
    let pattern = Pattern::of(preamble);
    let is_own = preamble
        .last()
        .is_some_and(|last| u16::from(*last) == VERSION);
    pattern.filter(|_| is_own).ok_or_else(|| Error::Version {
        ours: VERSION,
        theirs: version(preamble),
    })
}

/// Refuses the preamble of a responder that does not take up the initiator's.
fn check_answer(came: &[u8], ours: &[u8; PREAMBLE_BYTES]) -> Result<(), Error> {
    if came == ours {
        return Ok(());
    }
    let theirs = version(came);
    if theirs == VERSION {
        return Err(Error::NotThisWay);
    }
    Err(Error::Version {
        ours: VERSION,
        theirs,
    })
}

fn version(preamble: &[u8]) -> u16 {
    preamble
        .last_chunk()
        .map_or(0, |version| u16::from_be_bytes(*version))
}

/// A handshake by a key that both ends hold. The prologue has all bytes before, so a preamble that is changed
/// in transit breaks the handshake.
fn pre_shared<'a>(psk: &'a Psk, prologue: &'a [u8]) -> Result<Builder<'a>, Error> {
    noise(PRE_SHARED, prologue)?
        .psk(0, psk.bytes())
        .map_err(Error::Noise)
}

fn noise<'a>(pattern: &str, prologue: &'a [u8]) -> Result<Builder<'a>, Error> {
    let params = pattern.parse().map_err(Error::Noise)?;
    Builder::new(params)
        .prologue(prologue)
        .map_err(Error::Noise)
}
