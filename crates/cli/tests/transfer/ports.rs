//! The UDP port of a receiver between transfers.

use std::fs;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType, bind, socket, sockopt};

use crate::rig::{Rig, Running, pattern};

/// Binds a UDP port as another program does that wants to share it.
fn bind_shared(addr: SocketAddr) -> io::Result<()> {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    Ok(bind(&socket, &addr)?)
}

/// The bytes that wait in the sockets of a UDP port of this machine (proc(5), `/proc/net/udp`).
fn waiting_bytes(port: u16) -> u64 {
    let tables = ["/proc/net/udp", "/proc/net/udp6"].map(fs::read_to_string);
    let text = tables.map(|table| table.unwrap_or_default()).join("");
    let port = format!(":{port:04X}");
    let rows = text
        .lines()
        .map(|row| row.split_whitespace().collect::<Vec<_>>());
    let rows = rows.filter(|row| row.get(1).is_some_and(|local| local.ends_with(&port)));
    let queues =
        rows.filter_map(|row| u64::from_str_radix(row.get(4)?.split_once(':')?.1, 16).ok());
    queues.sum()
}

#[test]
fn a_port_in_use_is_told_with_what_to_do() {
    let rig = Rig::new();
    let taken = UdpSocket::bind("127.0.9.1:0").expect("a socket");
    let at = taken.local_addr().expect("an address").to_string();
    let (key, dir) = (rig.key(), rig.inbox());
    let (key, dir) = (key.to_str().expect("plain"), dir.to_str().expect("plain"));
    for words in [
        &["recv", "--dir", dir][..],
        &["recv", "-"],
        &["probe"],
        &["forward", "--allow-forward", "localhost:80"],
    ] {
        let command = [words, &["--listen", &at, "--psk-file", key]].concat();
        let what = format!("listening: cannot bind UDP {at}: ");
        let ended = Running::start(&command, &[]).end();
        ended.assert(5, &what);
        ended.assert(5, "end the program that has it, or choose another port");
    }
}

/// Nobody takes the port of an idle receiver, and packets to it do no harm.
#[test]
fn the_port_of_an_idle_receiver_stays_bound() {
    for listen in ["127.0.9.1:0", "0.0.0.0:0", "[::]:0"] {
        let rig = Rig::new();
        let receiver = rig.recv(listen, &[]);
        let port = receiver.addr.port();
        let addr = SocketAddr::from(([127, 0, 9, 1], port));
        let stranger = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        for bytes in [300_000, 200_000] {
            for taken in [addr, ([0, 0, 0, 0], port).into()] {
                let error = UdpSocket::bind(taken).expect_err("the port is in use");
                assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
                let error = bind_shared(taken).expect_err("the port is not shared");
                assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
            }
            for _ in 0..1000 {
                // The port may refuse it.
                let _ = stranger.send_to(&[7; 1200], addr);
            }
            // The receiver reads what comes, and keeps nothing of it.
            let end = Instant::now() + Duration::from_secs(60);
            while waiting_bytes(port) >= 16_384 {
                assert!(Instant::now() < end, "{}", waiting_bytes(port));
                thread::sleep(Duration::from_millis(1));
            }
            let file = rig.file("file", bytes);
            let sent = rig.send(addr, &["--json"], &[&file]).end();
            sent.assert(0, "");
            assert!(fs::read(rig.inbox().join("file")).expect("received") == pattern(bytes));
        }
    }
}
