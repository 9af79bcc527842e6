//! One file, directory or link of a manifest (P8.3).

use serde::{Deserialize, Serialize};

/// Most bytes of one name, as on all common file systems.
pub const MAX_NAME_BYTES: usize = 255;
/// Most bytes of the target of a symbolic link, as on Linux.
pub const MAX_TARGET_BYTES: usize = 4095;
/// Permission bits that are transferred. Set-user-id, set-group-id and sticky are not.
pub(super) const MODE_BITS: u16 = 0o777;
pub(super) const NANOS: u32 = 1_000_000_000;

/// A file, directory or link in transfer. Its path is its name below the path of its parent. `B` holds the
/// bytes of its name, and of its target if it is a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry<B = Vec<u8>> {
    /// Number of the parent directory, which is an earlier entry; `None`: the directory of the
    /// receiver.
    pub parent: Option<u32>,
    /// Its name, as bytes, because file systems guarantee no encoding.
    pub name: B,
    /// What it is.
    pub kind: Kind<B>,
    /// Permission bits, at most `0o777`.
    pub mode: u16,
    /// When it was last written.
    pub modified: Time,
}

/// What an entry is. `T` holds the target of a symbolic link. The order of the variants is their number
/// on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind<T = Vec<u8>> {
    /// A directory.
    Directory,
    /// A file.
    File {
        /// Its length in bytes. All of them are in the stream, unless a
        /// [`Detail`](super::Detail) says where its data are.
        bytes: u64,
        /// Whether it has holes. The receiver then does not write blocks that consist of zeros.
        sparse: bool,
    },
    /// A symbolic link. Neither end follows it.
    Symlink {
        /// Its target, as it is. No end checks where it leads.
        target: T,
    },
    /// Another name of a file of this transfer (hard link).
    HardLink {
        /// Number of the file, which is an earlier entry.
        first: u32,
    },
}

impl<T> Kind<T> {
    /// Whether it is a directory. All other kinds get a verdict each.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        matches!(self, Self::Directory)
    }

    /// The length of a file in bytes; 0 for any other kind.
    #[must_use]
    pub fn length(&self) -> u64 {
        match self {
            Self::File { bytes, .. } => *bytes,
            _ => 0,
        }
    }
}

impl<T: AsRef<[u8]>> Kind<T> {
    /// Bytes of the target of a symbolic link; 0 for any other kind.
    #[must_use]
    pub fn target_bytes(&self) -> usize {
        match self {
            Self::Symlink { target } => target.as_ref().len(),
            _ => 0,
        }
    }
}

/// An entry that lies in a [`Manifest`](super::Manifest).
pub type EntryRef<'a> = Entry<&'a [u8]>;

impl EntryRef<'_> {
    /// Returns a copy that owns its name.
    #[must_use]
    pub fn to_entry(&self) -> Entry {
        Entry {
            parent: self.parent,
            name: self.name.to_vec(),
            kind: match self.kind {
                Kind::Directory => Kind::Directory,
                Kind::File { bytes, sparse } => Kind::File { bytes, sparse },
                Kind::Symlink { target } => Kind::Symlink {
                    target: target.to_vec(),
                },
                Kind::HardLink { first } => Kind::HardLink { first },
            },
            mode: self.mode,
            modified: self.modified,
        }
    }
}

/// An instant of the wall clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Time {
    /// Seconds since the start of 1970 (UTC, without leap seconds); negative before 1970.
    pub seconds: i64,
    /// Nanoseconds after that, below 1,000,000,000.
    pub nanos: u32,
}

/// Why a name cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// It has no bytes.
    #[error("it is empty")]
    Empty,
    /// It is `.` or `..`.
    #[error("it stands for another directory")]
    Dots,
    /// It has more than [`MAX_NAME_BYTES`].
    #[error("it has {0} bytes, at most {MAX_NAME_BYTES} are allowed")]
    Long(usize),
    /// It has a zero byte, or a `/` and so would be a path.
    #[error("it contains {}", if *.0 == b'/' { "a slash" } else { "a zero byte" })]
    Byte(u8),
}

/// Checks that a name is a single component of a path and stays below its parent.
///
/// # Errors
/// A [`NameError`] otherwise.
pub fn check_name(name: &[u8]) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if name == b"." || name == b".." {
        return Err(NameError::Dots);
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(NameError::Long(name.len()));
    }
    match name.iter().find(|byte| matches!(byte, b'/' | 0)) {
        Some(byte) => Err(NameError::Byte(*byte)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::{Component, Path};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn odd_but_harmless_names_of_at_most_255_bytes_are_allowed() {
        for name in ["...", "..a", "a..", "-rf", "C:", "a\\b", "~", "a\nb", " "] {
            assert_eq!(check_name(name.as_bytes()), Ok(()), "{name:?}");
        }
        assert_eq!(check_name(&[b'a'; 255]), Ok(()));
        assert_eq!(check_name(&[b'a'; 256]), Err(NameError::Long(256)));
        assert_eq!(check_name(b"\xff\xfe"), Ok(()), "not UTF-8");
    }

    proptest! {
        /// Compares with how the standard library parses paths.
        #[test]
        fn an_allowed_name_is_one_normal_component(
            name in prop::collection::vec(prop_oneof![Just(b'.'), Just(b'/'), Just(0), any::<u8>()], 0..8)
        ) {
            let path = Path::new(OsStr::from_bytes(&name));
            let single = matches!(
                path.components().collect::<Vec<_>>()[..],
                [Component::Normal(only)] if only.as_bytes() == name
            );
            prop_assert_eq!(check_name(&name).is_ok(), single && !name.contains(&0));
        }
    }
}
