//! A port among strangers.

mod common;

use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use common::PATIENT;
use farwrite_session::{Channel, Error, Listener, Psk};

#[test]
fn peer_gets_through_past_strangers() {
    let psk = Psk::generate().expect("key");
    let listener = Listener::bind("127.0.0.1:0").expect("loopback");
    let addr = listener.local_addr();
    let silent: Vec<_> = (0..5)
        .map(|_| TcpStream::connect(addr).expect("connect"))
        .collect();
    let mut loud = TcpStream::connect(addr).expect("connect");
    loud.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("write");
    let mut refusals = Vec::new();
    let start = Instant::now();
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let wrong = Psk::generate().expect("key");
            Channel::connect(addr, &wrong, PATIENT).expect_err("wrong key")
        });
        scope.spawn(|| {
            other.join().expect("no panic");
            Channel::connect(addr, &psk, PATIENT).expect("right key");
        });
        let channel = listener.accept(&psk, PATIENT, Some(PATIENT), |peer, error| {
            assert!(peer.ip().is_loopback());
            refusals.push(error.to_string());
        });
        channel.expect("the peer");
    });
    assert!(start.elapsed() < PATIENT, "nobody waits for the silent");
    refusals.sort();
    assert_eq!(refusals.len(), 2, "{refusals:?}");
    assert!(refusals[0].contains("not Farwrite"), "{refusals:?}");
    assert!(refusals[1].contains("keys"), "{refusals:?}");
    drop(silent);
}

#[test]
fn patience_ends() {
    let psk = Psk::generate().expect("key");
    let listener = Listener::bind("[::1]:0").expect("loopback");
    let error = listener
        .accept(&psk, PATIENT, Some(Duration::from_millis(50)), |_, _| {})
        .expect_err("nobody came");
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    let taken = Listener::bind(listener.local_addr()).expect_err("taken");
    assert!(matches!(taken, Error::Listen { .. }), "{taken}");
}

#[test]
fn crowd_is_bounded() {
    let psk = Psk::generate().expect("key");
    let listener = Listener::bind("127.0.0.1:0").expect("loopback");
    let addr = listener.local_addr();
    let silent: Vec<_> = (0..40)
        .map(|_| TcpStream::connect(addr).expect("connect"))
        .collect();
    let mut crowded = 0;
    let patience = Some(Duration::from_millis(200));
    listener
        .accept(&psk, PATIENT, patience, |_, error| {
            crowded += usize::from(matches!(error, Error::Crowded(32)));
        })
        .expect_err("only strangers");
    assert_eq!(crowded, silent.len() - 32);
}
