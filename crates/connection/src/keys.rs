//! Who an end is, and whom it knows.

use std::fmt;

use farwrite::Secret;
use farwrite_session::{Identity, KnownPeers, Psk, PublicKey};

/// What the key of a handshake is derived for. The pre-shared key itself belongs to sessions over TCP (P7).
const PSK_PURPOSE: &str = "farwrite connection 1 pre-shared key";

/// The keys of an end: an identity with the peers that it knows, a pre-shared key, or both.
///
/// ```
/// use farwrite_connection::Keys;
/// use farwrite_session::{Identity, KnownPeers};
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
}

impl Keys {
    /// Peers must be in `peers`, and know the public key of `identity`.
    #[must_use]
    pub fn of_identity(identity: Identity, peers: KnownPeers) -> Self {
        Self {
            identity: Some((identity, peers)),
            psk: None,
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
        self.psk = Some(psk.derive(PSK_PURPOSE).into());
        self
    }

    /// Returns whether these keys accept a peer that has proven itself to the keys of `before`. They accept a
    /// holder of the pre-shared key only if it is the same key in both.
    pub(crate) fn still_accept(&self, before: &Self, peer: &Peer) -> bool {
        match &peer.key {
            None => self.psk.is_some() && self.psk == before.psk,
            Some(key) => {
                let known = self.identity.as_ref().map(|(_, known)| known);
                known.is_some_and(|known| known.name(key).is_some())
            }
        }
    }
}

/// The peer of a connection, as it has proven itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    name: Option<String>,
    key: Option<PublicKey>,
}

impl Peer {
    pub(crate) fn known(name: &str, key: PublicKey) -> Self {
        Self {
            name: Some(name.to_owned()),
            key: Some(key),
        }
    }

    pub(crate) const PRE_SHARED: Self = Self {
        name: None,
        key: None,
    };

    /// The name that this end's known peers give it; `None` if it has proven a pre-shared key only.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Its public key; `None` if it has proven a pre-shared key only.
    #[must_use]
    pub fn key(&self) -> Option<PublicKey> {
        self.key
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name().unwrap_or("a holder of the pre-shared key"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_has_no_key() {
        let keys = Keys::of_psk(&Psk::generate().expect("randomness"));
        assert_eq!(
            format!("{keys:?}"),
            "Keys { identity: None, psk: Some(Secret(..)) }"
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
