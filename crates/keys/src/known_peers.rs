//! The file of known peers: a name and a public key in each line (P12.2).

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::{KeyError, PublicKey};

/// A longer file is a different file, given by mistake. It has room for 10,000 peers with names of 64
/// bytes and comments.
const MAX_FILE_BYTES: u64 = 4 << 20;
const MAX_NAME_BYTES: usize = 64;
/// Permission bits with which others could add a peer.
const OTHERS_WRITE: u32 = 0o022;

/// The peers that an end knows, by name and by public key.
///
/// A line is a name, blanks and the text form of a public key. Empty lines, and what follows a `#`, are
/// ignored.
///
/// ```
/// use farwrite_keys::{Identity, KnownPeers};
///
/// let site_b = Identity::generate()?.public();
/// let peers: KnownPeers = format!("# the other site\nsite-b {site_b}\n").parse()?;
/// assert_eq!(peers.key("site-b"), Some(site_b));
/// assert_eq!(peers.name(&site_b), Some("site-b"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownPeers(Vec<(String, PublicKey)>);

impl KnownPeers {
    /// Reads a file.
    ///
    /// # Errors
    /// [`KnownPeersError`], with the path, and the number of the line if a line is wrong.
    pub fn load(path: &Path) -> Result<Self, KnownPeersError> {
        let io = |source| KnownPeersError::Read {
            path: path.into(),
            source,
        };
        let mut file = File::open(path).map_err(io)?;
        let mode = file.metadata().map_err(io)?.mode() & 0o777;
        if mode & OTHERS_WRITE != 0 {
            let path = path.into();
            return Err(KnownPeersError::Writable { path, mode });
        }
        let mut text = String::new();
        let bytes = (&mut file)
            .take(MAX_FILE_BYTES + 1)
            .read_to_string(&mut text)
            .map_err(io)?;
        if bytes as u64 > MAX_FILE_BYTES {
            return Err(KnownPeersError::TooLong(path.into()));
        }
        text.parse().map_err(|error| KnownPeersError::InFile {
            path: path.into(),
            error,
        })
    }

    /// Adds a peer.
    ///
    /// # Errors
    /// [`PeerProblem`] for a name that is not valid or is taken, and for a key that has a name.
    pub fn add(&mut self, name: &str, key: PublicKey) -> Result<(), PeerProblem> {
        let is_fit = |c: char| c.is_ascii_graphic() && c != '#';
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.chars().all(is_fit) {
            return Err(PeerProblem::Name);
        }
        if self.key(name).is_some() {
            return Err(PeerProblem::NameTwice(name.into()));
        }
        if let Some(other) = self.name(&key) {
            return Err(PeerProblem::KeyTwice(other.into()));
        }
        self.0.push((name.into(), key));
        Ok(())
    }

    /// The key of a peer.
    #[must_use]
    pub fn key(&self, name: &str) -> Option<PublicKey> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, key)| *key)
    }

    /// The name of the peer that has a key.
    #[must_use]
    pub fn name(&self, key: &PublicKey) -> Option<&str> {
        let found = self.0.iter().find(|(_, known)| known == key);
        found.map(|(name, _)| name.as_str())
    }

    /// The names and keys, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &PublicKey)> {
        self.0.iter().map(|(name, key)| (name.as_str(), key))
    }
}

impl FromStr for KnownPeers {
    type Err = LineError;

    fn from_str(text: &str) -> Result<Self, LineError> {
        let mut peers = Self::default();
        for (number, line) in (1..).zip(text.lines()) {
            let content = line.split('#').next().unwrap_or("");
            let mut words = content.split_whitespace();
            let Some(name) = words.next() else {
                continue;
            };
            let added = match (words.next(), words.next()) {
                (Some(key), None) => key
                    .parse()
                    .map_err(PeerProblem::Key)
                    .and_then(|key| peers.add(name, key)),
                _ => Err(PeerProblem::Words),
            };
            added.map_err(|problem| LineError { number, problem })?;
        }
        Ok(peers)
    }
}

impl fmt::Display for KnownPeers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter()
            .try_for_each(|(name, key)| writeln!(f, "{name} {key}"))
    }
}

/// A line of a file of known peers that is wrong.
#[derive(Debug, thiserror::Error)]
#[error("line {number}: {problem}")]
pub struct LineError {
    /// The number of the line, counted from 1.
    pub number: usize,
    /// What is wrong with it.
    pub problem: PeerProblem,
}

/// Why a peer cannot be added.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeerProblem {
    /// The line has another number of words.
    #[error("want a name and a public key, as in `site-b farwrite-public-1:...`")]
    Words,
    /// The name is not valid.
    #[error("a name has 1 to {MAX_NAME_BYTES} visible ASCII characters without `#`")]
    Name,
    /// The name stands in an earlier line.
    #[error("the name {0:?} stands in an earlier line: remove one of the two")]
    NameTwice(String),
    /// The key stands in an earlier line.
    #[error("this key stands in an earlier line, with the name {0:?}: remove one of the two")]
    KeyTwice(String),
    /// The key is not valid.
    #[error(transparent)]
    Key(KeyError),
}

/// Why the known peers cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KnownPeersError {
    /// A line of the file is wrong.
    #[error("{path:?}, {error}")]
    InFile {
        /// The file.
        path: PathBuf,
        /// The line.
        error: LineError,
    },
    /// Others may add peers to the file.
    #[error("others may write {path:?} (mode {mode:04o}); run: chmod go-w {path:?}")]
    Writable {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file is no list of peers.
    #[error("{0:?} is longer than {MAX_FILE_BYTES} bytes: is it another file?")]
    TooLong(PathBuf),
    /// The operating system returned an error.
    #[error("cannot read {path:?}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error.
        source: std::io::Error,
    },
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use proptest::prelude::*;

    use super::*;
    use crate::Identity;

    fn key() -> PublicKey {
        Identity::generate().expect("randomness").public()
    }

    #[test]
    fn a_wrong_line_is_named() {
        let [a, b] = [key(), key()];
        for (text, number, problem) in [
            (format!("a {a}\n\nb"), 3, "want a name and a public key"),
            (format!("a {a} more"), 1, "want a name and a public key"),
            (
                format!("# first\na {a}\na {b}"),
                3,
                "\"a\" stands in an earlier line",
            ),
            (format!("a {a}\nb {a}"), 2, "with the name \"a\""),
            (format!("\u{e9} {a}"), 1, "visible ASCII"),
            (format!("{} {a}", "n".repeat(65)), 1, "1 to 64"),
            ("a farwrite-psk-1:x".to_owned(), 1, "want a public key"),
            (format!("a {}", &a.to_string()[..70]), 1, "copied whole"),
        ] {
            let error = text.parse::<KnownPeers>().expect_err(&text);
            assert_eq!(error.number, number, "{text}: {error}");
            let shown = error.to_string();
            assert!(shown.contains(problem), "{text}: {shown}");
            assert!(!shown.contains('\n'), "{shown}");
        }
    }

    #[test]
    fn a_file_that_others_may_write_is_refused() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("peers");
        let a = key();
        std::fs::write(&path, format!("a {a} # north\r\n")).expect("written");
        let chmod = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode));
        chmod(0o644).expect("chmod");
        assert_eq!(KnownPeers::load(&path).expect("read").key("a"), Some(a));
        chmod(0o664).expect("chmod");
        let error = KnownPeers::load(&path)
            .expect_err("others may write")
            .to_string();
        assert!(error.contains("chmod go-w"), "{error}");
        chmod(0o600).expect("chmod");
        std::fs::write(&path, "a").expect("written");
        let error = KnownPeers::load(&path).expect_err("no key").to_string();
        assert!(error.contains("peers\", line 1: "), "{error}");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(names in prop::collection::btree_set("[!\"$-~]{1,64}", 0..5)) {
            let mut peers = KnownPeers::default();
            for name in &names {
                peers.add(name, key()).expect("names differ");
            }
            let again: KnownPeers = peers.to_string().parse().expect("own text");
            prop_assert_eq!(again, peers);
        }
    }
}
