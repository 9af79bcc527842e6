//! Relayed datagrams: addresses, bytes, ICRCs.

use std::io::IoSlice;
use std::time::Duration;

use farwrite_emulator::udp::{PortPair, Side, UdpEmulator, UdpEmulatorConfig};
use farwrite_fabric::udp::{OutgoingBatch, SocketConfig, UdpSocket};
use farwrite_link::LinkConfig;
use farwrite_wire::icrc::{self, Flow, IdRange};

use crate::end::{End, Setup, body, packet, set_up, wait_until};

const BINDS: [&str; 2] = ["127.0.0.1:0", "[::1]:0"];

#[test]
fn packets_pass_both_ways_and_are_sealed_for_their_new_addresses() {
    for bind in BINDS {
        let Setup {
            a,
            b,
            a_side,
            b_side,
            emulator,
        } = set_up(bind, UdpEmulatorConfig::default());
        for (number, payload_bytes) in [0, 1, 4, 1023, 4096, 9000].into_iter().enumerate() {
            let number = u32::try_from(number).unwrap();
            a.send(a_side, number, payload_bytes);
            let there = b.receive();
            assert_eq!(there.src, b_side);
            assert!(there.is_sealed, "{bind}: {payload_bytes} bytes");
            let sent = packet(a.addr(), a_side, 0, number, payload_bytes);
            assert_eq!(body(&there.bytes), body(&sent));

            b.send(b_side, number, payload_bytes);
            let back = a.receive();
            assert_eq!((back.src, back.is_sealed), (a_side, true));
        }
        let counters = emulator.stop().unwrap();
        assert_eq!(
            (
                counters.forward.link.delivered,
                counters.backward.link.delivered
            ),
            (6, 6)
        );
        assert_eq!(
            (counters.forward.bad_icrc, counters.backward.bad_icrc),
            (0, 0)
        );
    }
}

/// Packets that leave together leave as one batch, whose segments the kernel numbers.
#[test]
fn batches_are_sealed_for_the_place_of_each_segment() {
    for bind in BINDS {
        let mut a = UdpSocket::bind(&SocketConfig::new(bind.parse().unwrap())).unwrap();
        let b = End::new(bind);
        let emulator = UdpEmulator::start(&UdpEmulatorConfig {
            forward: LinkConfig {
                delay: Duration::from_millis(20),
                ..LinkConfig::default()
            },
            channels: vec![PortPair {
                a: Side::facing(a.local_addr()),
                b: Side::facing(b.addr()),
            }],
            ..UdpEmulatorConfig::default()
        })
        .unwrap();
        let [a_side, b_side] = emulator.addresses()[0];
        // Equal sizes, then a shorter one, which ends a batch; three such batches.
        let sizes = [1000, 1000, 1000, 1000, 500];
        for batch in 0..3 {
            let packets: Vec<_> = sizes
                .into_iter()
                .zip(0u16..)
                .map(|(bytes, id)| {
                    let number = 5 * batch + u32::from(id);
                    packet(a.local_addr(), a_side, id, number, bytes)
                })
                .collect();
            let parts: Vec<_> = packets.iter().map(|packet| IoSlice::new(packet)).collect();
            let message = OutgoingBatch {
                src: None,
                dst: a_side,
                segment_bytes: packets[0].len(),
                parts: &parts,
            };
            assert_eq!(a.send(&[message]).unwrap(), sizes.len());
        }
        let flow = Flow::new(b_side, b.addr()).unwrap();
        for number in 0..15 {
            let arrival = b.receive();
            assert_eq!(arrival.number(), number);
            let id = icrc::verify(&flow, &arrival.bytes, 0, IdRange::SOFTWARE);
            // Batches end at the short packets, so the indices are known. IPv6 has no
            // identification.
            let is_numbered = bind == BINDS[0] && a.granted().gso;
            let want = if is_numbered { number % 5 } else { 0 };
            assert_eq!(id.map(u32::from), Ok(want), "{bind}, packet {number}");
        }
        assert_eq!(emulator.stop().unwrap().forward.bad_icrc, 0);
    }
}

#[test]
fn a_wrong_icrc_stays_wrong() {
    for bind in BINDS {
        let Setup {
            a,
            b,
            a_side,
            emulator,
            ..
        } = set_up(bind, UdpEmulatorConfig::default());
        for at in [0, 20, 100, 110] {
            let mut bytes = packet(a.addr(), a_side, 0, 1, 99);
            bytes[at] ^= 0x10;
            a.send_raw(a_side, &bytes);
            let arrival = b.receive();
            assert!(!arrival.is_sealed, "{bind}: byte {at}");
            assert_eq!(body(&arrival.bytes), body(&bytes));
        }
        // The emulator also relays a datagram without BTH and ICRC.
        for bytes in [&b"abc"[..], b"hello world"] {
            a.send_raw(a_side, bytes);
            let arrival = b.receive();
            assert_eq!(
                (arrival.bytes.len(), arrival.is_sealed),
                (bytes.len(), false)
            );
        }
        assert_eq!(emulator.stop().unwrap().forward.bad_icrc, 6);
    }
}

#[test]
fn a_bit_flipped_on_the_link_is_found_by_the_receiver() {
    let config = UdpEmulatorConfig {
        forward: LinkConfig {
            corrupt: 1.0,
            ..LinkConfig::default()
        },
        seed: 11,
        ..UdpEmulatorConfig::default()
    };
    let Setup {
        a,
        b,
        a_side,
        emulator,
        ..
    } = set_up(BINDS[0], config);
    for number in 0..100 {
        a.send(a_side, number, 64);
        let arrival = b.receive();
        // This byte holds the ECN marks, which the ICRC does not cover (IBTA A17.3.4).
        let mut sent = packet(a.addr(), a_side, 0, number, 64);
        let (mut got, len) = (arrival.bytes, sent.len());
        (sent[4], got[4]) = (0, 0);
        let is_harmless = sent[..len - 4] == got[..len - 4] && arrival.is_sealed;
        assert!(is_harmless || !arrival.is_sealed, "packet {number}");
    }
    let counters = emulator.stop().unwrap().forward;
    assert_eq!((counters.link.corrupted, counters.bad_icrc), (100, 0));
}

#[test]
fn channels_are_kept_apart() {
    let ends: Vec<_> = BINDS
        .iter()
        .chain(&BINDS)
        .map(|bind| End::new(bind))
        .collect();
    // One channel of each IP version.
    let emulator = UdpEmulator::start(&UdpEmulatorConfig {
        channels: (0..2)
            .map(|i| PortPair {
                a: Side::facing(ends[i].addr()),
                b: Side::facing(ends[i + 2].addr()),
            })
            .collect(),
        ..UdpEmulatorConfig::default()
    })
    .unwrap();
    for (i, [a_side, b_side]) in emulator.addresses().iter().enumerate() {
        ends[i].send(*a_side, 7, 100);
        let arrival = ends[i + 2].receive();
        assert_eq!((arrival.src, arrival.is_sealed), (*b_side, true));
        ends[i + 2].send(*b_side, 8, 100);
        assert_eq!(ends[i].receive().src, *a_side);
    }
}

#[test]
fn an_end_is_learnt_from_its_first_right_packet() {
    for bind in BINDS {
        let (a, b) = (End::new(bind), End::new(bind));
        let emulator = UdpEmulator::start(&UdpEmulatorConfig {
            channels: vec![PortPair {
                a: Side::learning(bind.parse().unwrap()),
                b: Side::facing(b.addr()),
            }],
            ..UdpEmulatorConfig::default()
        })
        .unwrap();
        let [a_side, b_side] = emulator.addresses()[0];
        b.send(b_side, 1, 10);
        // A stranger cannot compute a valid ICRC.
        let stranger = End::new(bind);
        stranger.send_raw(a_side, &[0; 64]);
        wait_until("both are dropped", || {
            let counters = emulator.counters();
            (counters.forward.strangers, counters.backward.no_end) == (1, 1)
        });

        a.send(a_side, 2, 10);
        let arrival = b.receive();
        assert_eq!((arrival.number(), arrival.is_sealed), (2, true));
        b.send(b_side, 3, 10);
        assert_eq!(a.receive().number(), 3);
        // From now on the emulator knows the end, and accepts no other source.
        stranger.send(a_side, 4, 10);
        wait_until("the stranger is dropped", || {
            emulator.counters().forward.strangers == 2
        });
        assert_eq!(emulator.counters().forward.link.offered, 1);
    }
}
