//! Links that a receiver makes, under a temporary name first (P8.4).

use std::io;

use super::directory::Directory;
use super::part_name::new_name;
use super::status::Id;

/// A link under its temporary name, `.farwrite-RANDOM.new`.
#[derive(Debug)]
pub(super) struct NewLink {
    pub(super) name: Vec<u8>,
    pub(super) id: Id,
}

impl NewLink {
    /// Makes a symbolic link. Nobody follows it.
    pub(super) fn symbolic(directory: &Directory, target: &[u8]) -> io::Result<Self> {
        let name = new_name()?;
        directory.make_symlink(&name, target)?;
        Self::look(directory, name)
    }

    /// Makes another name of a file, which must be the one with this identity: another program may have
    /// replaced it since this end named it.
    pub(super) fn hard(
        directory: &Directory,
        (around, first_name): (&Directory, &[u8]),
        id: Id,
    ) -> io::Result<Self> {
        let name = new_name()?;
        directory.make_hard_link(&name, around, first_name)?;
        let link = Self::look(directory, name)?;
        if link.id != id {
            let _ = directory.remove(&link.name);
            let what = "another file has taken the place of the file that it is a name of";
            return Err(io::Error::other(what));
        }
        Ok(link)
    }

    fn look(directory: &Directory, name: Vec<u8>) -> io::Result<Self> {
        let status = directory.look(&name)?;
        let id = status.ok_or(io::ErrorKind::NotFound)?.id;
        Ok(Self { name, id })
    }
}
