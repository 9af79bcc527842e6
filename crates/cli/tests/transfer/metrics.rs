//! Tests `--metrics` of transfers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::Duration;

use crate::rig::{Rig, Running, free_port};

/// Returns the page, with the head of the answer.
fn page(mut stream: impl Read + Write, fields: &str) -> String {
    let request = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).expect("a request");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("a page");
    page
}

/// Connects as soon as something listens.
fn soon<T>(connect: impl Fn() -> std::io::Result<T>) -> T {
    let tries = (0..2000).find_map(|_| {
        thread::sleep(Duration::from_millis(10));
        connect().ok()
    });
    tries.expect("it listens")
}

/// Returns a number on the page at an address.
fn metric(at: SocketAddr, name: &str) -> u64 {
    let page = page(TcpStream::connect(at).expect("it listens"), "");
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name} ")));
    let value = line.unwrap_or_else(|| panic!("{name} is not in {page}"));
    value.trim().parse().expect("a number")
}

#[test]
fn a_receiver_serves_counters_that_go_on_from_transfer_to_transfer() {
    let rig = Rig::new();
    let file = rig.file("file", 3_000_000);
    let (addr, metrics) = (free_port(), free_port());
    let served = metrics.to_string();
    let options = ["--metrics", &served];
    let receiver = rig.recv(&addr.to_string(), &options);
    // These lengths have ended processes.
    for length in ["9000000000000000000", "10000000000000000000"] {
        let fields = format!("Content-Length: {length}\r\n");
        let page = page(soon(|| TcpStream::connect(metrics)), &fields);
        assert!(page.starts_with("HTTP/1.1 200 "), "{page}");
    }
    let mut received = vec![0];
    for _ in 0..2 {
        assert_eq!(
            rig.send(addr, &["--ignore-times"], &[&file]).end().code,
            Some(0)
        );
        // The sender may end before the receiver has counted the last packets.
        let least = received[received.len() - 1] + 3_000_000;
        let count = || metric(metrics, "farwrite_recv_received_bytes_total");
        let counts = (0..6000).map(|_| {
            thread::sleep(Duration::from_millis(10));
            count()
        });
        let bytes = counts.into_iter().find(|bytes| *bytes >= least);
        received.push(bytes.unwrap_or_else(|| panic!("{} after {received:?}", count())));
    }
    assert!(metric(metrics, "farwrite_recv_rtt_nanoseconds") > 0);
    drop(receiver);
}

#[test]
fn an_address_that_is_taken_is_refused() {
    let rig = Rig::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let served = taken.local_addr().expect("an address").to_string();
    let options = ["--metrics", &served];
    let addr = free_port().to_string();
    let ended = Running::spawn(rig.recv_command(&addr, &rig.inbox(), &options)).end();
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains(&served) && ended.stderr.contains("--metrics"));
}

#[test]
fn a_unix_socket_serves_counters_until_the_program_ends() {
    let rig = Rig::new();
    let path = rig.path("metrics.sock");
    let address = format!("unix:{}", path.display());
    // What a process leaves that is killed.
    drop(UnixListener::bind(&path).expect("a socket"));
    let receiver = rig.recv("127.0.0.1:0", &["--metrics", &address]);
    let page = page(soon(|| UnixStream::connect(&path)), "");
    assert!(page.starts_with("HTTP/1.1 200 "), "{page}");
    let options = ["--metrics", &address];
    let second = rig.recv_command("127.0.0.1:0", &rig.inbox(), &options);
    Running::spawn(second)
        .end()
        .assert(2, "another program listens there");
    receiver.running.signal("INT");
    receiver.end().assert(130, "interrupted");
    assert!(!path.exists());
}
