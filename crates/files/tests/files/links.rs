//! Symbolic links, hard links, and names and times of any kind.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use farwrite_files::{Entry, FileFailure, Kind, Manifest, ManifestBuilder, Time};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT, utimensat};

use crate::place::{Place, hand_over, hash, new_sink, scan, send, verdicts};

fn set_time(path: &Path, seconds: i64, nanos: i64) {
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: seconds,
            tv_nsec: nanos,
        },
    };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).expect("set time");
}

/// The kind of a file, its time and its number of names.
fn shape(path: &Path) -> (bool, i64, i64, u64) {
    let it = fs::symlink_metadata(path).expect("metadata");
    let names = if it.is_dir() { 0 } else { it.nlink() };
    (it.is_symlink(), it.mtime(), it.mtime_nsec(), names)
}

#[test]
fn links_names_and_times_arrive_as_they_are() {
    let from = Place::new();
    let outside = Place::new();
    outside.write("secret", "secret");
    from.write("t/sub/file", "file");
    fs::create_dir(from.path("t/empty")).expect("directory");
    symlink(outside.path("secret"), from.path("t/absolute")).expect("link");
    symlink("../../..", from.path("t/up")).expect("link");
    symlink("sub", from.path("t/to directory")).expect("link");
    symlink("nowhere", from.path("t/dangling")).expect("link");
    symlink(OsStr::from_bytes(b"\xff\n"), from.path("t/odd target")).expect("link");
    fs::hard_link(from.path("t/sub/file"), from.path("t/b")).expect("link");
    fs::hard_link(from.path("t/sub/file"), from.path("t/sub/a")).expect("link");
    fs::write(from.path("t").join(OsStr::from_bytes(b"\xfe\x01")), "odd").expect("write");
    let clocks = [-1, -2_000_000_000, 2_147_483_648, 7_000_000_000, 0];
    let names = ["t/absolute", "t/sub/file", "t/empty", "t/up", "t/dangling"];
    for (at, (seconds, name)) in clocks.into_iter().zip(names).enumerate() {
        set_time(&from.path(name), seconds, 999_999_990 + at as i64);
    }
    let to = Place::new();
    // The second time, all of it is there already.
    for _ in 0..2 {
        let summary = send(&[from.path("t")], &to, 1000);
        assert_eq!(summary.verified_files, 9);
        assert_eq!(to.list(), from.list());
        for name in from.list().keys().filter(|name| name.is_ascii()) {
            if name != "t" && name != "t/sub" {
                assert_eq!(shape(&to.path(name)), shape(&from.path(name)), "{name}");
            }
        }
    }
    assert_eq!(
        fs::read_dir(to.path("t")).expect("list").count(),
        9,
        "nothing is left"
    );
    // Names that were other files, links to elsewhere, and names of other files.
    outside.write("kept", "kept");
    for name in ["t/absolute", "t/b", "t/sub/a"] {
        fs::remove_file(to.path(name)).expect("remove");
    }
    fs::write(to.path("t/absolute"), "was a file").expect("write");
    symlink(outside.path("kept"), to.path("t/b")).expect("link");
    fs::hard_link(outside.path("kept"), to.path("t/sub/a")).expect("link");
    send(&[from.path("t")], &to, 1000);
    assert_eq!(to.list(), from.list());
    assert_eq!(shape(&to.path("t/b")).3, 3);
    assert_eq!(fs::read(outside.path("kept")).expect("read"), b"kept");
}

fn push(builder: &mut ManifestBuilder, parent: Option<u32>, name: &str, kind: Kind) -> u32 {
    try_push(builder, parent, name, kind).expect("kept all rules")
}

fn try_push(
    builder: &mut ManifestBuilder,
    parent: Option<u32>,
    name: &str,
    kind: Kind,
) -> Result<u32, String> {
    let pushed = builder.push(&Entry {
        parent,
        name: name.into(),
        kind,
        mode: 0o755,
        modified: Time::default(),
    });
    pushed.map_err(|error| error.to_string())
}

fn link_to(target: impl AsRef<[u8]>) -> Kind {
    Kind::Symlink {
        target: target.as_ref().to_vec(),
    }
}

const FILE: Kind = Kind::File {
    bytes: 1,
    sparse: false,
};

#[test]
fn manifest_that_leads_through_a_link_is_refused() {
    let mut builder = ManifestBuilder::default();
    let link = push(&mut builder, None, "link", link_to("/etc"));
    let below = try_push(&mut builder, Some(link), "passwd", FILE).expect_err("below a link");
    assert!(below.contains("no directory that came before"), "{below}");
    let directory = push(&mut builder, None, "d", Kind::Directory);
    for first in [link, directory, 2, 3, u32::MAX] {
        let error = try_push(&mut builder, None, "x", Kind::HardLink { first });
        assert!(
            error
                .expect_err("no file")
                .contains("no file that came before")
        );
    }
    for target in [vec![], vec![b'a'; 4096], b"a\0b".to_vec()] {
        let error = try_push(&mut builder, None, "x", Kind::Symlink { target });
        assert!(error.expect_err("no target").contains("its target"));
    }
    push(&mut builder, None, "longest", link_to(vec![b'a'; 4095]));
}

/// A link that arrived in one transfer does not lead out of the directory in the next.
#[test]
fn directory_does_not_go_through_a_link_that_arrived_before() {
    let outside = Place::new();
    let to = Place::new();
    let mut builder = ManifestBuilder::default();
    let target = outside.0.path().as_os_str().as_bytes().to_vec();
    let link = push(&mut builder, None, "link", link_to(&target));
    let mut sink = new_sink(&to, &Arc::new(builder.build().expect("one name")));
    sink.handle_hash(link, hash(&target)).expect("in turn");
    assert_eq!(verdicts(&mut sink), [(link, true)]);
    sink.finish().expect("whole");

    let mut builder = ManifestBuilder::default();
    let directory = push(&mut builder, None, "link", Kind::Directory);
    push(&mut builder, Some(directory), "file", FILE);
    let mut sink = new_sink(&to, &Arc::new(builder.build().expect("names")));
    assert_eq!(sink.poll_unmade(), Some("link".into()));
    sink.write(b"1").expect("write");
    sink.handle_hash(1, hash(b"1")).expect("in turn");
    assert_eq!(verdicts(&mut sink), [(1, false)]);
    drop(sink);
    assert!(outside.list().is_empty());
}

/// A file, a symbolic link and another name of the file.
fn three() -> Arc<Manifest> {
    let mut builder = ManifestBuilder::default();
    let first = push(&mut builder, None, "a", FILE);
    push(&mut builder, None, "b", link_to("a"));
    push(&mut builder, None, "c", Kind::HardLink { first });
    Arc::new(builder.build().expect("three names"))
}

#[test]
fn link_that_is_not_what_was_sent_fails_alone() {
    let to = Place::new();
    let mut sink = new_sink(&to, &three());
    sink.handle_abandoned(0, 0, "gone").expect("in turn");
    sink.handle_hash(1, hash(b"b")).expect("in turn");
    sink.handle_hash(2, hash(b"")).expect("in turn");
    let failures: Vec<_> = std::iter::from_fn(|| sink.poll_verdict())
        .filter_map(|verdict| verdict.failure)
        .collect();
    assert!(
        matches!(
            failures[..],
            [
                FileFailure::Abandoned { .. },
                FileFailure::Hash { .. },
                FileFailure::NoFirst
            ]
        ),
        "{failures:?}"
    );
    sink.finish().expect("all ended");
    assert!(to.list().is_empty(), "{:?}", to.list().keys());
}

/// Another program replaces a file before its other name is made.
#[test]
fn another_name_leads_to_the_file_that_arrived() {
    let to = Place::new();
    let mut sink = new_sink(&to, &three());
    sink.write(b"x").expect("write");
    sink.handle_hash(0, hash(b"x")).expect("in turn");
    sink.handle_hash(1, hash(b"a")).expect("in turn");
    // The first file keeps its inode meanwhile, so that no other file gets it.
    to.write("other", "of another program");
    fs::rename(to.path("other"), to.path("a")).expect("rename");
    sink.handle_hash(2, hash(b"")).expect("in turn");
    assert_eq!(verdicts(&mut sink), [(0, true), (1, true), (2, false)]);
    let names: Vec<_> = to.list().into_keys().collect();
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn link_that_changes_after_it_was_listed_is_given_up() {
    let from = Place::new();
    from.write("t/a", "a");
    symlink("a", from.path("t/b")).expect("link");
    fs::hard_link(from.path("t/a"), from.path("t/c")).expect("link");
    let mut source = scan(&[from.path("t")]);
    fs::remove_file(from.path("t/b")).expect("remove");
    symlink("elsewhere", from.path("t/b")).expect("link");
    fs::remove_file(from.path("t/c")).expect("remove");
    from.write("t/c", "c");
    fs::File::open(from.path("t/a"))
        .and_then(|file| file.set_modified(SystemTime::now() + Duration::from_secs(9)))
        .expect("set time");
    let to = Place::new();
    let mut sink = new_sink(&to, source.manifest());
    let mut bytes = [0; 10];
    let read = source.read(&mut bytes);
    hand_over(&mut source, &mut sink);
    sink.write(&bytes[..read]).expect("write");
    let verified: Vec<_> = verdicts(&mut sink).into_iter().map(|it| it.1).collect();
    assert_eq!(verified, [false, false, false]);
}
