//! The text form that all keys have (P12.2), and why a key is refused.

use std::fmt;
use std::path::PathBuf;

use data_encoding::{BASE32_NOPAD, DecodeKind};
use zeroize::{Zeroize, Zeroizing};

pub(crate) const KEY_BYTES: usize = 32;
const CHECKSUM_BYTES: usize = 4;
/// 36 bytes in base 32 without padding.
const DIGITS: usize = 58;

/// The kinds of keys. The prefix of the text form names the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyKind {
    /// A key that two ends share ([`Psk`](crate::Psk)).
    PreShared,
    /// The private key of a machine ([`Identity`](crate::Identity)).
    Identity,
    /// The public key of a machine ([`PublicKey`](crate::PublicKey)).
    Public,
}

impl KeyKind {
    const ALL: [Self; 3] = [Self::PreShared, Self::Identity, Self::Public];

    /// What the text form begins with.
    #[must_use]
    pub fn prefix(self) -> &'static str {
        match self {
            Self::PreShared => "farwrite-psk-1:",
            Self::Identity => "farwrite-identity-1:",
            Self::Public => "farwrite-public-1:",
        }
    }

    /// The article and the name of the kind, and the command that prints or writes such a key.
    fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::PreShared => ("a", "pre-shared key", "farwrite keygen"),
            Self::Identity => ("an", "identity", "farwrite keygen --identity FILE"),
            Self::Public => ("a", "public key", "farwrite keygen --public FILE"),
        }
    }

    fn of(text: &str) -> Option<Self> {
        let mut kinds = Self::ALL.into_iter();
        kinds.find(|kind| text.starts_with(kind.prefix()))
    }
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words().1)
    }
}

/// The key as one line of text without a line end: a prefix, then key and checksum in base 32.
pub(crate) fn encode(kind: KeyKind, key: &[u8; KEY_BYTES]) -> Zeroizing<String> {
    let prefix = kind.prefix();
    let mut bytes = Zeroizing::new([0; KEY_BYTES + CHECKSUM_BYTES]);
    bytes[..KEY_BYTES].copy_from_slice(key);
    bytes[KEY_BYTES..].copy_from_slice(&checksum(kind, key));
    // Reserve all the memory at once: a string that grows leaves copies behind.
    let mut text = Zeroizing::new(String::with_capacity(prefix.len() + DIGITS));
    text.push_str(prefix);
    BASE32_NOPAD.encode_append(&bytes[..], &mut text);
    text[prefix.len()..].make_ascii_lowercase();
    text
}

/// Reads the text form. Blanks around it and the case of its letters are ignored.
pub(crate) fn decode(
    kind: KeyKind,
    text: &str,
) -> Result<Box<Zeroizing<[u8; KEY_BYTES]>>, KeyError> {
    let (text, prefix) = (text.trim(), kind.prefix());
    let digits = text.strip_prefix(prefix).ok_or_else(|| KeyError::Prefix {
        want: kind,
        came: KeyKind::of(text),
    })?;
    if digits.len() != DIGITS {
        let came = digits.chars().count();
        return Err(KeyError::Length { kind, came });
    }
    let upper = Zeroizing::new(digits.to_ascii_uppercase());
    let mut bytes = Zeroizing::new([0; KEY_BYTES + CHECKSUM_BYTES]);
    BASE32_NOPAD
        .decode_mut(upper.as_bytes(), &mut bytes[..])
        .map_err(|partial| match partial.error.kind {
            DecodeKind::Symbol => KeyError::Digit {
                kind,
                position: prefix.len() + partial.error.position + 1,
            },
            // The two spare bits of the 58 digits are not zero.
            _ => KeyError::Checksum(kind),
        })?;
    let (key, sum) = bytes.split_at(KEY_BYTES);
    if checksum(kind, key) != *sum {
        return Err(KeyError::Checksum(kind));
    }
    let mut whole = Box::<Zeroizing<[u8; KEY_BYTES]>>::default();
    whole.copy_from_slice(key);
    Ok(whole)
}

/// The first bytes of a hash over prefix and key. They distinguish a typo from a wrong key. 32 bits
/// of a hash of 256 random bits reveal nothing.
fn checksum(kind: KeyKind, key: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(kind.prefix().as_bytes());
    hasher.update(key);
    let mut sum = [0; CHECKSUM_BYTES];
    hasher.finalize_xof().fill(&mut sum);
    hasher.zeroize();
    sum
}

/// Why a key could not be made, read or written. No variant reveals any part of a secret key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The operating system provided no randomness.
    #[error("no random bytes from the operating system: {0}")]
    Randomness(getrandom::Error),
    /// The text is no code.
    #[error(
        "this is no code: a code has 8 digits, such as 4837-2912, the last of which checks the others; was it typed right?"
    )]
    Code,
    /// The text has another format, or is a key of another kind.
    #[error("{}", wrong_prefix(*.want, *.came))]
    Prefix {
        /// The kind of key that is needed.
        want: KeyKind,
        /// The kind of the text, if it is a key.
        came: Option<KeyKind>,
    },
    /// The text has too few or too many characters.
    #[error(
        "the {kind} has {came} characters after `{}`, want {DIGITS}: was it copied whole?",
        .kind.prefix()
    )]
    Length {
        /// The kind of key.
        kind: KeyKind,
        /// The number of characters.
        came: usize,
    },
    /// A character that is not in base 32.
    #[error("character {position} of the {kind} is none of a-z, 2-7")]
    Digit {
        /// The kind of key.
        kind: KeyKind,
        /// Its position, counted from 1.
        position: usize,
    },
    /// All characters are valid, but the checksum does not match.
    #[error("the {0}'s checksum does not match: a character was mistyped or changed")]
    Checksum(KeyKind),
    /// The file does not contain a key.
    #[error("{path:?}: {error}")]
    InFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with its text.
        error: Box<KeyError>,
    },
    /// Other users may read or write the file.
    #[error("{path:?} is open to others (mode {mode:04o}); run: chmod 600 {path:?}")]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file already exists.
    #[error("{0:?} exists, and a key file is never overwritten: choose another name or remove it")]
    Exists(PathBuf),
    /// The operating system returned an error when the file was read.
    #[error("cannot read {path:?}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error.
        source: std::io::Error,
    },
    /// The operating system returned an error when the file was written.
    #[error("cannot write {path:?}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The error.
        source: std::io::Error,
    },
}

fn wrong_prefix(want: KeyKind, came: Option<KeyKind>) -> String {
    let ((article, name, command), prefix) = (want.words(), want.prefix());
    match came.map(KeyKind::words) {
        Some((of_came, came, _)) => {
            format!("this is {of_came} {came}, want {article} {name}: `{command}` gives one")
        }
        None => format!(
            "this is not {article} {name}: it should begin with `{prefix}`; `{command}` gives one"
        ),
    }
}
