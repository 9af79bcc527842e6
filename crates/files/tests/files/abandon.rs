//! Files that the sender abandons. The stream skips the rest of each of them.

use std::fs;

use farwrite_files::{FileFailure, SinkError};
use proptest::prelude::*;

use crate::place::{Place, hash, manifest, new_sink, scan, verdicts};

#[test]
fn shrunk_file_is_cut_where_it_ended() {
    let from = Place::new();
    for name in ["a", "b", "c"] {
        from.write(&format!("t/{name}"), name.repeat(1000));
    }
    let mut source = scan(&[from.path("t")]);
    let mut segment = vec![0xee; 1500];
    assert_eq!(source.read(&mut segment), 1500);
    // This changes the same file. It does not replace it with another one.
    let b = fs::File::options().write(true).open(from.path("t/b"));
    b.expect("open").set_len(600).expect("cut");
    let mut rest = vec![0xee; 5000];
    assert_eq!(source.read(&mut rest), 1100);
    assert_eq!(rest[..100], *b"b".repeat(100), "what is left of b");
    assert_eq!(rest[100..1100], *b"c".repeat(1000), "c follows directly");
    let reads: Vec<_> = std::iter::from_fn(|| source.poll_file()).collect();
    let sent: Vec<_> = reads.iter().map(|read| read.sent_bytes).collect();
    assert_eq!(sent, [1000, 600, 1000]);
    assert_eq!(source.read(&mut rest), 0);
}

/// A stream with `aaa`, the first byte of `bbb`, and `cc`.
const STREAM: &[u8] = b"aaabcc";

#[test]
fn abandonment_may_come_before_between_and_after_the_bytes() {
    for (said_after, first) in (0..=4).flat_map(|said| (0..=said).map(move |first| (said, first))) {
        let to = Place::new();
        let mut sink = new_sink(&to, &manifest(&[("a", 3), ("b", 3), ("c", 2)]));
        sink.write(&STREAM[..first]).expect("write");
        sink.handle_hash(0, hash(b"aaa")).expect("in turn");
        sink.write(&STREAM[first..said_after]).expect("write");
        sink.handle_abandoned(1, 1, "gone").expect("in time");
        sink.write(&STREAM[said_after..]).expect("write");
        sink.handle_hash(2, hash(b"cc")).expect("in turn");
        assert_eq!(verdicts(&mut sink), [(0, true), (1, false), (2, true)]);
        sink.finish().expect("all ended");
        let left = to.list();
        assert_eq!(left.keys().collect::<Vec<_>>(), ["a", "c"]);
        assert_eq!(left["c"], b"cc");
    }
}

#[test]
fn abandonment_that_comes_too_late_is_refused() {
    let items = manifest(&[("a", 3), ("b", 3), ("c", 2)]);
    // In the first case, two bytes of `b` have been written, of which one belongs to `c`. In the
    // others, all of `b` has been written, then also a byte of `c`.
    for (taken, bytes) in [(2, 5), (3, 6), (3, 7)] {
        let to = Place::new();
        let mut sink = new_sink(&to, &items);
        sink.write(&b"aaabbbcc"[..bytes]).expect("write");
        sink.handle_hash(0, hash(b"aaa")).expect("in turn");
        let error = sink.handle_abandoned(1, 1, "gone").expect_err("too late");
        let late = matches!(
            error,
            SinkError::AbandonedLate { index: 1, sent_bytes: 1, taken_bytes } if taken_bytes == taken
        );
        assert!(late, "{error}");
    }
    // All bytes of the file are in the stream. The file changed after its last byte was read.
    let to = Place::new();
    let mut sink = new_sink(&to, &items);
    sink.write(b"aaabbbcc").expect("write");
    sink.handle_hash(0, hash(b"aaa")).expect("in turn");
    sink.handle_abandoned(1, 3, "changed").expect("in time");
    sink.handle_hash(2, hash(b"cc")).expect("in turn");
    assert_eq!(verdicts(&mut sink), [(0, true), (1, false), (2, true)]);
}

#[test]
fn abandonment_beyond_the_file_is_refused() {
    let to = Place::new();
    let mut sink = new_sink(&to, &manifest(&[("a", 3)]));
    let error = sink.handle_abandoned(0, 4, "gone").expect_err("it has 3");
    let beyond = matches!(
        error,
        SinkError::AbandonedBeyondEnd {
            index: 0,
            sent_bytes: 4,
            bytes: 3
        }
    );
    assert!(beyond, "{error}");
}

#[test]
fn all_files_may_be_abandoned_without_a_byte() {
    let to = Place::new();
    let mut sink = new_sink(&to, &manifest(&[("a", 3), ("d/", 0), ("d/b", 0), ("c", 2)]));
    for index in [0, 2, 3] {
        sink.handle_abandoned(index, 0, "gone").expect("in turn");
    }
    let verdict = sink.poll_verdict().expect("at once");
    let Some(FileFailure::Abandoned { reason }) = verdict.failure else {
        panic!("{verdict:?}")
    };
    assert_eq!(reason.as_str(), "gone");
    assert_eq!(sink.finish().expect("all ended").failed_files, 3);
    assert_eq!(to.list().keys().collect::<Vec<_>>(), ["d"]);
}

/// Returns bytes that differ from file to file.
fn alphabet(index: u32) -> impl Iterator<Item = u8> {
    let letters = (b'a'..=b'z').cycle();
    letters.skip(usize::try_from(index).expect("few"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Transfers files of any length in segments of any size. Each file can be abandoned anywhere.
    /// The hash or abandonment of a file arrives at any time that the rules allow.
    #[test]
    fn any_mix_of_files_and_words_arrives(
        files in prop::collection::vec((0u64..20, prop::option::of(0u64..20), any::<bool>()), 0..12),
        segment_bytes in 1usize..30,
        words_first in prop::collection::vec(any::<bool>(), 300),
    ) {
        let to = Place::in_memory();
        let names: Vec<_> = (0..files.len()).map(|index| format!("f{index:02}")).collect();
        let items = names.iter().zip(&files);
        let items: Vec<_> = items.map(|(name, file)| (name.as_str(), file.0)).collect();
        let mut sink = new_sink(&to, &manifest(&items));
        // For each file: the position in the stream before which its message must arrive, and the
        // message.
        let mut stream = Vec::new();
        let mut words = std::collections::VecDeque::new();
        let mut kept = Vec::new();
        for (index, (bytes, cut, damaged)) in (0u32..).zip(&files) {
            let length = usize::try_from(*bytes).expect("short");
            let text: Vec<u8> = alphabet(index).take(length).collect();
            let sent = cut.map_or(*bytes, |cut| cut.min(*bytes));
            stream.extend_from_slice(&text[..usize::try_from(sent).expect("short")]);
            let said = match cut {
                Some(_) => Err(sent),
                None if *damaged => Ok(hash(b"other")),
                None => {
                    kept.push((names[usize::try_from(index).expect("few")].clone(), text.clone()));
                    Ok(hash(&text))
                }
            };
            words.push_back((stream.len(), index, said));
        }
        let mut choices = words_first.into_iter();
        let mut at = 0;
        while at < stream.len() || !words.is_empty() {
            let next = stream.len().min(at + segment_bytes);
            // An abandonment must be known before the bytes after it. Messages arrive in order, so
            // all earlier messages must be known too.
            let due = words.iter().any(|(place, _, said)| said.is_err() && *place < next);
            let free = !words.is_empty() && (at == stream.len() || choices.next().unwrap_or(true));
            if due || free {
                let (_, index, said) = words.pop_front().expect("there");
                match said {
                    Ok(hash) => sink.handle_hash(index, hash),
                    Err(sent) => sink.handle_abandoned(index, sent, "gone"),
                }.expect("in turn and in time");
            } else {
                sink.write(&stream[at..next]).expect("write");
                at = next;
            }
        }
        let verified = verdicts(&mut sink).iter().filter(|(_, verified)| *verified).count();
        prop_assert_eq!(verified, kept.len());
        let summary = sink.finish().expect("all ended");
        let bytes: usize = kept.iter().map(|(_, text)| text.len()).sum();
        prop_assert_eq!(summary.verified_bytes, u64::try_from(bytes).expect("few"));
        prop_assert_eq!(to.list().into_iter().collect::<Vec<_>>(), kept);
    }
}
