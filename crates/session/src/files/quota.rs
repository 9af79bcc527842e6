//! The most bytes in the directory of a peer.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use super::Time;
use super::directory::Directory;
use super::interrupted::{remove_interrupted, remove_leftovers};
use super::part_name::PartName;

/// What is below a directory.
#[derive(Debug, Default)]
pub(super) struct Stock {
    /// The lengths of all files but the interrupted ones.
    pub(super) used_bytes: u64,
    interrupted: Vec<Waiting>,
}

/// An interrupted file that waits for its transfer to go on.
#[derive(Debug)]
struct Waiting {
    changed: Time,
    directory: PathBuf,
    name: PartName,
    bytes: u64,
}

impl Stock {
    /// Looks at all files below a directory, and removes the temporary files of killed receivers. Links are not
    /// followed, and what cannot be read counts nothing.
    pub(super) fn take(root: &Path) -> Self {
        let mut stock = Self::default();
        let mut pending = vec![root.to_path_buf()];
        while let Some(path) = pending.pop() {
            let Ok(directory) = Directory::open(&path) else {
                continue;
            };
            let waiting = remove_leftovers(&directory);
            let waiting: HashSet<_> = waiting.into_iter().map(PartName::bytes).collect();
            let names = directory.names(usize::MAX, |_| true);
            for name in names.into_iter().flatten().flatten() {
                match directory.look(&name) {
                    Ok(Some(status)) if status.kind == FileType::Directory => {
                        pending.push(path.join(OsStr::from_bytes(&name)));
                    }
                    Ok(Some(status)) if status.kind == FileType::RegularFile => {
                        match PartName::parse(&name).filter(|_| waiting.contains(&name)) {
                            Some(name) => stock.interrupted.push(Waiting {
                                changed: status.changed,
                                directory: path.clone(),
                                name,
                                bytes: status.bytes,
                            }),
                            None => {
                                stock.used_bytes = stock.used_bytes.saturating_add(status.bytes);
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
        stock
    }

    /// Removes interrupted files, the oldest first, until all of them together have at most `most_bytes`. Those
    /// with one of these places stay: the transfer goes on with them, or removes them.
    pub(super) fn shrink_to(&mut self, most_bytes: u64, places: &HashSet<u64>) {
        let is_used = |it: &Waiting| {
            it.name
                .source()
                .is_some_and(|it| places.contains(&it.place))
        };
        self.interrupted.retain(|it| !is_used(it));
        self.interrupted.sort_by_key(|it| it.changed);
        let mut bytes: u64 = self.interrupted.iter().map(|it| it.bytes).sum();
        for oldest in self.interrupted.drain(..) {
            if bytes <= most_bytes {
                break;
            }
            if let Ok(directory) = Directory::open(&oldest.directory) {
                remove_interrupted(&directory, oldest.name);
            }
            bytes -= oldest.bytes;
        }
    }
}
