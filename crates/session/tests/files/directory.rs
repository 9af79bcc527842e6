//! What is in the way, by accident or by design.

use std::fs;
use std::os::unix::fs::symlink;

use farwrite_session::files::{Sink, SinkError};

use crate::place::{Place, hash, manifest};

#[test]
fn links_in_the_directory_are_not_followed() {
    let outside = Place::new();
    outside.write("victim", "mine");
    for target in [
        outside.0.path().to_path_buf(),
        outside.path("victim"),
        "..".into(),
        ".".into(),
    ] {
        let to = Place::new();
        symlink(&target, to.path("d")).expect("link");
        let error =
            Sink::new(to.0.path(), manifest(&[("d/", 0), ("d/new", 3)])).expect_err("a link");
        assert!(error.to_string().contains("/d\""), "{error}");
    }
    assert_eq!(outside.list().len(), 1);
}

#[test]
fn link_under_the_final_name_is_replaced_not_followed() {
    let outside = Place::new();
    let victim = outside.write("victim", "mine");
    let to = Place::new();
    symlink(&victim, to.path("f")).expect("link");
    let mut sink = Sink::new(to.0.path(), manifest(&[("f", 3)])).expect("sink");
    sink.write(b"new").expect("write");
    sink.handle_hash(0, hash(b"new")).expect("in turn");
    sink.finish().expect("whole");
    assert_eq!(to.list()["f"], b"new");
    assert_eq!(outside.list()["victim"], b"mine");
}

/// Somebody swaps a directory for a link while a transfer is under way.
#[test]
fn directory_that_becomes_a_link_is_not_followed() {
    let outside = Place::new();
    let items = [("d/", 0), ("d/1", 1), ("e/", 0), ("e/2", 1), ("d/3", 1)];
    let swap = |to: &Place| {
        fs::rename(to.path("d"), to.path("moved")).expect("rename");
        symlink(outside.0.path(), to.path("d")).expect("link");
    };
    let to = Place::new();
    let mut sink = Sink::new(to.0.path(), manifest(&items)).expect("sink");
    sink.write(b"1").expect("write");
    swap(&to);
    let error = sink.write(b"23").expect_err("d is a link");
    assert!(error.to_string().contains("/d\""), "{error}");
    drop(sink);

    // A directory that is open stays the same one, wherever its path leads by now.
    let to = Place::new();
    let mut sink = Sink::new(to.0.path(), manifest(&items)).expect("sink");
    sink.write(b"123").expect("write");
    swap(&to);
    sink.handle_hash(1, hash(b"1"))
        .expect("in the open directory");
    sink.handle_hash(3, hash(b"2")).expect("in turn");
    let error = sink.handle_hash(4, hash(b"3")).expect_err("d is a link");
    assert!(error.to_string().contains("/d\""), "{error}");
    drop(sink);
    assert_eq!(to.list()["moved/1"], b"1");
    assert!(outside.list().is_empty(), "{:?}", outside.list());
}

#[test]
fn directory_or_file_in_the_way_is_named() {
    let to = Place::new();
    fs::create_dir(to.path("f")).expect("directory");
    let error = Sink::new(to.0.path(), manifest(&[("f", 1)])).expect_err("a directory");
    assert!(matches!(error, SinkError::InTheWay { .. }), "{error}");
    assert!(error.to_string().contains("/f\""), "{error}");
    to.write("d", "a file");
    let error = Sink::new(to.0.path(), manifest(&[("d/", 0)])).expect_err("a file");
    assert!(error.to_string().contains("/d\""), "{error}");
    let error = Sink::new(&to.path("missing"), manifest(&[])).expect_err("not there");
    assert!(error.to_string().contains("missing"), "{error}");
    // And what the operating system refuses later.
    let mut sink = Sink::new(
        to.0.path(),
        manifest(&[("x/", 0), ("x/a", 1), ("y/", 0), ("y/b", 1)]),
    )
    .expect("sink");
    fs::remove_dir(to.path("y")).expect("remove");
    let error = sink.write(b"ab").expect_err("y is gone");
    assert!(error.to_string().contains("/y\""), "{error}");
}

#[test]
fn names_like_temporary_ones_clash_with_none() {
    let to = Place::new();
    to.write(".a.farwrite-0000000000000000.part", "left by someone");
    let items = [
        (".a.farwrite-0000000000000000.part", 1),
        ("a", 1),
        (".a.farwrite-ffffffffffffffff.part", 1),
    ];
    let mut sink = Sink::new(to.0.path(), manifest(&items)).expect("sink");
    sink.write(b"123").expect("write");
    for (index, byte) in [(0, b"1"), (1, b"2"), (2, b"3")] {
        sink.handle_hash(index, hash(byte)).expect("in turn");
    }
    assert_eq!(sink.finish().expect("whole").verified_files, 3);
    let contents: Vec<_> = to.list().into_values().collect();
    assert_eq!(contents, [b"1", b"3", b"2"]);
}
