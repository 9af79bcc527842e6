//! `farwrite rsh`, with a script in place of ssh. The system tests have a real ssh server, and rsync.

use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use farwrite_connection::{ConnectionOptions, Keys, Listener};
use farwrite_keys::Psk;

use crate::copies::machines;
use crate::rig::pattern;

/// Runs a command on the other machine.
fn command(root: &Path, options: &[&str], words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farwrite"));
    command.arg("rsh").arg("--rsh").arg(root.join("rsh"));
    command
        .args(["--far-program", env!("CARGO_BIN_EXE_farwrite")])
        .args(options)
        .arg("host")
        .args(words)
        .stderr(Stdio::piped());
    command
}

/// Starts a command on the other machine.
fn start(root: &Path, options: &[&str], words: &[&str]) -> Child {
    let mut command = command(root, options, words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
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

/// rsync makes the standard output of its remote shell non-blocking.
#[test]
fn an_input_and_an_output_that_do_not_block_carry_all_bytes() {
    let root = machines("rsh-not-blocking");
    let [(mut input, its_input), (mut output, its_output)] =
        [(), ()].map(|()| UnixStream::pair().expect("two sockets"));
    let mut command = command(&root, &[], &["cat"]);
    for (end, is_output) in [(its_input, false), (its_output, true)] {
        end.set_nonblocking(true).expect("set");
        match is_output {
            false => command.stdin(OwnedFd::from(end)),
            true => command.stdout(OwnedFd::from(end)),
        };
    }
    let child = command.spawn().expect("the program starts");
    // The output ends when no process has it.
    drop(command);
    let feeding = thread::spawn(move || input.write_all(&pattern(3_000_000)));
    let mut came = Vec::new();
    output.read_to_end(&mut came).expect("read");
    feeding.join().expect("no panic").expect("written");
    let ended = child.wait_with_output().expect("it ends");
    assert!(
        ended.status.success() && came == pattern(3_000_000),
        "{} bytes, {ended:?}",
        came.len()
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

/// The other end dials this one, which has given up meanwhile and goes through ssh.
#[test]
fn a_near_end_that_gives_up_goes_through_ssh() {
    let psk = Psk::generate().expect("randomness");
    let mut far = Command::new(env!("CARGO_BIN_EXE_farwrite"));
    far.args(["--quiet", "far", "rsh", "0", "0", "auto", "5s", "cat"]);
    far.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut far = far.spawn().expect("the program starts");
    let mut input = far.stdin.take().expect("piped");
    let mut output = BufReader::new(far.stdout.take().expect("piped"));
    let here = SocketAddr::from(([127, 0, 0, 1], 0));
    let options = ConnectionOptions::default();
    let listener = Listener::bind(here, &Keys::of_psk(&psk), &options).expect("bound");
    let port = listener.local_addr().port();
    writeln!(input, "{}", &*psk.to_text()).expect("written");
    let mut greeting = String::new();
    output.read_line(&mut greeting).expect("a line");
    assert!(greeting.starts_with("farwrite-far-2 "), "{greeting}");
    writeln!(input, "dial {port} 127.0.0.1").expect("written");
    let connection = listener.accept(Duration::from_secs(30)).expect("no error");
    let connection = connection.expect("the far end dials");
    writeln!(input, "ssh\nhello").expect("written");
    drop(input);
    let mut all = String::new();
    output.read_to_string(&mut all).expect("read");
    assert_eq!(all, "hello\n");
    assert!(far.wait().expect("it ends").success());
    drop(connection);
}

/// Runs `farwrite cp` with a pipe. Returns what it gives to the standard output.
fn copy(root: &Path, words: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farwrite"));
    command.arg("cp").arg("--rsh").arg(root.join("rsh"));
    command.args(["--far-program", env!("CARGO_BIN_EXE_farwrite")]);
    command.args(words).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut stdin = child.stdin.take().expect("piped");
    thread::scope(|scope| {
        // An end that fails does not read its input.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().expect("it ends")
    })
}

/// The other machine answers no more, and ssh does not notice. The other end is stopped, and would be ended long after.
#[test]
fn a_copy_of_a_pipe_ends_although_ssh_does_not() {
    let root = machines("cp-silent");
    let script = format!(
        "#!/bin/sh\nexec 3<&0 2>/dev/null\n{} \"$@\" <&3 & far=$!\n\
         me=$$; (sleep 40; kill -9 $far $me) <&- >/dev/null 3<&- &\n\
         while ! [ \"$(find . -name '.*' -size +1000k)\" ]; do sleep 0.05; done\nkill -STOP $far\nwhile :; do sleep 1; done\n",
        env!("CARGO_BIN_EXE_farwrite")
    );
    let far = root.join("stopped");
    fs::write(&far, script).expect("a script");
    fs::set_permissions(&far, Permissions::from_mode(0o755)).expect("a mode");
    fs::write(root.join("data"), vec![7; 30_000_000]).expect("a file");
    let errors = root.join("errors");
    let mut command = Command::new(env!("CARGO_BIN_EXE_farwrite"));
    command.arg("cp").arg("--rsh").arg(root.join("rsh"));
    command.arg("--far-program").arg(far);
    command.args(["--timeout", "2s", "--rate", "80Mbit", "-", "host:file"]);
    command.stdin(File::open(root.join("data")).expect("a file"));
    command.stderr(File::create(&errors).expect("a file"));
    let status = command.status().expect("the program starts");
    let why = fs::read_to_string(errors).expect("text");
    assert_eq!(status.code(), Some(5), "{why}");
    assert!(
        why.contains("nothing was heard of the peer for 2 s"),
        "{why}"
    );
}

#[test]
fn a_pipe_is_copied_to_a_file_and_back() {
    let root = machines("cp-pipes");
    let bytes = pattern(3_000_000);
    fs::write(root.join("far/old"), "old").expect("written");
    fs::set_permissions(root.join("far/old"), Permissions::from_mode(0o600)).expect("chmod");
    symlink("old", root.join("far/link")).expect("a link");
    for name in ["new", "~//it's", "link"] {
        let sent = copy(&root, &["-", &format!("host:{name}")], &bytes);
        assert!(sent.status.success(), "{sent:?}");
        let back = copy(&root, &[&format!("host:{name}"), "-"], &[]);
        assert!(back.status.success() && back.stdout == bytes, "{name}");
    }
    let list: Vec<_> = crate::rig::list(&root.join("far"));
    assert_eq!(list, ["in", "it's", "link", "new", "old"]);
    assert!(fs::read(root.join("far/old")).expect("read") == bytes);
    // An older file keeps its permissions. A new one gets those of any new file.
    fs::write(root.join("any"), "").expect("written");
    let mode = |name: &str| {
        let status = fs::metadata(root.join(name)).expect("a file");
        status.permissions().mode() & 0o777
    };
    assert_eq!(mode("far/old"), 0o600);
    assert_eq!(mode("far/new"), mode("any"));
    for (words, code, why) in [
        (&["-", "host:in"][..], 9, "it is a directory; name a file"),
        (&["-", "host:none/file"], 9, "creating none/file"),
        (&["host:none", "-"], 9, "opening none"),
        (&["-", "-"], 2, "for a file named `-`, write ./-"),
        (
            &["-", "data", "host:in"],
            2,
            "the other path must name one file",
        ),
        (&["--rate", "much", "-", "host:in"], 2, "--rate much: "),
    ] {
        let failed = copy(&root, words, &bytes);
        let stderr = String::from_utf8_lossy(&failed.stderr);
        assert_eq!(failed.status.code(), Some(code), "{words:?}: {stderr}");
        assert!(stderr.contains(why), "{words:?}: {stderr}");
    }
    // The reason is that of this end, and not that this end has ended the other one.
    let mut full = Command::new(env!("CARGO_BIN_EXE_farwrite"));
    full.arg("cp").arg("--rsh").arg(root.join("rsh"));
    full.args(["--far-program", env!("CARGO_BIN_EXE_farwrite")]);
    full.args(["host:new", "-"]).stderr(Stdio::null());
    full.stdout(
        File::options()
            .write(true)
            .open("/dev/full")
            .expect("a device"),
    );
    assert_eq!(full.status().expect("it ends").code(), Some(8));
    // A sender that dies leaves the old file, and nothing beside it.
    let mut command = Command::new(env!("CARGO_BIN_EXE_farwrite"));
    command.arg("cp").arg("--rsh").arg(root.join("rsh"));
    command.args(["--far-program", env!("CARGO_BIN_EXE_farwrite")]);
    command.args(["-", "host:new"]).stdin(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(&[1; 100_000]).expect("written");
    let is_there = || crate::rig::list(&root.join("far")).len() > 5;
    wait(is_there);
    child.kill().expect("killed");
    child.wait().expect("it ends");
    wait(|| !is_there());
    assert!(fs::read(root.join("far/new")).expect("read") == bytes);
}

fn wait(until: impl Fn() -> bool) {
    let start = Instant::now();
    while !until() {
        assert!(start.elapsed() < Duration::from_secs(30), "nothing happens");
        thread::sleep(Duration::from_millis(10));
    }
}
