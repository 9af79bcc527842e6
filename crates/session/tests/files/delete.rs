//! What is only at the receiver is removed, if both ends want that.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;

use farwrite_session::files::{
    CommitGate, Compare, Policy, Preview, ScanOptions, Sink, SinkError, Source, Special,
};

use crate::place::{AT_ONCE, Place, hand_over, scan, transfer};

const ALLOWED: Policy = Policy {
    delete: true,
    ..AT_ONCE
};

fn sink(to: &Place, source: &Source, policy: Policy) -> Sink {
    let manifest = Arc::clone(source.manifest());
    Sink::new(to.0.path(), manifest, CommitGate::default(), policy).expect("sink")
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
    let mut sink = sink(to, &source, policy);
    sink.delete(source.delete(max).expect("all is listed"));
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
    let mut sink = sink(&to, &source, ALLOWED);
    sink.delete(source.delete(None).expect("all is listed"));
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
    let mut source = scan(&[from.path("t")]);
    let manifest = Arc::clone(source.manifest());
    let order = source.delete(None).expect("all is listed");
    let preview = Preview::look(to.0.path(), Arc::clone(&manifest), Compare::Time);
    let mut told = Vec::new();
    let mut tell = |path: &[u8]| {
        told.push(path.to_vec());
        Ok(())
    };
    let count = preview.expect("look").tell_extra(order, &mut tell);
    assert_eq!((count.expect("listed"), told), (1, vec![b"t/b".to_vec()]));

    let gate = CommitGate::default();
    let sink = Sink::comparing(to.0.path(), manifest, gate, ALLOWED, Compare::Time);
    let mut sink = sink.expect("sink");
    source
        .add_present(sink.present().to_vec(), Compare::Time)
        .expect("in order");
    sink.delete(order);
    transfer(&mut source, &mut sink, 100);
    let summary = sink.finish().expect("whole");
    assert_eq!((summary.kept_files, summary.deleted_files), (1, 1));
    assert_eq!(to.list().into_keys().collect::<Vec<_>>(), ["t", "t/a"]);
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
