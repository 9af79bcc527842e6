//! Files that cannot be written. Each fails alone, unless the file system is full.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use farwrite_files::{
    CommitGate, Compare, FileFailure, FileStep, Policy, Preview, Sink, SinkError,
};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::place::{AT_ONCE, Place, child, child_with_mounts, hash, manifest, new_sink, try_sink};

/// Returns the result of each file that ended since the last call: its failure, or `None` if it was
/// verified.
fn failures(sink: &mut Sink) -> Vec<Option<FileFailure>> {
    std::iter::from_fn(|| sink.poll_verdict())
        .map(|verdict| verdict.failure)
        .collect()
}

#[test]
fn file_that_cannot_be_created_fails_alone() {
    let to = Place::new();
    let items = [
        ("x/", 0),
        ("x/a", 2),
        ("y/", 0),
        ("y/b", 3),
        ("y/0", 0),
        ("z", 1),
    ];
    let mut sink = new_sink(&to, &manifest(&items));
    fs::remove_dir(to.path("y")).expect("remove");
    sink.write(b"aab").expect("y/b fails alone");
    sink.write(b"bbz").expect("its bytes are thrown away");
    for (index, bytes) in [(1, &b"aa"[..]), (3, b"bbb"), (4, b""), (5, b"z")] {
        sink.handle_hash(index, hash(bytes)).expect("in turn");
    }
    let failures = failures(&mut sink);
    let [None, Some(b), Some(empty), None] = &failures[..] else {
        panic!("{failures:?}")
    };
    for failure in [b, empty] {
        let text = failure.to_string();
        assert!(text.contains("create it: No such file"), "{text}");
        assert!(
            !text.contains(to.0.path().to_str().expect("UTF-8")),
            "{text}"
        );
    }
    let summary = sink.finish().expect("all ended");
    assert_eq!((summary.verified_files, summary.failed_files), (2, 2));
    assert_eq!(to.list().keys().collect::<Vec<_>>(), ["x", "x/a", "z"]);
}

/// Whoever may write everywhere gives up this right in the thread of the test.
#[test]
fn directory_that_cannot_be_written_is_refused_before_the_bytes() {
    let to = Place::new();
    to.write("x/old", "old");
    fs::set_permissions(to.0.path(), Permissions::from_mode(0o555)).expect("chmod");
    let mut rights = capabilities(None).expect("capabilities");
    rights.effective.remove(CapabilitySet::DAC_OVERRIDE);
    rights.permitted.remove(CapabilitySet::DAC_OVERRIDE);
    set_capabilities(None, rights).expect("fewer capabilities");
    let error = try_sink(&to, &manifest(&[("a", 1), ("b", 0)])).expect_err("refused");
    assert!(matches!(&error, SinkError::Prepare(_)), "{error}");
    for into in [
        &[("x/", 0), ("x/a", 1)][..],
        &[("x/", 0), ("x/a", 1), ("b", 1)],
    ] {
        new_sink(&to, &manifest(into));
    }
}

#[test]
fn file_whose_name_cannot_be_given_fails_alone() {
    let to = Place::new();
    let mut sink = new_sink(&to, &manifest(&[("a", 1), ("b", 1)]));
    // There was no obstacle when the directory was prepared.
    fs::create_dir(to.path("a")).expect("directory");
    sink.write(b"ab").expect("write");
    sink.handle_hash(0, hash(b"a")).expect("fails alone");
    sink.handle_hash(1, hash(b"b")).expect("in turn");
    let failures = failures(&mut sink);
    let is_said = matches!(&failures[..], [Some(FileFailure::InTheWay), None]);
    assert!(is_said, "{failures:?}");
    sink.finish().expect("all ended");
    assert_eq!(to.list().keys().collect::<Vec<_>>(), ["a", "b"]);
}

/// Runs in a process whose files are limited to 8 KiB (`ulimit -f`).
#[test]
#[ignore = "run by another test"]
fn child_with_a_limit() {
    let Some(to) = std::env::var_os("FARWRITE_TEST_DIR") else {
        return;
    };
    let items = manifest(&[("small", 5), ("large", 100_000), ("last", 4)]);
    let mut sink = Sink::new(Path::new(&to), items, CommitGate::default(), AT_ONCE).expect("sink");
    sink.write(b"small").expect("write");
    for _ in 0..100 {
        sink.write(&[b'l'; 1000]).expect("large fails alone");
    }
    sink.write(b"last").expect("write");
    let large = vec![b'l'; 100_000];
    for (index, bytes) in [(0, &b"small"[..]), (1, &large), (2, b"last")] {
        sink.handle_hash(index, hash(bytes)).expect("in turn");
    }
    let failures = failures(&mut sink);
    let [
        None,
        Some(FileFailure::Io {
            tried: FileStep::Write,
            ..
        }),
        None,
    ] = &failures[..]
    else {
        panic!("{failures:?}")
    };
    sink.finish().expect("all ended");
}

#[test]
fn file_that_cannot_be_written_fails_alone() {
    let to = Place::new();
    let test = child("failures::child_with_a_limit");
    // If the limit's signal is ignored, a write beyond the limit returns an error. The limit also
    // applies to the child's output unless this is a pipe.
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 8; exec \"$@\"", "sh"])
        .arg(test.get_program())
        .args(test.get_args())
        .env("FARWRITE_TEST_DIR", to.0.path())
        .output()
        .expect("sh");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(to.list().keys().collect::<Vec<_>>(), ["last", "small"]);
}

/// Runs in a file system of 64 KiB.
#[test]
#[ignore = "run by another test"]
fn child_without_room() {
    let Some(to) = std::env::var_os("FARWRITE_TEST_DIR") else {
        return;
    };
    let to = Path::new(&to);
    let items = manifest(&[("d/", 0), ("small", 5), ("large", 1 << 20), ("last", 4)]);
    let make = |policy| Sink::new(to, Arc::clone(&items), CommitGate::default(), policy);
    let error = make(AT_ONCE).expect_err("no room");
    let SinkError::NoRoom {
        // Whole blocks, and one for the directory.
        needed_bytes: 1_060_864,
        reserve_bytes: 0,
        free_bytes,
        ..
    } = error
    else {
        panic!("{error}")
    };
    assert!(free_bytes <= 64 << 10, "{free_bytes}");
    let left = fs::read_dir(to).expect("list").count();
    assert_eq!(left, 0, "nothing was made");

    let items = manifest(&[("small", 5), ("large", 1 << 20), ("last", 4)]);
    let unchecked = Policy {
        reserve_bytes: None,
        ..AT_ONCE
    };
    let mut sink = Sink::new(to, items, CommitGate::default(), unchecked).expect("sink");
    sink.write(b"small").expect("write");
    sink.handle_hash(0, hash(b"small")).expect("in turn");
    let error = sink.write(&[b'l'; 1 << 20]).expect_err("no room");
    assert!(
        matches!(&error, SinkError::Full { path, .. } if path.ends_with("large")),
        "{error}"
    );
    drop(sink);
    let left = fs::read_dir(to).expect("list").count();
    assert_eq!(left, 1, "what was verified stays");
}

#[test]
fn full_file_system_ends_the_transfer() {
    let to = Place::new();
    let mount = "mount -t tmpfs -o size=64k none \"$FARWRITE_TEST_DIR\"";
    child_with_mounts(&to, mount, "failures::child_without_room");
}

/// `A` is a hard link to `a`. This simulates a file system that ignores case, where both names are
/// one file.
#[test]
fn file_does_not_replace_another_of_its_transfer() {
    let to = Place::new();
    let mut sink = new_sink(&to, &manifest(&[("a", 1), ("A", 1), ("b", 1)]));
    sink.write(b"1").expect("write");
    sink.handle_hash(0, hash(b"1")).expect("in turn");
    fs::hard_link(to.path("a"), to.path("A")).expect("link");
    sink.write(b"2b").expect("write");
    sink.handle_hash(1, hash(b"2")).expect("fails alone");
    sink.handle_hash(2, hash(b"b")).expect("in turn");
    let failures = failures(&mut sink);
    let [None, Some(FileFailure::SameName), None] = &failures[..] else {
        panic!("{failures:?}")
    };
    sink.finish().expect("all ended");
    let left = to.list();
    assert_eq!((&left["a"][..], &left["A"][..]), (&b"1"[..], &b"1"[..]));
    assert_eq!(left.len(), 3, "{left:?}");
}

/// Runs where `a` and `A` are the same directory.
#[test]
#[ignore = "run by another test"]
fn child_with_one_directory_for_two() {
    let Some(to) = std::env::var_os("FARWRITE_TEST_DIR") else {
        return;
    };
    let to = Path::new(&to);
    let items = manifest(&[("a/", 0), ("A/", 0), ("a/f", 1), ("A/f", 1)]);
    let dry = Preview::look(to, items.clone(), Compare::Time).expect_err("one for two");
    let real = Sink::new(to, items, CommitGate::default(), AT_ONCE).expect_err("one for two");
    for error in [dry, real] {
        let SinkError::SameDirectory { first, second } = &error else {
            panic!("{error}")
        };
        assert!(first.ends_with("a") && second.ends_with("A"), "{error}");
    }
}

#[test]
fn two_directories_that_are_one_end_the_transfer() {
    let to = Place::new();
    fs::create_dir(to.path("a")).expect("directory");
    fs::create_dir(to.path("A")).expect("directory");
    let mount = "cd \"$FARWRITE_TEST_DIR\" && mount --bind a A";
    child_with_mounts(&to, mount, "failures::child_with_one_directory_for_two");
}
