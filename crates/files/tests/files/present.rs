//! Files that the receiver has already.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use farwrite_files::{CommitGate, Compare, FileFailure, Present, Sink, SinkError, Source, Summary};

use crate::place::{AT_ONCE, Place, hash, scan, send, transfer};

fn comparing(to: &Place, source: &Source, compare: Compare) -> Sink {
    let gate = CommitGate::default();
    let manifest = Arc::clone(source.manifest());
    Sink::mirroring(to.0.path(), manifest, gate, AT_ONCE, (compare, None)).expect("sink")
}

/// Sends a tree to a receiver that has it. Returns the bytes that crossed.
fn again(from: &Place, to: &Place, compare: Compare) -> (u64, Summary) {
    let mut source = scan(&[from.path("t")]);
    let mut sink = comparing(to, &source, compare);
    source
        .add_present(sink.present().to_vec(), compare)
        .expect("in order");
    transfer(&mut source, &mut sink, 100);
    let summary = sink.finish().expect("whole");
    (summary.verified_bytes, summary)
}

#[test]
fn only_what_differs_is_sent() {
    let (from, to) = (Place::new(), Place::new());
    let old = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 1);
    let date = |path| {
        let file = fs::File::options().append(true).open(path).expect("open");
        file.set_modified(old).expect("set time");
    };
    for (name, bytes) in [
        ("t/a", 1000),
        ("t/b", 2000),
        ("t/d/c", 3000),
        ("t/empty", 0),
    ] {
        date(from.write(name, vec![7; bytes]));
    }
    fs::hard_link(from.path("t/a"), from.path("t/z")).expect("link");
    std::os::unix::fs::symlink("a", from.path("t/y")).expect("link");
    send(&[from.path("t")], &to, 1000);
    let inode = |name| fs::metadata(to.path(name)).expect("metadata").ino();
    let first = inode("t/b");
    let (sent_bytes, summary) = again(&from, &to, Compare::Time);
    assert_eq!((sent_bytes, summary.kept_files), (0, 6));
    assert_eq!((summary.verified_files, summary.failed_files), (0, 0));
    assert_eq!(inode("t/b"), first, "the file stays");
    assert_eq!(inode("t/a"), inode("t/z"));

    // A mode that changed, a time that changed, bytes that changed behind the same time, a file that is gone.
    let mode = |path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
    };
    mode(from.path("t/a"), 0o604);
    fs::write(to.path("t/b"), vec![8; 2000]).expect("write");
    date(to.path("t/b"));
    fs::remove_file(to.path("t/empty")).expect("remove");
    fs::File::options()
        .append(true)
        .open(to.path("t/d/c"))
        .and_then(|file| file.set_modified(SystemTime::now()))
        .expect("set time");
    let (sent_bytes, summary) = again(&from, &to, Compare::Time);
    assert_eq!((sent_bytes, summary.kept_files), (3000, 4));
    let arrived = fs::metadata(to.path("t/a")).expect("metadata");
    assert_eq!(arrived.mode() & 0o777, 0o604);
    assert_eq!(
        fs::read(to.path("t/b")).expect("read"),
        [8; 2000],
        "nobody looked"
    );

    let (sent_bytes, summary) = again(&from, &to, Compare::Hash);
    assert_eq!((sent_bytes, summary.kept_files), (2000, 5));
    assert_eq!(to.list(), from.list());
    let (sent_bytes, summary) = again(&from, &to, Compare::Nothing);
    assert_eq!((sent_bytes, summary.kept_files), (6000, 0));
}

#[test]
fn file_that_changes_after_it_was_compared_fails() {
    let (from, to) = (Place::new(), Place::new());
    from.write("t/a", "a");
    send(&[from.path("t")], &to, 1000);
    let source = scan(&[from.path("t")]);
    let mut sink = comparing(&to, &source, Compare::Time);
    to.write("t/a", "longer");
    sink.handle_same(1).expect("in turn");
    let verdict = sink.poll_verdict().expect("a verdict");
    assert!(
        matches!(verdict.failure, Some(FileFailure::Changed)),
        "{verdict:?}"
    );
    assert_eq!(fs::read(to.path("t/a")).expect("read"), b"longer");
}

#[test]
fn claims_about_other_files_are_refused() {
    let (from, to) = (Place::new(), Place::new());
    let of = from.write("a", "a");
    let mut source = scan(&[of]);
    let mut sink = comparing(&to, &source, Compare::Time);
    let refused = sink.handle_same(0).expect_err("it is not there");
    assert!(
        matches!(refused, SinkError::NotPresent { index: 0 }),
        "{refused}"
    );

    let present = |entry, hash| vec![Present { entry, hash }];
    assert_eq!(
        source.add_present(present(1, None), Compare::Time),
        Err(1),
        "no entry"
    );
    assert_eq!(
        source.add_present(present(0, None), Compare::Hash),
        Err(0),
        "no hash"
    );
    let with_hash = present(0, Some(hash(b"a")));
    assert_eq!(
        source.add_present(with_hash, Compare::Time),
        Err(0),
        "a hash"
    );
    source
        .add_present(present(0, None), Compare::Time)
        .expect("a file");
    assert_eq!(
        source.add_present(present(0, None), Compare::Time),
        Err(0),
        "twice"
    );
    from.write("t/f", "f");
    let mut tree = scan(&[from.path("t")]);
    assert_eq!(
        tree.add_present(present(0, None), Compare::Time),
        Err(0),
        "a directory"
    );
}
