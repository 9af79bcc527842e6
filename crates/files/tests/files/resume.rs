//! Files that go on after an interruption (P8.8).

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use farwrite_files::{
    CommitGate, Compare, Message, Partial, PeerKey, Policy, Run, Sink, SinkError, Source, Summary,
};
use farwrite_keys::Psk;

use rustix::fs::{FlockOperation, flock};

use crate::place::{AT_ONCE, Place, hand_over, manifest, scan, send};

const MIB: u64 = 1 << 20;
/// What a quota counts for a name.
const NAME_BYTES: u64 = 4096;
/// Bytes of a block.
const BLOCK: u64 = 4 * MIB;
/// A file that is long enough, with a block that is not whole.
const LENGTH: u64 = 18 * MIB + 1234;

/// A sender's directory with the file `t/large`, the receiver's directory, and the key.
struct Pair {
    from: Place,
    to: Place,
    key: PeerKey,
}

impl Pair {
    fn new() -> Self {
        let pair = Self {
            from: Place::in_memory(),
            to: Place::in_memory(),
            key: PeerKey::of_psk(&Psk::generate().expect("key")),
        };
        pair.from.write("t/large", pattern(1));
        pair.from.write("t/next", "after it");
        pair
    }

    fn source(&self) -> Source {
        scan(&[self.from.path("t")])
    }

    fn sink(&self, source: &Source, key: PeerKey) -> Sink {
        let policy = Policy {
            resume: Some(key),
            ..AT_ONCE
        };
        self.sink_with(source, policy).expect("sink")
    }

    fn sink_with(&self, source: &Source, policy: Policy) -> Result<Sink, SinkError> {
        let manifest = Arc::clone(source.manifest());
        let (to, gate) = (self.to.0.path(), CommitGate::default());
        Sink::mirroring(to, manifest, gate, policy, (Compare::Time, None))
    }

    /// A transfer that ends after so many bytes.
    fn interrupt(&self, bytes: u64) {
        let mut source = self.source();
        let mut sink = self.sink(&source, self.key);
        let mut segment = vec![0; usize::try_from(bytes).expect("small")];
        let read = source.read(&mut segment);
        sink.write(&segment[..read]).expect("write");
    }

    /// A whole transfer. Returns how many bytes cross, and how many files are verified.
    fn go_on(&self, key: PeerKey) -> (u64, Summary) {
        let mut source = self.source();
        let mut sink = self.sink(&source, key);
        let mut present = sink.present().to_vec();
        source
            .add_present(std::mem::take(&mut present), Compare::Time)
            .expect("in order");
        let crossed = cross(&mut source, &mut sink);
        let summary = sink.finish().expect("whole");
        assert_eq!(summary.failed_files, 0);
        assert!(fs::read(self.to.path("t/large")).expect("read") == self.bytes());
        assert_eq!(fs::read(self.to.path("t/next")).expect("read"), b"after it");
        (crossed, summary)
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(self.from.path("t/large")).expect("read")
    }

    /// The interrupted files in the receiver's directory.
    fn parts(&self) -> Vec<PathBuf> {
        let names = fs::read_dir(self.to.path("t"));
        let paths = names.into_iter().flatten();
        let paths = paths.map(|item| item.expect("item").path());
        paths
            .filter(|path| path.extension().is_some_and(|it| it == "part"))
            .collect()
    }
}

/// Compares what is there, and moves the stream. Returns how many bytes cross.
fn cross(source: &mut Source, sink: &mut Sink) -> u64 {
    source
        .add_partials(sink.partials().to_vec())
        .expect("in order");
    if let Some(mut reader) = sink.prefix_reader() {
        while let Some(Message::BlockHashes {
            index,
            first,
            hashes,
        }) = reader.read()
        {
            let added = source.prefix_hashes().add(index, first, &hashes);
            added.expect("in order");
        }
    }
    let mut segment = vec![0; 1_000_001];
    let mut crossed = 0;
    while !source.is_over() {
        let read = source.read(&mut segment);
        hand_over(source, sink);
        if let Some(compared) = source.poll_compared() {
            // What comes before the blocks that differ.
            sink.write(&segment[..read]).expect("write");
            let resumed = sink.handle_compared(compared.index, compared.runs);
            assert_eq!(resumed.expect("compared"), compared.resumed_bytes);
        } else {
            sink.write(&segment[..read]).expect("write");
            if source.is_waiting() {
                assert!(source.wait(Duration::from_secs(1)));
            }
        }
        crossed += read as u64;
    }
    crossed
}

fn pattern(seed: u64) -> Vec<u8> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_be_bytes());
    let mut bytes = vec![0; usize::try_from(LENGTH).expect("small")];
    hasher.finalize_xof().fill(&mut bytes);
    bytes
}

/// At whatever byte the transfer ends, less than a block comes twice, or a file starts again.
#[test]
fn transfer_goes_on_where_it_ended() {
    for (bytes, kept) in [
        (5, 0),
        (BLOCK - 1, 0),
        (BLOCK, BLOCK),
        (2 * BLOCK, 2 * BLOCK),
        (13 * MIB, 3 * BLOCK),
        (LENGTH - 1, 4 * BLOCK),
        (LENGTH, 4 * BLOCK),
    ] {
        let pair = Pair::new();
        pair.interrupt(bytes);
        assert_eq!(pair.parts().len(), usize::from(kept > 0), "{bytes}");
        if let [part] = &pair.parts()[..] {
            let mode = fs::metadata(part).expect("metadata").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        let (crossed, summary) = pair.go_on(pair.key);
        assert_eq!(crossed, LENGTH - kept + 8, "{bytes}");
        assert_eq!(summary.verified_bytes, LENGTH + 8);
        assert!(pair.parts().is_empty());
    }
}

/// A file that is whole stays when the transfer ends before the file has its final name.
#[test]
fn file_that_waits_for_its_name_is_kept() {
    let pair = Pair::new();
    let mut source = pair.source();
    let policy = Policy {
        resume: Some(pair.key),
        ..Policy::default()
    };
    let (manifest, gate) = (Arc::clone(source.manifest()), CommitGate::default());
    let to = pair.to.0.path();
    let sink = Sink::mirroring(to, manifest, gate.clone(), policy, (Compare::Time, None));
    let mut sink = sink.expect("sink");
    cross(&mut source, &mut sink);
    assert!(gate.close(Duration::ZERO));
    assert!(matches!(sink.commit(), Err(SinkError::Stopped)));
    assert_eq!(sink.keep_parts().len(), 1);
    drop(sink);
    assert_eq!(pair.parts().len(), 1);
    let (crossed, _) = pair.go_on(pair.key);
    assert_eq!(crossed, LENGTH - 4 * BLOCK + 8);
}

#[test]
fn transfer_that_is_interrupted_again_and_again_arrives() {
    let pair = Pair::new();
    pair.interrupt(9 * MIB);
    for at in [10, 12, 14] {
        let mut source = pair.source();
        let mut sink = pair.sink(&source, pair.key);
        source
            .add_partials(sink.partials().to_vec())
            .expect("in order");
        let had = sink.partials()[0].bytes;
        let mut segment = vec![0; usize::try_from(at * MIB - had).expect("small")];
        let read = source.read(&mut segment);
        sink.write(&segment[..read]).expect("write");
    }
    assert_eq!(pair.go_on(pair.key).0, LENGTH - 3 * BLOCK + 8);
}

/// What is on the disk is compared block by block: whatever has changed comes again, and nothing else.
#[test]
fn blocks_that_differ_come_again() {
    for blocks in [&[0_u64][..], &[1, 3], &[0, 1, 2, 3]] {
        let pair = Pair::new();
        pair.interrupt(LENGTH);
        let part = File::options().write(true).open(&pair.parts()[0]);
        let part = part.expect("open");
        for block in blocks {
            part.write_all_at(b"!", block * BLOCK + 77).expect("write");
        }
        let again = BLOCK * blocks.len() as u64;
        assert_eq!(pair.go_on(pair.key).0, LENGTH - 4 * BLOCK + again + 8);
    }
}

#[test]
fn another_peer_cannot_go_on() {
    let pair = Pair::new();
    pair.interrupt(12 * MIB);
    let before = pair.parts();
    let other = PeerKey::of_psk(&Psk::generate().expect("key"));
    assert_eq!(pair.go_on(other).0, LENGTH + 8);
    assert_eq!(pair.parts(), before, "the first peer can still go on");
    fs::remove_file(pair.to.path("t/large")).expect("remove");
    assert_eq!(pair.go_on(pair.key).0, LENGTH - 3 * BLOCK);
}

#[test]
fn source_that_has_changed_starts_again() {
    let pair = Pair::new();
    pair.interrupt(12 * MIB);
    let path = pair.from.path("t/large");
    let file = File::options().write(true).open(&path).expect("open");
    file.set_modified(SystemTime::UNIX_EPOCH).expect("set time");
    let source = pair.source();
    drop(pair.sink(&source, pair.key));
    assert!(pair.parts().is_empty(), "nobody can go on with it");
    assert_eq!(pair.go_on(pair.key).0, LENGTH + 8);
}

#[test]
fn file_that_is_there_already_needs_no_interrupted_one() {
    let pair = Pair::new();
    pair.interrupt(12 * MIB);
    send(&[pair.from.path("t")], &pair.to, 1 << 20);
    assert_eq!(pair.parts().len(), 1);
    assert_eq!(pair.go_on(pair.key).0, 0);
    assert!(pair.parts().is_empty());
}

/// A file that another process writes to is not used.
#[test]
fn file_in_use_is_left_alone() {
    let pair = Pair::new();
    pair.interrupt(12 * MIB);
    let before = pair.parts();
    let other = File::open(&before[0]).expect("open");
    flock(&other, FlockOperation::LockExclusive).expect("lock");
    assert_eq!(pair.go_on(pair.key).0, LENGTH + 8);
    assert_eq!(pair.parts(), before);
}

/// A sender starts again while this process still has its first transfer. The first one ends only if its sender
/// is silent. Otherwise two senders with one key send the same file, and both transfers end well.
#[test]
fn later_transfer_takes_the_file_of_a_silent_sender_over() {
    for is_silent in [true, false] {
        let pair = Pair::new();
        let mut source = pair.source();
        let mut sink = pair.sink(&source, pair.key);
        let mut segment = vec![0; usize::try_from(12 * MIB).expect("small")];
        let read = source.read(&mut segment);
        sink.write(&segment[..read]).expect("write");
        hand_over(&mut source, &mut sink);
        let wanted = sink.wanted();
        let start = Instant::now();
        let long_after = start + Duration::from_secs(60);
        wanted.answer(start, long_after).expect("nobody wants it");
        let is_over = AtomicBool::new(false);
        let crossed = thread::scope(|scope| {
            scope.spawn(|| {
                let mut sink = Some(sink);
                while !is_over.load(Ordering::Relaxed) {
                    assert!(start.elapsed() < Duration::from_secs(60), "nobody ends");
                    let heard_at = if is_silent { start } else { Instant::now() };
                    let now = if is_silent { long_after } else { heard_at };
                    if wanted.answer(heard_at, now).is_err() {
                        assert!(is_silent);
                        sink = None;
                    }
                    thread::sleep(Duration::from_millis(1));
                }
                if let Some(mut sink) = sink {
                    cross(&mut source, &mut sink);
                    assert_eq!(sink.finish().expect("whole").verified_files, 2);
                }
            });
            let (crossed, _) = pair.go_on(pair.key);
            is_over.store(true, Ordering::Relaxed);
            crossed
        });
        let had = if is_silent { 3 * BLOCK } else { 0 };
        assert_eq!(crossed, LENGTH - had + 8);
        assert!(pair.parts().is_empty());
        assert!(fs::read(pair.to.path("t/large")).expect("read") == pair.bytes());
    }
}

/// Only the very file that a receiver wrote is used: no copy, no link, no further name.
#[test]
fn what_has_the_name_of_an_interrupted_file_may_be_the_users() {
    for kind in ["copy", "link", "name"] {
        let pair = Pair::new();
        pair.interrupt(12 * MIB);
        let part = pair.parts().remove(0);
        let other = pair.to.path("mine");
        fs::rename(&part, &other).expect("rename");
        match kind {
            "copy" => drop(fs::copy(&other, &part).expect("copy")),
            "link" => symlink(&other, &part).expect("link"),
            _ => fs::hard_link(&other, &part).expect("link"),
        }
        let bytes = fs::read(&other).expect("read");
        assert_eq!(pair.go_on(pair.key).0, LENGTH + 8, "{kind}");
        assert!(fs::read(&other).expect("it stays") == bytes, "{kind}");
    }
}

/// The holes of a file are not sent, before and after an interruption. In a block that comes again, the bytes
/// in a hole are zeros.
#[test]
fn files_with_holes_go_on() {
    let pair = Pair::new();
    let path = pair.from.path("t/large");
    let file = File::create(&path).expect("create");
    file.set_len(64 * MIB).expect("length");
    for at in [0, 9, 14, 40] {
        file.write_all_at(&pattern(at)[..3_000_000], at * MIB)
            .expect("write");
    }
    if pair.source().manifest().stream_bytes() > 20_000_000 {
        eprintln!("skipped: this file system shows no holes");
        return;
    }
    // Up to the middle of the third part, at 15 MiB of the file.
    pair.interrupt(7_000_000);
    let part = File::options().write(true).open(&pair.parts()[0]);
    part.expect("open")
        .write_all_at(b"!", BLOCK + 9)
        .expect("write");
    let (crossed, _) = pair.go_on(pair.key);
    let stream_bytes = pair.source().manifest().stream_bytes();
    let resumed = stream_bytes - crossed;
    assert!((5_900_000..6_100_000).contains(&resumed), "{resumed}");
}

/// A sender that says too early, too late or twice what has to come again, or names blocks that are not
/// there.
#[test]
fn sender_that_breaks_the_order_is_refused() {
    let pair = Pair::new();
    let run = |first, blocks| Run { first, blocks };
    let begin = || {
        for part in pair.parts() {
            fs::remove_file(part).expect("remove");
        }
        pair.interrupt(12 * MIB);
        let source = pair.source();
        let sink = pair.sink(&source, pair.key);
        assert_eq!(sink.partials().len(), 1);
        let reader = sink.prefix_reader().expect("a file");
        (sink, reader)
    };
    let is_bad = |result: Result<u64, SinkError>| {
        assert!(
            matches!(result, Err(SinkError::BadBlocks { index: 1 })),
            "{result:?}"
        );
    };
    let (mut sink, mut reader) = begin();
    reader.read();
    is_bad(sink.handle_compared(1, vec![]));
    drop(sink);
    for runs in [
        vec![run(2, 2)],
        vec![run(0, 0)],
        vec![run(u32::MAX, u32::MAX)],
    ] {
        let (mut sink, mut reader) = begin();
        while reader.read().is_some() {}
        is_bad(sink.handle_compared(1, runs));
    }
    let (mut sink, mut reader) = begin();
    while reader.read().is_some() {}
    assert!(matches!(
        sink.handle_compared(2, vec![]),
        Err(SinkError::OutOfTurn { .. })
    ));
    is_bad(sink.handle_hash(1, [0; 32]).map(|()| 0));
    sink.handle_compared(1, vec![]).expect("once");
    is_bad(sink.handle_compared(1, vec![]));
    drop(sink);
    // More bytes than the rest of the file, before it is known which come again.
    let (mut sink, _) = begin();
    let rest = usize::try_from(LENGTH - 3 * BLOCK).expect("small");
    sink.write(&vec![0; rest]).expect("the rest");
    assert!(matches!(sink.write(&[0]), Err(SinkError::Excess { .. })));
}

#[test]
fn receiver_that_offers_what_it_cannot_have_is_refused() {
    let pair = Pair::new();
    let partial = |entry, bytes| Partial { entry, bytes };
    for wrong in [
        partial(0, BLOCK),
        partial(1, 0),
        partial(1, BLOCK + 1),
        partial(1, 5 * BLOCK),
        partial(1, u64::MAX / BLOCK * BLOCK),
        partial(2, BLOCK),
        partial(99, BLOCK),
    ] {
        let mut source = pair.source();
        assert_eq!(source.add_partials(vec![wrong]), Err(wrong.entry));
    }
    let mut source = pair.source();
    let twice = vec![partial(1, BLOCK); 2];
    assert_eq!(source.add_partials(twice), Err(1));
    let hashes = source.prefix_hashes().clone();
    for (entry, first, count) in [(1, 1, 1), (1, 0, 2), (2, 0, 1), (1, u32::MAX, 1)] {
        let refused = hashes.add(entry, first, &vec![[0; 32]; count]);
        assert!(refused.is_err(), "{entry}, {first}, {count}");
    }
    hashes.add(1, 0, &[[0; 32]]).expect("as offered");
    assert!(hashes.add(1, 1, &[[0; 32]]).is_err());
    hashes.close();
    assert!(!source.wait(Duration::from_secs(60)));
}

/// A transfer that goes on needs no more of a quota than the files have. Interrupted files that it does not need
/// have what is left, and go when there is too little.
#[test]
fn interrupted_files_do_not_use_up_a_quota() {
    let pair = Pair::new();
    pair.interrupt(12 * MIB);
    let under = |source: &Source, quota_bytes| {
        let policy = Policy {
            resume: Some(pair.key),
            quota_bytes: Some(quota_bytes),
            ..AT_ONCE
        };
        pair.sink_with(source, policy)
    };
    let source = pair.source();
    // The file system may count a few blocks more for what is there.
    let blocks = |bytes: u64| bytes.next_multiple_of(4096);
    let fits = |bytes: u64| blocks(bytes) + NAME_BYTES;
    // The directory is there.
    let all = NAME_BYTES + fits(LENGTH) + fits(8);
    match under(&source, all - 1) {
        Err(SinkError::Quota {
            needed_bytes,
            left_bytes,
        }) => assert_eq!(needed_bytes, left_bytes + 1),
        other => panic!("{other:?}"),
    }
    let sink = under(&source, all).expect("it fits");
    assert_eq!(sink.partials()[0].bytes, 12 * MIB);
    drop(sink);
    fs::rename(pair.from.path("t/large"), pair.from.path("t/other")).expect("rename");
    let other = pair.source();
    let part_bytes = fs::metadata(&pair.parts()[0]).expect("a part").blocks() * 512;
    let both = all + part_bytes + NAME_BYTES;
    drop(under(&other, both).expect("it fits"));
    assert_eq!(pair.parts().len(), 1, "there is room for both");
    drop(under(&other, both - 1).expect("it fits"));
    assert!(pair.parts().is_empty());
    // What is there already needs nothing more.
    send(&[pair.from.path("t")], &pair.to, 1 << 20);
    under(&pair.source(), all).expect("it is there");
}

/// Nobody knows that a file arrives, so the older one of its name takes room until then.
#[test]
fn a_file_that_may_not_arrive_gives_no_room_to_others() {
    let to = Place::new();
    fs::write(to.path("a"), [0; 10_000]).expect("write");
    let used_bytes = fs::metadata(to.path("a")).expect("metadata").blocks() * 512 + NAME_BYTES;
    let policy = Policy {
        quota_bytes: Some(used_bytes + 3 * NAME_BYTES),
        ..AT_ONCE
    };
    let sink = |items: &[(&str, u64)]| {
        Sink::new(to.0.path(), manifest(items), CommitGate::default(), policy)
    };
    match sink(&[("a", 1), ("b", 10_000)]) {
        Err(SinkError::Quota {
            needed_bytes,
            left_bytes,
        }) => assert_eq!((needed_bytes, left_bytes), (4 * NAME_BYTES, 3 * NAME_BYTES)),
        other => panic!("{other:?}"),
    }
    sink(&[("a", 1), ("b", 5000)]).expect("it fits");
}

/// What has arrived of a file is no file of the tree. A copy of it is one: it may be the user's.
#[test]
fn interrupted_files_are_not_sent() {
    let pair = Pair::new();
    pair.interrupt(12 * MIB);
    let part = pair.parts().remove(0);
    let source = scan(&[pair.to.path("t")]);
    assert_eq!(source.manifest().entries().count(), 1);
    let copy = pair.to.path("copy");
    fs::copy(&part, &copy).expect("copy");
    fs::remove_file(&part).expect("remove");
    fs::rename(&copy, &part).expect("rename");
    let source = scan(&[pair.to.path("t")]);
    assert_eq!(source.manifest().entries().count(), 2);
}

/// Without a key, nothing is kept.
#[test]
fn receiver_that_keeps_nothing_removes_it() {
    let pair = Pair::new();
    let mut source = pair.source();
    let mut sink = crate::place::new_sink(&pair.to, source.manifest());
    let mut segment = vec![0; usize::try_from(12 * MIB).expect("small")];
    let read = source.read(&mut segment);
    sink.write(&segment[..read]).expect("write");
    drop(sink);
    assert!(pair.parts().is_empty());
}
