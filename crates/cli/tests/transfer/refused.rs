//! Transfers that do not start, and files that cannot be read or written.

use std::fs;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::thread;
use std::time::Duration;

use farwrite::fabric::udp::HANDSHAKE_PACKET;

use crate::rig::{Rig, Running, V4, free_port};

#[test]
fn another_key_is_refused_and_the_receiver_goes_on() {
    let rig = Rig::new();
    let file = rig.file("file", 1000);
    let stranger = Rig::new();
    let receiver = rig.recv(V4, &["--once"]);
    let refused = stranger.send(receiver.addr, &[], &[&file]).end();
    refused.assert(3, "has other keys");
    assert_eq!(rig.received(), [""; 0]);
    rig.send(receiver.addr, &[], &[&file]).end().assert(0, "");
    receiver.end().assert(0, "without a key that is accepted");
}

/// Where two ends do not fit, one end finds this out. It sends its sentence to the other end, so both ends print the same
/// sentence.
#[test]
fn ends_that_cannot_agree_say_the_same() {
    let rig = Rig::new();
    let file = rig.file("file", 1000);
    let eqds = ["--rate-control", "eqds", "--rate", "1Gbit"];
    let seals =
        "one end refuses data packets that are not sealed (--sealed), and the other does not seal";
    let grants = "one end uses EQDS, and the other does not";
    for (there, here, told) in [
        (&["--credit-rate", "1Gbit"][..], &[][..], grants),
        (&[], &eqds, grants),
        (&["--unsealed"], &["--sealed"], seals),
        (&["--sealed"], &["--unsealed"], seals),
    ] {
        let receiver = rig.recv(V4, &[&["--once"], there].concat());
        rig.send(receiver.addr, here, &[&file])
            .end()
            .assert(3, told);
        receiver.end().assert(3, told);
    }
}

#[test]
fn strangers_do_no_harm() {
    let rig = Rig::new();
    let file = rig.file("file", 1000);
    let receiver = rig.recv(V4, &["--once"]);
    let soon = Some(Duration::from_millis(200));
    // A hello of P12.3: first byte, kind, version, number, padding.
    let hello = [&[HANDSHAKE_PACKET, 0, 0, 1][..], &[7; 60]].concat();
    let garbage: [&[u8]; 5] = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        &[0xff; 60_000],
        &hello[..40],
        &hello,
        &[],
    ];
    for words in garbage {
        // Each has a socket of its own: an answer may come later.
        let stranger = UdpSocket::bind(V4).expect("loopback");
        stranger.set_read_timeout(soon).expect("timeout");
        stranger.send_to(words, receiver.addr).expect("sent");
        let mut answer = [0; 2048];
        let length = stranger.recv(&mut answer).unwrap_or(0);
        assert!(
            length <= words.len(),
            "a stranger gets more than it sends: {length} bytes"
        );
    }
    assert!(
        TcpStream::connect(receiver.addr).is_err(),
        "a receiver listens by UDP only"
    );
    rig.send(receiver.addr, &[], &[&file]).end().assert(0, "");
    receiver.end().assert(0, "");
    assert_eq!(rig.received(), ["file"]);
}

/// Answers each datagram of a sender with `answer` of it.
fn answering(answer: fn(&[u8]) -> Vec<u8>) -> SocketAddr {
    let socket = UdpSocket::bind(V4).expect("loopback");
    let addr = socket.local_addr().expect("address");
    thread::spawn(move || {
        let mut datagram = [0; 2048];
        while let Ok((length, from)) = socket.recv_from(&mut datagram) {
            let answer = answer(&datagram[..length]);
            socket.send_to(&answer, from).expect("sent");
        }
    });
    addr
}

#[test]
fn a_sender_tells_strangers_from_other_versions() {
    let rig = Rig::new();
    let file = rig.file("file", 1000);
    // A refusal (P12.7): the first byte of the hello, kind, version, the number of the hello, reason.
    let other_version = answering(|hello| [&[hello[0], 5, 0, 7][..], &hello[4..12], &[1]].concat());
    let sent = rig.send(other_version, &[], &[&file]).end();
    sent.assert(3, "version 7 of connections");
    let other_program = answering(|_| b"SSH-2.0-OpenSSH_9.2\r\n".to_vec());
    let sent = rig
        .send(other_program, &["--timeout", "1s"], &[&file])
        .end();
    sent.assert(5, &format!("connecting to {other_program}"));
}

#[test]
fn a_log_that_cannot_be_written_ends_the_receiver_before_it_listens() {
    let rig = Rig::new();
    for option in ["--audit", "--trace"] {
        let command = rig.recv_command(V4, &rig.inbox(), &[option, "/none/log"]);
        let ended = Running::spawn(command).end();
        ended.assert(6, "/none/log");
        assert!(!ended.stdout.contains("listening"), "{ended:?}");
    }
}

#[test]
fn nobody_there_is_unreachable_after_the_timeout() {
    let rig = Rig::new();
    let file = rig.file("file", 1000);
    let nobody = free_port();
    let sender = rig.send(nobody, &["--timeout", "1s"], &[&file]);
    let ended = sender.end();
    ended.assert(5, &format!("connecting to {nobody}"));
    ended.assert(5, "is a listener running there");
}

#[test]
fn a_second_sender_waits_as_long_as_its_user_wants() {
    let rig = Rig::new();
    // The transfer takes 6 s. A receiver keeps a sender waiting for 3 s before it says that it is busy.
    let (file, small) = (rig.file("file", 15_000_000), rig.file("small", 1000));
    let audit = rig.path("audit");
    let log = audit.to_str().expect("plain");
    let receiver = rig.recv(V4, &["--max-senders", "1", "--audit", log]);
    let mut first = rig.send(receiver.addr, &["--rate", "20Mbit"], &[&file]);
    first.line("sending");
    let impatient = rig.send(receiver.addr, &["--timeout", "2s"], &[&small]);
    let patient = rig
        .send(receiver.addr, &["--timeout", "60s"], &[&small])
        .end();
    patient.assert(0, "");
    assert!(
        patient.stdout.contains("the receiver is busy"),
        "{patient:?}"
    );
    impatient
        .end()
        .assert(7, "another transfer or probe is under way");
    first.end().assert(0, "");
    assert_eq!(rig.received(), ["file", "small"]);
    let log = fs::read_to_string(audit).expect("a log");
    let is_busy = |line: &str| line.contains("refused") && line.contains("another transfer");
    assert!(log.lines().any(is_busy), "{log}");
}

#[test]
fn a_directory_that_cannot_be_written_is_said_so() {
    let rig = Rig::new();
    let file = rig.file("file", 1000);
    let key = rig.key();
    let key = key.to_str().expect("plain");
    for dir in [rig.path("missing"), file.clone()] {
        let dir = dir.to_str().expect("plain").to_owned();
        let args = ["recv", "--listen", V4, "--dir", &dir, "--psk-file", key];
        Running::start(&args, &[]).end().assert(6, &dir);
    }
    // No user can create files there, not even root.
    let receiver = rig.recv_into(V4, "/proc", &["--once"]);
    let sent = rig.send(receiver.addr, &[], &[&file]).end();
    sent.assert(9, "file: the receiver could not create it");
    receiver
        .end()
        .assert(6, "file: the receiver could not create it");
}

#[test]
fn a_directory_in_the_way_of_a_file_is_said_so() {
    let rig = Rig::new();
    let file = rig.file("file", 1000);
    let other = rig.file("other", 1000);
    fs::create_dir(rig.inbox().join("file")).expect("directory");
    let receiver = rig.recv(V4, &["--once"]);
    rig.send(receiver.addr, &[], &[&file, &other])
        .end()
        .assert(9, "a directory has this name");
    receiver.end().assert(6, "a directory has this name");
    assert!(rig.inbox().join("other").is_file());
}

#[test]
fn what_cannot_be_sent_is_said_before_connecting() {
    let rig = Rig::new();
    let (missing, to) = (rig.path("missing"), free_port());
    rig.send(to, &[], &[&missing]).end().assert(6, "missing");
    let file = rig.file("file", 1);
    let no_key = Running::start(
        &[
            "send",
            "--to",
            &to.to_string(),
            file.to_str().expect("plain"),
        ],
        &[],
    );
    no_key.end().assert(2, "--psk-file");
    let key = rig.key();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).expect("chmod");
    rig.send(to, &[], &[&file]).end().assert(6, "chmod 600");
}

#[test]
fn an_unreadable_file_fails_by_itself() {
    let rig = Rig::new();
    let (good, bad) = (rig.file("good", 100_000), rig.file("bad", 100_000));
    fs::set_permissions(&bad, fs::Permissions::from_mode(0o000)).expect("chmod");
    if fs::File::open(&bad).is_ok() {
        return; // Root can read every file.
    }
    let receiver = rig.recv(V4, &["--once"]);
    let sent = rig.send(receiver.addr, &[], &[&bad, &good]).end();
    sent.assert(6, "bad: ");
    receiver.end().assert(9, "bad: ");
    assert_eq!(rig.received(), ["good"]);
}

#[test]
fn settings_that_do_not_fit_are_a_mismatch() {
    let rig = Rig::new();
    let file = rig.file("file", 30_000_000);
    let receiver = rig.recv(V4, &["--once", "--memory", "1MiB"]);
    let sent = rig.send(receiver.addr, &[], &[&file]).end();
    sent.assert(3, "--memory");
    receiver.end().assert(3, "--memory");
    let too_large = rig.send(free_port(), &["--mtu", "100000"], &[&file]).end();
    too_large.assert(2, "--mtu");
}

/// What a receiver's user does not want is refused before the first byte, with a reason at both
/// ends, even if the sender is still writing a long list of files.
#[test]
fn a_receiver_limits_what_it_takes() {
    let rig = Rig::new();
    let file = rig.file("file", 3000);
    let many = rig.path("many");
    fs::create_dir(&many).expect("directory");
    for index in 0..20_000 {
        fs::File::create(many.join(format!("{index:0200}"))).expect("create");
    }
    for (options, path, code, told) in [
        (
            ["--max-bytes", "2999"],
            &file,
            3,
            "has 3000 bytes, but the receiver takes at most 2999",
        ),
        (
            ["--max-files", "20000"],
            &many,
            3,
            "has 20001 files and directories, but the receiver",
        ),
        (
            ["--reserve", "1EiB"],
            &file,
            8,
            "the files need 4096 bytes, 1152921504606846976 are kept",
        ),
    ] {
        let receiver = rig.recv(V4, &["--once", options[0], options[1]]);
        let sender = rig.send(receiver.addr, &[], &[path]);
        receiver.end().assert(code, told);
        sender.end().assert(code, told);
        assert_eq!(rig.received(), [""; 0]);
    }
    let limits = [
        "--max-bytes",
        "3000",
        "--max-files",
        "1",
        "--umask",
        "027",
        "--no-sync",
    ];
    let receiver = rig.recv(V4, &[&["--once"][..], &limits].concat());
    fs::set_permissions(&file, fs::Permissions::from_mode(0o777)).expect("chmod");
    let sent = rig.send(receiver.addr, &["--json"], &[&file]).end();
    let received = receiver.end();
    for ended in [&sent, &received] {
        ended.assert(0, "");
    }
    assert_eq!(sent.result()["synced"], false, "the receiver says so");
    assert!(received.stdout.contains("not synced"), "{received:?}");
    let mode = fs::metadata(rig.inbox().join("file"))
        .expect("arrived")
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o750);
}
