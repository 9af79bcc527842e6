//! `farwrite send -` and `farwrite recv -`.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::json_page::check_pipe;
use crate::rig::{Ended, Rig, Running, farwrite, free_port, pattern};

/// A port that no other test uses.
pub(crate) fn port() -> String {
    free_port().to_string()
}

fn receiver(rig: &Rig, at: &str) -> Command {
    let mut command = farwrite();
    command.args(["recv", "--timeout", "2s", "--listen", at, "--psk-file"]);
    command.arg(rig.key()).arg("-");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn sender(rig: &Rig, at: &str, options: &[&str]) -> Command {
    let mut command = farwrite();
    command
        .args(options)
        .args(["send", "--timeout", "10s", "--to", at, "--psk-file"]);
    command.arg(rig.key()).arg("-");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn interrupt(child: &Child) {
    signal(child, "INT");
}

fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    let sent = Command::new("kill").args(["-s", name, &pid]).status();
    assert!(sent.expect("kill").success());
}

/// The commands of both ends with identities in files, of which the receiver knows that of `site-a`. Its pipes
/// have at most `max_bytes`.
fn known(rig: &Rig, at: &str, max_bytes: u64) -> [Command; 2] {
    let [host, site_a] = ["host", "site-a"].map(|name| rig.identity(name));
    // A pipe needs no directory.
    let text = format!("[site-a]\nkey = \"{site_a}\"\nmax-bytes = \"{max_bytes}\"\n");
    let peers = rig.peers(&text);
    let mut recv = farwrite();
    recv.args(["recv", "--timeout", "10s", "--listen", at, "--audit"]);
    recv.arg(rig.path("audit"));
    recv.arg("--identity").arg(rig.path("host"));
    recv.arg("--peers").arg(peers).arg("-");
    let mut send = farwrite();
    send.args([
        "--json",
        "send",
        "--timeout",
        "10s",
        "--to",
        at,
        "--identity",
    ]);
    send.arg(rig.path("site-a"));
    send.args(["--peer-key", &host.to_string(), "-"]);
    for end in [&mut recv, &mut send] {
        end.stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
    }
    [recv, send]
}

/// The last line of the audit log.
fn audited(rig: &Rig) -> serde_json::Value {
    let log = fs::read_to_string(rig.path("audit")).expect("a log");
    serde_json::from_str(log.lines().last().expect("a line")).expect("an object")
}

#[test]
fn what_one_end_reads_the_other_end_writes() {
    let (rig, at) = (Rig::new(), port());
    let [mut recv, mut send] = known(&rig, &at, 20_000_005);
    let mut recv = recv.spawn().expect("it starts");
    let mut send = send.spawn().expect("it starts");
    let (mut input, mut output) = (
        send.stdin.take().expect("piped"),
        recv.stdout.take().expect("piped"),
    );
    // The first bytes do not wait for later ones.
    input.write_all(b"first").expect("written");
    let mut first = [0; 5];
    output.read_exact(&mut first).expect("read");
    assert_eq!(&first, b"first");
    let bytes = pattern(20_000_000);
    let expected = bytes.clone();
    let feeding = thread::spawn(move || input.write_all(&bytes));
    let mut received = Vec::new();
    output.read_to_end(&mut received).expect("read");
    feeding.join().expect("no panic").expect("written");
    assert!(received == expected, "other bytes: {}", received.len());
    let recv = recv.wait_with_output().expect("it ends");
    assert!(recv.status.success(), "{}", told(&recv));
    let send = send.wait_with_output().expect("it ends");
    assert!(send.status.success(), "{}", told(&send));
    let json: serde_json::Value = serde_json::from_slice(&send.stdout).expect("JSON");
    check_pipe(&json);
    assert_eq!(json["result"]["bytes"], 20_000_005);
    let hash = blake3::hash(&[b"first", &expected[..]].concat());
    assert_eq!(json["result"]["blake3"], hash.to_hex().as_str());
    let line = audited(&rig);
    assert_eq!(
        (&line["event"], &line["peer"]),
        (&"pipe".into(), &"site-a".into()),
        "{line}"
    );
    assert_eq!(
        (&line["outcome"], &line["bytes"]),
        (&"done".into(), &20_000_005.into()),
        "{line}"
    );
}

#[test]
fn a_pipe_at_all_addresses_says_so() {
    let rig = Rig::new();
    for any in ["[::]", "0.0.0.0"] {
        let mut recv = receiver(&rig, &format!("{any}:0"))
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        let stderr = recv.stderr.take().expect("piped");
        BufReader::new(stderr).read_line(&mut line).expect("a line");
        assert!(line.starts_with(&format!("listening on {any}:")), "{line}");
        recv.kill().expect("kill");
        recv.wait().expect("it ends");
    }
}

#[test]
fn the_peers_of_a_pipe_are_read_again_after_a_hang_up() {
    let (rig, at) = (Rig::new(), port());
    let [mut recv, mut send] = known(&rig, &at, 1000);
    let peers = rig.path("peers.toml");
    let text = fs::read(&peers).expect("read");
    fs::write(&peers, "# nobody yet\n").expect("written");
    let mut recv = recv.spawn().expect("it starts");
    let mut lines = BufReader::new(recv.stderr.take().expect("piped")).lines();
    let mut says = |what: &str| lines.any(|line| line.expect("text").contains(what));
    assert!(says("listening on"));
    fs::write(&peers, text).expect("written");
    signal(&recv, "HUP");
    assert!(says("1 peer may connect"));
    let mut send = send.spawn().expect("it starts");
    let mut input = send.stdin.take().expect("piped");
    input.write_all(b"bytes").expect("written");
    drop(input);
    let send = send.wait_with_output().expect("it ends");
    assert!(send.status.success(), "{}", told(&send));
    let recv = recv.wait_with_output().expect("it ends");
    assert_eq!(recv.stdout, b"bytes");
}

/// The receiver lets each peer send so much.
#[test]
fn a_pipe_that_is_too_long_ends_both() {
    let (rig, at) = (Rig::new(), port());
    let [mut recv, mut send] = known(&rig, &at, 1000);
    let recv = recv.spawn().expect("it starts");
    let mut send = send.spawn().expect("it starts");
    let mut input = send.stdin.take().expect("piped");
    // The sender may have ended before it reads all of it.
    let _ = input.write_all(&pattern(1001));
    drop(input);
    for end in [send, recv] {
        let ended = end.wait_with_output().expect("it ends");
        assert_eq!(ended.status.code(), Some(3), "{}", told(&ended));
        assert!(
            told(&ended).contains("more bytes than the 1000"),
            "{}",
            told(&ended)
        );
    }
    let line = audited(&rig);
    assert_eq!(
        (&line["outcome"], &line["bytes"]),
        (&"mismatch".into(), &0.into()),
        "{line}"
    );
}

#[test]
fn a_reader_that_closes_its_pipe_ends_both() {
    let (rig, at) = (Rig::new(), port());
    let mut recv = receiver(&rig, &at).spawn().expect("it starts");
    let mut send = sender(&rig, &at, &[]).spawn().expect("it starts");
    // The producer pauses: the input stays open.
    let mut input = send.stdin.take().expect("piped");
    input.write_all(b"a line").expect("written");
    let mut first = [0; 6];
    let mut output = recv.stdout.take().expect("piped");
    output.read_exact(&mut first).expect("read");
    drop(output);
    let send = send.wait_with_output().expect("it ends");
    assert_eq!(send.status.code(), Some(9), "{}", told(&send));
    assert!(
        told(&send).contains("has closed the pipe, after 6 bytes were written"),
        "{}",
        told(&send)
    );
    let recv = recv.wait_with_output().expect("it ends");
    assert_eq!(recv.status.code(), Some(6), "{}", told(&recv));
}

#[test]
fn a_part_is_never_a_success() {
    for (signal, code, why) in [
        ("KILL", 5, "nothing was heard"),
        ("INT", 5, "was interrupted"),
    ] {
        let (rig, at) = (Rig::new(), port());
        let mut recv = receiver(&rig, &at).spawn().expect("it starts");
        let mut send = sender(&rig, &at, &[]).spawn().expect("it starts");
        let mut input = send.stdin.take().expect("piped");
        input.write_all(b"half").expect("written");
        let mut first = [0; 4];
        recv.stdout
            .as_mut()
            .expect("piped")
            .read_exact(&mut first)
            .expect("read");
        match signal {
            "KILL" => send.kill().expect("kill"),
            _ => interrupt(&send),
        }
        let recv = recv.wait_with_output().expect("it ends");
        assert_eq!(recv.status.code(), Some(code), "{}", told(&recv));
        assert!(told(&recv).contains(why), "{}", told(&recv));
        let send = send.wait().expect("it ends");
        assert_eq!(send.code(), (signal == "INT").then_some(130));
    }
}

#[test]
fn an_end_that_cannot_go_on_tells_the_other_one() {
    // Ctrl-C at the receiver, and an output that takes no bytes.
    for is_full in [false, true] {
        let (rig, at) = (Rig::new(), port());
        let mut command = receiver(&rig, &at);
        if is_full {
            command.stdout(
                fs::File::options()
                    .write(true)
                    .open("/dev/full")
                    .expect("a device"),
            );
        }
        let mut recv = command.spawn().expect("it starts");
        let mut send = sender(&rig, &at, &[]).spawn().expect("it starts");
        send.stdin
            .as_mut()
            .expect("piped")
            .write_all(b"half")
            .expect("written");
        if !is_full {
            let mut first = [0; 4];
            recv.stdout
                .as_mut()
                .expect("piped")
                .read_exact(&mut first)
                .expect("read");
            interrupt(&recv);
        }
        let recv = recv.wait().expect("it ends");
        let status = send.wait().expect("it ends");
        assert_eq!(
            (recv.code(), status.code()),
            if is_full {
                (Some(8), Some(8))
            } else {
                (Some(130), Some(5))
            }
        );
    }
}

#[test]
fn options_of_files_are_refused() {
    let rig = Rig::new();
    let refused = |args: &[&str]| -> Ended {
        let mut command = farwrite();
        command.args(args).arg("--psk-file").arg(rig.key());
        Running::spawn(command).end()
    };
    for option in ["--unsealed", "--delete", "--dry-run"] {
        refused(&["send", "--to", "127.0.0.1:9", option, "-"]).assert(2, option);
    }
    for name in ["", "..", "a/b", "a\nb", &"x".repeat(240)] {
        refused(&["send", "--to", "127.0.0.1:9", "--name", name, "-"]).assert(2, "--name");
    }
    refused(&["send", "--to", "127.0.0.1:9", "--name", "a", "b"]).assert(2, "--name");
    refused(&["recv", "--once", "-"]).assert(2, "--once");
    refused(&["--json", "recv", "-"]).assert(2, "standard output carries the data");
    // The other end has another key.
    let at = port();
    let mut recv = receiver(&rig, &at).spawn().expect("it starts");
    thread::sleep(Duration::from_millis(100));
    let send = sender(&Rig::new(), &at, &[]).output().expect("it ends");
    assert_eq!(send.status.code(), Some(3), "{}", told(&send));
    recv.kill().expect("kill");
    recv.wait().expect("it ends");
}

/// A receiver of files has no file for such a pipe, says so, and goes on.
#[test]
fn a_pipe_without_a_name_is_refused_by_a_receiver_of_files() {
    let rig = Rig::new();
    let recv = rig.recv("127.0.0.1:0", &["--once"]);
    let send = sender(&rig, &recv.addr.to_string(), &[])
        .output()
        .expect("it ends");
    assert_eq!(send.status.code(), Some(3), "{}", told(&send));
    let expected = "at the receiver: this receiver stores files";
    assert!(told(&send).contains(expected), "{}", told(&send));
    let file = rig.file("a", 1000);
    rig.send(recv.addr, &[], &[&file]).end().assert(0, "");
    recv.end().assert(0, "farwrite send --name NAME -");
    assert_eq!(rig.received(), ["a"]);
}

/// As [`sender`], for the file `name` of the receiver.
fn named(rig: &Rig, at: &str, name: &str) -> Command {
    let mut command = sender(rig, at, &["--json"]);
    command.args(["--name", name]);
    command
}

/// Waits until the directory of the receiver has this number of entries.
fn has_entries(rig: &Rig, entries: usize) {
    let start = Instant::now();
    while rig.received().len() != entries {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "{:?}",
            rig.received()
        );
        thread::sleep(Duration::from_millis(10));
    }
}

/// One receiver takes files and pipes of several senders at one port. What is not whole leaves nothing.
#[test]
fn a_receiver_of_files_stores_pipes() {
    let rig = Rig::new();
    let audit = rig.path("audit");
    let audit = audit.to_str().expect("plain");
    let recv = rig.recv("127.0.0.1:0", &["--max-bytes", "1000000", "--audit", audit]);
    let at = recv.addr.to_string();
    let mut piped = named(&rig, &at, "backup").spawn().expect("it starts");
    let mut input = piped.stdin.take().expect("piped");
    input.write_all(b"first").expect("written");
    // It comes while the pipe is open.
    let file = rig.file("a", 1000);
    rig.send(recv.addr, &[], &[&file]).end().assert(0, "");
    let bytes = pattern(900_000);
    input.write_all(&bytes).expect("written");
    drop(input);
    let piped = piped.wait_with_output().expect("it ends");
    assert!(piped.status.success(), "{}", told(&piped));
    assert_eq!(rig.received(), ["a", "backup"]);
    let stored = fs::read(rig.inbox().join("backup")).expect("a file");
    assert!(stored == [b"first", &bytes[..]].concat());
    // The receiver writes it after the sender has ended.
    let start = Instant::now();
    while audited(&rig)["event"] != "pipe" && start.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(10));
    }
    let line = audited(&rig);
    assert_eq!(
        (&line["event"], &line["file"], &line["bytes"]),
        (&"pipe".into(), &"backup".into(), &900_005.into()),
        "{line}"
    );

    let mut long = named(&rig, &at, "backup").spawn().expect("it starts");
    let mut input = long.stdin.take().expect("piped");
    // The sender may have ended before it reads all of it.
    let _ = input.write_all(&pattern(1_000_001));
    drop(input);
    let long = long.wait_with_output().expect("it ends");
    assert_eq!(long.status.code(), Some(3), "{}", told(&long));
    let mut half = named(&rig, &at, "half").spawn().expect("it starts");
    let mut input = half.stdin.take().expect("piped");
    input.write_all(b"half").expect("written");
    // The receiver has it when a temporary file is there.
    has_entries(&rig, 3);
    interrupt(&half);
    assert_eq!(half.wait().expect("it ends").code(), Some(130));
    has_entries(&rig, 2);
    assert_eq!(rig.received(), ["a", "backup"]);
    let stored = fs::read(rig.inbox().join("backup")).expect("a file");
    assert_eq!(stored.len(), 900_005, "the older one stays");
    recv.running.signal("INT");
    recv.end().assert(130, "more bytes than the 1000000");
}

/// A second pipe waits for the place of the first one, and its user learns why.
#[test]
fn a_pipe_waits_for_a_busy_receiver() {
    let rig = Rig::new();
    let recv = rig.recv("127.0.0.1:0", &["--max-senders", "1"]);
    let at = recv.addr.to_string();
    let mut first = named(&rig, &at, "first").spawn().expect("it starts");
    let mut input = first.stdin.take().expect("piped");
    input.write_all(b"first").expect("written");
    // The receiver has it when a temporary file is there.
    has_entries(&rig, 1);
    let mut command = farwrite();
    command.args(["send", "--timeout", "120s", "--name", "second", "--to", &at]);
    command.arg("--psk-file").arg(rig.key()).arg("-");
    let mut second = Running::spawn(command);
    second.line("the receiver is busy");
    drop(input);
    let first = first.wait_with_output().expect("it ends");
    assert!(first.status.success(), "{}", told(&first));
    second.end().assert(0, "");
    assert_eq!(rig.received(), ["first", "second"]);
}
