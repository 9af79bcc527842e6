//! The keys of the two ends of a connection (P12.2).

use std::sync::{Arc, Mutex, PoisonError};

use crate::{Code, Identity, KnownPeers, OneTimeCode, Psk, PublicKey};

/// How an initiator proves who it is, and whom it expects.
#[derive(Clone, Debug)]
pub enum Key {
    /// Both ends hold this key.
    PreShared(Psk),
    /// Each end has an identity, and knows the other's.
    Identity {
        /// This end.
        own: Identity,
        /// The responder.
        peer: PublicKey,
    },
    /// The user has typed the code that the responder shows.
    Code(Code),
}

/// What a responder accepts. Each part is optional.
#[derive(Clone, Debug, Default)]
pub struct Accepted {
    /// Initiators that hold this key.
    pub psk: Option<Psk>,
    /// Initiators with these identities, by this end's identity.
    pub identity: Option<(Identity, KnownPeers)>,
    /// The one initiator whose user has typed this code.
    pub code: Option<Arc<OneTimeCode>>,
}

/// The [`Accepted`] of a listener, which can change. Clones share it.
#[derive(Clone, Debug)]
pub struct AcceptedKeys(Arc<Mutex<Arc<Accepted>>>);

impl AcceptedKeys {
    /// For handshakes that begin from now on.
    pub fn set(&self, accepted: Accepted) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(accepted);
    }

    /// Replaces the peers that identities are compared with. Without an identity of this end, nothing changes.
    pub fn know(&self, peers: KnownPeers) {
        let mut accepted = Accepted::clone(&self.get());
        if let Some((_, known)) = &mut accepted.identity {
            *known = peers;
            self.set(accepted);
        }
    }

    pub(crate) fn get(&self) -> Arc<Accepted> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// How a peer has proven who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// It holds the pre-shared key.
    PreShared,
    /// It has the private key of this public key.
    Identity(PublicKey),
    /// It knew the code.
    Code,
}

impl From<&Psk> for Key {
    fn from(psk: &Psk) -> Self {
        Self::PreShared(psk.clone())
    }
}

impl From<&Key> for Key {
    fn from(key: &Key) -> Self {
        key.clone()
    }
}

impl From<&Psk> for Accepted {
    fn from(psk: &Psk) -> Self {
        Self {
            psk: Some(psk.clone()),
            ..Self::default()
        }
    }
}

impl From<&Psk> for AcceptedKeys {
    fn from(psk: &Psk) -> Self {
        Accepted::from(psk).into()
    }
}

impl From<Accepted> for AcceptedKeys {
    fn from(accepted: Accepted) -> Self {
        Self(Arc::new(Mutex::new(Arc::new(accepted))))
    }
}

impl From<&AcceptedKeys> for AcceptedKeys {
    fn from(keys: &AcceptedKeys) -> Self {
        keys.clone()
    }
}
