//! Preamble and handshake (P7.2, P7.3): both ends report what is wrong, and neither waits forever.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Bytes, HandMade, PATIENT, PREAMBLE, first_message, noise, shake, sockets};
use farwrite_session::{Channel, Error, Psk, VERSION};
use proptest::prelude::*;

fn key() -> Psk {
    Psk::generate().expect("key")
}

/// Sends bytes to a responder. Returns its answer and its result.
fn answer(psk: &Psk, bytes: &[u8], timeout: Duration) -> (Vec<u8>, Result<Channel, Error>) {
    let (mut dialled, accepted) = sockets("127.0.0.1:0");
    thread::scope(|scope| {
        let responds = scope.spawn(|| Channel::accept(accepted, psk, timeout));
        // The responder may close the connection before it has read all bytes.
        let _ = dialled.write_all(bytes);
        let _ = dialled.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = dialled.read_to_end(&mut answer);
        (answer, responds.join().expect("no panic"))
    })
}

/// Returns the error of an initiator that gets these bytes as an answer.
fn opinion(psk: &Psk, bytes: &[u8], timeout: Duration) -> Error {
    let (dialled, mut accepted) = sockets("127.0.0.1:0");
    thread::scope(|scope| {
        let initiates = scope.spawn(|| Channel::initiate(dialled, psk, timeout));
        let mut first = [0; 58];
        accepted.read_exact(&mut first).expect("first message");
        let _ = accepted.write_all(bytes);
        let _ = accepted.shutdown(Shutdown::Write);
        let result = initiates.join().expect("no panic");
        result.expect_err("no responder answers so")
    })
}

#[test]
fn same_key_meets_over_both_families() {
    for bind in ["127.0.0.1:0", "[::1]:0"] {
        let psk = key();
        let listener = TcpListener::bind(bind).expect("loopback");
        let addr = listener.local_addr().expect("address");
        thread::scope(|scope| {
            let responds = scope.spawn(|| {
                let stream = listener.accept().expect("accept").0;
                let mut channel = Channel::accept(stream, &psk, PATIENT).expect("handshake");
                channel.send(&Bytes(b"pong".to_vec())).expect("send");
                let came: Bytes = channel.recv().expect("receive");
                (came, channel.local_addr(), channel.peer_addr())
            });
            let mut channel =
                Channel::connect(&addr.into(), &psk, PATIENT, || false).expect("handshake");
            channel.send(&Bytes(b"ping".to_vec())).expect("send");
            assert_eq!(channel.recv::<Bytes>().expect("receive").0, b"pong");
            let (came, local, peer) = responds.join().expect("no panic");
            assert_eq!(came.0, b"ping");
            assert_eq!((channel.peer_addr(), channel.local_addr()), (local, peer));
            assert_eq!(local, addr);
        });
    }
}

#[test]
fn ipv4_peer_of_an_ipv6_socket_keeps_its_address() {
    let psk = key();
    let listener = TcpListener::bind("[::]:0").expect("any address");
    let port = listener.local_addr().expect("address").port();
    thread::scope(|scope| {
        scope.spawn(|| {
            let stream = listener.accept().expect("accept").0;
            let channel = Channel::accept(stream, &psk, PATIENT).expect("handshake");
            assert!(channel.peer_addr().is_ipv4(), "{}", channel.peer_addr());
            assert_eq!(
                channel.local_addr().to_string(),
                format!("127.0.0.1:{port}")
            );
        });
        let addr = SocketAddr::from(([127, 0, 0, 1], port));
        Channel::connect(&addr.into(), &psk, PATIENT, || false).expect("handshake");
    });
}

#[test]
fn initiator_may_come_first() {
    let psk = key();
    // Other tests do not use ports of this host, so the port stays free.
    let addr = TcpListener::bind("127.0.5.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("a free port");
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(300));
            let listener = TcpListener::bind(addr).expect("still free");
            let stream = listener.accept().expect("accept").0;
            Channel::accept(stream, &psk, PATIENT).expect("handshake");
        });
        Channel::connect(&addr.into(), &psk, PATIENT, || false).expect("it waits");
    });
    let patience = Duration::from_millis(250);
    let error =
        Channel::connect(&addr.into(), &psk, patience, || false).expect_err("nobody listens");
    assert!(matches!(error, Error::Connect { .. }), "{error}");
    assert!(error.to_string().contains(&addr.to_string()), "{error}");
}

#[test]
fn both_ends_learn_that_keys_differ() {
    let (initiator, responder) = shake(&key(), &key(), PATIENT);
    let (initiator, responder) = (initiator.expect_err("wrong"), responder.expect_err("wrong"));
    assert!(matches!(initiator, Error::KeysDiffer), "{initiator}");
    assert!(matches!(responder, Error::KeysDiffer), "{responder}");
    assert!(
        initiator.to_string().contains("pre-shared keys"),
        "{initiator}"
    );
}

#[test]
fn both_ends_learn_that_versions_differ() {
    let psk = key();
    for theirs in [0, VERSION + 1, u16::MAX] {
        let mut preamble = PREAMBLE;
        preamble[8..].copy_from_slice(&theirs.to_be_bytes());
        // The bytes after the preamble have a form that this version cannot know.
        let other = [&preamble[..], &[0xa5; 3000]].concat();
        let (answer, responder) = answer(&psk, &other, PATIENT);
        assert_eq!(answer, PREAMBLE, "it says its own version, and no more");
        let responder = responder.expect_err("another version");
        let initiator = opinion(&psk, &preamble, PATIENT);
        for error in [responder, initiator] {
            assert!(
                matches!(error, Error::Version { ours: VERSION, theirs: t } if t == theirs),
                "{error}"
            );
        }
    }
}

/// An attacker who changes the preamble could downgrade a peer that supports both version 4 and
/// version 3. So the handshake also authenticates the preamble.
#[test]
fn preamble_is_bound_into_the_handshake() {
    let psk = key();
    let mut said = PREAMBLE;
    said[9] = 4;
    let first = first_message(&mut noise(&psk, &said, true));
    let (answer, error) = answer(&psk, &[&PREAMBLE[..], &first].concat(), PATIENT);
    assert!(matches!(error, Err(Error::KeysDiffer)), "{error:?}");
    assert_eq!(answer, [&PREAMBLE[..], &[1]].concat());
}

#[test]
fn other_programs_are_named() {
    let psk = key();
    for said in [
        "GET / HTTP/1.1\r\n\r\n",
        "SSH-2.0-OpenSSH_9.6\r\n",
        "F\n",
        "FARWRITf00",
        "\x16\x03\x01",
    ] {
        let (said_back, responder) = answer(&psk, said.as_bytes(), PATIENT);
        assert!(said_back.is_empty());
        for error in [
            responder.expect_err("a stranger"),
            opinion(&psk, said.as_bytes(), PATIENT),
        ] {
            assert!(
                matches!(error, Error::NotFarwrite { .. }),
                "{said:?}: {error}"
            );
        }
    }
    let error = opinion(&psk, b"SSH-2.0-OpenSSH\r\n", PATIENT).to_string();
    assert!(error.contains("SSH-2.0-"), "{error}");
    let error = opinion(&psk, b"\x1b[2J", PATIENT).to_string();
    assert!(error.contains(r"\x1b[2J"), "escaped: {error}");
}

#[test]
fn unknown_status_is_refused() {
    let error = opinion(&key(), &[&PREAMBLE[..], &[7]].concat(), PATIENT);
    assert!(matches!(error, Error::Status { came: 7 }), "{error}");
}

#[test]
fn cut_at_every_byte() {
    let psk = key();
    let whole = [
        &PREAMBLE[..],
        &first_message(&mut noise(&psk, &PREAMBLE, true)),
    ]
    .concat();
    for cut in 0..=whole.len() {
        let (_, responder) = answer(&psk, &whole[..cut], PATIENT);
        // Even all of these bytes do not include the proof.
        assert!(
            matches!(responder, Err(Error::HandshakeCut)),
            "{cut}: {responder:?}"
        );
    }
    let whole = [&PREAMBLE[..], &[0], &[9; 48]].concat();
    for cut in 0..whole.len() {
        let error = opinion(&psk, &whole[..cut], PATIENT);
        assert!(matches!(error, Error::HandshakeCut), "{cut}: {error}");
    }
    let error = opinion(&psk, &whole, PATIENT);
    assert!(matches!(error, Error::KeysDiffer), "{error}");
}

#[test]
fn every_bit_of_the_first_message_counts() {
    let psk = key();
    let first = first_message(&mut noise(&psk, &PREAMBLE, true));
    for byte in 0..first.len() {
        let mut changed = first.clone();
        changed[byte] ^= 1 << (byte % 8);
        let (_, error) = answer(&psk, &[&PREAMBLE[..], &changed].concat(), PATIENT);
        assert!(matches!(error, Err(Error::KeysDiffer)), "{byte}: {error:?}");
    }
}

/// An attacker who recorded a handshake can replay its first message, but cannot prove that it is
/// live.
#[test]
fn replayed_handshake_is_no_channel() {
    let psk = key();
    let (dialled, accepted) = sockets("127.0.0.1:0");
    thread::scope(|scope| {
        let responds = scope.spawn(|| Channel::accept(accepted, &psk, PATIENT));
        let mut peer = HandMade::initiate(dialled, &psk);
        peer.write(&[0x5a; 16]);
        let error = responds.join().expect("no panic").expect_err("no proof");
        assert!(matches!(error, Error::Forged), "{error}");
    });
}

#[test]
fn silent_peer_is_given_up() {
    let psk = key();
    let timeout = Duration::from_millis(150);
    let (dialled, accepted) = sockets("127.0.0.1:0");
    for stream in [&dialled, &accepted] {
        let stream = stream.try_clone().expect("clone");
        let start = Instant::now();
        let error = Channel::accept(stream, &psk, timeout).expect_err("silence");
        assert!(
            matches!(error, Error::Timeout { after, .. } if after == timeout),
            "{error}"
        );
        assert!(start.elapsed() >= timeout);
    }
    let (silent, _accepted) = sockets("127.0.0.1:0");
    let error = Channel::initiate(silent, &psk, timeout).expect_err("silence");
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
}

/// A peer that sends single bytes at long intervals does not extend the time limit.
#[test]
fn dripping_peer_is_given_up() {
    let psk = key();
    let timeout = Duration::from_millis(400);
    let (mut dialled, accepted) = sockets("127.0.0.1:0");
    let first = first_message(&mut noise(&psk, &PREAMBLE, true));
    thread::scope(|scope| {
        scope.spawn(move || {
            for byte in PREAMBLE.iter().chain(&first) {
                if dialled.write_all(&[*byte]).is_err() {
                    return;
                }
                thread::sleep(Duration::from_millis(150));
            }
        });
        let start = Instant::now();
        let error = Channel::accept(accepted, &psk, timeout).expect_err("58 bytes in 8.7 s");
        assert!(matches!(error, Error::Timeout { .. }), "{error}");
        assert!(start.elapsed() < timeout * 15, "{:?}", start.elapsed());
    });
}

/// A slow handshake that completes in time succeeds, even if every byte arrives alone.
#[test]
fn handshake_in_single_bytes_succeeds() {
    let psk = key();
    let (near, accepted) = sockets("127.0.0.1:0");
    let (dialled, far) = sockets("127.0.0.1:0");
    let relay = |mut from: TcpStream, mut to: TcpStream| {
        let mut byte = [0];
        while let Ok(1) = from.read(&mut byte) {
            if to.write_all(&byte).is_err() {
                return;
            }
        }
    };
    let copies = [near.try_clone(), far.try_clone()].map(|stream| stream.expect("clone"));
    let [near_again, far_again] = copies;
    for stream in [&near, &far] {
        stream.set_nodelay(true).expect("no delay");
    }
    thread::spawn(move || relay(near, far));
    thread::spawn(move || relay(far_again, near_again));
    thread::scope(|scope| {
        let responds = scope.spawn(|| Channel::accept(accepted, &psk, PATIENT));
        let mut initiator = Channel::initiate(dialled, &psk, PATIENT).expect("initiator");
        let mut responder = responds.join().expect("no panic").expect("responder");
        initiator.send(&Bytes(vec![3; 5000])).expect("send");
        assert_eq!(responder.recv::<Bytes>().expect("receive").0, [3; 5000]);
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn garbage_is_refused_by_both_ends(
        magic in any::<bool>(),
        garbage in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let psk = key();
        let said = [if magic { &PREAMBLE[..] } else { &[] }, &garbage[..]].concat();
        prop_assert!(answer(&psk, &said, PATIENT).1.is_err());
        opinion(&psk, &said, PATIENT);
    }
}
