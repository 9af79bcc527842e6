//! Transfers that are interrupted.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::rig::{Receiver, Rig, Running, V4, free_port, pattern};

/// At this rate, a transfer is long enough to be interrupted.
const SLOW: [&str; 2] = ["--rate", "20Mbit"];
const BYTES: usize = 8_000_000;

/// Starts a transfer and waits until the receiver has a file with a temporary name.
fn under_way(rig: &Rig) -> (Receiver, Running, PathBuf) {
    let file = rig.file("file", BYTES);
    let receiver = rig.recv(V4, &["--once", "--timeout", "5s"]);
    let args = [&SLOW[..], &["--timeout", "5s"]].concat();
    let sender = rig.send(receiver.addr, &args, &[&file]);
    let start = Instant::now();
    let begun = || {
        let inbox = fs::read_dir(rig.inbox()).expect("directory");
        let mut lengths = inbox.filter_map(|item| Some(item.ok()?.metadata().ok()?.len()));
        lengths.any(|bytes| bytes > 0)
    };
    while !begun() {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "it does not begin"
        );
        thread::sleep(Duration::from_millis(5));
    }
    (receiver, sender, file)
}

#[test]
fn a_killed_sender_is_noticed() {
    let rig = Rig::new();
    let (receiver, sender, _) = under_way(&rig);
    sender.signal("KILL");
    receiver.end().assert(5, "peer");
    assert_eq!(
        rig.received(),
        [""; 0],
        "neither a name nor a temporary name"
    );
    assert_eq!(sender.end().code, None);
}

#[test]
fn a_killed_receiver_is_noticed_and_its_next_run_completes() {
    let rig = Rig::new();
    let (receiver, sender, file) = under_way(&rig);
    receiver.running.signal("KILL");
    sender.end().assert(5, "peer");
    assert_eq!(receiver.end().code, None);
    assert!(!rig.inbox().join("file").exists());
    let receiver = rig.recv(V4, &["--once"]);
    rig.send(receiver.addr, &[], &[&file]).end().assert(0, "");
    receiver.end().assert(0, "");
    assert!(fs::read(rig.inbox().join("file")).expect("received") == pattern(BYTES));
}

#[test]
fn a_stopped_peer_is_given_up_after_the_timeout() {
    let rig = Rig::new();
    let (receiver, sender, _) = under_way(&rig);
    sender.signal("STOP");
    receiver
        .end()
        .assert(5, "nothing was heard of the peer for 5 s");
    assert_eq!(rig.received(), [""; 0]);
    sender.signal("CONT");
    sender.end().assert(5, "peer");
}

#[test]
fn a_silent_receiver_is_what_limits_the_sender() {
    let rig = Rig::new();
    let file = rig.file("file", BYTES);
    let receiver = rig.recv(V4, &["--once"]);
    let args = [&SLOW[..], &["--json-lines"]].concat();
    let mut sender = rig.send(receiver.addr, &args, &[&file]);
    sender.line(r#""event":"progress""#);
    receiver.running.signal("STOP");
    sender.line(r#""limited_by":"silence""#);
    receiver.running.signal("CONT");
    let last = sender.line(r#""exit_code":0"#);
    let last: Value = serde_json::from_str(&last).expect("JSON");
    let silence = last["result"]["limited_by"]["silence"].as_f64();
    assert!(silence.is_some_and(|share| share > 0.0), "{last}");
    sender.end().assert(0, "");
    receiver.end().assert(0, "");
}

#[test]
fn ctrl_c_ends_both_ends_and_leaves_nothing() {
    for at_sender in [true, false] {
        let rig = Rig::new();
        let (receiver, sender, _) = under_way(&rig);
        let (ended, other) = if at_sender {
            sender.signal("INT");
            (sender.end(), receiver.end())
        } else {
            receiver.running.signal("INT");
            (receiver.end(), sender.end())
        };
        ended.assert(130, "interrupted");
        other.assert(5, "the peer gave up and says: \"interrupted\"");
        assert_eq!(rig.received(), [""; 0]);
    }
}

#[test]
fn a_file_that_changes_while_it_is_sent_fails_by_itself() {
    let rig = Rig::new();
    let other = rig.file("other", 100_000);
    let file = rig.file("file", BYTES);
    let receiver = rig.recv(V4, &["--once"]);
    let mut sender = rig.send(receiver.addr, &SLOW, &[&file, &other]);
    sender.line("sending");
    fs::File::options()
        .write(true)
        .open(&file)
        .expect("open")
        .set_len(7_000_000)
        .expect("shrink");
    sender.end().assert(6, "changed while it was being sent");
    receiver
        .end()
        .assert(9, "file: the sender could not read it");
    assert_eq!(rig.received(), ["other"]);
    assert!(fs::read(rig.inbox().join("other")).expect("received") == pattern(100_000));
}

#[test]
fn files_that_arrived_before_a_failure_are_named() {
    let rig = Rig::new();
    let files = [("a", 1000), ("b", 2000), ("large", BYTES)];
    let files = files.map(|(name, bytes)| rig.file(name, bytes));
    let addr = free_port();
    let receiver = rig.recv_command(&addr.to_string(), &rig.inbox(), &["--json"]);
    let receiver = Running::spawn(receiver);
    let args = [&SLOW[..], &["--json-lines"]].concat();
    let mut sender = rig.send(addr, &args, &files.each_ref().map(|file| &**file));
    for name in ["a", "b"] {
        let file = sender.line(r#""event":"file""#);
        assert!(file.contains(&format!(r#""path":"{name}""#)), "{file}");
    }
    receiver.signal("INT");
    for (ended, kind) in [
        (receiver.end(), "interrupted"),
        (sender.end(), "unreachable"),
    ] {
        let object = ended.json();
        assert_eq!(object["error"]["kind"], kind, "{object}");
        let result = &object["result"];
        assert_eq!(
            (&result["files"], &result["bytes"]),
            (&2.into(), &3000.into()),
            "{object}"
        );
        let arrived: Vec<_> = result["arrived"]
            .as_array()
            .expect("a list")
            .iter()
            .collect();
        assert_eq!(arrived, ["a", "b"]);
    }
    assert_eq!(rig.received(), ["a", "b"]);
}
