//! Tests `--metrics` of transfers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use crate::rig::{Rig, Running, free_port};

/// Returns a number on the page at an address.
fn metric(at: SocketAddr, name: &str) -> u64 {
    let mut stream = TcpStream::connect(at).expect("it listens");
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("a request");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("a page");
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
    let receiver = Running::spawn(rig.recv_command(&addr.to_string(), &rig.inbox(), &options));
    let mut received = vec![0];
    for _ in 0..2 {
        assert_eq!(rig.send(addr, &[], &[&file]).end().code, Some(0));
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
