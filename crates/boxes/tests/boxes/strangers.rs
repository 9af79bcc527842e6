//! Strangers: packets of somebody who wants the boxes to protect nobody else. The connection that must
//! stay protected is always that of the addresses of `common`.
#![allow(clippy::cast_possible_truncation, reason = "small numbers of a test")]

use std::net::{IpAddr, Ipv6Addr};

use crate::common::{IPV4, Kind, Pair, QPN, ack, config, is_repair, message, packet_of, payload};
use crate::faults::{send_without, warm, write};
use crate::netrt_frames;
use farwrite_boxes::lowar::Config;
use farwrite_boxes::netrt::NetRt;
use farwrite_boxes::{Middlebox, Side};

/// RC RDMA WRITE First and Middle, and UC RDMA WRITE Only with immediate.
const FIRST: u8 = 0x06;
const MIDDLE: u8 = 0x07;
const UC_ONLY: u8 = 0x2B;
/// Connections of a table.
const PLACES: usize = 512;

/// A packet of a program on the host of this Ethernet address.
fn packet(station: u8, src: IpAddr, qpn: u32, opcode: u8, psn: u32) -> Vec<u8> {
    packet_of(station, src, qpn, payload(opcode, psn, 256, 0))
}

fn host(number: u8) -> IpAddr {
    [192, 0, 2, number].into()
}

fn places() -> Config {
    Config {
        max_connections: PLACES,
        ..config(4, 1)
    }
}

/// A loss of the other connection is repaired.
fn repairs(pair: &mut Pair) {
    let before = pair.b.counters().recovered;
    warm(pair, 0);
    let frames = write(2, 4);
    assert_eq!(send_without(pair, &frames, &[1]), frames);
    assert_eq!(pair.b.counters().recovered, before + 1);
}

#[test]
fn packets_with_wrong_checksums_take_no_place() {
    let mut pair = Pair::new(&places());
    for qpn in 0..600 {
        let mut frame = packet(66, host(66), qpn, UC_ONLY, 0);
        *frame.last_mut().unwrap() ^= 1;
        assert_eq!(pair.send(std::slice::from_ref(&frame)), [frame]);
    }
    let counters = pair.a.counters();
    let seen = [
        counters.damaged,
        counters.questions_sent,
        counters.connections_full,
    ];
    assert_eq!(seen, [600, 0, 0]);
    repairs(&mut pair);
}

#[test]
fn invented_connections_of_one_host_leave_others_protected() {
    for opcode in [UC_ONLY, FIRST] {
        let mut pair = Pair::new(&places());
        for qpn in 0..2000 {
            let frame = packet(66, host(66), qpn, opcode, 0);
            assert_eq!(pair.send(std::slice::from_ref(&frame)), [frame]);
        }
        assert!(pair.a.counters().connections_full > 0);
        repairs(&mut pair);
    }
}

/// Over IPv6, a program can send from addresses that its machine does not have.
#[test]
fn invented_addresses_of_one_machine_leave_others_protected() {
    let mut pair = Pair::new(&places());
    for number in 0..2000 {
        let src = Ipv6Addr::new(0x2001, 0xDB8, number, 0, 0, 0, 0, 1).into();
        let frame = packet(66, src, u32::from(number), UC_ONLY, 0);
        assert_eq!(pair.send(std::slice::from_ref(&frame)), [frame]);
    }
    assert!(pair.a.counters().connections_full > 0);
    repairs(&mut pair);
}

/// Blocks of one packet stay open for 3 ms, and have 8 units each. The others get the rest.
#[test]
fn open_blocks_of_one_host_leave_units_to_others() {
    let config = config(16, 8);
    let mut pair = Pair::new(&config);
    let blocks = config.max_units as u32 / 8 + 20;
    for psn in 0..3 {
        for qpn in 0..blocks {
            let opcode = if psn == 0 { FIRST } else { MIDDLE };
            let frame = packet(66, host(66), qpn, opcode, psn);
            assert_eq!(pair.send(std::slice::from_ref(&frame)), [frame]);
        }
    }
    assert!(pair.a.counters().units_full > 0);
    repairs(&mut pair);
}

/// An acknowledgement waits behind READ responses, in the same room as they. One with a wrong ICRC does
/// not.
#[test]
fn forged_acknowledgements_take_no_room() {
    let mut pair = Pair::new(&Config {
        max_held: 4,
        ..config(4, 1)
    });
    let response = |psn, packets| message(IPV4, Kind::ReadResponse, psn, packets);
    for psn in 0..2 {
        pair.send(&response(psn, 1));
    }
    let frames = response(2, 4);
    let sent: Vec<_> = frames.iter().flat_map(|frame| pair.encode(frame)).collect();
    let mut forged = ack(IPV4, 1);
    *forged.last_mut().unwrap() ^= 1;
    let mut got = Vec::new();
    for (at, frame) in sent.into_iter().enumerate() {
        if is_repair(IPV4, &frame) {
            for _ in 0..20 {
                assert_eq!(pair.decode(forged.clone()), [forged.clone()]);
            }
        }
        if at != 1 {
            got.extend(pair.decode(frame));
        }
    }
    assert_eq!(got, frames);
    let counters = pair.b.counters();
    assert_eq!((counters.recovered, counters.held_full), (1, 0));
}

/// The same for NetRT: a loss of the other connection is repaired.
fn repeats(pair: &mut netrt_frames::Pair) {
    let frames = message(IPV4, Kind::Write, 0, 6);
    let before = pair.destination.counters();
    pair.got.clear();
    for (at, frame) in frames.iter().enumerate() {
        pair.send(frame, at == 2);
    }
    pair.wait(200_000);
    let of_host = |frame: &&Vec<u8>| frame[11] != 66;
    assert!(pair.got.iter().filter(of_host).eq(&frames));
    let after = pair.destination.counters();
    assert_eq!(after.recovered, before.recovered + 1);
    assert_eq!(after.given_up, before.given_up);
}

#[test]
fn invented_flows_of_one_host_leave_others_protected() {
    let config = farwrite_boxes::netrt::Config {
        max_connections: PLACES,
        ..netrt_frames::config()
    };
    let mut pair = netrt_frames::Pair::new(IPV4);
    [pair.source, pair.destination] = [1, 1].map(|boot| NetRt::new(&config, boot));
    for qpn in 0..2000 {
        let mut damaged = packet(66, host(66), qpn + 5000, FIRST, 0);
        *damaged.last_mut().unwrap() ^= 1;
        pair.send(&damaged, false);
        pair.send(&packet(66, host(66), qpn, FIRST, 0), false);
    }
    let counters = pair.source.counters();
    assert!(counters.connections_full > 0 && counters.starts_sent < 512);
    repeats(&mut pair);
}

/// Packets with the code point of repeats, which the source box does not know, behind a packet that
/// nobody has sent: the box has not requested them.
#[test]
fn forged_repeats_do_not_wait() {
    let mut pair = netrt_frames::Pair::new(IPV4);
    pair.send(&packet(66, host(66), QPN + 1, FIRST, 0), false);
    let forged = |psn| {
        let mut frame = packet(66, host(66), QPN + 1, MIDDLE, psn);
        frame[15] = netrt_frames::config().repeat_dscp << 2;
        frame
    };
    for psn in (2..3000).chain([1]) {
        pair.send(&forged(psn), false);
        assert_eq!(pair.got.last(), Some(&forged(psn)));
    }
    let counters = pair.destination.counters();
    assert_eq!((counters.held, counters.requests_sent), (0, 0));
    // Nor do they while packets of the flow were requested, but for the packets requested.
    pair.send(&packet(66, host(66), QPN + 1, MIDDLE, 1), true);
    pair.lose.extend([7; 9]);
    pair.send(&packet(66, host(66), QPN + 1, MIDDLE, 2), false);
    let held = pair.destination.held();
    assert_eq!(held, 1);
    for psn in 3..3000 {
        pair.send(&forged(psn), false);
    }
    assert_eq!(pair.destination.held(), 1);
    pair.lose.clear();
    pair.wait(2_000_000);
    repeats(&mut pair);
}

/// An acknowledgement with a wrong ICRC does not wait in NetRT either.
#[test]
fn forged_acknowledgements_take_no_room_of_netrt() {
    let mut pair = netrt_frames::Pair::new(IPV4);
    let frames = message(IPV4, Kind::ReadResponse, 0, 4);
    pair.lose.extend([7; 9]);
    for (at, frame) in frames.iter().enumerate() {
        pair.send(frame, at == 1);
    }
    let held = pair.destination.held();
    assert_eq!(held, 2);
    let mut forged = ack(IPV4, 1);
    *forged.last_mut().unwrap() ^= 1;
    pair.destination.handle(pair.now_ns, Side::Far, forged);
    assert_eq!(pair.destination.held(), 2);
    pair.destination
        .handle(pair.now_ns, Side::Far, ack(IPV4, 1));
    assert_eq!(pair.destination.held(), 3);
}
