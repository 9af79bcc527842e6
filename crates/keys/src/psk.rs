//! The pre-shared key (P12.2).

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use zeroize::Zeroizing;

use crate::key_text::{KEY_BYTES, decode, encode};
use crate::{KeyError, KeyKind, key_file};

/// A key of 256 random bits that only the two ends hold.
///
/// It is erased from memory when dropped. Only [`Psk::to_text`] shows it, and only the handshake
/// compares it.
///
/// ```
/// use farwrite_keys::{KeyError, Psk};
///
/// let key = Psk::generate()?;
/// let text = key.to_text();
/// let again: Psk = text.parse()?;
/// assert_eq!(*again.to_text(), *text);
/// // Keys for other purposes do not depend on one another.
/// assert_ne!(key.derive("one"), key.derive("another"));
/// # Ok::<(), KeyError>(())
/// ```
#[derive(Clone)]
pub struct Psk(Box<Zeroizing<[u8; KEY_BYTES]>>);

impl Psk {
    pub(crate) fn of(bytes: [u8; KEY_BYTES]) -> Self {
        Self(Box::new(Zeroizing::new(bytes)))
    }

    /// Makes a key from the operating system's randomness.
    ///
    /// # Errors
    /// [`KeyError::Randomness`].
    pub fn generate() -> Result<Self, KeyError> {
        let mut key = Self(Box::default());
        getrandom::fill(&mut key.0[..]).map_err(KeyError::Randomness)?;
        Ok(key)
    }

    /// The key as one line of text without a line end: a prefix, then key and checksum in base 32.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        encode(KeyKind::PreShared, self.bytes())
    }

    /// Derives a key for another purpose. The derived key reveals nothing about this one. `purpose`
    /// is a text that nothing else uses.
    #[must_use]
    pub fn derive(&self, purpose: &str) -> [u8; KEY_BYTES] {
        blake3::derive_key(purpose, self.bytes())
    }

    /// Derives a pre-shared key for another purpose, as [`Psk::derive`] does.
    #[must_use]
    pub fn derived(&self, purpose: &str) -> Self {
        Self::of(self.derive(purpose))
    }

    /// Reads a key file that [`Psk::save`] or a text editor wrote.
    ///
    /// # Errors
    /// [`KeyError::Exposed`] if users other than the owner may read or write the file, as in ssh;
    /// otherwise an error of its text or of the operating system.
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        key_file::load(path, str::parse)
    }

    /// Writes the key to a new file that only its owner may read.
    ///
    /// # Errors
    /// [`KeyError::Exists`]: a key file is never overwritten. [`KeyError::Write`]; no file is left.
    pub fn save(&self, path: &Path) -> Result<(), KeyError> {
        key_file::save(path, self.to_text())
    }

    pub(crate) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl FromStr for Psk {
    type Err = KeyError;

    /// Reads the text form. Blanks around it and the case of its letters are ignored.
    fn from_str(text: &str) -> Result<Self, KeyError> {
        decode(KeyKind::PreShared, text).map(Self)
    }
}

impl fmt::Debug for Psk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Psk(secret)")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    const PREFIX: &str = "farwrite-psk-1:";
    const DIGITS: usize = 58;

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
        let key = Psk::of(*b"0123456789abcdefghijklmnopqrstuv");
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
                matches!(error, KeyError::Checksum(_) | KeyError::Digit { .. }),
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
            Err(KeyError::Length { came: 57, .. })
        ));
        let accent = format!("{}\u{e9}", &text[..text.len() - 2]);
        assert!(accent.parse::<Psk>().is_err(), "not ASCII");
        assert!(matches!("".parse::<Psk>(), Err(KeyError::Prefix { .. })));
        let digit = format!("{}1", &text[..text.len() - 1]);
        assert!(matches!(
            digit.parse::<Psk>(),
            Err(KeyError::Digit { position: 73, .. })
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
            Err(KeyError::Exists(_))
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
        let error = Psk::load("/dev/null".as_ref()).expect_err("no file of the user");
        let error = error.to_string();
        assert!(
            error.contains("no regular file") && !error.contains("chmod"),
            "{error}"
        );
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
