//! Directories of a manifest, each opened from its parent.

use std::io;

use super::Manifest;
use super::directory::Directory;

/// An open directory, and a path of open directories below it.
///
/// Both ends use it to walk their trees. A name is looked up in its open parent directory and never
/// by a path, so a symbolic link that replaces a directory causes an error.
#[derive(Debug)]
pub(super) struct Branch {
    root: Directory,
    /// The entry that `root` is; `None` if `root` contains the entries without parent.
    top: Option<u32>,
    /// Open directories with the numbers of their entries, each inside the previous one. A manifest
    /// limits the depth, and so the number of open files.
    open: Vec<(u32, Directory)>,
}

/// Why a directory could not be entered.
#[derive(Debug)]
pub(super) struct EnterError {
    /// Number of the directory.
    pub(super) index: u32,
    /// The error of the operating system.
    pub(super) source: io::Error,
}

impl From<EnterError> for io::Error {
    fn from(error: EnterError) -> Self {
        error.source
    }
}

impl Branch {
    pub(super) fn new(root: Directory, top: Option<u32>) -> Self {
        Self {
            root,
            top,
            open: Vec::new(),
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
        let open = self.open.iter().map(|(index, _)| index);
        let shared = open.zip(&wanted).take_while(|(a, b)| a == b).count();
        self.open.truncate(shared);
        for &index in &wanted[shared..] {
            let name = manifest.entry(index).map_or(&[][..], |entry| entry.name);
            let entered = self.innermost().enter(name);
            let directory = entered.map_err(|source| EnterError { index, source })?;
            self.open.push((index, directory));
        }
        Ok(self.innermost())
    }

    fn innermost(&self) -> &Directory {
        let last = self.open.last();
        last.map_or(&self.root, |(_, directory)| directory)
    }
}
