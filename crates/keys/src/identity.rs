//! The identity of a machine: a static key pair (P12.2).

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use snow::params::DHChoice;
use snow::resolvers::{CryptoResolver, DefaultResolver};
use zeroize::Zeroizing;

use crate::key_text::{KEY_BYTES, decode, encode};
use crate::{KeyError, KeyKind, key_file};

/// The key pair by which other machines know this one. It proves who an end is, where a [`Psk`]
/// proves only that an end is one of those who hold it.
///
/// The private key is erased from memory when dropped. Only [`Identity::to_text`] shows it.
///
/// ```
/// use farwrite_keys::{Identity, KeyError, PublicKey};
///
/// let identity = Identity::generate()?;
/// // What other machines put into their files of known peers:
/// let text = identity.public().to_string();
/// assert!(text.starts_with("farwrite-public-1:"));
/// assert_eq!(text.parse::<PublicKey>()?, identity.public());
/// # Ok::<(), KeyError>(())
/// ```
///
/// [`Psk`]: crate::Psk
#[derive(Clone)]
pub struct Identity {
    private: Box<Zeroizing<[u8; KEY_BYTES]>>,
    public: PublicKey,
}

impl Identity {
    /// Makes an identity from the operating system's randomness.
    ///
    /// # Errors
    /// [`KeyError::Randomness`].
    pub fn generate() -> Result<Self, KeyError> {
        let mut private = Box::<Zeroizing<[u8; KEY_BYTES]>>::default();
        getrandom::fill(&mut private[..]).map_err(KeyError::Randomness)?;
        Ok(Self::of(private))
    }

    fn of(private: Box<Zeroizing<[u8; KEY_BYTES]>>) -> Self {
        let curve = DefaultResolver.resolve_dh(&DHChoice::Curve25519);
        let mut curve = curve.expect("this build of snow has Curve25519");
        curve.set(&private[..]);
        let mut public = PublicKey([0; KEY_BYTES]);
        public.0.copy_from_slice(curve.pubkey());
        Self { private, public }
    }

    /// The public key, which others may know.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// The private key, for the handshake.
    #[must_use]
    pub fn private(&self) -> &[u8; KEY_BYTES] {
        &self.private
    }

    /// The private key as one line of text without a line end.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        encode(KeyKind::Identity, &self.private)
    }

    /// Reads a file that [`Identity::save`] wrote.
    ///
    /// # Errors
    /// [`KeyError::Exposed`] if users other than the owner may read or write the file, as in ssh;
    /// otherwise an error of its text or of the operating system.
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        key_file::load(path, str::parse)
    }

    /// Writes the private key to a new file that only its owner may read.
    ///
    /// # Errors
    /// [`KeyError::Exists`]: a key file is never overwritten. [`KeyError::Write`]; no file is left.
    pub fn save(&self, path: &Path) -> Result<(), KeyError> {
        key_file::save(path, self.to_text())
    }
}

impl FromStr for Identity {
    type Err = KeyError;

    /// Reads the text form. Blanks around it and the case of its letters are ignored.
    fn from_str(text: &str) -> Result<Self, KeyError> {
        decode(KeyKind::Identity, text).map(Self::of)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.public)
    }
}

/// The public key of a machine. It is no secret. Its text form is one line.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey([u8; KEY_BYTES]);

impl PublicKey {
    /// The key as the handshake sends it.
    #[must_use]
    pub fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl From<[u8; KEY_BYTES]> for PublicKey {
    fn from(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    /// Reads the text form. Blanks around it and the case of its letters are ignored.
    fn from_str(text: &str) -> Result<Self, KeyError> {
        decode(KeyKind::Public, text).map(|key| Self(**key))
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&encode(KeyKind::Public, &self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Psk;

    #[test]
    fn the_public_key_is_that_of_curve25519() {
        // RFC 7748, section 6.1.
        let bytes = |hex: &str| -> [u8; 32] {
            let decoded = data_encoding::HEXLOWER.decode(hex.as_bytes());
            decoded.expect("digits").try_into().expect("32 bytes")
        };
        let private = "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a";
        let private = bytes(private);
        let public = "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a";
        let identity = Identity::of(Box::new(Zeroizing::new(private)));
        assert_eq!(identity.public().bytes(), &bytes(public));
    }

    #[test]
    fn a_file_holds_the_private_key_alone() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("host.key");
        let identity = Identity::generate().expect("randomness");
        identity.save(&path).expect("new file");
        let again = Identity::load(&path).expect("own file");
        assert_eq!(again.public(), identity.public());
        assert_eq!(again.private(), identity.private());
        assert!(!format!("{identity:?}").contains(&identity.to_text()[20..30]));
    }

    #[test]
    fn a_key_of_another_kind_is_named() {
        let identity = Identity::generate().expect("randomness");
        let psk = Psk::generate().expect("randomness").to_text();
        let public = identity.public().to_string();
        let private = identity.to_text();
        for (error, [came, want]) in [
            (
                psk.parse::<Identity>().expect_err("psk"),
                ["a pre-shared key", "an identity"],
            ),
            (
                public.parse::<Identity>().expect_err("public"),
                ["a public key", "an identity"],
            ),
            (
                private.parse::<PublicKey>().expect_err("private"),
                ["an identity", "a public key"],
            ),
            (
                private.parse::<Psk>().expect_err("private"),
                ["an identity", "a pre-shared key"],
            ),
        ] {
            let text = error.to_string();
            assert!(
                text.contains(&format!("this is {came}, want {want}")),
                "{text}"
            );
            assert!(text.contains("farwrite keygen"), "{text}");
        }
    }
}
