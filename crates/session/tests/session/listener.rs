//! A listener among many connections of strangers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{PATIENT, connect_from};
use farwrite_session::{Channel, Error, Listener, Psk, Refusal};
use rustix::net::sockopt;

const ANY_PORT: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

fn key() -> Psk {
    Psk::generate().expect("key")
}

fn connect(to: SocketAddr, psk: &Psk) -> Result<Channel, Error> {
    Channel::connect(&to.into(), psk, PATIENT, || false)
}

/// Number of times that a listener closed a connection to make room for a newer one.
#[derive(Default)]
struct Crowding(usize);

impl Crowding {
    fn hear(&mut self, refusal: &Refusal) {
        if let Refusal::Peer {
            error: Error::Crowded { .. },
            ..
        } = refusal
        {
            self.0 += 1;
        }
    }
}

#[test]
fn peer_gets_through_past_strangers() {
    let psk = key();
    let mut listener = Listener::bind(ANY_PORT).expect("loopback");
    let addr = listener.local_addr();
    let silent: Vec<_> = (0..5)
        .map(|_| TcpStream::connect(addr).expect("connect"))
        .collect();
    let mut loud = TcpStream::connect(addr).expect("connect");
    loud.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("write");
    let mut refusals = Vec::new();
    let start = Instant::now();
    thread::scope(|scope| {
        let other = scope.spawn(|| connect(addr, &key()).expect_err("wrong key"));
        scope.spawn(|| {
            let error = other.join().expect("no panic");
            assert!(matches!(error, Error::KeysDiffer), "{error}");
            connect(addr, &psk).expect("right key");
        });
        let channel = listener.accept(&psk, PATIENT, Some(PATIENT), |refusal| {
            let Refusal::Peer { addr, error } = refusal else {
                panic!("{refusal}");
            };
            assert!(addr.ip().is_loopback());
            assert!(refusal.to_string().contains(&addr.to_string()), "{refusal}");
            refusals.push(error.to_string());
        });
        channel.expect("the peer");
    });
    assert!(start.elapsed() < PATIENT, "nobody waits for the silent");
    refusals.sort();
    assert_eq!(refusals.len(), 2, "{refusals:?}");
    assert!(refusals[0].contains("keys"), "{refusals:?}");
    assert!(refusals[1].contains("not Farwrite"), "{refusals:?}");
    drop(silent);
}

#[test]
fn patience_ends() {
    let psk = key();
    let any = SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 0));
    let mut listener = Listener::bind(any).expect("loopback");
    let error = listener
        .accept(&psk, PATIENT, Some(Duration::from_millis(50)), |_| {})
        .expect_err("nobody came");
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    let taken = Listener::bind(listener.local_addr()).expect_err("taken");
    assert!(matches!(taken, Error::Listen { .. }), "{taken}");
}

#[test]
fn silent_peer_is_refused_in_time() {
    let mut listener = Listener::bind(ANY_PORT).expect("loopback");
    let silent = TcpStream::connect(listener.local_addr()).expect("connect");
    let mut refusals = Vec::new();
    let (timeout, patience) = (Duration::from_millis(100), Duration::from_millis(200));
    let start = Instant::now();
    while refusals.is_empty() && start.elapsed() < PATIENT {
        listener
            .accept(&key(), timeout, Some(patience), |refusal| {
                refusals.push(refusal.to_string());
            })
            .expect_err("nobody came");
    }
    assert_eq!(refusals.len(), 1, "{refusals:?}");
    assert!(refusals[0].contains("within 100ms"), "{refusals:?}");
    drop(silent);
}

/// There are more idle connections than places, from many sources. The newest connection gets a
/// place.
#[test]
fn idle_crowd_of_many_sources_locks_nobody_out() {
    let psk = key();
    let mut listener = Listener::bind(ANY_PORT).expect("loopback");
    let addr = listener.local_addr();
    let mut crowding = Crowding::default();
    // The connections wait in the operating system's queue, which does not hold all of them.
    let mut idle = Vec::new();
    for source in 0..600_u16 {
        let [high, low] = source.to_be_bytes();
        idle.push(connect_from([127, 1, high, low], addr).expect("connect"));
        let look = Some(Duration::from_millis(1));
        let nobody = listener.accept(&psk, PATIENT, look, |refusal| crowding.hear(refusal));
        nobody.expect_err("they are idle");
    }
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| connect(addr, &psk).expect("the peer gets in"));
        let channel = listener.accept(&psk, PATIENT, Some(PATIENT), |refusal| {
            crowding.hear(refusal);
        });
        channel.expect("the peer");
    });
    assert!(start.elapsed() < PATIENT / 2, "{:?}", start.elapsed());
    assert_eq!(crowding.0, 600 + 1 - 512);
}

/// A source with too many connections loses its own oldest ones, and no other source does.
#[test]
fn idle_crowd_of_one_source_evicts_its_own() {
    let psk = key();
    let mut listener = Listener::bind(ANY_PORT).expect("loopback");
    let addr = listener.local_addr();
    let mut honest = connect_from([127, 0, 2, 1], addr).expect("connect");
    let mut idle: Vec<_> = (0..100)
        .map(|_| connect_from([127, 0, 2, 2], addr).expect("connect"))
        .collect();
    let mut crowding = Crowding::default();
    let look = Some(Duration::from_millis(200));
    let start = Instant::now();
    while crowding.0 < 100 - 64 && start.elapsed() < PATIENT {
        listener
            .accept(&psk, PATIENT, look, |refusal| crowding.hear(refusal))
            .expect_err("they are idle");
    }
    assert_eq!(crowding.0, 100 - 64);
    let is_open = |stream: &mut TcpStream| {
        stream.set_nonblocking(true).expect("a socket");
        !matches!(stream.read(&mut [0]), Ok(0))
    };
    assert!(is_open(&mut honest));
    let open: Vec<_> = idle.iter_mut().map(is_open).collect();
    assert_eq!(open, [vec![false; 36], vec![true; 64]].concat());
}

/// A peer that connects first and is slow gets its channel from a later call.
#[test]
fn handshakes_outlive_a_call() {
    let psk = key();
    let mut listener = Listener::bind(ANY_PORT).expect("loopback");
    let addr = listener.local_addr();
    let slow = TcpStream::connect(addr).expect("connect");
    let slow_addr = slow.local_addr().expect("address");
    thread::scope(|scope| {
        let quick = scope.spawn(|| connect(addr, &psk).expect("handshake"));
        let mut accept = || {
            let channel = listener.accept(&psk, PATIENT, Some(PATIENT), |refusal| {
                panic!("{refusal}");
            });
            channel.expect("a peer")
        };
        let first = accept().peer_addr();
        assert_eq!(first, quick.join().expect("no panic").local_addr());
        scope.spawn(|| Channel::initiate(slow, &psk, PATIENT).expect("handshake"));
        assert_eq!(accept().peer_addr(), slow_addr);
    });
}

/// The queue of connections never becomes empty, but handshakes still make progress.
#[test]
fn flood_of_connections_starves_nobody() {
    let psk = key();
    let mut listener = Listener::bind(ANY_PORT).expect("loopback");
    let addr = listener.local_addr();
    let (is_over, refusals) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        for source in 1..=4 {
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    // This fails after the listener has been dropped.
                    if let Ok(stream) = connect_from([127, 0, 3, source], addr) {
                        // A close resets the connection, so that no port stays in TIME_WAIT.
                        let at_once = Some(Duration::ZERO);
                        sockopt::set_socket_linger(&stream, at_once).expect("linger");
                    }
                }
            });
        }
        let connects = scope.spawn(|| {
            // The flood has reached the listener.
            while refusals.load(Ordering::Relaxed) < 200 {
                thread::yield_now();
            }
            connect(addr, &psk)
        });
        let accepted = listener.accept(&psk, PATIENT, Some(PATIENT), |_| {
            refusals.fetch_add(1, Ordering::Relaxed);
            // This is as slow as output to a terminal. The next connections arrive during the
            // sleep.
            thread::sleep(Duration::from_micros(300));
        });
        is_over.store(true, Ordering::Relaxed);
        // Connections that are still in the queue must not delay the peer.
        drop(listener);
        accepted.expect("the peer");
        connects.join().expect("no panic").expect("the peer");
    });
}
