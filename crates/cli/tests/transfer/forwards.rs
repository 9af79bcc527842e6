//! `farwrite forward`, with an echo server behind the far end.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use farwrite_connection::{Connection, ConnectionOptions, Keys, Purpose, connect as connect_ends};
use farwrite_keys::PublicKey;
use farwrite_stream::{ConnectionExt, Stream, StreamOptions};

use crate::copies::machines;
use crate::pipes::port;
use crate::rig::{Rig, Running, farwrite, pattern};

/// More than all buffers of a stream and of two sockets.
const MUCH: usize = 128 << 20;

/// A server whose connections come out of the channel.
fn server() -> (SocketAddr, Receiver<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("an address");
    let (take, taken) = channel();
    thread::spawn(move || {
        while let Ok((tcp, _)) = listener.accept() {
            limit(&tcp);
            if take.send(tcp).is_err() {
                return;
            }
        }
    });
    (at, taken)
}

/// Two ends that forward a port to `to`.
struct Ends {
    far: Running,
    near: Running,
    at: SocketAddr,
}

impl Ends {
    fn start(rig: &Rig, allowed: &str, to: &str) -> Self {
        let at = port();
        let key = rig.key();
        let mut far = farwrite();
        far.args(["forward", "--listen", &at, "--allow-forward", allowed]);
        far.arg("--psk-file").arg(&key);
        let far = Running::spawn(far);
        let mut near = farwrite();
        near.args([
            "forward",
            "--timeout",
            "30s",
            "--to",
            &at,
            "-L",
            &format!("0:{to}"),
        ]);
        near.arg("--psk-file").arg(&key);
        let mut near = Running::spawn(near);
        let at = forwarded(&mut near);
        Self { far, near, at }
    }

    fn connect(&self) -> TcpStream {
        connect(self.at)
    }
}

/// The port of this machine that an end forwards.
fn forwarded(near: &mut Running) -> SocketAddr {
    let line = near.line("forwarding ");
    let at = line.split_whitespace().nth(1).expect("an address");
    at.parse().expect("an address")
}

fn connect(at: SocketAddr) -> TcpStream {
    let tcp = TcpStream::connect(at).expect("connected");
    limit(&tcp);
    tcp
}

fn limit(tcp: &TcpStream) {
    let limit = Some(Duration::from_secs(60));
    tcp.set_read_timeout(limit).expect("set");
    tcp.set_write_timeout(limit).expect("set");
}

/// Reads to the end.
fn all(tcp: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    tcp.read_to_end(&mut bytes).expect("an end");
    bytes
}

#[track_caller]
fn assert_reset(read: std::io::Result<usize>) {
    assert_eq!(
        read.expect_err("a reset").kind(),
        ErrorKind::ConnectionReset
    );
}

#[test]
fn streams_do_not_wait_for_each_other_and_each_direction_ends_alone() {
    let (to, taken) = server();
    let rig = Rig::new();
    let ends = Ends::start(&rig, &to.to_string(), &to.to_string());
    // Nobody reads the first one, so it fills what is there for it, and no more.
    let full = ends.connect();
    let mut unread = taken.recv().expect("the far end connects");
    full.set_nonblocking(true).expect("set");
    let (bytes, mut written) = (pattern(MUCH), 0);
    let mut quiet = 0;
    while quiet < 20 && written < MUCH {
        match (&full).write(&bytes[written..]) {
            Ok(count) => (written, quiet) = (written + count, 0),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                quiet += 1;
                thread::sleep(Duration::from_millis(20));
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(written < MUCH, "all of it went somewhere");
    // The second one goes on. It ends its direction, and gets the answer after that.
    let mut client = ends.connect();
    let mut server = taken.recv().expect("the far end connects");
    client.write_all(b"question").expect("written");
    client.shutdown(Shutdown::Write).expect("ended");
    assert_eq!(all(&mut server), b"question");
    let answer = pattern(3_000_000);
    let expected = answer.clone();
    let answering = thread::spawn(move || server.write_all(&answer));
    assert!(all(&mut client) == expected, "another answer");
    answering.join().expect("no panic").expect("written");
    // What the first one has taken arrives once somebody reads.
    full.shutdown(Shutdown::Write).expect("ended");
    assert!(all(&mut unread) == bytes[..written], "other bytes");
    unread.shutdown(Shutdown::Write).expect("ended");
    full.set_nonblocking(false).expect("set");
    assert_eq!((&full).read(&mut [0]).expect("an end"), 0);
}

#[test]
fn a_reset_arrives_as_a_reset_and_ends_nothing_else() {
    let (to, taken) = server();
    let rig = Rig::new();
    let ends = Ends::start(&rig, &to.to_string(), &to.to_string());
    let mut other = ends.connect();
    let mut of_other = taken.recv().expect("the far end connects");
    for is_client in [true, false] {
        let client = ends.connect();
        let server = taken.recv().expect("the far end connects");
        let (mut dies, mut lives) = match is_client {
            true => (client, server),
            false => (server, client),
        };
        dies.write_all(b"x").expect("written");
        lives.write_all(b"y").expect("written");
        lives.read_exact(&mut [0]).expect("it has arrived");
        // A socket that is closed with bytes that nobody has read resets its connection.
        let mut byte = [0];
        while dies.peek(&mut byte).expect("a byte") == 0 {}
        drop(dies);
        assert_reset(lives.read(&mut byte));
    }
    other.write_all(b"hello").expect("written");
    let mut hello = [0; 5];
    of_other.read_exact(&mut hello).expect("read");
    assert_eq!(&hello, b"hello");
}

#[test]
fn what_is_not_reached_is_told_and_ends_nothing_else() {
    let (to, _taken) = server();
    let rig = Rig::new();
    // A port that nobody listens at.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let closed = listener.local_addr().expect("an address");
    drop(listener);
    for (allowed, to, why) in [
        (
            "localhost:1",
            to,
            format!("it does not forward to {to}: start it with --allow-forward {to}"),
        ),
        (
            &closed.to_string(),
            closed,
            format!("connecting to {closed}: Connection refused"),
        ),
    ] {
        let ends = Ends::start(&rig, allowed, &to.to_string());
        for _ in 0..2 {
            let mut client = ends.connect();
            assert_reset(client.read(&mut [0]));
        }
        // Ctrl-C ends each end.
        for end in [ends.near, ends.far] {
            end.signal("INT");
            let ended = end.end();
            assert_eq!(ended.code, Some(130), "{ended:?}");
            assert!(
                ended.stderr.contains(&why) || ended.stdout.contains("listening"),
                "{ended:?}"
            );
        }
    }
}

#[test]
fn a_near_end_says_that_it_waits_for_the_other_one() {
    let (rig, at) = (Rig::new(), port());
    let key = rig.key();
    let mut near = farwrite();
    near.args(["forward", "--to", &at, "-L", "0:localhost:80"]);
    near.arg("--psk-file").arg(&key);
    let mut near = Running::spawn(near);
    let line = near.line("nothing answers at");
    assert!(
        line.contains("does `farwrite forward --listen` run there"),
        "{line}"
    );
    let mut far = farwrite();
    far.args([
        "forward",
        "--allow-forward",
        "localhost:80",
        "--listen",
        &at,
    ]);
    far.arg("--psk-file").arg(&key);
    let _far = Running::spawn(far);
    near.line("forwarding ");
}

#[test]
fn a_far_end_that_is_killed_ends_the_near_end() {
    let (to, taken) = server();
    let rig = Rig::new();
    let ends = Ends::start(&rig, &to.to_string(), &to.to_string());
    let mut client = ends.connect();
    let _server = taken.recv().expect("the far end connects");
    ends.far.signal("KILL");
    // The program at the near end does not take this for the end of the data.
    assert_reset(client.read(&mut [0]));
    ends.near
        .end()
        .assert(5, "forwarding: the connection is over");
}

/// Opens a stream to a far end as another program with the right key may do, and writes to it.
fn ask(connection: &Connection, request: &[u8]) -> Stream {
    let options = StreamOptions::default();
    let limit = Duration::from_secs(30);
    let opened = connection.open_stream("farwrite-forward-1", &options, limit);
    let mut stream = opened.expect("opened");
    stream.write_all(request).expect("written");
    stream.end(Shutdown::Write);
    stream
}

#[test]
fn what_is_no_allowed_destination_is_answered() {
    let (to, taken) = server();
    let rig = Rig::new();
    let (at, to) = (port(), to.to_string());
    let mut far = farwrite();
    far.args(["forward", "--listen", &at, "--allow-forward", &to]);
    far.arg("--psk-file").arg(rig.key());
    let mut far = Running::spawn(far);
    far.line("listening on");
    let options = ConnectionOptions {
        purpose: Purpose::FORWARD,
        ..ConnectionOptions::default()
    };
    let connection = connect_ends(&at, &Keys::of_psk(&rig.psk), "far", &options);
    let connection = connection.expect("connected");
    for (request, why) in [
        (&b"\x0flocalhost:9999x"[..], "is no destination"),
        (b"\x0flocalhost:99999", "is no destination"),
        (b"\x0flocalhost:09999", "--allow-forward localhost:9999"),
        (b"\x04\xff\xff:1", "the destination is no text"),
        (b"\0", "is no destination"),
        (b"\xffshort", "reading the destination"),
    ] {
        let mut answer = Vec::new();
        let read = ask(&connection, request).read_to_end(&mut answer);
        read.expect("an answer, and the end");
        let head = (answer[0], usize::from(answer[1]));
        assert_eq!(head, (1, answer.len() - 2), "{answer:?}");
        let told = String::from_utf8_lossy(&answer[2..]).into_owned();
        assert!(told.contains(why), "{request:?}: {told}");
    }
    let length = u8::try_from(to.len()).expect("short");
    let request = [&[length], to.as_bytes(), b"hello"].concat();
    let _stream = ask(&connection, &request);
    let mut server = taken.recv().expect("the far end connects");
    assert_eq!(all(&mut server), b"hello");
}

/// The command of an end with an identity, which forwards a port to `to`.
fn known_near(rig: &Rig, name: &str, far: (&str, PublicKey), to: &str) -> Running {
    let (at, key) = far;
    let mut near = farwrite();
    near.args(["forward", "--to", at, "-L", &format!("0:{to}")]);
    near.args(["--peer-key", &key.to_string(), "--identity"]);
    near.arg(rig.path(name));
    Running::spawn(near)
}

/// A known peer reaches its own destinations, over as many connections as it may have. A stranger reaches nothing, and a
/// peer that was removed reaches nothing any more.
#[test]
fn known_peers_have_destinations_of_their_own_until_they_are_removed() {
    let (to, taken) = server();
    let (rig, at, to) = (Rig::new(), port(), to.to_string());
    let [host, a, b, _] = ["host", "a", "b", "stranger"].map(|name| rig.identity(name));
    let of_b = format!("[b]\nkey = \"{b}\"\nallow-forward = [\"localhost:1\"]\n");
    let peers = rig.peers(&format!(
        "[a]\nkey = \"{a}\"\nallow-forward = [\"{to}\"]\nmax-senders = 1\n{of_b}"
    ));
    let mut far = farwrite();
    far.args(["forward", "--listen", &at, "--identity"]);
    far.arg(rig.path("host")).arg("--peers").arg(peers);
    far.arg("--audit").arg(rig.path("audit"));
    let mut far = Running::spawn(far);
    far.line("listening on");
    let near = |name| known_near(&rig, name, (&at, host), &to);
    near("stranger")
        .end()
        .assert(3, "does not know this end's public key");
    let [mut of_a, mut of_b_too] = [near("a"), near("b")];
    let mut client = connect(forwarded(&mut of_a));
    client.write_all(b"hello").expect("written");
    let mut server = taken.recv().expect("the far end connects");
    server.read_exact(&mut [0; 5]).expect("read");
    near("a")
        .end()
        .assert(7, "serves 1 connection of one peer at once");
    assert_reset(connect(forwarded(&mut of_b_too)).read(&mut [0]));
    rig.peers(&of_b);
    far.signal("HUP");
    far.line("1 peer may connect from now on");
    of_a.end().assert(3, "it no longer knows this end");
    assert_reset(client.read(&mut [0]));
    of_b_too.signal("INT");
    let told = format!("it does not forward to {to}: add it to allow-forward of this end");
    of_b_too.end().assert(130, &told);
    far.signal("INT");
    far.end()
        .assert(130, "the public key of the last peer that is not known");
    let log = fs::read_to_string(rig.path("audit")).expect("a log");
    let lines = log
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object"));
    let lines: Vec<serde_json::Value> = lines.collect();
    let of = |event: &str, peer: &str| {
        let mut found = lines
            .iter()
            .filter(|line| line["event"] == event && line["peer"] == peer);
        found.next().unwrap_or_else(|| panic!("{log}"))
    };
    assert_eq!(of("forward", "a")["to"], to);
    assert!(of("forward", "a")["message"].is_null(), "{log}");
    assert!(of("forward", "b")["message"].is_string(), "{log}");
    let busy = of("refused", "a")["message"].as_str().map(str::to_owned);
    assert!(busy.is_some_and(|why| why.contains("max-senders")), "{log}");
    let strange = |line: &serde_json::Value| line["event"] == "refused" && line["peer"].is_null();
    assert!(lines.iter().any(strange), "{log}");
}

/// With a script in place of ssh. The system tests have a real ssh server.
#[test]
fn a_far_end_that_ssh_starts_forwards_what_is_asked() {
    let (to, taken) = server();
    let root = machines("forward");
    let mut near = Command::new(env!("CARGO_BIN_EXE_farwrite"));
    near.arg("forward").arg("--rsh").arg(root.join("rsh"));
    near.args(["--far-program", env!("CARGO_BIN_EXE_farwrite")]);
    near.args(["-L", &format!("127.0.0.1:0:{to}"), "me@host"]);
    let mut near = Running::spawn(near);
    let mut client = connect(forwarded(&mut near));
    let mut server = taken.recv().expect("the far end connects");
    client.write_all(b"hello").expect("written");
    let mut hello = [0; 5];
    server.read_exact(&mut hello).expect("read");
    assert_eq!(&hello, b"hello");
    near.signal("INT");
    near.end().assert(130, "interrupted");
    let commands = fs::read_to_string(root.join("commands")).expect("the commands");
    assert!(
        commands.contains("me@host") && !commands.contains("psk"),
        "{commands}"
    );
    // A near end that is gone resets the connections of the far end.
    assert_reset(server.read(&mut [0]));
}
