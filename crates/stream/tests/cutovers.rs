//! Streams of a connection whose path comes to carry only smaller packets.

#[path = "../../connection/tests/translator/mod.rs"]
mod translator;

use std::io::{Read, Write};
use std::sync::atomic::Ordering;
use std::thread;

use farwrite_rng::SplitMix;
use farwrite_stream::{ConnectionExt, Stream, StreamOptions};

use translator::{LONG, pair};

const BYTES: usize = 6_000_000;

/// Writes bytes that depend on `seed`, and calls `at_half` when half of them are written.
fn write(mut stream: impl Write, seed: u64, at_half: impl FnOnce()) {
    let bytes = SplitMix::new(seed).bytes(BYTES);
    let (first, second) = bytes.split_at(BYTES / 2);
    stream.write_all(first).expect("written");
    at_half();
    stream.write_all(second).expect("written");
}

fn read(mut stream: impl Read, seed: u64) {
    let mut came = Vec::new();
    stream.read_to_end(&mut came).expect("read");
    assert!(came == SplitMix::new(seed).bytes(BYTES), "direction {seed}");
}

/// Both directions are under way, on a path that loses packets, when it shrinks. It shrinks twice. An idle stream goes
/// on too.
#[test]
fn streams_go_on_with_smaller_packets() {
    let (translator, near, far) = pair(2 * LONG);
    let options = StreamOptions::default();
    let open = |name: &str| -> [Stream; 2] {
        thread::scope(|scope| {
            let opening = scope.spawn(|| near.open_stream(name, &options, LONG));
            let accepted = far.accept_stream(Some(name), &options, LONG);
            let (_, accepted) = accepted.expect("no failure").expect("in time");
            [opening.join().expect("no panic").expect("opened"), accepted]
        })
    };
    let [idle_near, idle_far] = open("idle");
    let [busy_near, busy_far] = open("busy");
    translator.loss.store(1, Ordering::Relaxed);
    let (near_reads, near_writes) = busy_near.split();
    let (far_reads, far_writes) = busy_far.split();
    thread::scope(|scope| {
        // This call waits while the path shrinks.
        let accepting = scope.spawn(|| far.accept_stream(Some("late"), &options, 6 * LONG));
        scope.spawn(|| read(near_reads, 2));
        scope.spawn(|| read(far_reads, 1));
        let writing = scope.spawn(|| write(near_writes, 1, || translator.carry(1400)));
        write(far_writes, 2, || {});
        writing.join().expect("no panic");
        near.open_stream("late", &options, LONG).expect("opened");
        let accepted = accepting.join().expect("no panic");
        assert!(accepted.expect("no failure").is_some());
    });
    for end in [&near, &far] {
        assert!(end.ended().is_none());
        assert!(end.mtu() < 1400, "{}", end.mtu());
    }
    translator.carry(1300);
    thread::scope(|scope| {
        scope.spawn(|| {
            write(idle_near, 3, || {});
        });
        scope.spawn(|| read(idle_far, 3));
    });
    assert!(near.mtu() < 1300, "{}", near.mtu());
}
