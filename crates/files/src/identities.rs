//! Finds directories of a manifest that are one directory on this file system (P8.4).

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use super::Manifest;
use super::aliases::Aliases;
use super::directory::Directory;
use super::status::Id;

/// The directories of a manifest that exist.
#[derive(Debug)]
pub(super) struct Identities {
    manifest: Arc<Manifest>,
    by_id: HashMap<Id, u32>,
    pub(super) aliases: Aliases,
}

impl Identities {
    pub(super) fn new(manifest: &Arc<Manifest>) -> Self {
        Self {
            manifest: Arc::clone(manifest),
            by_id: HashMap::new(),
            aliases: Aliases::new(manifest),
        }
    }

    /// Adds the directory of an entry. Returns the path of another entry that is this directory, such as `A` beside `a`
    /// where case is ignored. `around` is the directory around one that was there before.
    pub(super) fn add(
        &mut self,
        id: Id,
        index: u32,
        around: Option<&Directory>,
    ) -> io::Result<Option<PathBuf>> {
        if let Some(first) = self.by_id.insert(id, index) {
            return Ok(Some(self.manifest.path(first)));
        }
        let other = around.map(|around| self.aliases.other(index, around));
        let other = other.transpose()?.flatten();
        let path = || self.manifest.path(index);
        Ok(other.map(|name| path().with_file_name(OsStr::from_bytes(&name))))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn one_directory_under_two_names_is_found() {
        let place = tempfile::tempdir().expect("place");
        let id = |path: &Path| {
            let directory = Directory::open(path).expect("open");
            directory.status().expect("status").id
        };
        let mut directories = Identities::new(&Arc::default());
        let mut add = |id| directories.add(id, 0, None).expect("no look");
        assert_eq!(add(id(place.path())), None);
        assert!(add(id(&place.path().join("."))).is_some());
    }
}
