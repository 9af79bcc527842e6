//! Gives files their final names.

use std::collections::HashMap;
use std::io;

use rustix::io::Errno;

use super::directory::Directory;
use super::status::Id;

/// The files that got their final names in this transfer.
///
/// A file replaces a file that had its name before the transfer, but not another file of the same
/// transfer. On a file system that ignores case, `A` and `a` are one name.
///
/// A file can have further names from before the transfer, which others of the transfer may take. So the
/// names that each file has from this transfer are counted.
#[derive(Debug, Default)]
pub(super) struct Named(HashMap<Id, u64>);

impl Named {
    /// Notes that a file keeps its name.
    pub(super) fn keep(&mut self, id: Id) {
        *self.0.entry(id).or_default() += 1;
    }

    /// Renames the file `id` within a directory. Returns `false` if a file of this transfer has the
    /// new name.
    pub(super) fn rename(
        &mut self,
        directory: &Directory,
        from: &[u8],
        to: &[u8],
        id: Id,
    ) -> io::Result<bool> {
        match directory.rename_to_free(from, to) {
            Ok(()) => {}
            // The name is taken, or the file system cannot check this itself.
            Err(Errno::EXIST | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                let owner = directory.look(to)?;
                let names = owner.and_then(|owner| Some((owner.links, *self.0.get(&owner.id)?)));
                if names.is_some_and(|(all, of_transfer)| all <= of_transfer) {
                    return Ok(false);
                }
                directory.rename(from, to)?;
            }
            Err(error) => return Err(error.into()),
        }
        self.keep(id);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn name_of_another_file_of_the_transfer_is_not_taken() {
        let place = tempfile::tempdir().expect("place");
        let directory = Directory::open(place.path()).expect("open");
        let write = |name: &str, text: &str| {
            fs::write(place.path().join(name), text).expect("write");
            let status = directory.look(name.as_bytes()).expect("look");
            status.expect("just written").id
        };
        let mut named = Named::default();
        write("A", "before the transfer");
        let first = write("1", "first");
        let renamed = named.rename(&directory, b"1", b"A", first);
        assert!(
            renamed.expect("rename"),
            "what was there before is replaced"
        );
        let second = write("2", "second");
        // On a file system that ignores case, the name could also be `a`.
        let renamed = named.rename(&directory, b"2", b"A", second);
        assert!(!renamed.expect("looked"), "a file of this transfer is kept");
        // A name from before the transfer, of a file that keeps another one.
        fs::hard_link(place.path().join("A"), place.path().join("old")).expect("link");
        let renamed = named.rename(&directory, b"2", b"old", second);
        assert!(
            renamed.expect("rename"),
            "only this name of the file is replaced"
        );
        let left = fs::read(place.path().join("A")).expect("read");
        assert_eq!(left, b"first");
    }
}
