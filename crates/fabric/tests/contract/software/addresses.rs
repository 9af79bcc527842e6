//! Addresses, ECN bits and arrival times.

use farwrite_fabric::contract::{
    Completion, DropReason, Ecn, Fabric, QpRoute, RemotePlace, Rkey, SendArrival, Sender,
};
use farwrite_wire::request::{SendOnly, WriteImm};

use super::{SoftwareWorld, forged, sealed};
use crate::suite::{Pair, World, arrivals, completions, send};

/// Returns a SEND of `b"hello"` to the queue pair of `b`, sealed by the stranger.
fn hello<W: World>(pair: &Pair<'_, W>) -> Vec<u8> {
    let send = SendOnly {
        dest_qp: pair.qb.0,
        psn: 0,
        payload_bytes: 5,
    };
    let mut bytes = send.header().to_vec();
    bytes.extend(b"hello\0\0\0");
    sealed(pair.world.stranger(), pair.b.local_addr(0), bytes)
}

/// Returns the one SEND that arrives at `b`.
fn one_send<W: World>(pair: &mut Pair<'_, W>) -> SendArrival {
    match &completions(pair.world, &mut pair.b, 1)[..] {
        [Completion::Send(send)] => (**send).clone(),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn a_send_from_elsewhere_is_marked(world: &mut impl SoftwareWorld) {
    let mut pair = Pair::new(world);
    let (_, place) = pair.open(0..100);
    let (to, stranger) = (pair.b.local_addr(0), pair.world.stranger());
    let packet = hello(&pair);
    pair.world.forge(to, &packet, 0);
    let send = one_send(&mut pair);
    assert_eq!(send.from, Sender::Unvalidated(stranger));
    assert_eq!((send.qpn, &send.payload[..]), (pair.qb, &b"hello"[..]));
    let counters = pair.b.counters();
    assert_eq!(
        (counters.received_packets, counters.unvalidated_packets),
        (1, 1)
    );
    assert_eq!(counters.accepted_packets(), 0);
    // A write from that address is dropped, although its key and all numbers are right.
    let before = pair.before();
    let write = WriteImm {
        dest_qp: pair.qb.0,
        psn: 0,
        remote_addr: place.addr,
        rkey: place.rkey.0,
        imm: 0,
        payload_bytes: 8,
    };
    pair.world
        .forge(to, &forged(stranger, to, write, |_| {}), 0);
    pair.all_dropped(&before, DropReason::Stranger, 1);
}

pub(crate) fn a_permitted_source_can_change(world: &mut impl SoftwareWorld) {
    let mut pair = Pair::new(world);
    let (_, place) = pair.open(0..100);
    let (to, stranger) = (pair.b.local_addr(0), pair.world.stranger());
    let route = QpRoute::to(pair.a.local_addr(0));
    let source = stranger;
    pair.b
        .set_route(pair.qb, QpRoute { source, ..route })
        .unwrap();
    let packet = hello(&pair);
    pair.world.forge(to, &packet, 0);
    assert_eq!(one_send(&mut pair).from, Sender::Validated);
    let before = pair.before();
    pair.write(0..4, place, 0, 0);
    pair.all_dropped(&before, DropReason::Stranger, 1);
    // Packets of `b` still go to the old address.
    send(&mut pair.b, pair.qb, b"back");
    arrivals(pair.world, &mut pair.a, 1);
}

/// Address translation without knowledge of RoCE: the ICRC covers the addresses before the
/// translation.
pub(crate) fn sealed_for_other_addresses(world: &mut impl SoftwareWorld) {
    let mut pair = Pair::new(world);
    let (_, place) = pair.open(0..100);
    let route = QpRoute::to(pair.b.local_addr(0));
    let right = (pair.a.local_addr(0), route.destination);
    let mut elsewhere = right.0;
    elsewhere.set_port(elsewhere.port() ^ 1);
    let before = pair.before();
    let sealed_as = Some((elsewhere, right.1));
    pair.a
        .set_route(pair.qa, QpRoute { sealed_as, ..route })
        .unwrap();
    pair.write(0..4, place, 0, 0);
    pair.all_dropped(&before, DropReason::BadIcrc, 1);
    let sealed_as = Some(right);
    pair.a
        .set_route(pair.qa, QpRoute { sealed_as, ..route })
        .unwrap();
    pair.write(0..4, place, 0, 0);
    pair.arrivals(1);
}

pub(crate) fn congestion_bits(world: &mut impl SoftwareWorld) {
    let mut pair = Pair::new(world);
    let to = pair.b.local_addr(0);
    let packet = hello(&pair);
    let marks = [
        (0, Ecn::NotEct),
        (1, Ecn::Ect1),
        (2, Ecn::Ect0),
        (3, Ecn::CongestionExperienced),
        (0xB8, Ecn::NotEct),
        (0xBB, Ecn::CongestionExperienced),
    ];
    for (tos, ecn) in marks {
        pair.world.forge(to, &packet, tos);
        assert_eq!(one_send(&mut pair).ecn, ecn, "{tos:#04x}");
    }
    // The fabric's own packets are ECN-capable.
    pair.write(0..0, nowhere(), 0, 0);
    match completions(pair.world, &mut pair.b, 1)[..] {
        [Completion::Write { ecn, .. }] => assert_eq!(ecn, Ecn::Ect0),
        ref other => panic!("{other:?}"),
    }
}

/// Returns a destination that no end checks.
fn nowhere() -> RemotePlace {
    let (addr, rkey) = (0, Rkey(1));
    RemotePlace { addr, rkey }
}

pub(crate) fn times_of_arrival(world: &mut impl SoftwareWorld) {
    let mut pair = Pair::new(world);
    let to = pair.b.local_addr(0);
    let packet = hello(&pair);
    let mut last_ns = 0;
    for _ in 0..5 {
        pair.world.forge(to, &packet, 0);
        let arrived_ns = one_send(&mut pair).arrived_ns.unwrap();
        assert!(arrived_ns >= last_ns);
        last_ns = arrived_ns;
    }
}
