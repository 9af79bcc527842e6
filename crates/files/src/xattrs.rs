//! Extended attributes of open files and directories.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{XattrFlags, fgetxattr, flistxattr, fsetxattr};

use super::Xattr;
use super::acl::{ACCESS, LISTS};
use super::detail::{MAX_XATTR_BYTES, check_xattrs, travels};

/// Bytes for the names of one file: as many as Linux allows.
const NAMES_BYTES: usize = 64 << 10;

/// Returns the extended attributes that travel, in ascending order of their names, and whether others exist
/// or do not fit. A file system without extended attributes has none.
pub(super) fn read(file: impl AsFd) -> (Vec<Xattr>, bool) {
    let mut names = vec![0; NAMES_BYTES];
    let Ok(length) = flistxattr(&file, &mut names[..]) else {
        return (Vec::new(), false);
    };
    let names = names[..length].split(|byte| *byte == 0);
    let mut names: Vec<_> = names.filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    let mut xattrs = Vec::new();
    let mut is_short = false;
    let mut value = vec![0; MAX_XATTR_BYTES];
    for name in names {
        if !travels(name) {
            // Labels of security modules and the lists of network file systems are on every file there.
            is_short |= name.starts_with(b"trusted.") || name == b"security.capability";
            continue;
        }
        let Ok(length) = fgetxattr(&file, name, &mut value[..]) else {
            is_short = true;
            continue;
        };
        xattrs.push(Xattr {
            name: name.to_vec(),
            value: value[..length].to_vec(),
        });
        if check_xattrs(&xattrs).is_err() {
            xattrs.pop();
            is_short = true;
        }
    }
    (xattrs, is_short)
}

/// Sets extended attributes, access control lists only if `lists` says so. Returns whether the file now has its list of
/// access, and the first failure, after it has tried all.
pub(super) fn set(file: impl AsFd, xattrs: &[Xattr], lists: bool) -> (bool, io::Result<()>) {
    let set = |xattr: &Xattr| match lists || !xattr.name.starts_with(LISTS) {
        true => {
            let set = fsetxattr(&file, &xattr.name[..], &xattr.value, XattrFlags::empty());
            set.map_err(io::Error::from)
        }
        false => Err(io::Error::other(
            "the receiver sets access control lists with --owner only",
        )),
    };
    let mut has_list = false;
    let mut all = Ok(());
    for xattr in xattrs {
        let set = set(xattr);
        has_list |= set.is_ok() && xattr.name == ACCESS;
        all = all.and(set);
    }
    (has_list, all)
}
