//! Packets that are dropped, and the reasons.

use farwrite_fabric::contract::{DropReason, Fabric, QpAttr, Qpn, Region, RemotePlace, Rkey};
use farwrite_wire::opcode;
use farwrite_wire::request::WriteImm;

use super::{SoftwareWorld, forged, one_dropped};
use crate::suite::{
    Got, MTU, Pair, arrivals, connect, joined, pattern, post, queue_pair, send, sge, travel,
    window, write,
};

/// Returns a pair whose `b` has another queue pair, joined to the stranger. Also returns the valid
/// packet that the stranger can send there: a write of 8 bytes.
fn with_forger<W: SoftwareWorld>(world: &mut W) -> (Pair<'_, W>, WriteImm) {
    let mut pair = Pair::new(world);
    let qpn = queue_pair(&mut pair.b, 0, MTU);
    let (_, place) = window(&mut pair.b, &[qpn], pair.target, 0..4096);
    connect(&mut pair.b, qpn, pair.world.stranger(), Qpn(2));
    let write = WriteImm {
        dest_qp: qpn.0,
        psn: 0,
        remote_addr: place.addr,
        rkey: place.rkey.0,
        imm: 5,
        payload_bytes: 8,
    };
    (pair, write)
}

/// Sends a valid packet after `change`, with a new ICRC.
fn forge<W: SoftwareWorld>(pair: &mut Pair<'_, W>, write: WriteImm, change: impl Fn(&mut Vec<u8>)) {
    let to = pair.b.local_addr(0);
    let bytes = forged(pair.world.stranger(), to, write, change);
    pair.world.forge(to, &bytes, 0);
}

/// Checks that the valid packet is accepted: all packets before it were dropped only for their
/// fault.
fn right_one_lands<W: SoftwareWorld>(pair: &mut Pair<'_, W>, write: WriteImm) {
    forge(pair, write, |_| {});
    let landed = Got::Write {
        qpn: Qpn(write.dest_qp),
        imm: 5,
        bytes: 8,
    };
    assert_eq!(pair.arrivals(1), [landed]);
    assert_eq!(pair.target()[..9], [1, 2, 3, 4, 5, 6, 7, 8, 0]);
}

pub(crate) fn no_receive(world: &mut impl SoftwareWorld) {
    let mut pair = Pair::new(world);
    let attr = QpAttr {
        mtu: MTU,
        port: 0,
        context: 0,
        recv_buffers: 0,
    };
    let data = pair.b.create_qp(attr).unwrap();
    connect(&mut pair.b, data, pair.world.stranger(), Qpn(2));
    let to_data = queue_pair(&mut pair.a, 0, MTU);
    let addr = pair.b.local_addr(0);
    connect(&mut pair.a, to_data, addr, data);
    let before = pair.before();
    send(&mut pair.a, to_data, b"from elsewhere");
    pair.all_dropped(&before, DropReason::NoReceive, 1);
    pair.b.disconnect_qp(data).unwrap();
    let addr = pair.a.local_addr(0);
    connect(&mut pair.b, data, addr, to_data);
    send(&mut pair.a, to_data, b"from the peer");
    pair.all_dropped(&before, DropReason::NoReceive, 2);
}

pub(crate) fn unknown_queue_pair(world: &mut impl SoftwareWorld) {
    let mut pair = Pair::new(world);
    let (_, place) = pair.open(0..100);
    let lost = queue_pair(&mut pair.a, 0, MTU);
    let addr = pair.b.local_addr(0);
    connect(&mut pair.a, lost, addr, Qpn(pair.qb.0 ^ 0x10_0000));
    let before = pair.before();
    let local = [sge(pair.source, 0..4)];
    post(&mut pair.a, lost, &write(&local, place, 0));
    pair.all_dropped(&before, DropReason::UnknownQp, 1);
}

pub(crate) fn stranger(world: &mut impl SoftwareWorld) {
    let mut pair = Pair::new(world);
    let (_, place) = pair.open(0..100);
    let before = pair.before();
    // All numbers are right; only the address is wrong.
    let write = WriteImm {
        dest_qp: pair.qb.0,
        psn: 0,
        remote_addr: place.addr,
        rkey: place.rkey.0,
        imm: 0,
        payload_bytes: 8,
    };
    forge(&mut pair, write, |_| {});
    pair.all_dropped(&before, DropReason::Stranger, 1);
}

pub(crate) fn other_port(world: &mut impl SoftwareWorld) {
    let (mut a, mut b) = (world.end(2), world.end(2));
    let (qa, qb) = joined(&mut a, &mut b, 0);
    let (addr, rkey) = (0, Rkey(1));
    let nowhere = RemotePlace { addr, rkey };
    // The address is that of the peer's host, with another port.
    let from_elsewhere = queue_pair(&mut a, 1, MTU);
    connect(&mut a, from_elsewhere, b.local_addr(0), qb);
    post(&mut a, from_elsewhere, &write(&[], nowhere, 0));
    one_dropped(world, &mut b, DropReason::Stranger);
    // The address is that of the queue pair's host, with another port.
    let to_elsewhere = queue_pair(&mut a, 0, MTU);
    connect(&mut a, to_elsewhere, b.local_addr(1), qb);
    send(&mut a, to_elsewhere, b"x");
    one_dropped(world, &mut b, DropReason::UnknownQp);
    send(&mut a, qa, b"x");
    arrivals(world, &mut b, 1);
}

pub(crate) fn not_connected(world: &mut impl SoftwareWorld) {
    let mut pair = Pair::new(world);
    let alone = queue_pair(&mut pair.b, 0, MTU);
    let wishful = queue_pair(&mut pair.a, 0, MTU);
    let addr = pair.b.local_addr(0);
    connect(&mut pair.a, wishful, addr, alone);
    let before = pair.before();
    send(&mut pair.a, wishful, b"x");
    pair.all_dropped(&before, DropReason::Stranger, 1);
}

pub(crate) fn bad_icrc(world: &mut impl SoftwareWorld) {
    let (mut pair, write) = with_forger(world);
    let to = pair.b.local_addr(0);
    let right = forged(pair.world.stranger(), to, write, |_| {});
    let before = pair.before();
    // Bits of the destination, PSN, address, key, immediate, payload, and of the ICRC itself.
    let bits = [
        5 * 8,
        11 * 8 + 7,
        13 * 8,
        20 * 8 + 3,
        31 * 8,
        32 * 8 + 1,
        40 * 8 + 5,
        43 * 8,
    ];
    for bit in bits {
        let mut wrong = right.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        pair.world.forge(to, &wrong, 0);
    }
    // The ICRC would be right for another path to this end.
    let mut elsewhere = pair.world.stranger();
    elsewhere.set_port(elsewhere.port() ^ 1);
    pair.world
        .forge(to, &forged(elsewhere, to, write, |_| {}), 0);
    let count = bits.len() as u64 + 1;
    pair.all_dropped(&before, DropReason::BadIcrc, count);
    // The ECN bits may change on the path (IBTA 9.2.3).
    let mut marked = right;
    marked[4] ^= 0xC0;
    pair.world.forge(to, &marked, 0);
    pair.arrivals(1);
}

pub(crate) fn empty(world: &mut impl SoftwareWorld) {
    let mut pair = Pair::new(world);
    let (before, to) = (pair.before(), pair.b.local_addr(0));
    pair.world.forge(to, &[], 0);
    pair.all_dropped(&before, DropReason::Malformed, 1);
    let counters = pair.b.counters();
    assert_eq!(
        (counters.taken_packets(), counters.accepted_packets()),
        (1, 0)
    );
}

pub(crate) fn truncated(world: &mut impl SoftwareWorld) {
    let (mut pair, write) = with_forger(world);
    let to = pair.b.local_addr(0);
    let right = forged(pair.world.stranger(), to, write, |_| {});
    let before = pair.before();
    for length in 1..12 + 16 + 4 + 4 {
        pair.world.forge(to, &right[..length], 0);
    }
    pair.all_dropped(&before, DropReason::Malformed, 35);
    right_one_lands(&mut pair, write);
}

pub(crate) fn trailing_bytes(world: &mut impl SoftwareWorld) {
    let (mut pair, write) = with_forger(world);
    let before = pair.before();
    // Lengths that are not a multiple of 4, and more words than the RETH announces.
    for extra in [1, 2, 3, 4, 8] {
        forge(&mut pair, write, |bytes| bytes.extend(&pattern(extra)));
    }
    pair.all_dropped(&before, DropReason::Malformed, 5);
    right_one_lands(&mut pair, write);
}

pub(crate) fn wrong_length_in_reth(world: &mut impl SoftwareWorld) {
    let (mut pair, write) = with_forger(world);
    let before = pair.before();
    for length in [0, 4, 7, 9, 12, u32::MAX] {
        forge(&mut pair, write, |bytes| {
            bytes[24..28].copy_from_slice(&length.to_be_bytes());
        });
    }
    // More padding than the RETH announces, another version, and another partition.
    forge(&mut pair, write, |bytes| bytes[1] |= 0x10);
    forge(&mut pair, write, |bytes| bytes[1] |= 0x01);
    forge(&mut pair, write, |bytes| bytes[2] ^= 0x40);
    pair.all_dropped(&before, DropReason::Malformed, 9);
    right_one_lands(&mut pair, write);
}

pub(crate) fn unsupported_opcodes(world: &mut impl SoftwareWorld) {
    let (mut pair, write) = with_forger(world);
    let before = pair.before();
    // Where the NIC shares its sockets with the owner of the fabric, these packets are not for the NIC.
    let served = [
        opcode::UC_WRITE_ONLY_WITH_IMM,
        opcode::UC_SEND_ONLY,
        opcode::ROUTE_PACKET,
        opcode::HANDSHAKE_PACKET,
    ];
    let others = (0..=u8::MAX).filter(|value| !served.contains(value));
    let mut sent = 0;
    for value in others {
        sent += 1;
        forge(&mut pair, write, |bytes| become_opcode(bytes, value));
        // Pause after some packets, so that no socket overflows.
        if sent % 16 == 0 {
            travel(pair.world);
            let mut completions = Vec::new();
            while pair.b.poll(&mut completions).unwrap() {}
            assert_eq!(completions, []);
        }
    }
    pair.all_dropped(&before, DropReason::UnsupportedOpcode, sent);
    right_one_lands(&mut pair, write);
}

/// Turns a write of 8 bytes into a packet with another opcode and all headers of that opcode.
fn become_opcode(bytes: &mut Vec<u8>, value: u8) {
    bytes[0] = value;
    let Some(known) = opcode::lookup(value) else {
        return;
    };
    let reth = bytes[12..28].to_vec();
    bytes.truncate(12);
    bytes.resize(known.header_bytes(), 0);
    if let Some(at) = known.offset_of(opcode::Extension::Reth) {
        bytes[at..at + 16].copy_from_slice(&reth);
    }
    if known.payload {
        bytes.extend(pattern(8));
    }
}

pub(crate) fn too_long(world: &mut impl SoftwareWorld) {
    let mut pair = Pair::new(world);
    let narrow = queue_pair(&mut pair.b, 0, 256);
    let (_, place) = window(&mut pair.b, &[narrow], pair.target, 0..4096);
    let addr = pair.a.local_addr(0);
    connect(&mut pair.b, narrow, addr, pair.qa);
    let wide = queue_pair(&mut pair.a, 0, MTU);
    let addr = pair.b.local_addr(0);
    connect(&mut pair.a, wide, addr, narrow);
    let before = pair.before();
    let (over, fits) = ([sge(pair.source, 0..257)], [sge(pair.source, 0..256)]);
    post(&mut pair.a, wide, &write(&over, place, 0));
    send(&mut pair.a, wide, &[0; 260]);
    pair.all_dropped(&before, DropReason::TooLong, 2);
    post(&mut pair.a, wide, &write(&fits, place, 0));
    send(&mut pair.a, wide, &[0; 256]);
    pair.arrivals(2);
}

pub(crate) fn first_fault_counts(world: &mut impl SoftwareWorld) {
    let (mut pair, right) = with_forger(world);
    let gone = pair.b.create_windows(&[pair.qb], 1, 100).unwrap();
    let spare = pair.b.register(Region::owned(vec![0; 8])).unwrap();
    let (_, place) = pair.b.open_window(gone, 0, spare, 0, 8).unwrap();
    pair.b.destroy_windows(gone).unwrap();
    let (_, of_other) = pair.open(0..100);
    let known = right.dest_qp;
    // Each packet has its own fault and all faults that are checked later.
    let worst = WriteImm {
        dest_qp: known ^ 0x10_0000,
        remote_addr: u64::MAX,
        rkey: place.rkey.0,
        payload_bytes: MTU + 4,
        ..right
    };
    let to_peer = WriteImm {
        dest_qp: pair.qb.0,
        ..worst
    };
    let to_us = WriteImm {
        dest_qp: known,
        ..worst
    };
    let fits = WriteImm {
        payload_bytes: 8,
        ..to_us
    };
    let foreign = WriteImm {
        rkey: of_other.rkey.0,
        ..fits
    };
    let cases = [
        (worst, DropReason::UnknownQp),
        (to_peer, DropReason::Stranger),
        (to_us, DropReason::TooLong),
        (fits, DropReason::RevokedKey),
        (foreign, DropReason::ForeignKey),
    ];
    for (write, reason) in cases {
        let before = pair.before();
        forge(&mut pair, write, |_| {});
        pair.all_dropped(&before, reason, 1);
    }
    for (write, reason) in [
        (to_peer, DropReason::Stranger),
        (to_us, DropReason::UnsupportedOpcode),
    ] {
        let before = pair.before();
        forge(&mut pair, write, |bytes| {
            bytes[0] = opcode::UC_WRITE_ONLY_WITH_IMM - 1;
            bytes.drain(28..32);
        });
        pair.all_dropped(&before, reason, 1);
    }
    let before = pair.before();
    let mut damaged = forged(pair.world.stranger(), pair.b.local_addr(0), worst, |_| {});
    *damaged.last_mut().unwrap() ^= 1;
    let to = pair.b.local_addr(0);
    pair.world.forge(to, &damaged, 0);
    pair.all_dropped(&before, DropReason::BadIcrc, 1);
    right_one_lands(&mut pair, right);
}

pub(crate) fn counters_agree(world: &mut impl SoftwareWorld) {
    let mut pair = Pair::new(world);
    let (_, place) = pair.open(0..2048);
    pair.write(0..1023, place, 0, 0);
    pair.write(0..0, place, 0, 0);
    send(&mut pair.a, pair.qa, &[1; 5]);
    pair.arrivals(3);
    let (sent, received) = (pair.a.counters(), pair.b.counters());
    let ip = if pair.a.local_addr(0).is_ipv4() {
        28
    } else {
        48
    };
    let udp = (32 + 1024 + 4) + (32 + 4) + (12 + 8 + 4);
    assert_eq!((sent.sent_packets, sent.sent_bytes), (3, 3 * ip + udp));
    assert_eq!(received.received_packets, sent.sent_packets);
    assert_eq!(received.received_bytes, sent.sent_bytes);
    assert_eq!((sent.received_packets, received.sent_packets), (0, 0));
    assert!(received.dropped.iter().all(|&dropped| dropped == 0));
}
