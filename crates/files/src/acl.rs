//! Access control lists: what a mode gives without its list (P8.3).

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{getxattr, lgetxattr};
use rustix::io::Errno;

use super::detail::MAX_XATTR_BYTES;
use super::directory::Directory;

/// The name of the list of who may do what with a file.
pub(super) const ACCESS: &[u8] = b"system.posix_acl_access";
/// The names of access control lists begin so.
pub(super) const LISTS: &[u8] = b"system.posix_acl_";
/// The permission bits of the group. With a list, they are the most that its users and groups get.
const GROUP_BITS: u16 = 0o070;
/// The kind of the entry for the group of the file.
const GROUP_OBJ: u16 = 0x04;
/// Bytes of the version before the entries, and of an entry.
const HEAD_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;

/// The mode of a file without its list: the group gets what the list gives to the group of the file. Nothing, if the
/// list does not say.
pub(super) fn mode_without(mode: u16, list: &[u8]) -> u16 {
    let entries = list.get(HEAD_BYTES..).unwrap_or_default();
    let group = entries.chunks_exact(ENTRY_BYTES).find_map(|entry| {
        let [kind_low, kind_high, low, high, ..] = entry else {
            return None;
        };
        let is_group = u16::from_le_bytes([*kind_low, *kind_high]) == GROUP_OBJ;
        is_group.then(|| u16::from_le_bytes([*low, *high]))
    });
    let group_bits = (group.unwrap_or(0) << 3) & GROUP_BITS;
    mode & (!GROUP_BITS | group_bits)
}

/// The mode of something in a directory without its list.
pub(super) fn mode_in(directory: &Directory, name: &[u8], mode: u16) -> u16 {
    reduced(mode, |list| {
        // No system call takes a directory and a name here.
        let fd = directory.as_fd().as_raw_fd();
        let path = PathBuf::from(format!("/proc/self/fd/{fd}")).join(OsStr::from_bytes(name));
        lgetxattr(&path, ACCESS, list)
    })
}

/// The mode of what a path leads to without its list.
pub(super) fn mode_of(path: &Path, mode: u16) -> u16 {
    reduced(mode, |list| getxattr(path, ACCESS, list))
}

fn reduced(mode: u16, read: impl FnOnce(&mut [u8]) -> Result<usize, Errno>) -> u16 {
    if mode & GROUP_BITS == 0 {
        return mode;
    }
    let mut list = vec![0; MAX_XATTR_BYTES];
    // Most files have no list, and some file systems have none at all.
    read(&mut list).map_or(mode, |bytes| mode_without(mode, &list[..bytes]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list with these kinds and permissions.
    fn list(entries: &[(u16, u16)]) -> Vec<u8> {
        let mut list = 2_u32.to_le_bytes().to_vec();
        for (kind, permissions) in entries {
            list.extend([*kind, *permissions].map(u16::to_le_bytes).concat());
            list.extend(u32::MAX.to_le_bytes());
        }
        list
    }

    #[test]
    fn a_group_gets_no_more_without_the_list_than_with_it() {
        let mask = |group| list(&[(0x01, 6), (0x02, 7), (0x04, group), (0x10, 6), (0x20, 0)]);
        for (mode, group, want) in [
            (0o640, 0, 0o600),
            (0o660, 4, 0o640),
            // The mask takes away what the entry gives.
            (0o640, 7, 0o640),
            (0o604, 7, 0o604),
        ] {
            assert_eq!(mode_without(mode, &mask(group)), want);
        }
        assert_eq!(mode_without(0o666, b""), 0o606, "nobody knows");
        assert_eq!(mode_without(0o666, &[2, 0, 0, 0, 4, 0, 6]), 0o606, "cut");
    }
}
