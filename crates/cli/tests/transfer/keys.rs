//! Where a key is shown, and where it comes from.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use farwrite_keys::Code;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};

use crate::pipes::port as free_udp_port;
use crate::rig::{Rig, Running, V4, farwrite, free_port};

const PATIENCE: Duration = Duration::from_secs(60);

/// A program at a terminal.
struct AtTerminal {
    child: std::process::Child,
    keyboard: File,
    screen: String,
    shown: Receiver<String>,
}

impl AtTerminal {
    fn start(args: &[&str]) -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&terminal).expect("a terminal");
        unlockpt(&terminal).expect("a terminal");
        let name = ptsname(&terminal, Vec::new()).expect("a name");
        let other_end = || {
            let name = name.to_str().expect("plain");
            let open = File::options().read(true).write(true).open(name);
            Stdio::from(open.expect("the other end"))
        };
        let mut command = farwrite();
        command.args(args).stdin(other_end());
        let child = command.stdout(other_end()).stderr(other_end()).spawn();
        let keyboard = File::from(terminal);
        let mut screen = keyboard.try_clone().expect("a descriptor");
        let (tell, shown) = channel();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Reading fails when the program has ended.
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                let _ = tell.send(String::from_utf8_lossy(&bytes[..count]).into_owned());
            }
        });
        Self {
            child: child.expect("the program starts"),
            keyboard,
            screen: String::new(),
            shown,
        }
    }

    /// Waits until the screen shows a text. Returns the line that it stands in.
    fn line(&mut self, text: &str) -> String {
        self.line_that(text, |line| line.contains(text))
    }

    /// Waits until the screen shows such a line, and returns it. `what` names it.
    fn line_that(&mut self, what: &str, is: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            if let Some(line) = self.screen.lines().find(|line| is(line)) {
                return line.trim().to_owned();
            }
            let left = PATIENCE.saturating_sub(start.elapsed());
            match self.shown.recv_timeout(left) {
                Ok(more) => self.screen += &more,
                Err(_) => panic!("no {what:?} in {:?}", self.screen),
            }
        }
    }

    fn end(mut self) -> (Option<i32>, String) {
        let status = self.child.wait().expect("status");
        while let Ok(more) = self.shown.recv_timeout(Duration::from_secs(5)) {
            self.screen += &more;
        }
        (status.code(), self.screen)
    }
}

/// Whether a line of the screen is a code.
fn is_code(line: &str) -> bool {
    let line = line.trim().as_bytes();
    line.len() == 9 && line[4] == b'-' && line[0].is_ascii_digit()
}

/// Starts a receiver that shows a code. Returns it, and its address.
fn receiver_with_code(rig: &Rig) -> (AtTerminal, String) {
    let dir = rig.inbox();
    let dir = dir.to_str().expect("plain");
    let mut receiver = AtTerminal::start(&["recv", "--listen", V4, "--code", "--dir", dir]);
    let command = receiver.line("farwrite send");
    let to = command.split_whitespace().nth(3);
    (receiver, to.expect("an address").to_owned())
}

/// A code: typing errors are found before anything is sent, and the right one works once.
#[test]
fn a_code_is_shown_and_typed_and_works_once() {
    let rig = Rig::new();
    let file = rig.file("file", 10_000);
    let (mut receiver, to) = receiver_with_code(&rig);
    receiver.line("it asks for this code");
    let code = receiver.line_that("a code", is_code);
    let digit = |at: usize| code.as_bytes()[at] - b'0';
    let typo = format!("{}{}", (digit(0) + 1) % 10, &code[1..]);
    let path = file.to_str().expect("plain");
    let type_in = |text: &str| {
        let mut sender = AtTerminal::start(&["send", "--no-path-cache", "--to", &to, path]);
        sender.line("that the other end shows");
        writeln!(sender.keyboard, "{text}").expect("typed");
        sender.end()
    };
    let (status, screen) = type_in(&typo);
    assert_eq!(status, Some(2), "{screen}");
    assert!(screen.contains("was it typed right?"), "{screen}");
    let (status, screen) = type_in(&code.replace('-', " "));
    assert_eq!(status, Some(0), "{screen}");
    assert!(!screen.contains(&code), "{screen}");
    assert_eq!(receiver.end().0, Some(0));
    assert_eq!(rig.received(), ["file"]);
}

/// A code opens a pipe, and a sender that guesses one ends the receiver.
#[test]
fn a_code_opens_a_pipe() {
    let rig = Rig::new();
    let file = rig.file("file", 10);
    fs::write(&file, "through a pipe\n").expect("written");
    for is_right in [true, false] {
        let at = free_udp_port();
        let mut receiver = AtTerminal::start(&["recv", "--listen", &at, "--code", "-"]);
        let code = receiver.line_that("a code", is_code);
        let guess = Code::generate().expect("a code").to_text().to_string();
        let mut sender = farwrite();
        sender.args(["send", "--to", &at, "-"]);
        sender.env("FARWRITE_CODE", if is_right { code } else { guess });
        sender.stdin(File::open(&file).expect("a file"));
        let sent = sender.output().expect("it ends");
        let (status, screen) = receiver.end();
        let told = String::from_utf8_lossy(&sent.stderr);
        let expected = Some(if is_right { 0 } else { 3 });
        assert_eq!(
            (sent.status.code(), status),
            (expected, expected),
            "{told} {screen}"
        );
        assert_eq!(screen.contains("through a pipe"), is_right, "{screen}");
        if !is_right {
            assert!(
                told.contains("the code is wrong, and is used up now"),
                "{told}"
            );
            assert!(
                screen.contains("a sender has tried a wrong code"),
                "{screen}"
            );
        }
    }
}

/// A code lets one client measure, and no second one.
#[test]
fn a_code_is_for_one_client_of_a_server() {
    let mut server = AtTerminal::start(&[
        "perf",
        "write_bw",
        "--bind",
        "127.0.9.1",
        "-p",
        "0",
        "--code",
    ]);
    let command = server.line("farwrite perf");
    let to = command.split_whitespace().nth(3).expect("an address");
    let code = server.line_that("a code", is_code);
    let client = || {
        let mut client = farwrite();
        client.args(["perf", "write_bw", to, "-D", "600"]);
        client.env("FARWRITE_CODE", &code);
        Running::spawn(client)
    };
    let first = client();
    server.line_that("a client", |line| line.starts_with("a client at"));
    client().end().assert(3, "the code is used up");
    first.signal("INT");
    first.end().assert(130, "interrupted");
    let (status, screen) = server.end();
    assert_eq!(status, Some(5), "{screen}");
}

/// A person who guesses a code has one attempt.
#[test]
fn a_wrong_code_is_used_up() {
    let rig = Rig::new();
    let file = rig.file("file", 10_000);
    let (receiver, to) = receiver_with_code(&rig);
    let guess = Code::generate().expect("a code").to_text();
    let path = file.to_str().expect("plain");
    let mut sender = farwrite();
    sender.args(["send", "--no-path-cache", "--to", &to, path]);
    sender.env("FARWRITE_CODE", &*guess);
    Running::spawn(sender)
        .end()
        .assert(3, "the code is wrong, and is used up now");
    let (status, screen) = receiver.end();
    assert_eq!(status, Some(3), "{screen}");
    assert!(screen.contains("the code is used up"), "{screen}");
    assert_eq!(rig.received(), [""; 0]);
}

/// The two commands of docs/files.md, with a program at each end.
#[test]
fn a_new_key_is_shown_once_and_typed_without_echo() {
    let rig = Rig::new();
    let (file, dir) = (rig.file("file", 10_000), rig.inbox());
    let dir = dir.to_str().expect("plain");
    let args = ["recv", "--listen", V4, "--once", "--dir", dir];
    let mut receiver = AtTerminal::start(&args);
    let key = receiver.line("farwrite-psk-1:");
    let command = receiver.line("farwrite send");
    // A shell stores this line in its history.
    assert!(!command.contains("psk"), "{command}");
    let words: Vec<_> = command.split_whitespace().collect();
    let [program, "send", "--to", to, "PATH..."] = words[..] else {
        panic!("{command}");
    };
    assert_eq!(program, "farwrite");
    let path = file.to_str().expect("plain");
    let mut sender = AtTerminal::start(&["send", "--no-path-cache", "--to", to, path]);
    sender.line("that the other end shows");
    writeln!(sender.keyboard, "{key}").expect("typed");
    let (code, screen) = sender.end();
    assert_eq!(code, Some(0), "{screen}");
    assert!(
        !screen.contains("psk-1"),
        "the terminal shows the key: {screen}"
    );
    assert_eq!(receiver.end().0, Some(0));
    assert_eq!(rig.received(), ["file"]);
}

#[test]
fn the_terminal_shows_what_is_typed_after_ctrl_c() {
    let rig = Rig::new();
    let file = rig.file("file", 1);
    let to = free_port().to_string();
    let path = file.to_str().expect("plain");
    let mut sender = AtTerminal::start(&["send", "--to", &to, path]);
    sender.line("that the other end shows");
    let pid = sender.child.id().to_string();
    let killed = Command::new("kill").args(["-s", "INT", &pid]).status();
    assert!(killed.expect("kill").success());
    let terminal = sender.keyboard.try_clone().expect("a descriptor");
    let (code, screen) = sender.end();
    assert_eq!(code, Some(130), "{screen}");
    let modes = tcgetattr(&terminal).expect("a terminal");
    assert!(modes.local_modes.contains(LocalModes::ECHO));
}

#[test]
fn a_new_key_ends_in_no_log() {
    let rig = Rig::new();
    let dir = rig.inbox();
    let dir = dir.to_str().expect("plain");
    let args = ["recv", "--listen", V4, "--once", "--dir", dir];
    for more in [&[][..], &["--json"], &["--json", "--quiet"]] {
        let ended = Running::start(&[&args, more].concat(), &[]).end();
        ended.assert(2, "a new key is shown on a terminal only");
        let output = ended.stdout + &ended.stderr;
        assert!(!output.contains("farwrite-psk-1:"), "{output}");
    }
}

#[test]
fn a_key_file_that_is_a_pipe_without_a_writer_holds_no_program() {
    let rig = Rig::new();
    let (pipe, file) = (rig.path("pipe"), rig.file("file", 1));
    let made = Command::new("mkfifo")
        .args(["-m", "600"])
        .arg(&pipe)
        .status();
    assert!(made.expect("mkfifo").success());
    let names = [&pipe, &file].map(|path| path.to_str().expect("plain").to_owned());
    let to = free_port().to_string();
    let args = ["send", "--to", &to, "--psk-file", &names[0], &names[1]];
    for signal in ["TERM", "INT"] {
        let running = Running::start(&args, &[]);
        running.wait_until_it_catches_signals();
        // It waits for a writer.
        thread::sleep(Duration::from_millis(300));
        running.signal(signal);
        running.end().assert(130, "interrupted");
    }
    // A writer later provides the key.
    let receiver = rig.recv(V4, &["--once"]);
    let to = receiver.addr.to_string();
    let args = ["send", "--to", &to, "--psk-file", &names[0], &names[1]];
    let sender = Running::start(&args, &[]);
    fs::write(&pipe, &*rig.psk.to_text()).expect("a reader");
    sender.end().assert(0, "");
    receiver.end().assert(0, "");
}
