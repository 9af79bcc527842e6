//! The pre-shared key (P7.1).

use std::env;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use data_encoding::{BASE32_NOPAD, DecodeKind};
use zeroize::{Zeroize, Zeroizing};

const PREFIX: &str = "farwrite-psk-1:";
const KEY_BYTES: usize = 32;
const CHECKSUM_BYTES: usize = 4;
/// 36 bytes in base 32 without padding.
const DIGITS: usize = 58;
/// A key file is one line. A longer file is a different file, given by mistake.
const MAX_FILE_BYTES: usize = 1024;
/// Permission bits for everyone except the owner.
const OTHERS: u32 = 0o077;
/// The bit that shows the mask of an access control list.
const GROUP_READ: u32 = 0o040;

/// The permission bits that a key file must not have. A file in the directory of credentials, which
/// systemd makes for one service, has an access control list for its user. Its group bits then show the
/// mask of the list.
fn others(path: &Path, credentials: Option<&Path>) -> u32 {
    let directory = credentials.filter(|directory| directory.is_absolute());
    let is_credential = directory.is_some() && path.parent() == directory;
    if is_credential {
        OTHERS & !GROUP_READ
    } else {
        OTHERS
    }
}

/// A key of 256 random bits that only the two ends hold.
///
/// It is erased from memory when dropped. Only [`Psk::to_text`] shows it, and only the handshake
/// compares it.
///
/// ```
/// use farwrite_session::{Psk, PskError};
///
/// let key = Psk::generate()?;
/// let text = key.to_text();
/// let again: Psk = text.parse()?;
/// assert_eq!(*again.to_text(), *text);
/// // Keys for other purposes do not depend on one another.
/// assert_ne!(key.derive("one"), key.derive("another"));
/// # Ok::<(), PskError>(())
/// ```
#[derive(Clone)]
pub struct Psk(Box<Zeroizing<[u8; KEY_BYTES]>>);

impl Psk {
    /// Makes a key from the operating system's randomness.
    ///
    /// # Errors
    /// [`PskError::Randomness`].
    pub fn generate() -> Result<Self, PskError> {
        let mut key = Self(Box::default());
        getrandom::fill(&mut key.0[..]).map_err(PskError::Randomness)?;
        Ok(key)
    }

    /// The key as one line of text without a line end: a prefix, then key and checksum in base 32.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut bytes = Zeroizing::new([0; KEY_BYTES + CHECKSUM_BYTES]);
        bytes[..KEY_BYTES].copy_from_slice(self.bytes());
        bytes[KEY_BYTES..].copy_from_slice(&checksum(self.bytes()));
        // Reserve all the memory at once: a string that grows leaves copies behind.
        let mut text = Zeroizing::new(String::with_capacity(PREFIX.len() + DIGITS));
        text.push_str(PREFIX);
        BASE32_NOPAD.encode_append(&bytes[..], &mut text);
        text[PREFIX.len()..].make_ascii_lowercase();
        text
    }

    /// Derives a key for another purpose. The derived key reveals nothing about this one. `purpose`
    /// is a text that nothing else uses.
    #[must_use]
    pub fn derive(&self, purpose: &str) -> [u8; KEY_BYTES] {
        blake3::derive_key(purpose, self.bytes())
    }

    /// Reads a key file that [`Psk::save`] or a text editor wrote.
    ///
    /// # Errors
    /// [`PskError::Exposed`] if users other than the owner may read or write the file, as in ssh;
    /// otherwise an error of its text or of the operating system.
    pub fn load(path: &Path) -> Result<Self, PskError> {
        let io = |source| PskError::Read {
            path: path.into(),
            source,
        };
        let mut file = File::open(path).map_err(io)?;
        let mode = file.metadata().map_err(io)?.mode() & 0o777;
        let credentials = env::var_os("CREDENTIALS_DIRECTORY");
        if mode & others(path, credentials.as_deref().map(Path::new)) != 0 {
            return Err(PskError::Exposed {
                path: path.into(),
                mode,
            });
        }
        let mut text = Zeroizing::new(String::with_capacity(MAX_FILE_BYTES));
        (&mut file)
            .take(MAX_FILE_BYTES as u64)
            .read_to_string(&mut text)
            .map_err(io)?;
        text.parse().map_err(|error| PskError::InFile {
            path: path.into(),
            error: Box::new(error),
        })
    }

    /// Writes the key to a new file that only its owner may read.
    ///
    /// # Errors
    /// [`PskError::Exists`]: a key file is never overwritten. [`PskError::Write`]; no file is left.
    pub fn save(&self, path: &Path) -> Result<(), PskError> {
        let io = |source: std::io::Error| match source.kind() {
            std::io::ErrorKind::AlreadyExists => PskError::Exists(path.into()),
            _ => PskError::Write {
                path: path.into(),
                source,
            },
        };
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(io)?;
        let mut line = self.to_text();
        line.push('\n');
        let written = file
            .write_all(line.as_bytes())
            .and_then(|()| file.sync_all());
        if let Err(error) = written {
            // Half a key is useless. If even this fails, the first error is more informative.
            let _ = std::fs::remove_file(path);
            return Err(io(error));
        }
        Ok(())
    }

    pub(crate) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl FromStr for Psk {
    type Err = PskError;

    /// Reads the text form. Blanks around it and the case of its letters are ignored.
    fn from_str(text: &str) -> Result<Self, PskError> {
        let text = text.trim();
        let digits = text.strip_prefix(PREFIX).ok_or(PskError::Prefix)?;
        if digits.len() != DIGITS {
            return Err(PskError::Length {
                came: digits.chars().count(),
            });
        }
        let upper = Zeroizing::new(digits.to_ascii_uppercase());
        let mut bytes = Zeroizing::new([0; KEY_BYTES + CHECKSUM_BYTES]);
        BASE32_NOPAD
            .decode_mut(upper.as_bytes(), &mut bytes[..])
            .map_err(|partial| match partial.error.kind {
                DecodeKind::Symbol => PskError::Digit {
                    position: PREFIX.len() + partial.error.position + 1,
                },
                // The two spare bits of the 58 digits are not zero.
                _ => PskError::Checksum,
            })?;
        let (key, sum) = bytes.split_at(KEY_BYTES);
        if checksum(key) != *sum {
            return Err(PskError::Checksum);
        }
        let mut psk = Self(Box::default());
        psk.0.copy_from_slice(key);
        Ok(psk)
    }
}

impl fmt::Debug for Psk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Psk(secret)")
    }
}

/// The first bytes of a hash over prefix and key. They distinguish a typo from a wrong key. 32 bits
/// of a hash of 256 random bits reveal nothing.
fn checksum(key: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(PREFIX.as_bytes());
    hasher.update(key);
    let mut sum = [0; CHECKSUM_BYTES];
    hasher.finalize_xof().fill(&mut sum);
    hasher.zeroize();
    sum
}

/// Why a key could not be made, read or written. No variant reveals any part of the key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PskError {
    /// The operating system provided no randomness.
    #[error("no random bytes from the operating system: {0}")]
    Randomness(getrandom::Error),
    /// The text has another format.
    #[error(
        "not a pre-shared key: it should begin with `{PREFIX}`, as `farwrite keygen` prints it"
    )]
    Prefix,
    /// The text has too few or too many characters.
    #[error(
        "the pre-shared key has {came} characters after `{PREFIX}`, want {DIGITS}: was it copied whole?"
    )]
    Length {
        /// The number of characters.
        came: usize,
    },
    /// A character that is not in base 32.
    #[error("character {position} of the pre-shared key is none of a-z, 2-7")]
    Digit {
        /// Its position, counted from 1.
        position: usize,
    },
    /// All characters are valid, but the checksum does not match.
    #[error("the pre-shared key's checksum does not match: a character was mistyped or changed")]
    Checksum,
    /// The file does not contain a key.
    #[error("{path:?}: {error}")]
    InFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with its text.
        error: Box<PskError>,
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn key() -> Psk {
        Psk::generate().expect("randomness")
    }

    #[test]
    fn text_returns_the_key_in_either_case() {
        let key = key();
        let text = key.to_text();
        assert_eq!(text.len(), PREFIX.len() + DIGITS);
        for written in [text.to_string(), format!(" {}\r\n", &*text)] {
            let read: Psk = written.parse().expect("own text");
            assert_eq!(read.bytes(), key.bytes());
        }
        let shouted = format!("{PREFIX}{}", text[PREFIX.len()..].to_uppercase());
        assert_eq!(
            shouted.parse::<Psk>().expect("upper case").bytes(),
            key.bytes()
        );
    }

    #[test]
    fn text_form_is_fixed() {
        let key = Psk(Box::new(Zeroizing::new(
            *b"0123456789abcdefghijklmnopqrstuv",
        )));
        assert_eq!(
            &*key.to_text(),
            "farwrite-psk-1:gaytemzugu3doobzmfrggzdfmztwq2lknnwg23tpobyxe43uov3n3zphea"
        );
    }

    #[test]
    fn two_keys_differ() {
        assert_ne!(key().bytes(), key().bytes());
    }

    #[test]
    fn every_changed_character_is_found_and_never_told() {
        let text = key().to_text();
        for at in PREFIX.len()..text.len() {
            let mut typo = text.as_bytes().to_vec();
            typo[at] = if typo[at] == b'a' { b'b' } else { b'a' };
            let typo = String::from_utf8(typo).expect("ASCII");
            let error = typo.parse::<Psk>().expect_err("one character differs");
            assert!(
                matches!(error, PskError::Checksum | PskError::Digit { .. }),
                "{error}"
            );
            assert!(!error.to_string().contains(&text[PREFIX.len()..][..8]));
        }
    }

    #[test]
    fn text_of_another_shape_is_refused_by_reason() {
        let text = key().to_text();
        let short = &text[..text.len() - 1];
        assert!(matches!(
            short.parse::<Psk>(),
            Err(PskError::Length { came: 57 })
        ));
        let accent = format!("{}\u{e9}", &text[..text.len() - 2]);
        assert!(accent.parse::<Psk>().is_err(), "not ASCII");
        assert!(matches!("".parse::<Psk>(), Err(PskError::Prefix)));
        let digit = format!("{}1", &text[..text.len() - 1]);
        assert!(matches!(
            digit.parse::<Psk>(),
            Err(PskError::Digit { position: 73 })
        ));
    }

    #[test]
    fn debug_shows_nothing() {
        assert_eq!(format!("{:?}", key()), "Psk(secret)");
    }

    #[test]
    fn file_is_private_and_never_overwritten() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("key");
        let key = key();
        key.save(&path).expect("new file");
        let mode = std::fs::metadata(&path).expect("file").mode() & 0o777;
        assert_eq!(mode, 0o600);
        assert_eq!(Psk::load(&path).expect("own file").bytes(), key.bytes());
        assert!(matches!(
            Psk::generate().expect("key").save(&path),
            Err(PskError::Exists(_))
        ));
        assert_eq!(Psk::load(&path).expect("untouched").bytes(), key.bytes());
    }

    #[test]
    fn file_open_to_others_is_refused() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("key");
        key().save(&path).expect("new file");
        for mode in [0o640, 0o604, 0o620, 0o601] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("chmod");
            let error = Psk::load(&path).expect_err("others may look");
            assert!(error.to_string().contains("chmod 600"), "{error}");
        }
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o400)).expect("chmod");
        assert!(Psk::load(&path).is_ok());
    }

    #[test]
    fn a_credential_may_have_an_access_control_list() {
        let [file, dir, other] = ["/run/credentials/a/key", "/run/credentials/a", "/run"];
        let bits = |credentials| others(Path::new(file), credentials);
        // systemd 254 and later: 0440.
        assert_eq!(0o440 & bits(Some(Path::new(dir))), 0);
        for mode in [0o404, 0o420, 0o410] {
            assert_ne!(mode & bits(Some(Path::new(dir))), 0, "{mode:o}");
        }
        for elsewhere in [None, Some(Path::new(other))] {
            assert_ne!(0o440 & bits(elsewhere), 0, "{elsewhere:?}");
        }
        assert_ne!(0o440 & others(Path::new("key"), Some(Path::new(""))), 0);
    }

    #[test]
    fn file_without_a_key_is_named() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("not-a-key");
        for text in ["", "hello\n", &"x".repeat(1 << 20)] {
            std::fs::write(&path, text).expect("write");
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("chmod");
            let error = Psk::load(&path).expect_err("no key in it");
            assert!(error.to_string().contains("not-a-key"), "{error}");
        }
        let missing = Psk::load(&dir.path().join("missing")).expect_err("no file");
        assert!(missing.to_string().contains("missing"), "{missing}");
    }
}
