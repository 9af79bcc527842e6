//! Preamble and Noise handshake (P7.2, P7.3), without I/O: from the first byte of a connection to
//! keys that both ends hold.
//!
//! All lengths are fixed, so a peer's data never determines an allocation.

use snow::{Builder, HandshakeState, StatelessTransportState};

use crate::{Error, Psk};

/// Version of the protocol that this end speaks (P7.2).
pub const VERSION: u16 = 3;

const MAGIC: &[u8; 8] = b"FARWRITE";
const PREAMBLE_BYTES: usize = 10;
/// With psk0, a wrong key already shows in the first message, before any other work on it.
const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// Bytes that authenticate a Noise message.
pub(crate) const TAG_BYTES: usize = 16;
/// Both handshake messages: a public key and the tag of an empty payload.
const MESSAGE_BYTES: usize = 32 + TAG_BYTES;
const ACCEPTED: u8 = 0;
const KEYS_DIFFER: u8 = 1;

/// The result of a handshake: the ciphers, and how many records it used in each direction.
pub struct Agreed {
    pub(crate) state: StatelessTransportState,
    pub(crate) sent: u64,
    pub(crate) received: u64,
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
}

/// What a handshake waits for.
enum Step {
    /// The initiator: the peer's preamble.
    Answer(Box<HandshakeState>),
    /// The initiator: whether the responder accepts.
    Status(Box<HandshakeState>),
    /// The initiator: the second Noise message.
    Second(Box<HandshakeState>),
    /// The responder: the peer's preamble.
    Preamble,
    /// The responder: the first Noise message.
    First,
    /// The responder: the proof that the first message was not recorded.
    Proof(Box<StatelessTransportState>),
    /// Nothing: the handshake succeeded or failed.
    Over,
}

impl Handshake {
    /// Makes the initiator's end, and the bytes that it sends first.
    ///
    /// # Errors
    /// [`Error::Noise`].
    pub fn initiate(psk: &Psk) -> Result<(Self, Vec<u8>), Error> {
        let ours = preamble();
        let mut noise = noise(psk, &ours)?.build_initiator().map_err(Error::Noise)?;
        let mut first = [0; MESSAGE_BYTES];
        noise.write_message(&[], &mut first).map_err(Error::Noise)?;
        let send = [&ours[..], &first].concat();
        Ok((Self::at(Step::Answer(noise.into())), send))
    }

    /// Makes the responder's end, which waits for the initiator.
    #[must_use]
    pub fn respond() -> Self {
        Self::at(Step::Preamble)
    }

    fn at(step: Step) -> Self {
        let came = Vec::new();
        Self { step, came }
    }

    /// Returns how many bytes of the peer the next step lacks; 0 when the handshake has ended. A
    /// caller that reads no more than this leaves the records that follow the handshake in the
    /// socket.
    #[must_use]
    pub fn wants(&self) -> usize {
        let whole = match self.step {
            Step::Answer(_) | Step::Preamble => PREAMBLE_BYTES,
            Step::Status(_) => 1,
            Step::First | Step::Second(_) => MESSAGE_BYTES,
            Step::Proof(_) => TAG_BYTES,
            Step::Over => 0,
        };
        whole - self.came.len()
    }

    /// Consumes bytes of the peer from the front of `bytes`, up to the end of the handshake.
    ///
    /// # Errors
    /// [`Error::NotFarwrite`], [`Error::Version`], [`Error::KeysDiffer`], [`Error::Status`],
    /// [`Error::Forged`], [`Error::Noise`]. The handshake has then ended.
    pub fn receive(&mut self, psk: &Psk, bytes: &mut &[u8]) -> Result<Progress, Failed> {
        let mut progress = Progress::default();
        while self.wants() > 0 {
            let (taken, rest) = bytes.split_at(self.wants().min(bytes.len()));
            self.came.extend_from_slice(taken);
            *bytes = rest;
            if let Step::Answer(_) | Step::Preamble = self.step {
                check_magic(&self.came).inspect_err(|_| *self = Self::at(Step::Over))?;
            }
            if self.wants() > 0 {
                break;
            }
            self.take_step(psk, &mut progress)?;
        }
        Ok(progress)
    }

    /// Continues with the bytes that the step waited for, which have all arrived.
    fn take_step(&mut self, psk: &Psk, progress: &mut Progress) -> Result<(), Failed> {
        let came = std::mem::take(&mut self.came);
        self.step = match std::mem::replace(&mut self.step, Step::Over) {
            Step::Answer(noise) => {
                check_version(&came)?;
                Step::Status(noise)
            }
            Step::Status(noise) => match came[..] {
                [ACCEPTED] => Step::Second(noise),
                [KEYS_DIFFER] => return Err(Error::KeysDiffer.into()),
                _ => return Err(Error::Status { came: came[0] }.into()),
            },
            Step::Second(mut noise) => {
                let read = noise.read_message(&came, &mut []);
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
                });
                Step::Over
            }
            Step::Preamble => {
                check_version(&came).map_err(|error| Failed {
                    error,
                    answer: preamble().into(),
                })?;
                Step::First
            }
            Step::First => Step::Proof(Box::new(answer(psk, &came, &mut progress.send)?)),
            Step::Proof(state) => {
                let read = state.read_message(0, &came, &mut []);
                read.map_err(|_| Error::Forged)?;
                progress.agreed = Some(Agreed {
                    state: *state,
                    sent: 0,
                    received: 1,
                });
                Step::Over
            }
            Step::Over => Step::Over,
        };
        Ok(())
    }
}

/// The responder's answer to the first Noise message.
fn answer(psk: &Psk, first: &[u8], send: &mut Vec<u8>) -> Result<StatelessTransportState, Failed> {
    // The received preamble equals this end's own. Otherwise its version would have been refused.
    let ours = preamble();
    let mut noise = noise(psk, &ours)?.build_responder().map_err(Error::Noise)?;
    if noise.read_message(first, &mut []).is_err() {
        let answer = [&ours[..], &[KEYS_DIFFER]].concat();
        return Err(Failed {
            error: Error::KeysDiffer,
            answer,
        });
    }
    let mut second = [0; MESSAGE_BYTES];
    noise
        .write_message(&[], &mut second)
        .map_err(Error::Noise)?;
    *send = [&ours[..], &[ACCEPTED], &second].concat();
    Ok(noise
        .into_stateless_transport_mode()
        .map_err(Error::Noise)?)
}

fn preamble() -> [u8; PREAMBLE_BYTES] {
    let mut bytes = [0; PREAMBLE_BYTES];
    bytes[..MAGIC.len()].copy_from_slice(MAGIC);
    bytes[MAGIC.len()..].copy_from_slice(&VERSION.to_be_bytes());
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

/// Refuses a whole preamble of another version.
fn check_version(preamble: &[u8]) -> Result<(), Error> {
    let theirs = preamble
        .last_chunk()
        .map_or(0, |version| u16::from_be_bytes(*version));
    if theirs == VERSION {
        return Ok(());
    }
    Err(Error::Version {
        ours: VERSION,
        theirs,
    })
}

/// The preamble is part of the handshake's hash, so a version that is changed in transit breaks the
/// handshake.
fn noise<'a>(psk: &'a Psk, prologue: &'a [u8]) -> Result<Builder<'a>, Error> {
    let params = PATTERN.parse().map_err(Error::Noise)?;
    Builder::new(params)
        .prologue(prologue)
        .and_then(|builder| builder.psk(0, psk.bytes()))
        .map_err(Error::Noise)
}
