//! What a receiver's user decides: permissions, room, and when a file counts as stored.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use farwrite_files::{CommitGate, Manifest, Policy, Sink, SinkError};

use crate::place::{AT_ONCE, Place, child_with_mounts, hash, manifest, verdicts};

fn sink(to: &Place, manifest: &Arc<Manifest>, policy: Policy) -> Result<Sink, SinkError> {
    let gate = CommitGate::default();
    Sink::new(to.0.path(), Arc::clone(manifest), gate, policy)
}

#[test]
fn permissions_of_the_umask_are_withheld() {
    let mode = |to: &Place, path: &str| {
        let metadata = fs::metadata(to.path(path)).expect("there");
        metadata.permissions().mode() & 0o7777
    };
    // The manifest has modes of 0755 and 0644.
    for (umask, modes) in [
        (0, [0o755, 0o644]),
        (0o027, [0o750, 0o640]),
        (0o77, [0o700, 0o600]),
    ] {
        let to = Place::new();
        let policy = Policy { umask, ..AT_ONCE };
        let items = manifest(&[("d/", 0), ("d/f", 1)]);
        let failed = sink(&to, &items, policy).expect("sink");
        drop(failed);
        assert_eq!(mode(&to, "d"), modes[0], "after a transfer that failed");
        let mut sink = sink(&to, &items, policy).expect("sink");
        sink.write(b"f").expect("write");
        sink.handle_hash(1, hash(b"f")).expect("in turn");
        sink.finish().expect("whole");
        assert_eq!([mode(&to, "d"), mode(&to, "d/f")], modes);
    }
}

#[test]
fn reserve_is_not_used() {
    let to = Place::new();
    let items = manifest(&[("f", 1 << 40)]);
    let policy = Policy {
        reserve_bytes: Some(1 << 60),
        ..AT_ONCE
    };
    let error = sink(&to, &items, policy).expect_err("no disk has so much");
    let text = error.to_string();
    for number in [1_u64 << 40, 1 << 60] {
        assert!(text.contains(&number.to_string()), "{text}");
    }
    assert!(to.list().is_empty(), "nothing was made");
}

/// Names count, whatever is behind them.
#[test]
fn quota_counts_names() {
    let to = Place::new();
    to.write("there", "");
    let names: Vec<_> = (0..20).map(|index| index.to_string()).collect();
    let items: Vec<_> = names.iter().map(|name| (name.as_str(), 0)).collect();
    let items = manifest(&items);
    let with = |quota_bytes, quota_entries| Policy {
        quota_bytes,
        quota_entries,
        ..AT_ONCE
    };
    match sink(&to, &items, with(None, Some(20))) {
        Err(SinkError::QuotaEntries { needed, left }) => assert_eq!((needed, left), (20, 19)),
        other => panic!("{other:?}"),
    }
    sink(&to, &items, with(None, Some(21))).expect("it fits");
    match sink(&to, &items, with(Some(21 * 4096 - 1), None)) {
        Err(SinkError::Quota { needed_bytes, .. }) => assert_eq!(needed_bytes, 20 * 4096),
        other => panic!("{other:?}"),
    }
    sink(&to, &items, with(Some(21 * 4096), None)).expect("it fits");
}

/// Runs in a file system with 1000 inodes and 64 MiB, half of which is the reserve.
#[test]
#[ignore = "run by another test"]
fn child_with_few_inodes() {
    let Some(to) = std::env::var_os("FARWRITE_TEST_DIR") else {
        return;
    };
    let to = Path::new(&to);
    let policy = Policy {
        reserve_bytes: Some(32 << 20),
        ..AT_ONCE
    };
    let make = |first: u32| {
        let names: Vec<_> = (first..first + 300).map(|it| it.to_string()).collect();
        let items: Vec<_> = names.iter().map(|name| (name.as_str(), 0)).collect();
        Sink::new(to, manifest(&items), CommitGate::default(), policy)
    };
    let mut sink = make(0).expect("300 of 1000");
    for index in 0..300 {
        sink.handle_hash(index, hash(b"")).expect("in turn");
    }
    sink.finish().expect("whole");
    make(0).expect("they are there");
    match make(300) {
        Err(SinkError::NoInodes {
            needed, reserve, ..
        }) => assert_eq!((needed, reserve), (300, 500)),
        other => panic!("{other:?}"),
    }
    assert_eq!(fs::read_dir(to).expect("list").count(), 300);
}

#[test]
fn a_reserve_keeps_inodes_too() {
    let to = Place::new();
    let mount = "mount -t tmpfs -o size=64m,nr_inodes=1000 none \"$FARWRITE_TEST_DIR\"";
    child_with_mounts(&to, mount, "policy::child_with_few_inodes");
}

/// Runs in a file system of 64 MiB. Another program uses up the reserve during the transfer.
#[test]
#[ignore = "run by another test"]
fn child_with_a_reserve() {
    let Some(to) = std::env::var_os("FARWRITE_TEST_DIR") else {
        return;
    };
    let to = Path::new(&to);
    let policy = Policy {
        reserve_bytes: Some(8 << 20),
        ..AT_ONCE
    };
    let (gate, items) = (CommitGate::default(), manifest(&[("f", 40 << 20)]));
    let mut sink = Sink::new(to, items, gate, policy).expect("48 MiB of 64");
    fs::write(to.join("other"), vec![1; 30 << 20]).expect("write");
    let error = (0..40).find_map(|_| sink.write(&vec![1; 1 << 20]).err());
    let Some(SinkError::Reserve { free_bytes, .. }) = error else {
        panic!("{error:?}")
    };
    // It looks after each 16 MiB.
    assert_eq!(free_bytes >> 20, 64 - 30 - 32);
    drop(sink);
    assert_eq!(fs::read_dir(to).expect("list").count(), 1, "the other's");
}

#[test]
fn transfer_that_reaches_the_reserve_ends() {
    let to = Place::new();
    let mount = "mount -t tmpfs -o size=64m none \"$FARWRITE_TEST_DIR\"";
    child_with_mounts(&to, mount, "policy::child_with_a_reserve");
}

/// More files than are synced together, some of them wrong.
#[test]
fn files_get_names_and_verdicts_after_they_were_synced() {
    let to = Place::in_memory();
    let names: Vec<_> = (0..600)
        .map(|index| format!("d{}/{index}", index % 3))
        .collect();
    let mut items = vec![("d0/", 0), ("d1/", 0), ("d2/", 0)];
    items.extend(names.iter().map(|name| (name.as_str(), 1)));
    let items = manifest(&items);
    let mut sink = sink(&to, &items, Policy::default()).expect("sink");
    sink.write(&[b'x'; 600]).expect("write");
    let is_wrong = |index: u32| index % 100 == 7;
    let mut ended = Vec::new();
    for index in 3..603 {
        let claim = if is_wrong(index) { b"y" } else { b"x" };
        sink.handle_hash(index, hash(claim)).expect("in turn");
        ended.extend(verdicts(&mut sink));
        let waiting = sink.uncommitted_files();
        let due = usize::try_from(index - 2).expect("small");
        assert_eq!(ended.len() + waiting, due);
        assert!(waiting < 256, "{waiting}");
    }
    assert_eq!(ended.len(), 512);
    assert!(!to.path("d2/599").exists(), "not yet synced");
    sink.commit().expect("room");
    ended.extend(verdicts(&mut sink));
    let want: Vec<_> = (3..603).map(|index| (index, !is_wrong(index))).collect();
    assert_eq!(ended, want);
    let summary = sink.finish().expect("all ended");
    assert_eq!((summary.verified_files, summary.failed_files), (594, 6));
    assert_eq!(to.list().len(), 3 + 594);
}

#[test]
fn what_waits_for_the_sync_leaves_nothing_when_the_transfer_is_stopped() {
    let to = Place::new();
    to.write("a", "before");
    let gate = CommitGate::default();
    let items = manifest(&[("a", 1), ("b", 1)]);
    let mut sink = Sink::new(to.0.path(), items, gate.clone(), Policy::default()).expect("sink");
    sink.write(b"ab").expect("write");
    sink.handle_hash(0, hash(b"a")).expect("in turn");
    assert_eq!(sink.uncommitted_files(), 1);
    assert!(gate.close(Duration::ZERO));
    assert!(matches!(sink.commit(), Err(SinkError::Stopped)));
    drop(sink);
    let left: Vec<_> = to.list().into_iter().collect();
    assert_eq!(left, [("a".to_owned(), b"before".to_vec())]);
}
