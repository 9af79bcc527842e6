//! Who an end is, and whom it knows.

use std::fmt;
use std::sync::Arc;

use farwrite::Secret;
use farwrite_keys::{Code, Identity, KnownPeers, OneTimeCode, Proof, Psk, PublicKey};

/// What the key of a handshake is derived for (P12.2). The pre-shared key itself has other uses (P8.8).
const PSK_PURPOSE: &str = "farwrite connection 1 pre-shared key";

/// The key of a handshake with a pre-shared key, or with the key that follows from a code (P12.2).
pub(crate) fn handshake_key(psk: &Psk) -> Secret {
    psk.derive(PSK_PURPOSE).into()
}

/// The keys of an end: an identity with the peers that it knows, a pre-shared key, a code of one use, or several
/// of them. Clones share what has become of the code.
///
/// ```
/// use farwrite_connection::Keys;
/// use farwrite_keys::{Identity, KnownPeers};
///
/// let mut peers = KnownPeers::default();
/// peers.add("site-b", Identity::generate()?.public())?;
/// let keys = Keys::of_identity(Identity::generate()?, peers);
/// assert!(format!("{keys:?}").contains("site-b"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Keys {
    pub(crate) identity: Option<(Identity, KnownPeers)>,
    pub(crate) psk: Option<Secret>,
    pub(crate) code: Option<Arc<OneTimeCode>>,
}

impl Keys {
    /// Peers must be in `peers`, and know the public key of `identity`.
    #[must_use]
    pub fn of_identity(identity: Identity, peers: KnownPeers) -> Self {
        Self {
            identity: Some((identity, peers)),
            ..Self::default()
        }
    }

    /// Peers must hold the same key. It proves that a peer is one of those who hold it, and not which.
    #[must_use]
    pub fn of_psk(psk: &Psk) -> Self {
        Self::default().with_psk(psk)
    }

    /// Accepts peers that hold this key too.
    #[must_use]
    pub fn with_psk(mut self, psk: &Psk) -> Self {
        self.psk = Some(handshake_key(psk));
        self
    }

    /// One peer must know the code, which a person reads at one machine and types at the other. It is used up by
    /// one attempt, whether the peer's code was right or wrong (P12.3). At the end that connects too, it serves one
    /// attempt: give a new code for the next one.
    #[must_use]
    pub fn of_code(code: Code) -> Self {
        Self::default().with_code(code)
    }

    /// Accepts one peer that knows this code too.
    #[must_use]
    pub fn with_code(mut self, code: Code) -> Self {
        self.code = Some(Arc::new(OneTimeCode::new(code)));
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.identity.is_none() && self.psk.is_none() && self.code.is_none()
    }

    /// Returns whether these keys accept a peer that has proven itself to the keys of `before`. They accept a
    /// holder of the pre-shared key only if it is the same key in both. A code has served its connection, so
    /// that goes on without it.
    pub(crate) fn still_accept(&self, before: &Self, peer: &Peer) -> bool {
        match peer.proof {
            Proof::PreShared => self.psk.is_some() && self.psk == before.psk,
            Proof::Code => true,
            Proof::Identity(key) => {
                let known = self.identity.as_ref().map(|(_, known)| known);
                known.is_some_and(|known| known.name(&key).is_some())
            }
        }
    }
}

/// The peer of a connection, as it has proven itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    name: Option<String>,
    proof: Proof,
}

impl Peer {
    pub(crate) fn known(name: &str, key: PublicKey) -> Self {
        Self {
            name: Some(name.to_owned()),
            proof: Proof::Identity(key),
        }
    }

    pub(crate) const PRE_SHARED: Self = Self {
        name: None,
        proof: Proof::PreShared,
    };

    pub(crate) const CODE: Self = Self {
        name: None,
        proof: Proof::Code,
    };

    /// The name that this end's known peers give it; `None` if it has proven no identity.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Its public key; `None` if it has proven no identity.
    #[must_use]
    pub fn key(&self) -> Option<PublicKey> {
        match self.proof {
            Proof::Identity(key) => Some(key),
            Proof::PreShared | Proof::Code => None,
        }
    }

    /// How it has proven who it is.
    #[must_use]
    pub fn proof(&self) -> Proof {
        self.proof
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nameless = match self.proof {
            Proof::Code => "the end that knew the code",
            Proof::PreShared | Proof::Identity(_) => "a holder of the pre-shared key",
        };
        f.write_str(self.name().unwrap_or(nameless))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_has_no_key() {
        let code = Code::generate().expect("randomness");
        let keys = Keys::of_psk(&Psk::generate().expect("randomness")).with_code(code);
        assert_eq!(
            format!("{keys:?}"),
            "Keys { identity: None, psk: Some(Secret(..)), code: Some(OneTimeCode { code: Code(secret), used: \
             false }) }"
        );
    }

    #[test]
    fn a_new_pre_shared_key_does_not_accept_holders_of_the_old_one() {
        let [old, new] = [(); 2].map(|()| Psk::generate().expect("randomness"));
        let before = Keys::of_psk(&old);
        let accepts = |keys: &Keys| keys.still_accept(&before, &Peer::PRE_SHARED);
        assert!(accepts(&Keys::of_psk(&old)));
        assert!(!accepts(&Keys::of_psk(&new)));
        assert!(!accepts(&Keys::default()));
    }
}
