//! What a receiver's user decides about the files that arrive.

use clap::Args;
use farwrite_files::{PeerKey, Policy};
use farwrite_units::parse::parse_count;

use crate::proc::proc_value;

#[derive(Debug, Args)]
pub(crate) struct PolicyArgs {
    /// Permissions that files and directories do not get, in octal, as with umask; without it, those
    /// of this program's umask. With 000, they get all permissions that they have at the sender
    #[arg(long, value_name = "MODE", value_parser = parse_umask)]
    umask: Option<u16>,
    /// Refuse a transfer of more than this number of bytes
    #[arg(long, value_name = "SIZE", value_parser = parse_count, allow_hyphen_values = true)]
    pub(crate) max_bytes: Option<u64>,
    /// Refuse a transfer of more than this number of files and directories
    #[arg(long, value_name = "N")]
    pub(crate) max_files: Option<u32>,
    /// Bytes of the file system to keep free. A transfer that does not fit is refused before its first
    /// byte, and a transfer that leaves less ends. `--reserve none` turns these checks off, for a file
    /// system that compresses
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_reserve)]
    #[arg(allow_hyphen_values = true)]
    reserve: Reserve,
    /// Give files and directories the owners (numbers of user and group) that a sender with --owner sends.
    /// Needs root
    #[arg(long)]
    owner: bool,
    /// Let senders with --delete remove files and directories that they do not have, in directories that they
    /// send, and list their names with --dry-run
    #[arg(long)]
    allow_delete: bool,
    /// Report files as verified when the operating system has them, instead of when they survive a
    /// power failure (fsync)
    #[arg(long)]
    pub(crate) no_sync: bool,
    /// Remove what has arrived of a large file when its transfer is interrupted. Without this, it is kept for 7
    /// days, and the same sender goes on with it
    #[arg(long)]
    no_resume: bool,
}

/// Bytes to keep free; `None`: not checked. By this name, clap reads a value, and not an option that may be missing.
pub(crate) type Reserve = Option<u64>;

impl PolicyArgs {
    /// The policy of a receiver whose interrupted files `peer` can go on with.
    pub(crate) fn policy(&self, peer: Option<PeerKey>) -> Policy {
        Policy {
            owners: self.owner,
            delete: self.allow_delete,
            umask: self.umask.unwrap_or_else(own_umask),
            reserve_bytes: self.reserve,
            quota_bytes: None,
            quota_entries: None,
            sync: !self.no_sync,
            resume: peer.filter(|_| self.resumes()),
        }
    }

    /// Whether interrupted files are kept.
    pub(crate) fn resumes(&self) -> bool {
        !self.no_resume
    }
}

/// The umask of this process. The only call that reads it also sets it, so another thread could
/// make a file in between: read the number that the kernel shows instead.
pub(crate) fn own_umask() -> u16 {
    let umask = proc_value("/proc/self/status", "Umask");
    let umask = umask.and_then(|umask| parse_umask(&umask).ok());
    // Without /proc, what most systems have.
    umask.unwrap_or(0o022)
}

pub(crate) fn parse_umask(text: &str) -> Result<u16, String> {
    let umask = u16::from_str_radix(text, 8).ok();
    let umask = umask.filter(|umask| *umask <= 0o777 && !text.starts_with('+'));
    umask.ok_or_else(|| "give 000 to 777, in octal".into())
}

pub(crate) fn parse_reserve(text: &str) -> Result<Reserve, String> {
    match text {
        "none" => Ok(None),
        size => parse_count(size).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_options() {
        assert_eq!(parse_umask("077"), Ok(0o077));
        assert_eq!(parse_umask("0"), Ok(0));
        for wrong in ["", "8", "-1", "+7", "1000", "u=rwx"] {
            assert!(parse_umask(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_reserve("none"), Ok(None));
        assert_eq!(parse_reserve("0"), Ok(Some(0)));
        assert_eq!(parse_reserve("2GiB"), Ok(Some(2 << 30)));
        assert!(parse_reserve("some").is_err());
        assert!(own_umask() <= 0o777);
    }
}
