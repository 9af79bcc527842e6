//! Files that changed after the scan: they are gone, or longer than reported.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::rig::{Receiver, Rig, Running, V4, free_port};

#[test]
fn file_that_holds_more_than_its_size_fails_by_name() {
    let rig = Rig::new();
    let file = rig.file("file", 1000);
    let receiver = rig.recv(V4, &["--once"]);
    // Files in /proc report a size of 0 bytes.
    let paths = [Path::new("/proc/meminfo"), &file];
    let sent = rig.send(receiver.addr, &[], &paths).end();
    sent.assert(6, "meminfo: ");
    receiver.end().assert(9, "meminfo: ");
    assert_eq!(rig.received(), ["file"]);
}

#[test]
fn vanished_file_takes_no_time() {
    const BYTES: usize = 8_000_000;
    let rig = Rig::new();
    let first = rig.file("first", BYTES);
    let second = rig.path("second");
    // The transfer takes minutes at this rate.
    let sparse = File::create(&second).and_then(|file| file.set_len(1 << 30));
    sparse.expect("a file without content");
    let addr = free_port();
    let args = ["--json", "--rate", "20Mbit", "--memory", "1MiB"];
    let sender = rig.send(addr, &args, &[&first, &second]);
    let command = rig.recv_command(&addr.to_string(), &rig.inbox(), &["--once", "--json"]);
    let receiver = Running::spawn(command);
    // The first file takes three seconds, and the second file is opened after it.
    while !rig.received().iter().any(|name| name.ends_with(".part")) {
        thread::sleep(Duration::from_millis(5));
    }
    fs::remove_file(&second).expect("remove");
    for (ended, code) in [(sender.end(), 6), (receiver.end(), 9)] {
        ended.assert(code, "second: ");
        let result = ended.result();
        assert_eq!(result["bytes"], BYTES);
        assert_eq!(result["failures"][0]["path"], "second");
        assert_eq!(result["failures"][0]["cause"], "unreadable");
        assert!(
            result["seconds"].as_f64().expect("a number") < 60.0,
            "{result}"
        );
    }
    assert_eq!(rig.received(), ["first"]);
}

#[test]
fn a_log_that_grew_is_named_also_after_a_failure() {
    let rig = Rig::new();
    let (log, large) = (rig.file("log", 1000), rig.file("large", 8_000_000));
    let addr = free_port();
    let args = ["--rate", "20Mbit", "--json-lines"];
    let (told, teller) = std::io::pipe().expect("a pipe");
    let mut told = BufReader::new(told);
    let command = rig.send_command(addr, &args, &[&log, &large]);
    let mut sender = Running::spawn_with_stderr(command, teller);
    // The list of files is complete at this point.
    let mut line = String::new();
    told.read_line(&mut line).expect("text");
    assert!(line.contains("nothing answers"), "{line}");
    let mut grown = File::options().append(true).open(&log).expect("open");
    grown.write_all(b"more").expect("write");
    let receiver = Running::spawn(rig.recv_command(&addr.to_string(), &rig.inbox(), &["--once"]));
    let file: Value = serde_json::from_str(&sender.line(r#""event":"file""#)).expect("an event");
    assert_eq!(
        (&file["path"], &file["state"]),
        (&"log".into(), &"arrived".into())
    );
    // Beside it is a part of the large file.
    assert!(rig.received().contains(&"log".to_owned()));
    sender.signal("INT");
    let sent = sender.end();
    let mut rest = String::new();
    told.read_to_string(&mut rest).expect("text");
    assert_eq!(sent.code, Some(130), "{rest}");
    assert!(rest.contains("log\" grew while it was sent"), "{rest}");
    let result = sent.result();
    assert_eq!(
        (&result["files"], &result["bytes"]),
        (&1.into(), &1000.into())
    );
    receiver.end().assert(5, "interrupted");
}

#[test]
fn thousands_of_vanished_files_are_few_lines() {
    const FILES: usize = 20_000;
    let rig = Rig::new();
    let tree = rig.path("tree");
    fs::create_dir(&tree).expect("directory");
    for number in 0..FILES {
        fs::write(tree.join(number.to_string()), "content").expect("write");
    }
    let kept = tree.join("0");
    let addr = free_port();
    let mut sender = rig.send(addr, &[], &[&tree]);
    // The list of files is complete at this point.
    sender.line("nothing answers");
    for item in fs::read_dir(&tree).expect("directory") {
        let path = item.expect("item").path();
        if path != kept {
            fs::remove_file(path).expect("remove");
        }
    }
    let command = rig.recv_command(&addr.to_string(), &rig.inbox(), &["--once"]);
    let receiver = Receiver::start(Running::spawn(command));
    for (ended, code) in [(sender.end(), 6), (receiver.end(), 9)] {
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(ended.stdout.contains("19999 failed"), "{}", ended.stdout);
        let lines = ended.stderr.lines().count();
        assert!((1..100).contains(&lines), "{lines} lines");
    }
    assert_eq!(
        fs::read_dir(rig.inbox().join("tree"))
            .expect("directory")
            .count(),
        1
    );
}
