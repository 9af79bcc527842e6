//! Names that lead to something with another name, as where upper and lower case are one (P8.4).

use std::io;
use std::sync::Arc;

use super::Manifest;
use super::directory::Directory;

/// The entries of a manifest by their directories and names.
#[derive(Debug)]
pub(super) struct ByName {
    pub(super) manifest: Arc<Manifest>,
    order: Vec<u32>,
}

impl ByName {
    pub(super) fn new(manifest: &Arc<Manifest>) -> Self {
        let mut order: Vec<u32> = (0..manifest.len()).collect();
        order.sort_unstable_by_key(|index| Self::key(manifest, *index));
        Self {
            manifest: Arc::clone(manifest),
            order,
        }
    }

    fn key(manifest: &Manifest, index: u32) -> (Option<u32>, &[u8]) {
        let entry = manifest.entry(index);
        entry.map_or((None, &[]), |entry| (entry.parent, entry.name))
    }

    /// Whether a directory has an entry with this name.
    pub(super) fn has(&self, parent: Option<u32>, name: &[u8]) -> bool {
        let found = self
            .order
            .binary_search_by_key(&(parent, name), |index| Self::key(&self.manifest, *index));
        found.is_ok()
    }

    /// The names in a directory, in ascending order.
    pub(super) fn names(&self, parent: Option<u32>) -> impl Iterator<Item = &[u8]> {
        let key = |index: &u32| Self::key(&self.manifest, *index);
        let first = self.order.partition_point(|index| key(index).0 < parent);
        let here = self.order[first..].iter().map(key);
        here.take_while(move |(around, _)| *around == parent)
            .map(|(_, name)| name)
    }
}

/// Finds entries of a manifest that would be one file on this file system. Inode numbers alone cannot show this: some
/// file systems give each name that is looked up a number of its own.
#[derive(Debug)]
pub(super) struct Aliases {
    manifest: Arc<Manifest>,
    by_name: Option<ByName>,
    /// The names in the directory that was looked at last.
    listing: Option<(Option<u32>, Vec<Vec<u8>>)>,
}

impl Aliases {
    pub(super) fn new(manifest: &Arc<Manifest>) -> Self {
        Self {
            manifest: Arc::clone(manifest),
            by_name: None,
            listing: None,
        }
    }

    /// Returns the name of another entry that the name of an entry leads to; `None` if it leads to something with
    /// exactly this name, to something that is not in the manifest, or to nothing. If nobody can know where it leads,
    /// returns the name itself.
    pub(super) fn other(&mut self, index: u32, around: &Directory) -> io::Result<Option<Vec<u8>>> {
        let Some(entry) = self.manifest.entry(index) else {
            return Ok(None);
        };
        let (parent, name) = (entry.parent, entry.name);
        let is_in = |names: &[Vec<u8>]| names.binary_search_by(|it| it[..].cmp(name)).is_ok();
        let before = self.listing.as_ref().filter(|(of, _)| *of == parent);
        if before.is_some_and(|(_, names)| is_in(names)) {
            return Ok(None);
        }
        let names = around.names(|_| true)?;
        let names = &self.listing.insert((parent, names)).1;
        if is_in(names) {
            return Ok(None);
        }
        let Some(there) = around.look(name)? else {
            return Ok(None);
        };
        let mut leads_to = spelled_otherwise(names, name);
        if leads_to.is_empty() {
            let is_same = |it: &&Vec<u8>| {
                let status = around.look(it).ok().flatten();
                status.is_some_and(|it| it.id == there.id)
            };
            leads_to = names.iter().filter(is_same).collect();
        }
        if leads_to.is_empty() {
            return Ok(Some(name.to_vec()));
        }
        let manifest = &self.manifest;
        let by_name = self.by_name.get_or_insert_with(|| ByName::new(manifest));
        let other = leads_to.into_iter().find(|it| by_name.has(parent, it));
        Ok(other.cloned())
    }

    /// Returns whether the file under the name of an entry may belong to another entry of the transfer.
    pub(super) fn is_shared(&mut self, index: u32, around: &Directory) -> io::Result<bool> {
        Ok(self.other(index, around)?.is_some())
    }
}

/// The names that differ from a name in upper and lower case only.
fn spelled_otherwise<'a>(names: &'a [Vec<u8>], name: &[u8]) -> Vec<&'a Vec<u8>> {
    let lower = |name: &[u8]| String::from_utf8_lossy(name).to_lowercase();
    let wanted = lower(name);
    names.iter().filter(|it| lower(it) == wanted).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::{Entry, Kind, ManifestBuilder, Time};
    use super::*;

    fn manifest(names: &[&str]) -> Arc<Manifest> {
        let mut builder = ManifestBuilder::default();
        for name in names {
            let entry = Entry {
                parent: None,
                name: name.as_bytes().to_vec(),
                kind: Kind::Directory,
                mode: 0o755,
                modified: Time::default(),
            };
            builder.push(&entry).expect("kept all rules");
        }
        Arc::new(builder.build().expect("no name twice"))
    }

    #[test]
    fn names_that_differ_in_case_are_found() {
        let names = ["A", "B", "STRASSE", "\u{c4}"].map(|it| it.as_bytes().to_vec());
        assert_eq!(spelled_otherwise(&names, b"a"), [b"A"]);
        assert_eq!(
            spelled_otherwise(&names, "\u{e4}".as_bytes()),
            ["\u{c4}".as_bytes()]
        );
        assert!(spelled_otherwise(&names, b"C").is_empty());
    }

    #[test]
    fn a_name_that_is_listed_leads_to_no_other() {
        let place = tempfile::tempdir().expect("place");
        for name in ["a", "A"] {
            fs::create_dir(place.path().join(name)).expect("directory");
        }
        let around = Directory::open(place.path()).expect("open");
        let mut aliases = Aliases::new(&manifest(&["a", "A", "gone"]));
        for index in 0..3 {
            assert_eq!(aliases.other(index, &around).expect("listed"), None);
        }
    }

    #[test]
    fn the_names_of_a_directory_are_those_of_its_entries() {
        let by_name = ByName::new(&manifest(&["b", "a"]));
        assert_eq!(by_name.names(None).collect::<Vec<_>>(), [b"a", b"b"]);
        assert_eq!(by_name.names(Some(0)).count(), 0);
        assert!(by_name.has(None, b"b") && !by_name.has(Some(0), b"b"));
    }
}
