//! The most bytes in the directory of a peer.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
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
    /// followed.
    ///
    /// # Errors
    /// A directory that cannot be read, and why: a peer could store any number of bytes in it.
    pub(super) fn take(root: &Path) -> Result<Self, (PathBuf, io::Error)> {
        let mut stock = Self::default();
        let mut pending = vec![root.to_path_buf()];
        while let Some(path) = pending.pop() {
            match stock.add(&path, &mut pending) {
                // Another program may remove directories meanwhile.
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err((path, error)),
                _ => {}
            }
        }
        Ok(stock)
    }

    /// Adds the files directly in a directory, and the directories in it to `pending`.
    fn add(&mut self, path: &Path, pending: &mut Vec<PathBuf>) -> io::Result<()> {
        let directory = Directory::open(path)?;
        let waiting = remove_leftovers(&directory);
        let waiting: HashSet<_> = waiting.into_iter().map(PartName::bytes).collect();
        let names = directory.names(usize::MAX, |_| true)?;
        for name in names.into_iter().flatten() {
            match directory.look(&name)? {
                Some(status) if status.kind == FileType::Directory => {
                    pending.push(path.join(OsStr::from_bytes(&name)));
                }
                Some(status) if status.kind == FileType::RegularFile => {
                    match PartName::parse(&name).filter(|_| waiting.contains(&name)) {
                        Some(name) => self.interrupted.push(Waiting {
                            changed: status.changed,
                            directory: path.to_path_buf(),
                            name,
                            bytes: status.bytes,
                        }),
                        None => self.used_bytes = self.used_bytes.saturating_add(status.bytes),
                    }
                }
                _ => {}
            }
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_cannot_be_counted_is_an_error() {
        let root = tempfile::tempdir().expect("a directory");
        let name = [b'd'; 255];
        let mut directory = Directory::open(root.path()).expect("open");
        // A path of more than 4095 bytes cannot be opened, by root neither.
        for _ in 0..17 {
            assert!(directory.make(&name).expect("made"));
            directory = directory.enter(&name).expect("open");
        }
        let (path, error) = Stock::take(root.path()).expect_err("too long");
        assert!(path.as_os_str().len() > 4095, "{error}");
    }
}
