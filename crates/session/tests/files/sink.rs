//! The receiver's end: nothing gets its name before it is verified.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use farwrite_session::Message;
use farwrite_session::files::{FileFailure, Sink, SinkError, Summary};

use crate::place::{Place, hash, manifest};

#[test]
fn what_is_not_verified_gets_no_name() {
    let to = Place::new();
    to.write("old", "before");
    let mut sink = Sink::new(to.0.path(), manifest(&[("old", 5), ("new", 3)])).expect("sink");
    sink.write(b"wrongyes").expect("write");
    assert_eq!(to.list()["old"], b"before", "not before its hash has come");
    sink.handle_hash(0, hash(b"right")).expect("in turn");
    sink.handle_hash(1, hash(b"yes")).expect("in turn");
    let verdict = sink.poll_verdict().expect("of the first");
    let failure = verdict.failure.as_ref().expect("another hash");
    assert!(matches!(failure, FileFailure::Hash { .. }));
    assert!(matches!(
        verdict.message(),
        Message::FileFailed { index: 0, .. }
    ));
    let verdict = sink.poll_verdict().expect("of the second");
    assert_eq!(verdict.message(), Message::FileVerified { index: 1 });
    assert!(sink.poll_verdict().is_none());
    let summary = sink.finish().expect("all told");
    assert_eq!(
        summary,
        Summary {
            verified_files: 1,
            failed_files: 1
        }
    );
    let names: Vec<_> = to.list().into_iter().collect();
    assert_eq!(
        names,
        [
            ("new".into(), b"yes".to_vec()),
            ("old".into(), b"before".to_vec())
        ]
    );
}

#[test]
fn hashes_may_come_before_bytes() {
    let to = Place::new();
    let mut sink = Sink::new(to.0.path(), manifest(&[("a", 2), ("b", 0), ("c", 1)])).expect("sink");
    for (index, bytes) in [(0, &b"aa"[..]), (1, b""), (2, b"c")] {
        sink.handle_hash(index, hash(bytes)).expect("in turn");
    }
    assert!(sink.poll_verdict().is_none());
    for byte in b"aac" {
        sink.write(&[*byte]).expect("write");
    }
    let ended: Vec<_> = std::iter::from_fn(|| sink.poll_verdict())
        .map(|verdict| verdict.index)
        .collect();
    assert_eq!(ended, [0, 1, 2]);
    assert_eq!(sink.finish().expect("whole").verified_files, 3);
    assert_eq!(to.list()["a"], b"aa");
}

#[test]
fn dropped_half_way_leaves_nothing() {
    for bytes in 0..6 {
        let to = Place::new();
        to.write("b", "before");
        let mut sink = Sink::new(
            to.0.path(),
            manifest(&[("a", 2), ("b", 2), ("d/", 0), ("d/c", 2)]),
        )
        .expect("sink");
        sink.write(&vec![1; bytes]).expect("write");
        assert_eq!(
            to.list().len(),
            2 + (bytes / 2 + 1).min(3),
            "temporary files: {:?}",
            to.list()
        );
        drop(sink);
        let left: Vec<_> = to.list().into_iter().collect();
        assert_eq!(
            left,
            [
                ("b".into(), b"before".to_vec()),
                ("d".into(), b"/".to_vec())
            ]
        );
    }
}

#[test]
fn sender_that_breaks_the_order_is_refused() {
    let to = Place::new();
    let both = manifest(&[("d/", 0), ("d/a", 1), ("d/b", 1)]);
    for (said, due) in [(0, 1), (2, 1), (3, 1), (u32::MAX, 1)] {
        let mut sink = Sink::new(to.0.path(), Arc::clone(&both)).expect("sink");
        let error = sink.handle_hash(said, hash(b"")).expect_err("out of turn");
        let as_said = matches!(error, SinkError::OutOfTurn { came, due: Some(d) } if came == said && d == due);
        assert!(as_said, "{error}");
    }
    let mut sink = Sink::new(to.0.path(), Arc::clone(&both)).expect("sink");
    sink.handle_hash(1, hash(b"a")).expect("in turn");
    assert!(
        matches!(
            sink.handle_hash(1, hash(b"a")),
            Err(SinkError::OutOfTurn { .. })
        ),
        "twice"
    );
    sink.handle_abandoned(2, "gone").expect("in turn");
    assert!(matches!(
        sink.handle_hash(3, hash(b"")),
        Err(SinkError::OutOfTurn { due: None, .. })
    ));
    let error = sink.write(b"abc").expect_err("one too many");
    assert!(matches!(error, SinkError::Excess { want: 2 }), "{error}");

    let mut sink = Sink::new(to.0.path(), both).expect("sink");
    sink.handle_hash(1, hash(b"a")).expect("in turn");
    sink.write(b"ab").expect("write");
    let error = sink.finish().expect_err("one hash is missing");
    assert!(
        matches!(error, SinkError::Unfinished { missing_files: 1 }),
        "{error}"
    );
    assert_eq!(to.list().keys().collect::<Vec<_>>(), ["d", "d/a"]);
}

/// The other half of [`killed_half_way_leaves_no_final_name`], in a process of its own.
#[test]
#[ignore = "run by another test"]
fn child_that_is_killed() {
    let Some(to) = std::env::var_os("FARWRITE_TEST_DIR") else {
        return;
    };
    let mut sink = Sink::new(Path::new(&to), manifest(&[("a", 4), ("b", 4)])).expect("sink");
    sink.write(b"aaaabb").expect("write");
    println!("written");
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn killed_half_way_leaves_no_final_name() {
    use std::io::{BufRead, BufReader};
    let to = Place::new();
    to.write("b", "before");
    let mut child = std::process::Command::new(std::env::current_exe().expect("own path"))
        .args([
            "--exact",
            "--ignored",
            "--nocapture",
            "sink::child_that_is_killed",
        ])
        .env("FARWRITE_TEST_DIR", to.0.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("child");
    let mut lines = BufReader::new(child.stdout.take().expect("pipe")).lines();
    assert!(lines.any(|line| line.expect("text").contains("written")));
    child.kill().expect("kill");
    child.wait().expect("end");
    let left = to.list();
    assert_eq!(left["b"], b"before");
    assert_eq!(left.len(), 3, "{left:?}");
    assert!(!left.contains_key("a"));
    let parts = left
        .keys()
        .filter(|name| name.starts_with('.') && name.ends_with(".part"));
    assert_eq!(parts.count(), 2);
}
