//! What is only at the receiver is removed, if both ends want that.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;

use farwrite_files::{
    CommitGate, Compare, Policy, Preview, ScanOptions, Sink, SinkError, Source, Special,
};

use crate::place::{AT_ONCE, Place, hand_over, scan, transfer};

const ALLOWED: Policy = Policy {
    delete: true,
    ..AT_ONCE
};

fn sink(to: &Place, source: &Source, policy: Policy, max: Option<u32>) -> Result<Sink, SinkError> {
    let manifest = Arc::clone(source.manifest());
    let order = source.delete(max).expect("all is listed");
    let wishes = (Compare::Time, Some(order));
    Sink::mirroring(to.0.path(), manifest, CommitGate::default(), policy, wishes)
}

/// Sends a path and removes what is only at the receiver. Returns how much that was.
fn send(
    from: &Place,
    path: &str,
    to: &Place,
    policy: Policy,
    max: Option<u32>,
) -> Result<u32, SinkError> {
    let mut source = scan(&[from.path(path)]);
    let mut sink = sink(to, &source, policy, max)?;
    let present = sink.present().to_vec();
    source
        .add_present(present, Compare::Time)
        .expect("in order");
    transfer(&mut source, &mut sink, 100);
    sink.finish().map(|summary| summary.deleted_files)
}

/// What the receiver has, and what is outside of it.
fn places() -> (Place, Place, Place) {
    let (from, to, outside) = (Place::new(), Place::new(), Place::new());
    from.write("t/a", "a");
    from.write("t/sub/b", "b");
    for name in [
        "t/old",
        "t/sub/gone/deep/x",
        "beside",
        "t/.farwrite-0-0.part",
    ] {
        to.write(name, name);
    }
    outside.write("kept", "kept");
    symlink(outside.0.path(), to.path("t/link")).expect("link");
    (from, to, outside)
}

#[test]
fn what_is_only_at_the_receiver_is_removed_where_it_is_sent() {
    let (from, to, outside) = places();
    assert_eq!(
        send(&from, "t", &to, AT_ONCE, None).expect("whole"),
        0,
        "not allowed"
    );
    assert!(to.path("t/old").exists());
    let refused = send(&from, "t", &to, ALLOWED, Some(4)).expect_err("too many");
    let is_counted = matches!(refused, SinkError::TooMuchToDelete { count: 5, most: 4 });
    assert!(is_counted, "{refused}");
    assert!(to.path("t/sub/gone/deep/x").exists(), "nothing was removed");

    assert_eq!(send(&from, "t", &to, ALLOWED, Some(5)).expect("whole"), 5);
    let left: Vec<_> = to.list().into_keys().collect();
    assert_eq!(
        left,
        [
            "beside",
            "t",
            "t/.farwrite-0-0.part",
            "t/a",
            "t/sub",
            "t/sub/b"
        ]
    );
    assert_eq!(fs::read(outside.path("kept")).expect("read"), b"kept");

    // The contents of a directory are all that the receiver's own directory shall have.
    assert_eq!(send(&from, "t/.", &to, ALLOWED, None).expect("whole"), 6);
    let left: Vec<_> = to.list().into_keys().collect();
    assert_eq!(left, ["a", "sub", "sub/b"]);
}

#[test]
fn nothing_is_removed_after_a_failure() {
    let (from, to, _outside) = places();
    let mut source = scan(&[from.path("t")]);
    let mut sink = sink(&to, &source, ALLOWED, None).expect("sink");
    fs::remove_file(from.path("t/sub/b")).expect("remove");
    while !source.is_over() {
        let mut bytes = [0; 100];
        let read = source.read(&mut bytes);
        hand_over(&mut source, &mut sink);
        sink.write(&bytes[..read]).expect("write");
    }
    assert!(sink.finish().expect("all ended").failed_files > 0);
    assert!(to.path("t/old").exists());
}

/// The name goes, and the file stays under its other name. A dry run says so.
#[test]
fn a_stale_name_of_a_file_that_stays_is_removed() {
    let (from, to) = (Place::new(), Place::new());
    from.write("t/a", "a");
    fs::hard_link(from.path("t/a"), from.path("t/b")).expect("link");
    assert_eq!(send(&from, "t", &to, ALLOWED, None).expect("whole"), 0);
    fs::remove_file(from.path("t/b")).expect("remove");
    let source = scan(&[from.path("t")]);
    let manifest = Arc::clone(source.manifest());
    let order = source.delete(None).expect("all is listed");
    let preview = Preview::look(to.0.path(), manifest, Compare::Time);
    let mut told = Vec::new();
    let mut tell = |path: &[u8]| {
        told.push(path.to_vec());
        Ok(())
    };
    let count = preview.expect("look").tell_extra(order, &mut tell);
    assert_eq!((count.expect("listed"), told), (1, vec![b"t/b".to_vec()]));

    assert_eq!(send(&from, "t", &to, ALLOWED, None).expect("whole"), 1);
    assert_eq!(to.list().into_keys().collect::<Vec<_>>(), ["t", "t/a"]);
}

/// Files that have become directories or links, and the reverse, at both depths. Returns what is outside too.
fn changed_kinds() -> (Place, Place, Place) {
    let (from, to, outside) = (Place::new(), Place::new(), Place::new());
    outside.write("d/kept", "kept");
    from.write("t/dir-now/x", "x");
    from.write("t/file-now", "new");
    from.write("t/from-link/y", "y");
    symlink("file-now", from.path("t/link-now")).expect("link");
    from.write("t/z", "z");
    to.write("t/dir-now", "a file");
    to.write("t/file-now/deep/old", "old");
    symlink(outside.path("d"), to.path("t/from-link")).expect("link");
    to.write("t/link-now/old", "old");
    (from, to, outside)
}

#[test]
fn another_kind_replaces_what_has_the_name_if_that_may_be_removed() {
    let (from, to, outside) = changed_kinds();
    let source = scan(&[from.path("t")]);
    let order = source.delete(None).expect("all is listed");
    let preview = Preview::look(to.0.path(), Arc::clone(source.manifest()), Compare::Time);
    let mut told = Vec::new();
    let mut tell = |path: &[u8]| {
        told.push(String::from_utf8_lossy(path).into_owned());
        Ok(())
    };
    let count = preview.expect("look").tell_extra(order, &mut tell);
    assert_eq!(count.expect("listed"), 7);
    told.sort();
    let want = [
        "t/dir-now",
        "t/file-now/",
        "t/file-now/deep/",
        "t/file-now/deep/old",
        "t/from-link",
        "t/link-now/",
        "t/link-now/old",
    ];
    assert_eq!(told, want);

    let before = to.list();
    let refused = send(&from, "t", &to, ALLOWED, Some(6)).expect_err("too many");
    let is_counted = matches!(refused, SinkError::TooMuchToReplace { count: 7, most: 6 });
    assert!(is_counted, "{refused}");
    assert_eq!(to.list(), before, "nothing was removed");
    assert_eq!(send(&from, "t", &to, ALLOWED, Some(7)).expect("whole"), 7);
    assert_eq!(to.list(), from.list());
    assert_eq!(fs::read(outside.path("d/kept")).expect("read"), b"kept");
}

#[test]
fn without_removal_another_kind_fails_and_the_rest_arrives() {
    let (from, to, outside) = changed_kinds();
    fs::create_dir(from.path("t/e")).expect("directory");
    to.write("t/e", "a file");
    let mut source = scan(&[from.path("t")]);
    let manifest = Arc::clone(source.manifest());
    let mut sink = Sink::new(to.0.path(), manifest, CommitGate::default(), ALLOWED).expect("sink");
    let unmade: Vec<_> = std::iter::from_fn(|| sink.poll_unmade()).collect();
    let names = ["t/dir-now", "t/e", "t/from-link"].map(std::path::PathBuf::from);
    assert_eq!(unmade, names);
    transfer(&mut source, &mut sink, 100);
    let failed: Vec<_> = std::iter::from_fn(|| sink.poll_verdict())
        .filter(|it| it.failure.is_some())
        .map(|it| source.manifest().path(it.index))
        .collect();
    let names = ["t/dir-now/x", "t/file-now", "t/from-link/y", "t/link-now"];
    let summary = sink.finish().expect("all ended");
    assert_eq!((summary.verified_files, summary.failed_files), (1, 4));
    let mut failed: Vec<_> = failed.iter().map(|it| it.to_str().expect("text")).collect();
    failed.sort_unstable();
    assert_eq!(failed, names);
    assert_eq!(fs::read(to.path("t/z")).expect("read"), b"z");
    assert_eq!(fs::read(to.path("t/dir-now")).expect("read"), b"a file");
    assert_eq!(outside.list().len(), 2, "nothing was written there");
}

#[test]
fn listing_that_left_something_out_removes_nothing() {
    let (from, _to, _outside) = places();
    let pipe = from.path("t/pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, pipe, rustix::fs::Mode::RUSR).expect("pipe");
    for special in [Special::Report, Special::Skip] {
        let options = ScanOptions {
            special,
            ..ScanOptions::default()
        };
        let source = Source::scan(&[from.path("t")], &options).expect("the rest");
        assert_eq!(source.delete(None), None);
    }
}
