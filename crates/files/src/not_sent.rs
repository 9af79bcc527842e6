//! What a sender finds at files and does not send.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::flistxattr;

/// Bytes for the names of the extended attributes of one file. A list that is longer counts as one
/// of extended attributes.
const NAMES_BYTES: usize = 4096;

#[derive(Clone, Debug, Default)]
pub(super) struct NotSent {
    /// Files and directories with extended attributes.
    with_attributes: u32,
    /// Files and directories of which some extended attributes are sent, but not all.
    with_other_attributes: u32,
    /// Files and directories with access control lists.
    with_lists: u32,
    /// Files that grew after they were listed, and the first of them.
    grown_files: u32,
    first_grown: PathBuf,
}

impl NotSent {
    /// Counts the extended attributes and access control lists of an open file or directory. A file
    /// system that has none answers with an error.
    pub(super) fn look_at(&mut self, file: impl AsFd) {
        let mut names = [0_u8; NAMES_BYTES];
        let names = match flistxattr(&file, &mut names[..]) {
            Ok(bytes) => &names[..bytes],
            Err(rustix::io::Errno::RANGE) => b"user.",
            Err(_) => return,
        };
        let mut names = names.split(|byte| *byte == 0);
        let is_list = |name: &[u8]| name.starts_with(b"system.posix_acl_");
        // Labels of security modules and the lists of network file systems are on every file there.
        let is_attribute = |name: &[u8]| {
            name.starts_with(b"user.")
                || name.starts_with(b"trusted.")
                || name == b"security.capability"
        };
        self.with_lists += u32::from(names.clone().any(is_list));
        self.with_attributes += u32::from(names.any(is_attribute));
    }

    /// Counts a file or directory of which not all extended attributes are sent.
    pub(super) fn note_xattrs(&mut self, is_short: bool) {
        self.with_other_attributes += u32::from(is_short);
    }

    pub(super) fn note_growth(&mut self, path: &Path) {
        if self.grown_files == 0 {
            self.first_grown = path.into();
        }
        self.grown_files += 1;
    }

    pub(super) fn warnings(&self) -> impl Iterator<Item = String> {
        let some = "some extended attributes (of the system, or too long)";
        let parts = [
            (self.with_attributes, "extended attributes"),
            (self.with_other_attributes, some),
            (self.with_lists, "access control lists"),
        ];
        let parts = parts.iter().filter_map(|(count, what)| match count {
            0 => None,
            1 => Some(format!("{what} of 1 file or directory")),
            count => Some(format!("{what} of {count} files and directories")),
        });
        let parts: Vec<_> = parts.collect();
        let not_sent = (!parts.is_empty()).then(|| format!("not sent: {}", parts.join("; ")));
        let grown = match self.grown_files {
            0 => None,
            1 => Some(format!(
                "{:?} grew while it was sent: only the bytes that it had when it was listed were sent",
                self.first_grown
            )),
            files => Some(format!(
                "{files} files grew while they were sent, the first is {:?}: only the bytes that they \
                 had when they were listed were sent",
                self.first_grown
            )),
        };
        not_sent.into_iter().chain(grown)
    }
}
