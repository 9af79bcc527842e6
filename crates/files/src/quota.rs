//! What is in the directory of a peer, and counts for its quota.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use super::directory::Directory;
use super::interrupted::{remove_interrupted, remove_leftovers};
use super::part_name::PartName;
use super::status::{Id, Status};
use super::{PathError, Time};

/// Bytes that a name takes, with the inode behind it and its entry in a directory.
pub(super) const NAME_BYTES: u64 = 4096;

/// What is below a directory.
#[derive(Debug, Default)]
pub(super) struct Stock {
    /// The blocks of all files and links but the interrupted ones, and [`NAME_BYTES`] for each name.
    pub(super) used_bytes: u64,
    /// Their number, with directories.
    pub(super) used_entries: u64,
    interrupted: Vec<Waiting>,
    /// Files with several names, whose blocks are counted.
    linked: HashSet<Id>,
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
    /// A directory that cannot be read: a peer could store any number of bytes in it.
    pub(super) fn take(root: &Path) -> Result<Self, PathError> {
        let mut stock = Self::default();
        let mut pending = vec![root.to_path_buf()];
        while let Some(path) = pending.pop() {
            match stock.add(&path, &mut pending) {
                // Another program may remove directories meanwhile.
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(PathError { path, source });
                }
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
        for name in directory.names(|_| true)? {
            let Some(status) = directory.look(&name)? else {
                continue;
            };
            if status.kind == FileType::Directory {
                pending.push(path.join(OsStr::from_bytes(&name)));
            }
            match PartName::parse(&name).filter(|_| waiting.contains(&name)) {
                Some(name) => self.interrupted.push(Waiting {
                    changed: status.changed,
                    directory: path.to_path_buf(),
                    name,
                    bytes: status.allocated_bytes.saturating_add(NAME_BYTES),
                }),
                None => self.count(&status),
            }
        }
        Ok(())
    }

    /// Counts what has a name.
    fn count(&mut self, status: &Status) {
        // The names of a directory count, and not where they are stored.
        let has_blocks = status.kind != FileType::Directory
            && (status.links == 1 || self.linked.insert(status.id));
        let blocks_bytes = if has_blocks {
            status.allocated_bytes
        } else {
            0
        };
        let bytes = blocks_bytes.saturating_add(NAME_BYTES);
        self.used_bytes = self.used_bytes.saturating_add(bytes);
        self.used_entries += 1;
    }

    /// Bytes of interrupted files.
    pub(super) fn interrupted_bytes(&self) -> u64 {
        self.interrupted.iter().map(|it| it.bytes).sum()
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
        let mut bytes = self.interrupted_bytes();
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
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn names_and_blocks_count() {
        let root = tempfile::tempdir().expect("a directory");
        let path = |name: &str| root.path().join(name);
        for number in 0..10 {
            symlink("nowhere", path(&number.to_string())).expect("a link");
        }
        fs::create_dir(path("d")).expect("a directory");
        let holes = fs::File::create(path("d/holes")).expect("a file");
        holes.set_len(1 << 30).expect("a length");
        let stock = Stock::take(root.path()).expect("counted");
        assert_eq!(
            (stock.used_entries, stock.used_bytes),
            (12, 12 * NAME_BYTES)
        );
        fs::write(path("full"), [1; 100_000]).expect("written");
        fs::hard_link(path("full"), path("d/again")).expect("a link");
        let stock = Stock::take(root.path()).expect("counted");
        let blocks_bytes = stock.used_bytes - 14 * NAME_BYTES;
        assert!((100_000..200_000).contains(&blocks_bytes), "{blocks_bytes}");
    }

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
        let error = Stock::take(root.path()).expect_err("too long");
        assert!(error.path.as_os_str().len() > 4095, "{error}");
    }
}
