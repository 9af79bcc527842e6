//! The keys of the two ends of a connection (P12.2).

use crate::{Code, Identity, Psk, PublicKey};

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
