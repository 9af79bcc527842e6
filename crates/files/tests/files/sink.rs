//! The receiver's end: no file gets its final name before it is verified.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use farwrite_files::{CommitGate, FileFailure, Message, Sink, SinkError, Summary};

use crate::place::{AT_ONCE, Place, child, hash, manifest, new_sink};

#[test]
fn what_is_not_verified_gets_no_name() {
    let to = Place::new();
    to.write("old", "before");
    let mut sink = new_sink(&to, &manifest(&[("old", 5), ("new", 3)]));
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
    let summary = sink.finish().expect("all ended");
    assert_eq!(
        summary,
        Summary {
            verified_files: 1,
            verified_bytes: 3,
            kept_files: 0,
            deleted_files: 0,
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
    let mut sink = new_sink(&to, &manifest(&[("a", 2), ("b", 0), ("c", 1)]));
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

/// Length of a file that has a temporary name while it is written. Shorter ones have none.
const LONG: usize = 4 << 20;
const LONG_LENGTH: u64 = LONG as u64;

#[test]
fn dropped_half_way_leaves_nothing() {
    for (length, halves) in [2, LONG_LENGTH]
        .into_iter()
        .flat_map(|it| (0..=6).map(move |halves| (it, halves)))
    {
        let to = Place::new();
        to.write("b", "before");
        let files = manifest(&[("a", length), ("b", length), ("d/", 0), ("d/c", length)]);
        let mut sink = new_sink(&to, &files);
        let bytes = usize::try_from(halves * length / 2).expect("few");
        sink.write(&vec![1; bytes]).expect("write");
        if length == LONG_LENGTH {
            assert_eq!(
                parts(&to) as u64,
                halves.div_ceil(2),
                "{:?}",
                to.list().keys()
            );
        }
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
        let mut sink = new_sink(&to, &both);
        let error = sink.handle_hash(said, hash(b"")).expect_err("out of turn");
        let as_said = matches!(error, SinkError::OutOfTurn { came, due: Some(d) } if came == said && d == due);
        assert!(as_said, "{error}");
    }
    let mut sink = new_sink(&to, &both);
    sink.handle_hash(1, hash(b"a")).expect("in turn");
    assert!(
        matches!(
            sink.handle_hash(1, hash(b"a")),
            Err(SinkError::OutOfTurn { .. })
        ),
        "twice"
    );
    sink.handle_abandoned(2, 1, "gone").expect("in turn");
    assert!(matches!(
        sink.handle_hash(3, hash(b"")),
        Err(SinkError::OutOfTurn { due: None, .. })
    ));
    let error = sink.write(b"abc").expect_err("one too many");
    assert!(
        matches!(error, SinkError::Excess { file_bytes: 2 }),
        "{error}"
    );

    let mut sink = new_sink(&to, &both);
    sink.handle_hash(1, hash(b"a")).expect("in turn");
    sink.write(b"ab").expect("write");
    let error = sink.finish().expect_err("one hash is missing");
    assert!(
        matches!(error, SinkError::Unfinished { files: 1 }),
        "{error}"
    );
    drop(sink);
    assert_eq!(to.list().keys().collect::<Vec<_>>(), ["d", "d/a"]);
}

/// The other half of [`killed_half_way_leaves_no_final_name`], which runs in its own process.
#[test]
#[ignore = "run by another test"]
fn child_that_is_killed() {
    let Some(to) = std::env::var_os("FARWRITE_TEST_DIR") else {
        return;
    };
    let items = manifest(&[("a", LONG_LENGTH), ("b", LONG_LENGTH)]);
    let mut sink = Sink::new(Path::new(&to), items, CommitGate::default(), AT_ONCE).expect("sink");
    sink.write(&vec![1; LONG + 2]).expect("write");
    println!("written");
    std::thread::sleep(Duration::from_secs(60));
}

/// Starts a receiver of `a` and `b` and kills it in the middle of `b`.
fn kill_receiver(to: &Place) {
    let mut child = child("sink::child_that_is_killed")
        .env("FARWRITE_TEST_DIR", to.0.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("child");
    let mut lines = BufReader::new(child.stdout.take().expect("pipe")).lines();
    assert!(lines.any(|line| line.expect("text").contains("written")));
    child.kill().expect("kill");
    child.wait().expect("end");
}

fn parts(to: &Place) -> usize {
    let names = to.list().into_keys();
    let parts = names.filter(|name| {
        let name = name.rsplit('/').next().expect("one at least");
        name.starts_with(".farwrite-") && name.ends_with(".part")
    });
    parts.count()
}

#[test]
fn killed_half_way_leaves_no_final_name() {
    let to = Place::new();
    to.write("b", "before");
    kill_receiver(&to);
    let left = to.list();
    assert_eq!(left["b"], b"before");
    assert_eq!(left.len(), 3, "{left:?}");
    assert!(!left.contains_key("a"));
    assert_eq!(parts(&to), 2);
}

#[test]
fn next_receiver_removes_what_a_killed_one_left() {
    let to = Place::new();
    kill_receiver(&to);
    assert_eq!(parts(&to), 2);
    let left = to.list().into_keys().next().expect("two");
    // A leftover stays one when it moves. A copy of it is a file of the user.
    fs::create_dir(to.path("d")).expect("directory");
    fs::create_dir(to.path("elsewhere")).expect("directory");
    fs::copy(to.path(&left), to.path(&format!("elsewhere/{left}"))).expect("copy");
    fs::rename(to.path(&left), to.path(&format!("d/{left}"))).expect("rename");
    to.write("d/.farwrite-0123456789abcdef-0123456789abcdef.part", "mine");
    fs::create_dir(to.path("d/.farwrite-fedcba9876543210-0123456789abcdef.part")).expect("new");
    fs::copy(to.path(&format!("d/{left}")), to.path(&left)).expect("copy");
    let before = to.list().len();
    let sink = new_sink(&to, &manifest(&[("d/", 0), ("d/f", 1)]));
    assert_eq!(to.list().len(), before - 2, "{:?}", to.list());
    assert!(!to.list().contains_key(&format!("d/{left}")));
    assert!(to.list().contains_key(&left));
    drop(sink);
}

#[test]
fn parts_of_a_live_receiver_are_left_alone() {
    let to = Place::new();
    let bytes = vec![7; LONG];
    let mut first = new_sink(&to, &manifest(&[("a", LONG_LENGTH), ("b", LONG_LENGTH)]));
    // One file is being written, and one waits for its hash.
    first.write(&bytes).expect("write");
    first.write(&bytes[1..]).expect("write");
    assert_eq!(parts(&to), 2);
    let mut second = new_sink(&to, &manifest(&[("c", LONG_LENGTH)]));
    second.write(&bytes).expect("write");
    assert_eq!(parts(&to), 3);
    second.handle_hash(0, hash(&bytes)).expect("in turn");
    second.finish().expect("whole");
    first.write(&bytes[..1]).expect("write");
    first.handle_hash(0, hash(&bytes)).expect("in turn");
    first.handle_hash(1, hash(&bytes)).expect("in turn");
    assert_eq!(first.finish().expect("whole").verified_files, 2);
    assert_eq!(to.list().keys().collect::<Vec<_>>(), ["a", "b", "c"]);
}

#[test]
fn empty_files_wait_for_their_hashes_without_files() {
    let to = Place::new();
    let names: Vec<_> = (0..2000).map(|index| format!("empty {index}")).collect();
    let mut items: Vec<_> = names.iter().map(|name| (name.as_str(), 0)).collect();
    items.push(("last", LONG_LENGTH));
    let last = vec![7; LONG];
    let mut sink = new_sink(&to, &manifest(&items));
    sink.write(&last).expect("write");
    assert_eq!(to.list().len(), 1, "the last alone");
    for index in 0..2000 {
        sink.handle_hash(index, hash(b"")).expect("in turn");
    }
    sink.handle_hash(2000, hash(&last)).expect("in turn");
    assert_eq!(sink.finish().expect("whole").verified_files, 2001);
    assert_eq!(to.list().len(), 2001);
}

/// More files wait for their hashes than a process may have open.
#[test]
fn files_that_wait_for_their_hashes_are_not_all_open() {
    let to = Place::in_memory();
    let names: Vec<_> = (0..3000).map(|index| index.to_string()).collect();
    let items: Vec<_> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let mut sink = new_sink(&to, &manifest(&items));
    sink.write(&[b'x'; 3000]).expect("write");
    let open = fs::read_dir("/proc/self/fd").expect("proc").count();
    assert!(open < 1000, "{open} open files");
    for index in 0..3000 {
        sink.handle_hash(index, hash(b"x")).expect("in turn");
    }
    assert_eq!(sink.finish().expect("whole").verified_files, 3000);
}

#[test]
fn closed_gate_stops_a_sink_and_leaves_nothing() {
    let to = Place::new();
    to.write("b", "before");
    let gate = CommitGate::default();
    let items = manifest(&[("a", 1), ("b", 1)]);
    let mut sink = Sink::new(to.0.path(), items, gate.clone(), AT_ONCE).expect("sink");
    sink.write(b"ab").expect("write");
    sink.handle_hash(0, hash(b"a")).expect("open");
    assert!(gate.close(Duration::ZERO));
    let error = sink.handle_hash(1, hash(b"b")).expect_err("closed");
    assert!(matches!(error, SinkError::Stopped), "{error}");
    drop(sink);
    let left: Vec<_> = to.list().into_iter().collect();
    let want = [("a", &b"a"[..]), ("b", b"before")];
    let want = want.map(|(name, bytes)| (name.to_owned(), bytes.to_vec()));
    assert_eq!(left, want);
}

/// Returns how many files have their final names. Other files may appear and disappear.
fn final_names(to: &Place) -> usize {
    let items = fs::read_dir(to.0.path()).expect("list");
    let names = items.map(|item| item.expect("item").file_name());
    let named = names.filter(|name| !name.to_string_lossy().starts_with('.'));
    named.count()
}

#[test]
fn no_file_gets_its_name_after_the_gate_closed() {
    let names: Vec<_> = (0..2000).map(|index| index.to_string()).collect();
    let items: Vec<_> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let items = manifest(&items);
    let to = Place::in_memory();
    let gate = CommitGate::default();
    let mut sink = Sink::new(to.0.path(), items, gate.clone(), AT_ONCE).expect("sink");
    let (named_one, first_name) = std::sync::mpsc::channel();
    let (named, error) = std::thread::scope(|scope| {
        let worker = scope.spawn(move || {
            for index in 0..2000 {
                sink.handle_hash(index, hash(b"x")).expect("no bytes yet");
                if let Err(error) = sink.write(b"x") {
                    // This removes the files without final names while the other thread lists the
                    // directory.
                    drop(sink);
                    return error;
                }
                let _ = named_one.send(());
            }
            panic!("the gate never closed");
        });
        first_name.recv().expect("one file has its name");
        assert!(gate.close(Duration::from_secs(60)));
        (final_names(&to), worker.join().expect("stopped"))
    });
    assert!(matches!(error, SinkError::Stopped), "{error}");
    assert_eq!(final_names(&to), named, "names after the gate closed");
}
