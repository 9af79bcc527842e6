//! Targets of the files crate.

use farwrite_files::fuzzing::rewritten_name;
use farwrite_files::{Detail, Entry, Kind, ManifestBuilder, Message, PathList, Time};
use farwrite_keys::decode;

use crate::transfer::sends_the_same;

/// The serialised form of a message (P12.8).
pub fn message(data: &[u8]) {
    if let Ok(read) = decode::<Message>(data) {
        sends_the_same(&read);
    }
}

/// Manifest entries of a peer: each is refused or gets the next number. The data can also be details, for a manifest
/// with one entry of each kind, or the paths of a dry run.
pub fn manifest(data: &[u8]) {
    let entries = match decode(data) {
        Ok(Message::Entries(entries)) => entries,
        Ok(Message::Details(details)) => return manifest_details(details),
        Ok(Message::Extra(paths)) => return extra_paths(&paths),
        _ => return,
    };
    let mut builder = ManifestBuilder::default();
    for entry in entries {
        let count = builder.entries();
        match builder.push(&entry) {
            Ok(number) => assert_eq!((number, builder.entries()), (count, count + 1)),
            Err(_) => assert_eq!(builder.entries(), count),
        }
    }
    let count = builder.entries() as usize;
    if let Ok(manifest) = builder.build() {
        assert_eq!(manifest.entries().len(), count);
    }
}

/// Paths of a dry run are refused, or the list gives them back.
fn extra_paths(paths: &[Vec<u8>]) {
    let mut list = PathList::default();
    let taken: Vec<_> = paths.iter().filter(|path| list.push(path)).collect();
    assert!(list.iter().eq(taken));
}

/// Details are refused, or the manifest gives them back.
fn manifest_details(details: Vec<Detail>) {
    let new = || {
        let mut builder = ManifestBuilder::default();
        let sparse = |sparse| Kind::File {
            bytes: 1 << 40,
            sparse,
        };
        for (name, kind) in [
            ("directory", Kind::Directory),
            ("dense", sparse(false)),
            ("sparse", sparse(true)),
            (
                "link",
                Kind::Symlink {
                    target: b"x".into(),
                },
            ),
            ("again", Kind::HardLink { first: 1 }),
        ] {
            let entry = Entry {
                parent: None,
                name: name.into(),
                kind,
                mode: 0,
                modified: Time::default(),
            };
            builder.push(&entry).expect("keeps the rules");
        }
        builder
    };
    let mut builder = new();
    if details
        .into_iter()
        .any(|detail| builder.push_detail(detail).is_err())
    {
        return;
    }
    let manifest = builder.build().expect("five names");
    assert!(manifest.stream_bytes() <= 2 << 40);
    let mut again = new();
    for detail in manifest.details() {
        again.push_detail(detail).expect("it was accepted");
    }
    assert_eq!(again.build().expect("five names"), manifest);
}

/// The name of a file in a directory that receives. Only what a receiver writes is a name of an interrupted file.
pub fn interrupted_name(data: &[u8]) {
    if let Some(written) = rewritten_name(data) {
        assert_eq!(written, data);
    }
}
