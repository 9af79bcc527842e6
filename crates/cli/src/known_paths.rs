//! Stores what transfers have measured on paths, so that later transfers start at their rate, and do not search for
//! packets that the path does not carry.
//!
//! The file is a cache: if it cannot be read or is missing, the only cost is a slower start. An outdated
//! rate costs little too, because the sender tests it with one short train of packets before it
//! relies on it. Packets of the stored size are tested as all others. A size that is too small costs rate: larger
//! packets are tried when the entry is too old, or if the user asks for them. If they pass, the entry is removed.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, fs, io};

use farwrite_transfer::Start;
use farwrite_units::input::read_text;
use farwrite_units::parse::parse_mtu;
use serde::{Deserialize, Serialize};

/// An older entry has little relation to the current path.
const MAX_AGE: Duration = Duration::from_secs(7 * 24 * 3600);
/// The maximum number of paths in the file. The oldest path is removed first.
const MAX_PATHS: usize = 64;
/// This program never writes a longer file.
const MAX_BYTES: u64 = 64 << 10;

/// What is known of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct KnownPath {
    /// What the rate control starts with.
    pub(crate) start: Option<Start>,
    /// Payload bytes of the largest unsealed packets, if the path carries smaller ones than this machine sends.
    pub(crate) mtu: Option<u32>,
}

/// The paths from this machine to others.
#[derive(Debug)]
pub(crate) struct KnownPaths {
    file: PathBuf,
}

/// The content of the file, by "FROM TO".
#[derive(Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Known {
    #[serde(default)]
    path: BTreeMap<String, Learned>,
    /// Paths that do not carry the largest packets of this machine.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    narrow: BTreeMap<String, Narrow>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
struct Learned {
    rate_bps: u64,
    rtt_ns: u64,
    /// The time of the measurement in seconds since 1970.
    learned_at: u64,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
struct Narrow {
    /// Each payload of a UDP packet has fewer bytes than this type can count.
    mtu: u16,
    /// When larger packets were lost, in seconds since 1970.
    learned_at: u64,
}

/// Whether an entry was measured at most [`MAX_AGE`] before `now`. A time after `now` is that of a wrong clock.
fn is_fresh(learned_at: u64, now: u64) -> bool {
    let age = now.checked_sub(learned_at);
    age.is_some_and(|age| age <= MAX_AGE.as_secs())
}

/// Adds an entry. Removes those that are too old, and the oldest if there are too many.
fn add<T>(entries: &mut BTreeMap<String, T>, name: String, new: T, learned_at: impl Fn(&T) -> u64) {
    let now = learned_at(&new);
    entries.retain(|_, entry| is_fresh(learned_at(entry), now));
    entries.insert(name, new);
    while entries.len() > MAX_PATHS {
        let oldest = entries.iter().min_by_key(|(_, entry)| learned_at(entry));
        let Some(oldest) = oldest.map(|(name, _)| name.clone()) else {
            break;
        };
        entries.remove(&oldest);
    }
}

impl KnownPaths {
    /// The file of the user: `farwrite/paths.toml` in `XDG_CACHE_HOME`, or otherwise in `~/.cache`.
    /// `None` for a user without a home directory.
    pub(crate) fn of_user() -> Option<Self> {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty());
        let cache = set("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| Some(Path::new(&set("HOME")?).join(".cache")));
        // The XDG specification requires that a relative path is ignored.
        let cache = cache.filter(|cache| cache.is_absolute())?;
        Some(Self {
            file: cache.join("farwrite/paths.toml"),
        })
    }

    /// What is stored of the path from one address to another.
    pub(crate) fn find(&self, from: IpAddr, to: IpAddr) -> KnownPath {
        let (known, name, now) = (self.read(), name(from, to), now());
        let learned = known.path.get(&name);
        let learned = learned.filter(|entry| is_fresh(entry.learned_at, now));
        let narrow = known.narrow.get(&name);
        let narrow = narrow.filter(|entry| is_fresh(entry.learned_at, now));
        KnownPath {
            start: learned.map(|learned| Start {
                rate_bps: learned.rate_bps,
                rtt_ns: learned.rtt_ns,
            }),
            mtu: narrow.and_then(|narrow| parse_mtu(&narrow.mtu.to_string()).ok()),
        }
    }

    /// Stores what a transfer has measured whose packets had `unsealed_mtu` bytes of payload at the end, or would have
    /// had them without sealing. What it has not measured stays, but not a size of which larger packets have passed.
    /// Transfers that end at the same time may overwrite the entries of one another.
    pub(crate) fn keep(
        &self,
        from: IpAddr,
        to: IpAddr,
        path: KnownPath,
        unsealed_mtu: u32,
    ) -> io::Result<()> {
        let (mut known, name, learned_at) = (self.read(), name(from, to), now());
        let kept = known.narrow.get(&name).map(|narrow| narrow.mtu.into());
        let is_outdated = kept.is_some_and(|kept: u32| kept < unsealed_mtu);
        if path == KnownPath::default() && !is_outdated {
            return Ok(());
        }
        if is_outdated {
            known.narrow.remove(&name);
        }
        if let Some(Start { rate_bps, rtt_ns }) = path.start {
            let learned = Learned {
                rate_bps,
                rtt_ns,
                learned_at,
            };
            add(&mut known.path, name.clone(), learned, |it| it.learned_at);
        }
        if let Some(mtu) = path.mtu.and_then(|mtu| u16::try_from(mtu).ok()) {
            let narrow = Narrow { mtu, learned_at };
            add(&mut known.narrow, name, narrow, |it| it.learned_at);
        }
        self.write(&known)
    }

    fn read(&self) -> Known {
        // Nobody may write into a pipe.
        let is_file = fs::metadata(&self.file).is_ok_and(|file| file.is_file());
        let text = is_file.then(|| read_text(&self.file, MAX_BYTES).ok());
        let known = text.flatten().and_then(|text| parse(&text));
        known.unwrap_or_default()
    }

    fn write(&self, known: &Known) -> io::Result<()> {
        let directory = self.file.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(directory)?;
        let text = toml::to_string(known).map_err(io::Error::other)?;
        // Only the owner can read a temporary file. This is required, because it names the machines
        // that the user sends to.
        let mut file = tempfile::NamedTempFile::new_in(directory)?;
        file.write_all(text.as_bytes())?;
        file.persist(&self.file)?;
        Ok(())
    }
}

/// Reads the text of the file.
pub(crate) fn parse(text: &str) -> Option<Known> {
    toml::from_str(text).ok()
}

fn name(from: IpAddr, to: IpAddr) -> String {
    format!("{} {}", from.to_canonical(), to.to_canonical())
}

/// Seconds since 1970; 0 if the clock of the machine is earlier.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: KnownPath = KnownPath {
        start: Some(Start {
            rate_bps: 1_000_000_000,
            rtt_ns: 25_000_000,
        }),
        mtu: None,
    };
    const NOTHING: KnownPath = KnownPath {
        start: None,
        mtu: None,
    };

    fn of_size(mtu: u32) -> KnownPath {
        let mtu = Some(mtu);
        KnownPath { mtu, ..NOTHING }
    }

    fn ip(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    fn known_paths() -> (tempfile::TempDir, KnownPaths) {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("farwrite/paths.toml");
        (directory, KnownPaths { file })
    }

    #[test]
    fn what_was_learned_is_found_by_both_addresses() {
        let (_directory, paths) = known_paths();
        assert_eq!(paths.find(ip(1), ip(2)), NOTHING);
        paths.keep(ip(1), ip(2), START, 8936).expect("written");
        assert_eq!(paths.find(ip(1), ip(2)), START);
        assert_eq!(
            paths.find("::ffff:192.0.2.1".parse().unwrap(), ip(2)),
            START
        );
        assert_eq!(paths.find(ip(2), ip(1)), NOTHING);
    }

    #[test]
    fn the_size_of_packets_is_kept_apart_from_the_rate() {
        let (_directory, paths) = known_paths();
        // Older versions wrote no sizes.
        let old = format!(
            "[path.\"{}\"]\nrate_bps = 1000000000\nrtt_ns = 25000000\nlearned_at = {}\n",
            name(ip(1), ip(2)),
            now()
        );
        fs::create_dir_all(paths.file.parent().expect("a directory")).expect("made");
        fs::write(&paths.file, old).expect("written");
        assert_eq!(paths.find(ip(1), ip(2)), START);
        for mtu in [1436, 1356] {
            let path = of_size(mtu);
            paths.keep(ip(1), ip(2), path, mtu).expect("written");
            let mtu = Some(mtu);
            assert_eq!(paths.find(ip(1), ip(2)), KnownPath { mtu, ..START });
        }
        let path = of_size(1436);
        paths.keep(ip(2), ip(1), path, 1436).expect("written");
        assert_eq!(paths.find(ip(2), ip(1)), path);
        // Old sizes are not used. A transfer that has lost no larger packets does not renew them.
        let mut known = paths.read();
        let narrow = known.narrow.values_mut();
        narrow.for_each(|narrow| narrow.learned_at -= MAX_AGE.as_secs() + 9);
        paths.write(&known).expect("written");
        paths.keep(ip(1), ip(2), START, 1356).expect("written");
        assert_eq!(paths.find(ip(1), ip(2)), START);
        assert_eq!(paths.find(ip(2), ip(1)), NOTHING);
    }

    #[test]
    fn a_size_is_forgotten_when_larger_packets_pass() {
        let (_directory, paths) = known_paths();
        for learned in [NOTHING, START] {
            let path = of_size(1356);
            paths.keep(ip(1), ip(2), path, 1356).expect("written");
            for mtu in [1356, 1352] {
                paths.keep(ip(1), ip(2), NOTHING, mtu).expect("unchanged");
                assert_eq!(paths.find(ip(1), ip(2)), path);
            }
            paths.keep(ip(1), ip(2), learned, 1360).expect("written");
            assert_eq!(paths.find(ip(1), ip(2)), learned);
        }
        // The path still loses packets, but larger ones.
        let path = of_size(1436);
        paths.keep(ip(1), ip(2), path, 1436).expect("written");
        assert_eq!(paths.find(ip(1), ip(2)).mtu, Some(1436));
    }

    #[test]
    fn a_size_that_no_packet_can_have_is_ignored() {
        let (_directory, paths) = known_paths();
        for mtu in [0, 252, 1357, 65_472] {
            let path = of_size(mtu);
            paths.keep(ip(1), ip(2), path, mtu).expect("written");
            assert_eq!(paths.find(ip(1), ip(2)), NOTHING, "{mtu}");
        }
    }

    #[test]
    fn what_was_not_learned_makes_no_file() {
        let (_directory, paths) = known_paths();
        let kept = paths.keep(ip(1), ip(2), NOTHING, 8936);
        kept.expect("nothing to write");
        assert!(!paths.file.exists());
    }

    #[test]
    fn a_damaged_file_is_no_hindrance() {
        let (_directory, paths) = known_paths();
        paths.keep(ip(1), ip(2), START, 8936).expect("written");
        for text in [
            "path = 3",
            "\u{0}",
            "[path]\n\"a b\" = { rate_bps = -1 }",
            "[narrow]\n\"a b\" = { mtu = 65536, learned_at = 0 }",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
            fs::write(&paths.file, text).expect("written");
            assert_eq!(paths.find(ip(1), ip(2)), NOTHING, "{text:?}");
        }
        paths.keep(ip(1), ip(2), START, 8936).expect("written");
        assert_eq!(paths.find(ip(1), ip(2)), START);
    }

    #[test]
    fn the_oldest_paths_are_forgotten() {
        let (_directory, paths) = known_paths();
        let learned = |age: u64| Learned {
            rate_bps: 1,
            rtt_ns: 1,
            learned_at: now() - age,
        };
        let mut known = Known::default();
        for last in 0..=99 {
            let age = if last == 7 {
                MAX_AGE.as_secs() + 9
            } else {
                u64::from(last)
            };
            known.path.insert(name(ip(last), ip(200)), learned(age));
        }
        paths.write(&known).expect("written");
        assert_eq!(paths.find(ip(7), ip(200)), NOTHING, "too old");
        paths.keep(ip(1), ip(2), START, 8936).expect("written");
        assert_eq!(paths.read().path.len(), MAX_PATHS);
        assert_eq!(paths.find(ip(1), ip(2)), START);
        assert_ne!(paths.find(ip(0), ip(200)), NOTHING);
        assert_eq!(paths.find(ip(99), ip(200)), NOTHING);
    }

    #[test]
    fn only_the_owner_reads_the_file() {
        use std::os::unix::fs::PermissionsExt;
        let (_directory, paths) = known_paths();
        paths.keep(ip(1), ip(2), START, 8936).expect("written");
        let mode = fs::metadata(&paths.file)
            .expect("there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o077, 0);
    }
}
