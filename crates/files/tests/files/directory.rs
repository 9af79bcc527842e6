//! Obstacles in the directory of the receiver, accidental and deliberate.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use farwrite_files::{CommitGate, Sink};

use crate::place::{AT_ONCE, Place, hash, manifest, new_sink, verdicts};

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
        let mut sink = new_sink(&to, &manifest(&[("d/", 0), ("d/new", 3)]));
        assert_eq!(sink.poll_unmade(), Some("d".into()));
        sink.write(b"new").expect("write");
        sink.handle_hash(1, hash(b"new")).expect("in turn");
        assert_eq!(verdicts(&mut sink), [(1, false)]);
    }
    assert_eq!(outside.list().len(), 1);
}

#[test]
fn link_under_the_final_name_is_replaced_not_followed() {
    let outside = Place::new();
    let victim = outside.write("victim", "mine");
    let to = Place::new();
    symlink(&victim, to.path("f")).expect("link");
    let mut sink = new_sink(&to, &manifest(&[("f", 3)]));
    sink.write(b"new").expect("write");
    sink.handle_hash(0, hash(b"new")).expect("in turn");
    sink.finish().expect("whole");
    assert_eq!(to.list()["f"], b"new");
    assert_eq!(outside.list()["victim"], b"mine");
}

/// A directory is replaced by a symbolic link during a transfer.
#[test]
fn directory_that_becomes_a_link_is_not_followed() {
    let outside = Place::new();
    let items = [("d/", 0), ("d/1", 1), ("e/", 0), ("e/2", 1), ("d/3", 1)];
    let swap = |to: &Place| {
        fs::rename(to.path("d"), to.path("moved")).expect("rename");
        symlink(outside.0.path(), to.path("d")).expect("link");
    };
    let say_hashes = |sink: &mut Sink| {
        for (index, bytes) in [(1, b"1"), (3, b"2"), (4, b"3")] {
            sink.handle_hash(index, hash(bytes)).expect("in turn");
        }
    };
    // A file that begins after the swap fails. A file in another directory does not. A file that
    // began before the swap is in the directory that was opened then. It fails too if that
    // directory must be opened again by its name.
    let to = Place::new();
    let mut sink = new_sink(&to, &manifest(&items));
    sink.write(b"1").expect("write");
    swap(&to);
    sink.write(b"23").expect("d/3 fails alone");
    say_hashes(&mut sink);
    let failed: Vec<_> = verdicts(&mut sink);
    assert_eq!(failed, [(1, false), (3, true), (4, false)]);
    let summary = sink.finish().expect("all ended");
    assert_eq!((summary.verified_files, summary.failed_files), (1, 2));
    let warning = sink.poll_warning().expect("d has no mode of its own");
    assert!(warning.to_string().contains("/d\""), "{warning}");

    // An open directory stays the same directory, wherever its path leads now.
    let to = Place::new();
    let mut sink = new_sink(&to, &manifest(&items[..2]));
    sink.write(b"1").expect("write");
    swap(&to);
    sink.handle_hash(1, hash(b"1")).expect("in turn");
    assert_eq!(verdicts(&mut sink), [(1, true)]);
    assert_eq!(to.list()["moved/1"], b"1");
    assert!(outside.list().is_empty(), "{:?}", outside.list());
}

#[test]
fn directory_that_does_not_exist_is_named() {
    let to = Place::new();
    let gate = CommitGate::default();
    let error =
        Sink::new(&to.path("missing"), manifest(&[]), gate, AT_ONCE).expect_err("not there");
    assert!(error.to_string().contains("missing"), "{error}");
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("metadata").permissions().mode() & 0o7777
}

/// The receiver makes directories writable for their owner while files arrive. A transfer that
/// fails restores the permissions.
#[test]
fn failed_transfer_leaves_no_directory_open_to_its_owner_alone() {
    let to = Place::new();
    for (directory, mode) in [("old", 0o555), ("shared", 0o2775)] {
        fs::create_dir(to.path(directory)).expect("directory");
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(to.path(directory), permissions).expect("chmod");
    }
    let items = [
        ("old/", 0),
        ("old/new/", 0),
        ("old/new/f", 2),
        ("shared/", 0),
    ];
    let check = || {
        assert_eq!(mode(&to.path("old")), 0o555);
        assert_eq!(mode(&to.path("old/new")), 0o755, "that of the manifest");
        assert_eq!(mode(&to.path("shared")), 0o2775);
        assert_eq!(to.list().len(), 3, "{:?}", to.list());
    };
    let mut sink = new_sink(&to, &manifest(&items));
    sink.write(b"1").expect("write");
    assert_eq!(mode(&to.path("old")), 0o755, "it takes files");
    drop(sink);
    check();
    // This also applies if a directory cannot be made.
    to.write("old/new/g", "a file");
    let blocked = [&items[..], &[("old/new/g/", 0)]].concat();
    drop(new_sink(&to, &manifest(&blocked)));
    fs::remove_file(to.path("old/new/g")).expect("remove");
    check();
}

#[test]
fn names_like_temporary_ones_clash_with_none() {
    let to = Place::new();
    to.write(".farwrite-0000000000000000.part", "left by someone");
    let items = [
        (".farwrite-0000000000000000.part", 1),
        ("a", 1),
        (".farwrite-ffffffffffffffff.part", 1),
    ];
    let mut sink = new_sink(&to, &manifest(&items));
    sink.write(b"123").expect("write");
    for (index, byte) in [(0, b"1"), (1, b"2"), (2, b"3")] {
        sink.handle_hash(index, hash(byte)).expect("in turn");
    }
    assert_eq!(sink.finish().expect("whole").verified_files, 3);
    let contents: Vec<_> = to.list().into_values().collect();
    assert_eq!(contents, [b"1", b"3", b"2"]);
}

/// A transfer that ends gives its directories the modes of its manifest, while another one uses them.
#[test]
fn a_directory_that_another_transfer_has_closed_is_opened_again() {
    let to = Place::new();
    let mut sink = new_sink(&to, &manifest(&[("d/", 0), ("d/f", 1)]));
    let read_only = fs::Permissions::from_mode(0o555);
    fs::set_permissions(to.path("d"), read_only).expect("chmod");
    sink.write(b"x").expect("write");
    assert_eq!(mode(&to.path("d")), 0o755, "root could write anyway");
    sink.handle_hash(1, hash(b"x")).expect("in turn");
    assert_eq!(sink.finish().expect("whole").verified_files, 1);
}
