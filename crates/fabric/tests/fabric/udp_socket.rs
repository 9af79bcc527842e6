//! The batched UDP socket over loopback.
#![cfg(target_os = "linux")]

use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use farwrite_fabric::udp::{
    MAX_SEGMENTS, OutgoingBatch, SocketConfig, SocketError, UdpSocket, wait,
};
use proptest::prelude::*;

fn bind(addr: &str, offload: bool) -> UdpSocket {
    let addr = addr.parse().unwrap();
    UdpSocket::bind(&SocketConfig {
        offload,
        ..SocketConfig::new(addr)
    })
    .unwrap()
}

fn at(ip: &str, socket: &UdpSocket) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), socket.local_addr().port())
}

/// Receives until `count` datagrams have arrived, or until none has arrived for one minute. Returns
/// source, destination and bytes of each.
fn take(socket: &mut UdpSocket, count: usize) -> Vec<(SocketAddr, SocketAddr, Vec<u8>)> {
    take_within(socket, count, Duration::from_secs(60))
}

/// Receives until `count` datagrams have arrived, or until none has arrived for this time.
fn take_within(
    socket: &mut UdpSocket,
    count: usize,
    quiet: Duration,
) -> Vec<(SocketAddr, SocketAddr, Vec<u8>)> {
    let mut got = Vec::new();
    while got.len() < count && wait([(&*socket, false)], Some(quiet)).unwrap() {
        for batch in socket.recv().unwrap().0 {
            got.extend(batch.segments().map(|s| (batch.src, batch.dst, s.to_vec())));
        }
    }
    got
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| ((i * 7 + i / 251) % 256).to_le_bytes()[0])
        .collect()
}

/// Bind addresses of sender and receiver, and the receiver's address from the sender's view.
const PATHS: [(&str, &str, &str); 6] = [
    ("127.0.0.1:0", "127.0.0.1:0", "127.0.0.1"),
    ("[::1]:0", "[::1]:0", "::1"),
    ("0.0.0.0:0", "0.0.0.0:0", "127.0.0.1"),
    ("[::]:0", "[::]:0", "127.0.0.1"),
    ("[::]:0", "[::]:0", "::1"),
    ("[::]:0", "127.0.0.1:0", "127.0.0.1"),
];

#[test]
fn batches_arrive_whole_with_their_addresses() {
    for (from, to, ip) in PATHS {
        for (gso, gro) in [(true, true), (true, false), (false, true), (false, false)] {
            let mut tx = bind(from, gso);
            let mut rx = bind(to, gro);
            let (src, dst) = (at(ip, &tx), at(ip, &rx));
            for (segment, total) in [
                (1, 1),
                (1, 64),
                (1452, 10 * 1452),
                (1452, 10 * 1452 + 1),
                (4132, 15 * 4132 - 3),
                (65_000, 65_000),
            ] {
                let bytes = pattern(total);
                let (head, tail) = bytes.split_at(total / 3);
                let sent = tx
                    .send(&[OutgoingBatch {
                        src: Some(src.ip()),
                        dst,
                        segment_bytes: segment,
                        parts: &[IoSlice::new(head), IoSlice::new(tail)],
                    }])
                    .unwrap();
                let want: Vec<_> = bytes
                    .chunks(segment)
                    .map(|s| (src, dst, s.to_vec()))
                    .collect();
                assert_eq!(sent, want.len());
                let got = take(&mut rx, sent);
                assert!(
                    got == want,
                    "{from} to {to}, gso {gso}, gro {gro}: {total} bytes by {segment}, got {} of {}",
                    got.len(),
                    want.len()
                );
            }
        }
    }
}

#[test]
fn offloads_are_used_where_there_are_and_can_be_refused() {
    let (mut tx, mut rx) = (bind("127.0.0.1:0", true), bind("127.0.0.1:0", true));
    let off = bind("127.0.0.1:0", false).granted();
    assert!(!off.gso && !off.gro);
    if !(tx.granted().gso && rx.granted().gro) {
        return; // The kernel does not support them.
    }
    let bytes = pattern(40 * 1000);
    let dst = rx.local_addr();
    let message = OutgoingBatch {
        src: None,
        dst,
        segment_bytes: 1000,
        parts: &[IoSlice::new(&bytes)],
    };
    assert_eq!(tx.send(&[message]).unwrap(), 40);
    assert!(wait([(&rx, false)], Some(Duration::from_secs(60))).unwrap());
    let (batches, more) = rx.recv().unwrap();
    let sizes: Vec<_> = batches.map(|b| (b.segment_bytes, b.bytes.len())).collect();
    assert_eq!((sizes, more), (vec![(1000, 40_000)], false));
}

#[test]
fn a_wildcard_socket_sends_from_the_address_it_is_told() {
    for wildcard in ["0.0.0.0:0", "[::]:0"] {
        let mut tx = bind(wildcard, true);
        let mut rx = bind("127.0.0.1:0", true);
        let src: IpAddr = "127.0.0.5".parse().unwrap();
        let dst = rx.local_addr();
        let parts = [IoSlice::new(b"from five")];
        let sent = tx
            .send(&[OutgoingBatch {
                src: Some(src),
                dst,
                segment_bytes: 9,
                parts: &parts,
            }])
            .unwrap();
        assert_eq!(sent, 1);
        assert_eq!(take(&mut rx, 1)[0].0.ip(), src);
    }
}

#[test]
fn a_datagram_beyond_the_path_mtu_is_an_error_that_names_it() {
    for (addr, bytes) in [("127.0.0.1:0", 65_508), ("[::1]:0", 65_528)] {
        let mut tx = bind(addr, true);
        let bytes = vec![0; bytes];
        let dst = tx.local_addr();
        let message = OutgoingBatch {
            src: None,
            dst,
            segment_bytes: bytes.len(),
            parts: &[IoSlice::new(&bytes)],
        };
        let error = tx.send(&[message]).unwrap_err();
        assert!(matches!(error, SocketError::TooLarge { .. }), "{error}");
        let mtu = farwrite_fabric::udp::path_mtu(dst).unwrap();
        assert!(error.to_string().contains(&mtu.to_string()), "{error}");
        // The socket still works.
        let parts = [IoSlice::new(&bytes[..100])];
        assert_eq!(
            tx.send(&[OutgoingBatch {
                parts: &parts,
                ..message
            }])
            .unwrap(),
            1
        );
    }
}

#[test]
fn a_closed_port_at_the_peer_breaks_nothing() {
    let mut tx = bind("127.0.0.1:0", true);
    let mut rx = bind("127.0.0.1:0", true);
    let closed = bind("127.0.0.1:0", true).local_addr();
    let parts = [IoSlice::new(b"anyone?")];
    let to = |dst| OutgoingBatch {
        src: None,
        dst,
        segment_bytes: 7,
        parts: &parts,
    };
    for _ in 0..10 {
        assert_eq!(tx.send(&[to(closed), to(rx.local_addr())]).unwrap(), 2);
        assert_eq!(tx.recv().unwrap().0.count(), 0);
    }
    assert_eq!(take(&mut rx, 10).len(), 10);
}

#[test]
fn a_source_address_that_went_away_loses_packets_and_breaks_nothing() {
    // Documentation addresses (RFC 5737, RFC 3849) belong to no machine.
    for (any, ip, gone) in [
        ("0.0.0.0:0", "127.0.0.1", "192.0.2.1"),
        ("[::]:0", "::1", "2001:db8::1"),
        ("[::]:0", "127.0.0.1", "192.0.2.1"),
    ] {
        for total in [100, 1000] {
            let mut tx = bind(any, true);
            let mut rx = bind(any, true);
            let had = tx.granted();
            let (data, dst) = (pattern(total), at(ip, &rx));
            let parts = [IoSlice::new(&data)];
            let mut message = OutgoingBatch {
                src: Some(gone.parse().unwrap()),
                dst,
                segment_bytes: 100,
                parts: &parts,
            };
            let datagrams = total / 100;
            assert_eq!(tx.send(&[message]).unwrap(), datagrams, "{gone}");
            assert_eq!(tx.unsent(), datagrams as u64, "{gone}");
            assert_eq!(tx.granted(), had, "batches were not what was refused");
            message.src = Some(ip.parse().unwrap());
            assert_eq!(tx.send(&[message]).unwrap(), datagrams);
            assert_eq!(take(&mut rx, datagrams).len(), datagrams);
        }
    }
}

#[test]
fn drops_for_want_of_room_are_counted() {
    let mut tx = bind("127.0.0.1:0", false);
    let mut rx = UdpSocket::bind(&SocketConfig {
        recv_buffer_bytes: 16 << 10,
        offload: false,
        ..SocketConfig::new("127.0.0.1:0".parse().unwrap())
    })
    .unwrap();
    let bytes = [0; 1000];
    let parts = [IoSlice::new(&bytes)];
    let message = OutgoingBatch {
        src: None,
        dst: rx.local_addr(),
        segment_bytes: 1000,
        parts: &parts,
    };
    assert_eq!(tx.send(&[message; 200]).unwrap(), 200);
    let first = take_within(&mut rx, 200, Duration::from_secs(1)).len();
    assert!(first < 200);
    // The kernel reports the count with the next datagram.
    tx.send(&[message]).unwrap();
    let got = first + take(&mut rx, 1).len();
    assert_eq!(got as u64 + rx.drops(), 201);
}

#[test]
fn waits_end_on_time_or_with_data() {
    let (mut tx, rx) = (bind("[::1]:0", true), bind("[::1]:0", true));
    let start = Instant::now();
    assert!(!wait([(&rx, false)], Some(Duration::from_micros(300))).unwrap());
    assert!(start.elapsed() >= Duration::from_micros(300));
    assert!(wait([(&rx, true)], Some(Duration::ZERO)).unwrap());
    let dst = rx.local_addr();
    let parts = [IoSlice::new(b"now")];
    let message = OutgoingBatch {
        src: None,
        dst,
        segment_bytes: 3,
        parts: &parts,
    };
    tx.send(&[message]).unwrap();
    assert!(wait([(&tx, false), (&rx, false)], Some(Duration::MAX)).unwrap());
}

#[test]
fn addresses_in_use_are_named() {
    let held = bind("127.0.0.1:0", true);
    let taken = held.local_addr();
    let error = UdpSocket::bind(&SocketConfig::new(taken)).unwrap_err();
    assert!(error.to_string().contains(&taken.to_string()), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// For any split of the bytes into parts, with and without offloads, the datagrams are the
    /// same: equal sizes, a shorter tail, nothing lost or moved.
    #[test]
    fn any_gathering_gives_the_same_datagrams(
        cuts in prop::collection::vec(0usize..3000, 1..20),
        segment in 1usize..2000,
        offload in any::<bool>(),
    ) {
        let total = cuts.iter().sum::<usize>().clamp(1, segment * MAX_SEGMENTS);
        let bytes = pattern(total);
        let mut parts = Vec::new();
        let mut rest = &bytes[..];
        for cut in cuts {
            let (head, tail) = rest.split_at(cut.min(rest.len()));
            parts.push(IoSlice::new(head));
            rest = tail;
        }
        parts.push(IoSlice::new(rest));
        let (mut tx, mut rx) = (bind("127.0.0.1:0", offload), bind("127.0.0.1:0", offload));
        let message = OutgoingBatch { src: None, dst: rx.local_addr(), segment_bytes: segment, parts: &parts };
        let sent = tx.send(&[message]).unwrap();
        let got: Vec<_> = take(&mut rx, sent).into_iter().map(|(_, _, b)| b).collect();
        let want: Vec<_> = bytes.chunks(segment).map(<[u8]>::to_vec).collect();
        prop_assert_eq!(sent, want.len());
        prop_assert_eq!(got, want);
    }
}
