//! What strangers send to bring a server down.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use std::{fs, thread};

use farwrite_http::{Limits, MAX_HEAD_BYTES};

use crate::{all, connect, get, is_page, start};

/// The number of threads of this process with a name. A thread inherits its name from the thread that
/// starts it, so these are all threads of a server.
fn threads(name: &str) -> usize {
    let tasks = fs::read_dir("/proc/self/task").expect("proc(5)");
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|found| found.trim() == name).count()
}

/// Sends a text repeatedly, up to `bytes` bytes. Returns how many bytes the kernel took, and the answer.
fn flood(address: SocketAddr, start: &str, repeated: &str, bytes: usize) -> (usize, String) {
    let mut stream = connect(address);
    let reader = stream.try_clone().expect("a socket");
    let answer = thread::spawn(|| all(reader));
    let block = repeated.repeat(65_536 / repeated.len());
    let mut taken = stream.write(start.as_bytes()).expect("it is connected");
    while taken < bytes {
        match stream.write(block.as_bytes()) {
            Ok(count) => taken += count,
            Err(_) => break,
        }
    }
    (taken, answer.join().expect("no panic"))
}

#[test]
fn lengths_of_bodies_are_not_believed() {
    let (_server, address) = start("lengths", Limits::default());
    for length in [
        "9000000000000000000",
        "10000000000000000000",
        "99999999999999999999999999",
        "-1",
    ] {
        let mut stream = connect(address);
        let request = format!("GET / HTTP/1.1\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("a request");
        assert!(is_page(&all(stream)), "{length}");
    }
    let mut stream = connect(address);
    let request = b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\n";
    stream.write_all(request).expect("a request");
    assert!(is_page(&all(stream)));
    assert_eq!(threads("lengths"), 1);
}

#[test]
fn one_connection_gets_one_answer() {
    let (_server, address) = start("pipelined", Limits::default());
    let request = "GET / HTTP/1.1\r\n\r\n";
    let bytes = 800_000 * request.len();
    let (taken, answer) = flood(address, request, request, bytes);
    // What the buffers of the two sockets take; the server reads 64 KiB of it.
    assert!(taken < bytes, "{taken} bytes were taken");
    assert!(answer.matches("HTTP/1.1 ").count() <= 1, "{answer}");
    assert!(is_page(&get(address)));
    assert_eq!(threads("pipelined"), 1);
}

#[test]
fn endless_heads_are_refused() {
    let (_server, address) = start("heads", Limits::default());
    for start in ["GET / HTTP/1.1\r\nA: ", "GET /", "", "\u{16}\u{3}\u{1}"] {
        let (taken, answer) = flood(address, start, "a", 300 << 20);
        assert!(taken < 32 << 20, "{taken} bytes were taken");
        // The connection can be reset before the answer was read.
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 431 "),
            "{answer}"
        );
    }
    let mut stream = connect(address);
    stream.write_all(&[b'a'; MAX_HEAD_BYTES]).expect("it fits");
    let answer = all(stream);
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    assert!(is_page(&get(address)));
    assert_eq!(threads("heads"), 1);
}

#[test]
fn idle_connections_keep_nobody_out() {
    let (_server, address) = start("idle", Limits::default());
    let mut files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    files.current = files.maximum;
    rustix::process::setrlimit(rustix::process::Resource::Nofile, files)
        .expect("up to the maximum");
    let mut idle = Vec::new();
    for number in 0..1500 {
        let mut stream = connect(address);
        if number % 2 == 0 {
            stream
                .write_all(b"GET / HTTP/1.1\r\nHost: ")
                .expect("a start");
        }
        idle.push(stream);
        if number % 500 == 499 {
            assert!(is_page(&get(address)), "after {number}");
        }
    }
    assert!(is_page(&get(address)));
    assert_eq!(threads("idle"), 1);
    // Others were closed for newer ones, at the latest when the last one had been accepted.
    let is_open = |stream: &&TcpStream| {
        stream.set_nonblocking(true).expect("a flag");
        let mut stream: &TcpStream = stream;
        let read = stream.read(&mut [0; 1]);
        read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    };
    let open = idle.iter().filter(is_open).count();
    assert!(open <= Limits::default().connections, "{open} are open");
}

#[test]
fn a_connection_ends_in_time_whatever_it_sends() {
    let limits = Limits {
        time: Duration::from_millis(300),
        ..Limits::default()
    };
    let (_server, address) = start("slow", limits);
    let begin = Instant::now();
    let mut slow = connect(address);
    let reader = slow.try_clone().expect("a socket");
    let writer = thread::spawn(move || {
        let bytes = (0..1000).take_while(|_| {
            thread::sleep(Duration::from_millis(20));
            slow.write_all(b"a").is_ok()
        });
        bytes.count()
    });
    assert_eq!(all(reader), "");
    assert!(begin.elapsed() >= limits.time);
    assert!(writer.join().expect("no panic") < 1000);
    // One that reads nothing, and never closes.
    let mut silent = connect(address);
    silent.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("sent");
    // On a busy machine, a request may come too late.
    assert!((0..20).any(|_| is_page(&get(address))));
    assert_eq!(all(connect(address)), "", "it sends nothing");
    assert_eq!(threads("slow"), 1);
}
