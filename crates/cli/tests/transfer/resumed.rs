//! Interrupted transfers that go on (P8.8).

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use farwrite_keys::Psk;

use crate::rig::{Ended, Rig, Running, V4, free_port, pattern};

const MB: u64 = 1_000_000;
const BYTES: u64 = 80 * MB;
/// What may be sent again. A killed receiver had not yet written all that had arrived.
fn sent_again(end: End) -> u64 {
    match end {
        End::Receiver("KILL") => 32 << 20,
        _ => 16 << 20,
    }
}

/// Which end gets a signal, and which.
#[derive(Clone, Copy)]
enum End {
    Sender(&'static str),
    Receiver(&'static str),
}

/// Starts a transfer, and sends the signal when the receiver has this number of bytes on its disk. A receiver has also
/// named the small file then. Returns what both ends said.
fn interrupt(rig: &Rig, end: End, bytes: u64) -> [Ended; 2] {
    interrupt_with(rig, &[], end, bytes)
}

/// As [`interrupt`], with options of the receiver.
fn interrupt_with(rig: &Rig, options: &[&str], end: End, bytes: u64) -> [Ended; 2] {
    rig.file("small", 1000);
    rig.file("file", usize::try_from(BYTES).expect("small"));
    let addr = free_port();
    let args = [&["--json-lines", "--once", "--timeout", "5s"], options].concat();
    let receiver = Running::spawn(rig.recv_command(&addr.to_string(), &rig.inbox(), &args));
    let args = ["--rate", "200Mbit", "--json-lines", "--timeout", "5s"];
    let [small, file] = paths(rig);
    let sender = rig.send(addr, &args, &[&small, &file]);
    let start = Instant::now();
    let small_is_there = || matches!(end, End::Sender(_)) || rig.inbox().join("small").exists();
    while part_bytes(rig) < bytes || !small_is_there() {
        assert!(start.elapsed() < Duration::from_secs(60), "it is too slow");
        thread::sleep(Duration::from_millis(2));
    }
    match end {
        End::Sender(signal) => sender.signal(signal),
        End::Receiver(signal) => receiver.signal(signal),
    }
    [sender.end(), receiver.end()]
}

fn paths(rig: &Rig) -> [PathBuf; 2] {
    ["small", "file"].map(|name| rig.path(name))
}

/// The length of the temporary file in the inbox.
fn part_bytes(rig: &Rig) -> u64 {
    let inbox = fs::read_dir(rig.inbox()).expect("directory").flatten();
    let parts = inbox.filter(|item| item.path().extension().is_some_and(|it| it == "part"));
    let bytes = parts.filter_map(|item| item.metadata().ok());
    bytes.map(|metadata| metadata.len()).max().unwrap_or(0)
}

/// How many bytes had arrived, as an end said last.
fn arrived(ended: &Ended) -> u64 {
    let lines = ended.stdout.lines();
    let lines = lines.filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let done = lines.filter_map(|line| line["done_bytes"].as_u64());
    done.max().unwrap_or(0)
}

/// Gives the same command again. Returns how many bytes were not sent again.
fn again(rig: &Rig) -> (u64, Ended) {
    let receiver = rig.recv(V4, &["--once"]);
    let [small, file] = paths(rig);
    let sent = rig.send(receiver.addr, &["--json"], &[&small, &file]).end();
    sent.assert(0, "");
    receiver.end().assert(0, "");
    let received = fs::read(rig.inbox().join("file")).expect("received");
    assert!(received == pattern(usize::try_from(BYTES).expect("small")));
    let result = sent.result();
    assert_eq!(result["failed_files"], 0, "{result}");
    let resumed = result["resumed_bytes"].as_u64().expect("a number");
    (resumed, sent)
}

/// Whichever end is killed or interrupted, the same command goes on. The transfers mostly wait, so they run at
/// the same time.
#[test]
fn interrupted_transfer_goes_on() {
    thread::scope(|scope| {
        for (end, bytes) in [
            (End::Sender("KILL"), 12 * MB),
            (End::Receiver("KILL"), 17 * MB),
            (End::Sender("INT"), 21 * MB),
            (End::Receiver("INT"), 26 * MB),
        ] {
            scope.spawn(move || {
                let rig = Rig::new();
                let [sender, receiver] = interrupt(&rig, end, bytes);
                let before = part_bytes(&rig);
                assert!(before >= bytes, "{before}");
                if !matches!(end, End::Receiver("KILL")) {
                    let told = "the same command goes on";
                    assert!(receiver.stderr.contains(told), "{receiver:?}");
                }
                let (resumed, sent) = again(&rig);
                sent.assert(0, "going on with \"file\" from byte ");
                assert_eq!(sent.result()["unchanged_files"], 1);
                assert!(resumed + (4 << 20) > before, "{resumed} of {before}");
                let arrived = arrived(&sender).max(arrived(&receiver));
                assert!(
                    resumed + sent_again(end) >= arrived,
                    "{resumed} of {arrived}"
                );
                assert_eq!(rig.received(), ["file", "small"]);
            });
        }
        scope.spawn(|| {
            let rig = Rig::new();
            interrupt_with(&rig, &["--no-resume"], End::Sender("KILL"), 12 * MB);
            assert_eq!(part_bytes(&rig), 0);
            assert_eq!(again(&rig).0, 0);
        });
    });
}

/// Another peer, with another key, starts at the first byte.
#[test]
fn nobody_else_goes_on() {
    let rig = Rig::new();
    interrupt(&rig, End::Receiver("KILL"), 12 * MB);
    let is_large = |name: &String| {
        let file = fs::metadata(rig.inbox().join(name)).expect("a file");
        file.len() >= 12 * MB
    };
    let of_first: Vec<_> = rig.received().into_iter().filter(is_large).collect();
    assert!(of_first.iter().any(|name| name.ends_with(".part")));
    fs::remove_file(rig.key()).expect("remove");
    let other = Psk::generate().expect("key");
    other.save(&rig.key()).expect("key file");
    let (resumed, _) = again(&rig);
    assert_eq!(resumed, 0);
    assert!(of_first.iter().all(|name| rig.received().contains(name)));
}
