//! Directories of a manifest, each opened from its parent.

use std::collections::VecDeque;
use std::io;

use super::Manifest;
use super::directory::Directory;

/// The largest number of directories that stay open below the first. A longer path is opened again from its start
/// when it is needed.
const MOST_OPEN: usize = 64;

/// An open directory, and a path of open directories below it.
///
/// Both ends use it to walk their trees. A name is looked up in its open parent directory and never
/// by a path, so a symbolic link that replaces a directory causes an error.
#[derive(Debug)]
pub(super) struct OpenDirectories {
    pub(super) root: Directory,
    /// The entry that `root` is; `None` if `root` contains the entries without parent.
    top: Option<u32>,
    /// Open directories with the numbers of their entries, each inside the previous one.
    open: VecDeque<(u32, Directory)>,
    /// How many directories lie between `root` and the first open one.
    closed: usize,
}

/// Why a directory could not be entered.
#[derive(Debug)]
pub(super) struct EnterError {
    /// Number of the directory.
    pub(super) index: u32,
    pub(super) source: io::Error,
}

impl From<EnterError> for io::Error {
    fn from(error: EnterError) -> Self {
        error.source
    }
}

impl OpenDirectories {
    pub(super) fn new(root: Directory, top: Option<u32>) -> Self {
        Self {
            root,
            top,
            open: VecDeque::new(),
            closed: 0,
        }
    }

    /// Opens the directory with this number. `None` is the parent of the entries without parent.
    pub(super) fn enter(
        &mut self,
        manifest: &Manifest,
        index: Option<u32>,
    ) -> Result<&Directory, EnterError> {
        let mut wanted = manifest.lineage(index);
        if self.top.is_some() {
            wanted.pop();
        }
        wanted.reverse();
        // An entry has one parent, so equal entries have equal ways to them.
        let open = self.open.iter().zip(wanted.iter().skip(self.closed));
        let shared = open.take_while(|((at, _), want)| at == *want).count();
        self.open.truncate(shared);
        if shared == 0 {
            self.closed = 0;
        }
        for &index in &wanted[self.closed + shared..] {
            let name = manifest.name(index);
            let entered = self.innermost().enter(name);
            let directory = entered.map_err(|source| EnterError { index, source })?;
            if self.open.len() == MOST_OPEN {
                self.open.pop_front();
                self.closed += 1;
            }
            self.open.push_back((index, directory));
        }
        Ok(self.innermost())
    }

    fn innermost(&self) -> &Directory {
        let last = self.open.back();
        last.map_or(&self.root, |(_, directory)| directory)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::{Entry, Kind, ManifestBuilder, Time};
    use super::*;

    /// A path of more directories than stay open, and others beside it at each depth.
    #[test]
    fn long_ways_are_walked_in_any_order() {
        let depth = 3 * MOST_OPEN;
        let place = tempfile::tempdir().expect("place");
        let mut builder = ManifestBuilder::default();
        let mut push = |parent, name: &str| {
            let entry = Entry {
                parent,
                name: name.into(),
                kind: Kind::Directory,
                mode: 0o755,
                modified: Time::default(),
            };
            builder.push(&entry).expect("kept all rules")
        };
        let (mut path, mut parent, mut ways) = (place.path().to_path_buf(), None, Vec::new());
        for _ in 0..depth {
            for name in ["d", "e"] {
                fs::create_dir(path.join(name)).expect("directory");
                ways.push((push(parent, name), path.join(name)));
            }
            path.push("d");
            parent = ways.iter().rev().nth(1).map(|(index, _)| *index);
        }
        let manifest = builder.build().expect("no name twice");
        let mut directories =
            OpenDirectories::new(Directory::open(place.path()).expect("open"), None);
        let mut visit = |(index, path): &(u32, std::path::PathBuf)| {
            let entered = directories.enter(&manifest, Some(*index)).expect("there");
            let id = entered.status().expect("status").id;
            let want = Directory::open(path).expect("open");
            assert_eq!(id, want.status().expect("status").id, "{index}");
            assert!(directories.open.len() <= MOST_OPEN);
        };
        ways.iter().for_each(&mut visit);
        ways.iter().rev().for_each(&mut visit);
        for at in 0..ways.len() {
            visit(&ways[at * 7 % ways.len()]);
        }
    }
}
