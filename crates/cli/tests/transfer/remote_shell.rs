//! `farwrite rsh`, with a script in place of ssh. The system tests have a real ssh server, and rsync.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::copies::machines;
use crate::rig::pattern;

/// Starts a command on the other machine.
fn start(root: &Path, options: &[&str], words: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farwrite"));
    command.arg("rsh").arg("--rsh").arg(root.join("rsh"));
    command
        .args(["--far-program", env!("CARGO_BIN_EXE_farwrite")])
        .args(options)
        .arg("host")
        .args(words);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().expect("the program starts")
}

#[test]
fn a_command_gets_its_input_and_gives_its_output_and_exit_code() {
    let root = machines("rsh");
    for (words, code, output, error) in [
        (
            &["echo", "a  b;", "pwd"][..],
            0,
            format!("a b\n{}\n", root.join("far").display()),
            "",
        ),
        (&["false"], 1, String::new(), ""),
        (&["echo why >&2; exit 7"], 7, String::new(), "why\n"),
        (&["kill -9 $$"], 137, String::new(), ""),
        // The end of the input arrives while the output goes on.
        (&["cat; echo behind"], 0, "behind\n".into(), ""),
    ] {
        let ended = start(&root, &["-l", "me"], words)
            .wait_with_output()
            .expect("it ends");
        assert_eq!(ended.status.code(), Some(code), "{words:?}: {ended:?}");
        assert_eq!(String::from_utf8_lossy(&ended.stdout), output, "{words:?}");
        assert_eq!(String::from_utf8_lossy(&ended.stderr), error, "{words:?}");
    }
    let commands = fs::read_to_string(root.join("commands")).expect("the commands");
    assert!(
        commands.contains("me@host") && !commands.contains("psk"),
        "{commands}"
    );
    // What is wrong before the command has another exit code.
    let mut none = Command::new(env!("CARGO_BIN_EXE_farwrite"));
    none.arg("rsh").arg("--rsh").arg(root.join("rsh"));
    none.args(["--far-program", "/none", "host", "true"]);
    let none = none.output().expect("it ends");
    assert_eq!(none.status.code(), Some(255), "{none:?}");
}

#[test]
fn many_bytes_go_there_and_back() {
    let root = machines("rsh-bytes");
    let mut child = start(&root, &[], &["cat"]);
    let mut input = child.stdin.take().expect("piped");
    let feeding = thread::spawn(move || input.write_all(&pattern(10_000_000)));
    let ended = child.wait_with_output().expect("it ends");
    feeding.join().expect("no panic").expect("written");
    assert!(
        ended.status.success() && ended.stdout == pattern(10_000_000),
        "{:?}",
        ended.status
    );
}

#[test]
fn what_ends_at_one_end_ends_at_the_other() {
    let root = machines("rsh-ends");
    // A reader that closes the output: the command gets SIGPIPE.
    let mut child = start(&root, &[], &["yes"]);
    let mut output = child.stdout.take().expect("piped");
    output.read_exact(&mut [0; 2]).expect("read");
    drop(output);
    assert_eq!(child.wait().expect("it ends").code(), Some(141));
    // A command that does not read its input.
    let mut child = start(&root, &[], &["exit 3"]);
    let mut input = child.stdin.take().expect("piped");
    let feeding = thread::spawn(move || input.write_all(&vec![0; 100_000_000]));
    assert_eq!(child.wait().expect("it ends").code(), Some(3));
    feeding.join().expect("no panic").expect_err("nobody reads");
    // A near end that is killed.
    let mut child = start(
        &root,
        &[],
        &["trap 'echo > hung-up; exit' HUP; echo; sleep 60 & wait"],
    );
    child
        .stdout
        .as_mut()
        .expect("piped")
        .read_exact(&mut [0])
        .expect("read");
    child.kill().expect("kill");
    child.wait().expect("it ends");
    let start = Instant::now();
    while !root.join("far/hung-up").exists() {
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "the command goes on"
        );
        thread::sleep(Duration::from_millis(10));
    }
}
