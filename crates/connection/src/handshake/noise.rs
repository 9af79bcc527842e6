//! The Noise messages of a handshake (P12.3).

use std::sync::Arc;

use farwrite::Secret;
use farwrite_keys::{Identity, KnownPeers, OneTimeCode, PublicKey};
use snow::{Builder, HandshakeState, StatelessTransportState};

use super::packet::{MAX_BYTES, Opening, Pattern, Refusal};
use crate::keys::{Keys, Peer};

/// Bytes that authenticate a Noise message.
const TAG_BYTES: usize = 16;

#[derive(Clone, Debug)]
pub(crate) enum InitiatorKeys {
    PreShared(Secret),
    Identities {
        own: Identity,
        peer: PublicKey,
    },
    /// A key follows from it in each handshake.
    Code(Arc<OneTimeCode>),
}

impl InitiatorKeys {
    pub(super) fn pattern(&self) -> Pattern {
        match self {
            Self::PreShared(_) => Pattern::PreShared,
            Self::Identities { .. } => Pattern::Identities,
            Self::Code(_) => Pattern::Code,
        }
    }

    /// Begins a handshake. Returns its first message, whose payload is empty. A code is not enough: the key that
    /// follows from the exchange is a [`InitiatorKeys::PreShared`].
    pub(super) fn begin(
        &self,
        prologue: &[u8],
    ) -> Result<(Box<HandshakeState>, Vec<u8>), snow::Error> {
        let builder = builder(self.pattern())?.prologue(prologue)?;
        let builder = match self {
            Self::PreShared(psk) => builder.psk(0, psk)?,
            Self::Code(_) => builder,
            Self::Identities { own, peer } => builder
                .local_private_key(own.private())?
                .remote_public_key(peer.bytes())?,
        };
        let mut state = builder.build_initiator()?;
        let first = write(&mut state, &[])?;
        Ok((Box::new(state), first))
    }
}

/// Verifies a first message. Returns the peer, or its key if it is not known.
///
/// # Errors
/// It does not verify with the keys of this end.
pub(super) fn open(
    keys: &Keys,
    opening: &Opening<'_>,
) -> Result<(Box<HandshakeState>, Result<Peer, PublicKey>), Refusal> {
    let pattern = opening.pattern.ok_or(Refusal::Pattern)?;
    let builder = builder(pattern)?.prologue(opening.prologue)?;
    let builder = match (pattern, &keys.psk, &keys.identity) {
        (Pattern::PreShared, Some(psk), _) => builder.psk(0, psk)?,
        (Pattern::Identities, _, Some((own, _))) => builder.local_private_key(own.private())?,
        _ => return Err(Refusal::Pattern),
    };
    let mut state = builder.build_responder()?;
    state.read_message(opening.noise, &mut [])?;
    let known = keys.identity.as_ref().map(|(_, peers)| peers);
    let peer = match state.get_remote_static() {
        None => Ok(Peer::PRE_SHARED),
        Some(key) => identify(key, known)?,
    };
    Ok((Box::new(state), peer))
}

/// Verifies a first message with the key that follows from the exchange about a code.
///
/// # Errors
/// It does not verify: the codes differ.
pub(super) fn open_of_code(
    key: &Secret,
    prologue: &[u8],
    noise: &[u8],
) -> Result<Box<HandshakeState>, snow::Error> {
    let builder = builder(Pattern::Code)?.prologue(prologue)?.psk(0, key)?;
    let mut state = builder.build_responder()?;
    state.read_message(noise, &mut [])?;
    Ok(Box::new(state))
}

fn identify(key: &[u8], known: Option<&KnownPeers>) -> Result<Result<Peer, PublicKey>, Refusal> {
    let bytes: [u8; 32] = key.try_into().map_err(|_| Refusal::Keys)?;
    let key = PublicKey::from(bytes);
    let name = known.and_then(|known| known.name(&key));
    Ok(name.map(|name| Peer::known(name, key)).ok_or(key))
}

impl From<snow::Error> for Refusal {
    fn from(_: snow::Error) -> Self {
        Self::Keys
    }
}

/// Writes the second message, and returns the ciphers.
pub(super) fn finish(
    mut state: Box<HandshakeState>,
    payload: &[u8],
) -> Result<(Vec<u8>, Box<StatelessTransportState>), snow::Error> {
    let second = write(&mut state, payload)?;
    let ciphers = state.into_stateless_transport_mode()?;
    Ok((second, Box::new(ciphers)))
}

/// Returns the payload and the ciphers. A message that does not verify leaves the handshake as it was.
pub(super) fn read_second(
    state: &mut HandshakeState,
    noise: &[u8],
) -> Result<Vec<u8>, snow::Error> {
    filled(noise.len(), |out| state.read_message(noise, out))
}

/// The proof: the initiator's first transport message. A replayed first message does not lead to one.
pub(super) fn write_proof(
    ciphers: &StatelessTransportState,
    payload: &[u8],
) -> Result<Vec<u8>, snow::Error> {
    filled(payload.len() + TAG_BYTES, |out| {
        ciphers.write_message(0, payload, out)
    })
}

pub(super) fn read_proof(
    ciphers: &StatelessTransportState,
    noise: &[u8],
) -> Result<Vec<u8>, snow::Error> {
    filled(noise.len(), |out| ciphers.read_message(0, noise, out))
}

fn write(state: &mut HandshakeState, payload: &[u8]) -> Result<Vec<u8>, snow::Error> {
    filled(MAX_BYTES, |out| state.write_message(payload, out))
}

/// What `fill` writes to the beginning of a buffer. `fill` returns how many bytes it wrote.
fn filled(
    most_bytes: usize,
    fill: impl FnOnce(&mut [u8]) -> Result<usize, snow::Error>,
) -> Result<Vec<u8>, snow::Error> {
    let mut out = vec![0; most_bytes];
    let length = fill(&mut out)?;
    out.truncate(length);
    Ok(out)
}

fn builder<'a>(pattern: Pattern) -> Result<Builder<'a>, snow::Error> {
    let name = match pattern {
        // With psk0, a wrong key already shows in the first message, before any other work on it.
        Pattern::PreShared | Pattern::Code => "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s",
        Pattern::Identities => "Noise_IK_25519_ChaChaPoly_BLAKE2s",
    };
    Ok(Builder::new(name.parse()?))
}
