//! Connecting to a peer: attempts, patience, and cancellation.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::PATIENT;
use farwrite_session::{Channel, Error, HostPort, Psk};

const LOOPBACK: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

fn key() -> Psk {
    Psk::generate().expect("key")
}

fn listen() -> (TcpListener, HostPort) {
    let listener = TcpListener::bind(SocketAddr::from(LOOPBACK)).expect("loopback");
    let addr = listener.local_addr().expect("address");
    (listener, addr.into())
}

/// Returns an address where no program listens. Other tests do not use ports of this host.
fn free() -> HostPort {
    let listener = TcpListener::bind("127.0.4.1:0").expect("loopback");
    listener.local_addr().expect("address").into()
}

#[test]
fn cut_connection_is_tried_again() {
    let psk = key();
    let (listener, addr) = listen();
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..2 {
                // If bytes are unread when the socket closes, the peer sees a reset. Otherwise it
                // sees the end of the stream.
                drop(listener.accept().expect("accept"));
            }
            let stream = listener.accept().expect("accept").0;
            Channel::accept(stream, &psk, PATIENT).expect("handshake");
        });
        Channel::connect(&addr, &psk, PATIENT, || false).expect("the third attempt");
    });
}

#[test]
fn patience_is_for_everything() {
    let psk = key();
    let patience = Duration::from_secs(1);
    let (silent, addr) = listen();
    let start = Instant::now();
    let error = Channel::connect(&addr, &psk, patience, || false).expect_err("silence");
    assert!(
        matches!(error, Error::Timeout { after, .. } if after == patience),
        "{error}"
    );
    assert!(start.elapsed() >= patience);
    drop(silent);
    let (cutting, addr) = listen();
    cutting.set_nonblocking(true).expect("a socket");
    let is_over = AtomicBool::new(false);
    // The last attempt begins after 1.5 s. The rest of the time is for a listener that closes it
    // late.
    let patience = Duration::from_millis(2400);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                drop(cutting.accept());
                thread::sleep(Duration::from_millis(1));
            }
        });
        let start = Instant::now();
        let error = Channel::connect(&addr, &psk, patience, || false).expect_err("always cut");
        is_over.store(true, Ordering::Relaxed);
        assert!(matches!(error, Error::HandshakeCut), "{error}");
        assert!(start.elapsed() < patience * 10, "{:?}", start.elapsed());
    });
}

/// The wait for a listening peer and the handshake share one patience.
#[test]
fn late_and_silent_peer_gets_no_second_patience() {
    let addr = free();
    let bind_to = addr.resolve().expect("an address")[0];
    // There are attempts after 1.5 and 2.5 s. With a second patience, the call would end after 5.5
    // s.
    let patience = Duration::from_secs(3);
    thread::scope(|scope| {
        let listens = scope.spawn(move || {
            thread::sleep(Duration::from_millis(1800));
            TcpListener::bind(bind_to).expect("still free")
        });
        let start = Instant::now();
        // A busy machine holds this thread up as much as the call.
        let one = scope.spawn(move || {
            thread::sleep(patience);
            start.elapsed()
        });
        Channel::connect(&addr, &key(), patience, || false).expect_err("silence");
        let took = start.elapsed();
        let one = one.join().expect("no panic");
        assert!(
            took < one + Duration::from_millis(2200),
            "{took:?}, {one:?}"
        );
        drop(listens.join().expect("no panic"));
    });
}

#[test]
fn wrong_key_and_other_programs_are_final() {
    let (listener, addr) = listen();
    thread::scope(|scope| {
        scope.spawn(|| {
            let stream = listener.accept().expect("accept").0;
            Channel::accept(stream, &key(), PATIENT).expect_err("another key");
            let mut stream = listener.accept().expect("accept").0;
            std::io::Write::write_all(&mut stream, b"SSH-2.0-OpenSSH\r\n").expect("write");
            // Keep the stream open until the initiator has read the bytes.
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        });
        let start = Instant::now();
        let error = Channel::connect(&addr, &key(), PATIENT, || false).expect_err("another key");
        assert!(matches!(error, Error::KeysDiffer), "{error}");
        let error = Channel::connect(&addr, &key(), PATIENT, || false).expect_err("ssh");
        assert!(matches!(error, Error::NotFarwrite { .. }), "{error}");
        assert!(start.elapsed() < PATIENT);
    });
}

/// A call can be cancelled while no peer listens, and while a listener is silent.
#[test]
fn cancelling_ends_it_soon() {
    let psk = key();
    let (_silent, silent) = listen();
    for addr in [free(), silent, "localhost:9".parse().expect("a name")] {
        let is_cancelled = AtomicBool::new(false);
        thread::scope(|scope| {
            let connects = scope.spawn(|| {
                let cancelled = || is_cancelled.load(Ordering::Relaxed);
                let result = Channel::connect(&addr, &psk, PATIENT, cancelled);
                (result, Instant::now())
            });
            thread::sleep(Duration::from_millis(300));
            is_cancelled.store(true, Ordering::Relaxed);
            let cancelled = Instant::now();
            let (result, ended) = connects.join().expect("no panic");
            let error = result.expect_err("cancelled");
            assert!(matches!(error, Error::Cancelled), "{addr}: {error}");
            let took = ended.saturating_duration_since(cancelled);
            assert!(took < PATIENT / 10, "{addr}: {took:?}");
        });
    }
}

#[test]
fn names_are_reached_by_any_of_their_addresses() {
    let psk = key();
    let (listener, addr) = listen();
    let port = addr.resolve().expect("an address")[0].port();
    // `localhost` often resolves to ::1 too, where no program listens.
    let name: HostPort = format!("localhost:{port}").parse().expect("a name");
    thread::scope(|scope| {
        scope.spawn(|| {
            let stream = listener.accept().expect("accept").0;
            Channel::accept(stream, &psk, PATIENT).expect("handshake");
        });
        Channel::connect(&name, &psk, PATIENT, || false).expect("handshake");
    });
}

#[test]
fn unknown_name_is_said() {
    let to: HostPort = "no-such-host.invalid:4792".parse().expect("a name");
    let error = Channel::connect(&to, &key(), PATIENT, || false).expect_err("RFC 6761");
    assert!(
        error.to_string().contains("no-such-host.invalid:4792"),
        "{error}"
    );
}
