//! Terminals that disappear or block, signals, and peers that block.

use std::fs::{self, File};
use std::io::{PipeReader, Write, pipe};
use std::net::SocketAddr;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use farwrite_connection::{Keys, Listener, Purpose};
use farwrite_files::{Hello, Message};
use farwrite_keys::Text;
use farwrite_transfer::{Channel, connection_options};

use crate::rig::{Receiver, Rig, Running, V4, free_port};

/// The transfer takes several seconds at [`RATE`].
const BYTES: usize = 5_000_000;
const RATE: &str = "20Mbit";

/// Returns a command that starts with hang-ups ignored (as with `nohup`) or not, independently of
/// the setting of the tests.
fn with_hang_ups(setting: &str, command: &Command) -> Command {
    let mut env = Command::new("env");
    env.arg(format!("--{setting}-signal=HUP"));
    env.arg(command.get_program()).args(command.get_args());
    env
}

#[test]
fn hang_up_ends_nothing_that_ignores_it() {
    let rig = Rig::new();
    let file = rig.file("file", BYTES);
    let receiver = rig.recv_command(V4, &rig.inbox(), &["--once"]);
    let receiver = Receiver::start(Running::spawn(with_hang_ups("ignore", &receiver)));
    let sender = rig.send_command(receiver.addr, &["--rate", RATE], &[&file]);
    let mut sender = Running::spawn(with_hang_ups("ignore", &sender));
    sender.line("sending");
    receiver.running.signal("HUP");
    sender.signal("HUP");
    sender.end().assert(0, "");
    receiver.end().assert(0, "");
}

#[test]
fn hang_up_ends_the_program() {
    let rig = Rig::new();
    let file = rig.file("file", BYTES);
    let receiver = rig.recv_command(V4, &rig.inbox(), &["--once"]);
    let receiver = Receiver::start(Running::spawn(with_hang_ups("default", &receiver)));
    let mut sender = rig.send(receiver.addr, &["--rate", RATE], &[&file]);
    sender.line("sending");
    receiver.running.signal("HUP");
    receiver.end().assert(130, "interrupted");
    sender.end().assert(5, "");
    assert_eq!(rig.received(), [""; 0]);
}

/// Starts a program whose standard error is full. Each of its writes waits until the returned
/// reader is dropped.
fn with_full_stderr(command: Command) -> (Running, PipeReader) {
    let (reader, writer) = pipe().expect("pipe");
    let mut filling = writer.try_clone().expect("descriptor");
    thread::spawn(move || while filling.write_all(&[b'.'; 4096]).is_ok() {});
    // The remaining room is filled before the program prints much.
    thread::sleep(Duration::from_millis(100));
    (Running::spawn_with_stderr(command, writer), reader)
}

#[test]
fn transfer_does_not_wait_for_a_reader_of_standard_error() {
    let rig = Rig::new();
    let file = rig.file("file", BYTES);
    let addr = free_port();
    let receiver = rig.recv_command(&addr.to_string(), &rig.inbox(), &["--once", "--json"]);
    let sender = rig.send_command(addr, &["--json", "--rate", RATE], &[&file]);
    let (receiver, _unread) = with_full_stderr(receiver);
    let (sender, _unread_too) = with_full_stderr(sender);
    for ended in [sender.end(), receiver.end()] {
        ended.assert(0, "");
        assert_eq!(ended.result()["bytes"], BYTES, "{ended:?}");
    }
}

#[test]
fn sender_is_interrupted_while_its_receiver_stands_still() {
    let rig = Rig::new();
    let file = rig.file("file", 20_000_000);
    let receiver = rig.recv(V4, &["--once"]);
    let mut sender = rig.send(receiver.addr, &["--rate", RATE], &[&file]);
    sender.line("sending");
    thread::sleep(Duration::from_millis(500));
    receiver.running.signal("STOP");
    thread::sleep(Duration::from_millis(500));
    sender.signal("INT");
    let start = Instant::now();
    sender.end().assert(130, "interrupted");
    let took = start.elapsed();
    // A program that waits for its peer would end after the timeout, one minute.
    assert!(took < Duration::from_secs(20), "{took:?}");
    receiver.running.signal("CONT");
    let ended = receiver.end();
    assert_eq!(ended.code, Some(5), "{ended:?}");
    assert_eq!(rig.received(), [""; 0]);
}

#[test]
fn sender_is_interrupted_while_its_manifest_is_not_read() {
    let rig = Rig::new();
    let tree = rig.path("tree");
    fs::create_dir(&tree).expect("directory");
    // The names have 8 MB in total, which exceeds the buffers of sockets.
    for number in 0..32_000 {
        File::create(tree.join(format!("{number:0>250}"))).expect("file");
    }
    let loopback = V4.parse::<SocketAddr>().expect("address");
    let patience = Duration::from_secs(20);
    let mut options = connection_options(patience);
    options.serves = vec![Purpose::FILES];
    let listener = Listener::bind(loopback, &Keys::of_psk(&rig.psk), &options).expect("loopback");
    let sender = rig.send(listener.local_addr(), &[], &[&tree]);
    let connection = listener
        .accept(patience)
        .expect("the port")
        .expect("the key fits");
    let channel = Channel::accept(&connection, patience).expect("a channel");
    let mut channel = channel.expect("a sender opens it");
    assert!(matches!(channel.recv(), Ok(Message::Hello(_))));
    let hello = Hello {
        software: Text::new("a receiver that reads no more"),
        capabilities: 0,
    };
    channel.send(&Message::Hello(hello)).expect("sent");
    thread::sleep(Duration::from_secs(1));
    sender.signal("INT");
    let start = Instant::now();
    sender.end().assert(130, "interrupted");
    let took = start.elapsed();
    // A program that waits for its peer would end after the timeout, one minute.
    assert!(took < Duration::from_secs(20), "{took:?}");
}
