//! The file of peers (`--peers`): who may connect, where their files go, and how much they may do.

use std::collections::BTreeMap;
use std::fs;
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use farwrite::fabric::threads::lock;
use farwrite_keys::{HostPort, KnownPeers, PeerProblem, Proof, PublicKey};
use farwrite_transfer::{PlaceLimits, ReceiveSettings};
use farwrite_units::input::{at_line, read_text};
use farwrite_units::parse::parse_count;
use serde::{Deserialize, Deserializer, de};
use toml::Spanned;

use crate::addresses::parse_destination;
use crate::exit::{Exit, Failure, OrExit};
use crate::policy::{Reserve, parse_reserve, parse_umask};
use crate::toml_error::in_line;

/// The longest file. It has room for some thousand peers.
const MOST_BYTES: u64 = 4 << 20;
/// Permission bits with which others could add a peer.
const OTHERS_WRITE: u32 = 0o022;

/// Who may connect.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peers {
    peers: Vec<Peer>,
    known: KnownPeers,
}

/// A peer and what it may do.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) name: String,
    limits: Limits,
}

/// The peers of a receiver, which it can read again. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedPeers(Arc<Mutex<Arc<Peers>>>);

/// A table of the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Limits {
    #[serde(deserialize_with = "read_key")]
    key: Spanned<PublicKey>,
    /// Where the files go; below `--dir` if it is relative.
    dir: Option<Spanned<PathBuf>>,
    /// The destinations of `farwrite forward`.
    allow_forward: Option<Vec<Destination>>,
    /// The most bytes in the directory.
    #[serde(default, deserialize_with = "read_size")]
    quota: Option<u64>,
    /// The most files, directories and links in the directory.
    #[serde(default, deserialize_with = "read_count")]
    max_entries: Option<u32>,
    /// The most bytes of a transfer.
    #[serde(default, deserialize_with = "read_size")]
    max_bytes: Option<u64>,
    /// The most bytes of a file.
    #[serde(default, deserialize_with = "read_size")]
    max_file: Option<u64>,
    /// The most files and directories of a transfer.
    #[serde(default, deserialize_with = "read_count")]
    max_files: Option<u32>,
    #[serde(default, deserialize_with = "read_umask")]
    umask: Option<u16>,
    #[serde(default, deserialize_with = "read_reserve")]
    reserve: Option<Reserve>,
    allow_delete: Option<bool>,
    /// The most transfers at once, and the most connections to `farwrite forward --listen`.
    #[serde(default, deserialize_with = "read_count_from_1")]
    max_senders: Option<u32>,
}

#[derive(Clone, Debug)]
struct Destination(HostPort);

impl Peers {
    /// Reads the file. With a `root`, each peer has a directory, which must exist, and is below `root` if it is
    /// relative.
    ///
    /// # Errors
    /// What is wrong, with the file, the line and the value.
    pub(crate) fn load(file: &Path, root: Option<&Path>) -> Result<Self, Failure> {
        let name = file.display();
        let mode = fs::metadata(file).or_exit(Exit::Files, &name)?.mode() & 0o7777;
        if mode & OTHERS_WRITE != 0 {
            let what =
                format!("{name}: others may write it (mode {mode:04o}); run: chmod go-w {name}");
            return Err(Failure::new(Exit::Files, what));
        }
        let text = read_text(file, MOST_BYTES).or_exit(Exit::Files, &name)?;
        let peers = Self::parse(&text).and_then(|peers| match root {
            Some(root) => peers.below(root, &text),
            None => Ok(peers),
        });
        peers.map_err(|why| Failure::new(Exit::Usage, format!("{name}: {why}")))
    }

    /// The same with directories that are relative to `root` and exist.
    fn below(self, root: &Path, text: &str) -> Result<Self, String> {
        let mut peers = self;
        for peer in &mut peers.peers {
            let (name, limits) = (&peer.name, &mut peer.limits);
            let Some(dir) = &mut limits.dir else {
                let line = line_of(text, limits.key.span().start);
                return Err(format!(
                    "line {line}: {name} has no dir, where its files go"
                ));
            };
            let line = line_of(text, dir.span().start);
            *dir = Spanned::new(dir.span(), root.join(dir.get_ref()));
            if !dir.get_ref().is_dir() {
                let dir = dir.get_ref().display();
                return Err(format!(
                    "line {line}: the directory {dir} of {name} does not exist"
                ));
            }
        }
        peers.check_quotas(text)?;
        Ok(peers)
    }

    /// Checks that the directory of a peer with a quota is not that of another peer, nor in it or around it: the
    /// files of both would count.
    fn check_quotas(&self, text: &str) -> Result<(), String> {
        let real = |peer: &Peer| fs::canonicalize(peer.directory());
        let mut all = Vec::new();
        for peer in &self.peers {
            let shown = |why| format!("{}: {why}", peer.directory().display());
            all.push((real(peer).map_err(shown)?, peer));
        }
        // After this, each directory comes after those that contain it.
        all.sort_by(|one, other| one.0.cmp(&other.0));
        let mut around: Vec<&(PathBuf, &Peer)> = Vec::new();
        for one in &all {
            around.retain(|outer| one.0.starts_with(&outer.0));
            let has_quota = |it: &Peer| it.limits.has_quota();
            let both = |outer: &&&(PathBuf, &Peer)| has_quota(one.1) || has_quota(outer.1);
            if let Some(other) = around.iter().find(both) {
                return Err(format!(
                    "line {}: the directory of {} is that of {} or below it, and one of the two has a quota; give \
                     each a directory of its own",
                    line_of(
                        text,
                        one.1.limits.dir.as_ref().map_or(0, |dir| dir.span().start)
                    ),
                    one.1.name,
                    other.1.name
                ));
            }
            around.push(one);
        }
        Ok(())
    }

    /// Reads the text, without looking at directories.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let tables = toml::from_str(text).map_err(|error| in_line(text, &error));
        let tables: BTreeMap<Spanned<String>, Limits> = tables?;
        let mut peers = Self::default();
        for (name, limits) in tables {
            let key = *limits.key.get_ref();
            let added = peers.known.add(name.get_ref(), key);
            added.map_err(|why| {
                let wrong = match why {
                    PeerProblem::KeyTwice(_) => limits.key.span(),
                    _ => name.span(),
                };
                at_line(text, wrong.start, &why.to_string())
            })?;
            let name = name.into_inner();
            peers.peers.push(Peer { name, limits });
        }
        Ok(peers)
    }

    /// The names and keys.
    pub(crate) fn known(&self) -> &KnownPeers {
        &self.known
    }

    pub(crate) fn of(&self, key: &PublicKey) -> Option<&Peer> {
        let mut peers = self.peers.iter();
        peers.find(|peer| peer.limits.key.get_ref() == key)
    }

    pub(crate) fn len(&self) -> usize {
        self.peers.len()
    }
}

impl SharedPeers {
    pub(crate) fn set(&self, peers: Peers) {
        *lock(&self.0) = Arc::new(peers);
    }

    pub(crate) fn get(&self) -> Arc<Peers> {
        Arc::clone(&lock(&self.0))
    }

    /// The peer that has proven its identity; `None` if it is not in the file.
    pub(crate) fn of(&self, proof: Proof) -> Option<Peer> {
        match proof {
            Proof::Identity(key) => self.get().of(&key).cloned(),
            Proof::PreShared | Proof::Code => None,
        }
    }

    /// Divides the places of a receiver. A peer without a limit of its own, and all holders of the pre-shared key
    /// together, leave one to others.
    pub(crate) fn limits(&self, places: usize) -> PlaceLimits {
        let peers = self.clone();
        let others = places.saturating_sub(1).max(1);
        let of_peer = move |proof| {
            let most = peers.of(proof).and_then(|peer| peer.max_senders());
            most.unwrap_or(others)
        };
        PlaceLimits {
            all: places,
            of_peer: Box::new(of_peer),
        }
    }
}

impl Limits {
    /// Whether what is in the directory is limited.
    fn has_quota(&self) -> bool {
        self.quota.is_some() || self.max_entries.is_some()
    }
}

impl Peer {
    /// Where its files go. [`Peers::load`] with a root has checked it.
    pub(crate) fn directory(&self) -> &Path {
        let dir = self.limits.dir.as_ref();
        dir.map_or(Path::new("."), |dir| dir.get_ref())
    }

    /// Whether it may name a destination of a forward, if that is limited for it.
    pub(crate) fn allows_forward(&self, to: &HostPort) -> Option<bool> {
        let allowed = self.limits.allow_forward.as_ref()?;
        Some(allowed.iter().any(|destination| destination.0 == *to))
    }

    /// The most transfers at once, if that is limited. Two transfers could use the same free bytes of a quota.
    fn max_senders(&self) -> Option<usize> {
        if self.limits.has_quota() {
            return Some(1);
        }
        self.limit_in_file()
    }

    /// `max-senders` of the file, which is also the most connections to `farwrite forward --listen` at once.
    pub(crate) fn limit_in_file(&self) -> Option<usize> {
        usize::try_from(self.limits.max_senders?).ok()
    }

    /// The most bytes of a transfer, if this peer has a limit of its own.
    pub(crate) fn max_bytes(&self) -> Option<u64> {
        self.limits.max_bytes
    }

    /// What holds for its transfers: its own limits, and those of the receiver where it has none.
    pub(crate) fn settings(&self, of_all: &ReceiveSettings) -> ReceiveSettings {
        let limits = &self.limits;
        let mut settings = of_all.clone();
        settings.max_bytes = self.max_bytes().or(settings.max_bytes);
        settings.max_files = limits.max_files.or(settings.max_files);
        settings.max_file_bytes = limits.max_file;
        let policy = &mut settings.policy;
        policy.quota_bytes = limits.quota;
        policy.quota_entries = limits.max_entries.map(Into::into);
        policy.umask = limits.umask.unwrap_or(policy.umask);
        policy.reserve_bytes = limits.reserve.unwrap_or(policy.reserve_bytes);
        policy.delete = limits.allow_delete.unwrap_or(policy.delete);
        settings
    }
}

fn line_of(text: &str, start: usize) -> usize {
    let before = text.get(..start).unwrap_or(text);
    before.matches('\n').count() + 1
}

fn parsed<'de, D: Deserializer<'de>, T, E: std::fmt::Display>(
    deserializer: D,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse(&text).map_err(|why| de::Error::custom(format!("{text:?}: {why}")))
}

impl<'de> Deserialize<'de> for Destination {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        parsed(from, parse_destination).map(Self)
    }
}

fn read_key<'de, D: Deserializer<'de>>(from: D) -> Result<Spanned<PublicKey>, D::Error> {
    let text = Spanned::<String>::deserialize(from)?;
    let key = text.get_ref().parse().map_err(de::Error::custom)?;
    Ok(Spanned::new(text.span(), key))
}

fn read_size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    parsed(from, parse_count).map(Some)
}

fn read_umask<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u16>, D::Error> {
    parsed(from, parse_umask).map(Some)
}

fn read_reserve<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Reserve>, D::Error> {
    parsed(from, parse_reserve).map(Some)
}

fn read_count<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    read_number(from, 0..=u32::MAX).map(Some)
}

fn read_count_from_1<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    read_number(from, 1..=65_535).map(Some)
}

fn read_number<'de, D: Deserializer<'de>>(
    from: D,
    bounds: RangeInclusive<u32>,
) -> Result<u32, D::Error> {
    let value = toml::Value::deserialize(from)?;
    let number = value.as_integer().and_then(|it| u32::try_from(it).ok());
    number.filter(|it| bounds.contains(it)).ok_or_else(|| {
        let (least, most) = bounds.into_inner();
        let what = format!("{value}: give a whole number from {least} to {most}");
        de::Error::custom(what)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use std::time::Duration;

    use farwrite::Sealing;
    use farwrite_files::Policy;
    use farwrite_keys::Identity;

    use super::*;

    fn key() -> PublicKey {
        Identity::generate().expect("randomness").public()
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line_and_value() {
        let [a, b] = [key(), key()];
        let good = format!("[a]\nkey = \"{a}\"\ndir = \"a\"\n");
        let peers = Peers::parse(&good).expect("good");
        assert_eq!(peers.of(&a).map(|peer| peer.name.as_str()), Some("a"));
        assert!(peers.of(&b).is_none());
        // Each line has the rest of a file, whose lines a bar divides, and the error.
        let cases = format!(
            r#"
            quota = "much" => line 4: "much"
            umask = "999" => line 4: "999": give 000 to 777
            reserve = "-1" => line 4: "-1"
            max-file = 5 => line 4:
            max-files = -1 => line 4: -1: give a whole number from 0 to 4294967295
            max-senders = 0 => line 4: 0: give a whole number from 1 to 65535
            max-senders = "2" => line 4: "2": give a whole number
            color = "red" => line 4: unknown field `color`
            dir = "b" => line 4: duplicate key
            [b] | key = "{a}" | dir = "b" => line 5: this key stands in an earlier
            [b] | dir = "b" => line 4: missing field `key`
            [b] | key = "farwrite-psk-1:x" | dir = "b" => line 5:
            ["b c"] | key = "{b}" | dir = "b" => line 4: a name has 1 to 64
            [ => line 4:
            "#
        );
        for case in cases.trim().lines() {
            let (more, told) = case.trim().split_once(" => ").expect("a case");
            let more = more.replace(" | ", "\n");
            let why = Peers::parse(&format!("{good}{more}\n")).expect_err(&more);
            assert!(why.starts_with(told), "{more}: {why}");
        }
    }

    #[test]
    fn places_are_divided_among_peers() {
        let [a, b, c] = [key(), key(), key()];
        let text = format!(
            "[a]\nkey = \"{a}\"\ndir = \"a\"\nmax-senders = 2\n\
             [b]\nkey = \"{b}\"\ndir = \"b\"\nmax-senders = 9\nquota = \"1kB\"\n\
             [c]\nkey = \"{c}\"\ndir = \"c\"\n"
        );
        let peers = SharedPeers::default();
        peers.set(Peers::parse(&text).expect("good"));
        let limits = peers.limits(8);
        let proofs = [a, b, c].map(Proof::Identity);
        let [a, b, c] = proofs.map(|proof| (limits.of_peer)(proof));
        assert_eq!((a, b, c), (2, 1, 7));
        assert_eq!((limits.of_peer)(Proof::PreShared), 7);
        assert_eq!((peers.limits(1).of_peer)(Proof::PreShared), 1);
        let none = text.replace("max-senders = 2", "max-senders = 0");
        let why = Peers::parse(&none).expect_err("none");
        assert!(why.starts_with("line 4: "), "{why}");
    }

    #[test]
    fn limits_of_a_peer_replace_those_of_the_receiver() {
        let root = tempfile::tempdir().expect("a directory");
        fs::create_dir(root.path().join("in")).expect("a directory");
        let file = root.path().join("peers.toml");
        let text = format!(
            "[a]\nkey = \"{}\"\ndir = \"in\"\nquota = \"1kB\"\nmax-entries = 9\numask = \"077\"\nmax-file = \"5MB\"\n",
            key()
        );
        fs::write(&file, &text).expect("written");
        let chmod = |mode| fs::set_permissions(&file, PermissionsExt::from_mode(mode));
        chmod(0o600).expect("chmod");
        let peers = Peers::load(&file, Some(root.path())).expect("read");
        let peer = &peers.peers[0];
        assert_eq!(peer.directory(), root.path().join("in"));
        let of_all = ReceiveSettings {
            memory_bytes: 1 << 20,
            timeout: Duration::from_secs(1),
            credit_bps: None,
            sealing: Sealing::Required,
            max_bytes: None,
            max_file_bytes: None,
            max_files: Some(7),
            names: None,
            max_delete: None,
            policy: Policy::default(),
        };
        let own = peer.settings(&of_all);
        assert_eq!(own.policy.quota_bytes, Some(1000));
        assert_eq!(own.policy.quota_entries, Some(9));
        assert_eq!(own.max_file_bytes, Some(5_000_000));
        assert_eq!((own.policy.umask, own.max_files), (0o077, Some(7)));
        chmod(0o620).expect("chmod");
        let why = Peers::load(&file, Some(root.path())).expect_err("others may write");
        let why = why.to_string();
        assert!(why.contains("chmod go-w"), "{why}");
        chmod(0o600).expect("chmod");
        fs::write(&file, text.replace("\"in\"", "\"out\"")).expect("written");
        let why = Peers::load(&file, Some(root.path())).expect_err("no directory");
        let why = why.to_string();
        assert!(why.contains("line 3: the directory"), "{why}");
        fs::create_dir(root.path().join("in/deep")).expect("a directory");
        for (dir, quota, is_good) in [
            ("in/deep", "", false),
            ("in/../in", "", false),
            (".", "quota = \"1kB\"\n", false),
            (".", "max-entries = 9\n", false),
            ("in/deep", "quota = \"1kB\"\n", false),
            ("other", "quota = \"1kB\"\n", true),
        ] {
            fs::create_dir_all(root.path().join("other")).expect("a directory");
            let more = format!("[b]\nkey = \"{}\"\ndir = \"{dir}\"\n{quota}", key());
            fs::write(&file, format!("{text}{more}")).expect("written");
            let loaded = Peers::load(&file, Some(root.path()));
            assert_eq!(loaded.is_ok(), is_good, "{dir}: {loaded:?}");
            if let Err(why) = loaded.map_err(|why| why.to_string()) {
                let line = if dir == "." { "line 3: " } else { "line 10: " };
                assert!(why.contains(line) && why.contains("has a quota"), "{why}");
            }
        }
        let shared = format!("[b]\nkey = \"{}\"\ndir = \"in\"\n", key());
        let shared = format!(
            "{}{shared}",
            text.replace("quota = \"1kB\"\nmax-entries = 9\n", "")
        );
        fs::write(&file, shared).expect("written");
        Peers::load(&file, Some(root.path())).expect("peers without a quota may share a directory");
    }
}
