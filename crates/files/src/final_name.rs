//! Gives files their final names.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::sync::Arc;

use rustix::io::Errno;

use super::Manifest;
use super::aliases::Aliases;
use super::directory::Directory;
use super::locked_file::lock_if_possible;
use super::part_name::{PartName, new_name_of};
use super::status::{Id, Status};

/// A file that has no final name yet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Nameless<'a> {
    /// It has this name in the same directory.
    Temporary(&'a [u8]),
    /// It has no name.
    Unnamed(&'a File),
}

impl Nameless<'_> {
    /// Whether a later transfer can go on with the file.
    pub(super) fn lasts(self) -> bool {
        let Self::Temporary(name) = self else {
            return false;
        };
        PartName::parse(name).is_some_and(|name| name.source().is_some())
    }

    /// Gives the file a name that is free.
    fn take_free(self, directory: &Directory, name: &[u8]) -> Result<(), Errno> {
        match self {
            Self::Temporary(former) => directory.rename_to_free(former, name),
            Self::Unnamed(file) => directory.link(file, name),
        }
    }

    /// Gives the file a name, in place of another file.
    fn take(self, directory: &Directory, name: &[u8], id: Id) -> io::Result<()> {
        match self {
            Self::Temporary(former) => directory.rename(former, name),
            Self::Unnamed(file) => {
                // The next receiver removes a file of such a name, if this one is killed now.
                let (random, _) = new_name_of()?;
                let former = PartName::new(random, id).bytes();
                lock_if_possible(file);
                directory.link(file, &former)?;
                let renamed = directory.rename(&former, name);
                renamed.inspect_err(|_| {
                    let _ = directory.remove(&former);
                })
            }
        }
    }
}

/// The files that got their final names in this transfer.
///
/// A file replaces a file that had its name before the transfer, but not another file of the same
/// transfer. On a file system that ignores case, `A` and `a` are one name.
///
/// A file that was there already, and stays, may have further names, which other files of the transfer
/// replace. So the names of each such file that stay are counted.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) aliases: Aliases,
    given: HashSet<Id>,
    kept: HashMap<Id, u64>,
}

impl Named {
    pub(super) fn new(manifest: &Arc<Manifest>) -> Self {
        Self {
            aliases: Aliases::new(manifest),
            given: HashSet::new(),
            kept: HashMap::new(),
        }
    }

    /// Notes that a file keeps the name of an entry. Returns `false` if it has the name of another entry.
    pub(super) fn keep(
        &mut self,
        index: u32,
        directory: &Directory,
        status: &Status,
    ) -> io::Result<bool> {
        if self.has(status) || self.aliases.is_shared(index, directory)? {
            return Ok(false);
        }
        *self.kept.entry(status.id).or_default() += 1;
        Ok(true)
    }

    /// Whether all names of a file are names of this transfer.
    fn has(&self, file: &Status) -> bool {
        let kept = self.kept.get(&file.id);
        self.given.contains(&file.id) || kept.is_some_and(|kept| file.links <= *kept)
    }

    /// Gives the file `id` the name of an entry in a directory. Returns `false` if a file of this transfer has the
    /// name.
    pub(super) fn give(
        &mut self,
        directory: &Directory,
        from: Nameless<'_>,
        (index, to): (u32, &[u8]),
        id: Id,
    ) -> io::Result<bool> {
        match from.take_free(directory, to) {
            Ok(()) => {}
            // The name is taken, or the file system cannot check this itself.
            Err(Errno::EXIST | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                if let Some(owner) = directory.look(to)?
                    && (self.has(&owner) || self.aliases.is_shared(index, directory)?)
                {
                    return Ok(false);
                }
                from.take(directory, to, id)?;
            }
            Err(error) => return Err(error.into()),
        }
        self.given.insert(id);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;

    use super::Nameless::{Temporary, Unnamed};
    use super::*;

    fn named() -> Named {
        Named::new(&Arc::default())
    }

    #[test]
    fn further_names_of_a_file_that_stays_are_replaced() {
        let place = tempfile::tempdir().expect("place");
        let directory = Directory::open(place.path()).expect("open");
        for (name, text) in [("stays", "old"), ("1", "first"), ("2", "second")] {
            fs::write(place.path().join(name), text).expect("write");
        }
        fs::hard_link(place.path().join("stays"), place.path().join("other")).expect("link");
        let id = |name: &[u8]| directory.look(name).expect("look").expect("there").id;
        let mut named = named();
        let status = directory.look(b"stays").expect("look").expect("there");
        assert!(named.keep(0, &directory, &status).expect("looked"));
        let first = id(b"1");
        assert!(
            named
                .give(&directory, Temporary(b"1"), (0, b"other"), first)
                .expect("rename")
        );
        let second = id(b"2");
        let renamed = named.give(&directory, Temporary(b"2"), (0, b"stays"), second);
        assert!(!renamed.expect("looked"), "it has no further name");
        let left = fs::read(place.path().join("stays")).expect("read");
        assert_eq!(left, b"old");
    }

    #[test]
    fn a_file_without_a_name_gets_one_and_replaces_only_what_was_there_before() {
        let place = tempfile::tempdir().expect("place");
        let directory = Directory::open(place.path()).expect("open");
        let Ok(mut file) = directory.create_unnamed() else {
            // This file system has no such files.
            return;
        };
        file.write_all(b"new").expect("write");
        let id = Status::of_file(&file).expect("status").id;
        fs::write(place.path().join("A"), "before the transfer").expect("write");
        let mut named = named();
        let given = named.give(&directory, Unnamed(&file), (0, b"A"), id);
        assert!(given.expect("given"), "what was there before is replaced");
        assert_eq!(fs::read(place.path().join("A")).expect("read"), b"new");
        let second = directory.create_unnamed().expect("as before");
        let id = Status::of_file(&second).expect("status").id;
        let given = named.give(&directory, Unnamed(&second), (0, b"A"), id);
        assert!(!given.expect("looked"), "a file of this transfer is kept");
        let given = named.give(&directory, Unnamed(&second), (0, b"B"), id);
        assert!(given.expect("given"), "the name is free");
        let names = directory.names(|_| true).expect("list");
        assert_eq!(names, [b"A", b"B"]);
    }
}
