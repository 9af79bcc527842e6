//! Packets that no genuine peer sends. They are counted and dropped, and have no other effect.

use std::cell::RefCell;
use std::net::Ipv4Addr;
use std::rc::Rc;

use farwrite::fabric::sim::{Datagram, Verdict};
use farwrite::{DropReason, Endpoint};
use farwrite_rng::SplitMix;
use farwrite_wire::icrc::{Flow, Icrc};

use crate::parcel::{Order, Parcel};
use crate::seeds;
use crate::traffic::Seen;
use crate::world::{MS, RTT, SCHEMES, SECOND, Way, World, addr, long_haul, options, tag};

/// Offsets in a packet of the fields that are forged (P2.2, P2.3).
const DEST_QP: usize = 5;
const REMOTE_ADDR: usize = 12;
const RKEY: usize = 20;
pub(crate) const IMMDT: usize = 28;
pub(crate) const SEND_PAYLOAD: usize = 12;
const WRITE_PAYLOAD: usize = 32;

/// A change that an attacker makes to a captured packet before sending it.
type Forgery = fn(&mut Datagram, &mut SplitMix);

/// Computes a valid ICRC, as any attacker can.
pub(crate) fn seal(datagram: &mut Datagram) {
    let flow = Flow::new(datagram.src, datagram.dst).expect("one family");
    let body = datagram.payload.len() - 4;
    let icrc = Icrc::new(&flow, datagram.id, datagram.payload.len());
    let icrc = icrc.update(&datagram.payload[..body]).finish();
    datagram.payload[body..].copy_from_slice(&icrc.to_le_bytes());
}

fn flip_bit(bytes: &mut [u8], rng: &mut SplitMix) {
    let bit = usize::try_from(rng.within(0..bytes.len() as u64 * 8)).expect("a bit");
    bytes[bit / 8] ^= 1 << (bit % 8);
}

/// Sends a message while an attacker responds to each packet for which `which` is true with a
/// forged one. The forged packet arrives a round trip later. Returns the number of forged packets,
/// and the world for further checks.
fn under_attack(
    scheme: &str,
    seed: u64,
    which: fn(&Seen<'_>) -> bool,
    forge: Forgery,
) -> (World, Parcel, u64) {
    let mut world = World::new(seed, long_haul(), &options());
    let forged = Rc::new(RefCell::new(Vec::new()));
    let mut rng = SplitMix::new(seed);
    let out = Rc::clone(&forged);
    world.traffic.filter(move |seen| {
        if which(seen) {
            let mut datagram = seen.datagram.clone();
            forge(&mut datagram, &mut rng);
            out.borrow_mut().push((seen.now_ns + RTT, datagram));
        }
        Verdict::Pass
    });
    let parcel = world.ship(Order::new(SplitMix::new(seed).bytes(1 << 20), tag(scheme)));
    let mut sent = 0;
    while world.now_ns() < SECOND {
        world.run_for(MS);
        let now_ns = world.now_ns();
        let mut forged = forged.borrow_mut();
        for (_, datagram) in forged.extract_if(.., |(due_ns, _)| *due_ns <= now_ns) {
            world.network.inject(datagram);
            sent += 1;
        }
    }
    assert!(forged.borrow().is_empty(), "{scheme}: no end of packets");
    world.traffic.pass_all();
    world.run_for(MS);
    world.check(&parcel);
    assert!(sent > 0, "{scheme}: nothing was forged");
    (world, parcel, sent)
}

/// Checks that every forged packet is dropped for `reason`, and counted.
fn expect_dropped(test: &str, which: fn(&Seen<'_>) -> bool, forge: Forgery, reason: DropReason) {
    for scheme in SCHEMES {
        seeds::each(test, 2, |seed| {
            let (world, parcel, sent) = under_attack(scheme, seed, which, forge);
            let ends = [&world.a, &world.b].map(|end| end.endpoint.counters());
            let dropped: u64 = ends.iter().map(|counters| counters.dropped(reason)).sum();
            assert_eq!(dropped, sent, "{scheme}: {ends:?}");
            world.finish(vec![parcel]);
        });
    }
}

/// Checks that the control path refuses every forged packet.
fn expect_refused(test: &str, which: fn(&Seen<'_>) -> bool, forge: Forgery) {
    for scheme in SCHEMES {
        seeds::each(test, 2, |seed| {
            let (world, parcel, sent) = under_attack(scheme, seed, which, forge);
            let refused = world.a.stats().refused_controls + world.b.stats().refused_controls;
            assert_eq!(refused, sent, "{scheme}");
            world.finish(vec![parcel]);
        });
    }
}

fn is_data(seen: &Seen<'_>) -> bool {
    seen.is_data()
}

fn is_control(seen: &Seen<'_>) -> bool {
    !seen.is_data()
}

fn is_any(_: &Seen<'_>) -> bool {
    true
}

#[test]
fn replayed_control_packets() {
    expect_refused("replayed_control_packets", is_control, |_, _| {});
}

#[test]
fn changed_control_packets() {
    expect_refused("changed_control_packets", is_control, |datagram, rng| {
        let end = datagram.payload.len() - 4;
        // The authentication tag does not cover padding.
        let pad = usize::from(datagram.payload[1] >> 4 & 3);
        flip_bit(&mut datagram.payload[SEND_PAYLOAD..end - pad], rng);
        seal(datagram);
    });
}

#[test]
fn bits_flipped_on_the_path() {
    let forge: Forgery = |datagram, rng| {
        let end = datagram.payload.len();
        // Only bits after the lengths are flipped: the lengths are checked before the ICRC.
        flip_bit(&mut datagram.payload[IMMDT..end], rng);
    };
    expect_dropped("bits_flipped", is_any, forge, DropReason::BadIcrc);
}

#[test]
fn data_under_a_guessed_key() {
    let forge: Forgery = |datagram, rng| {
        let guess = u32::try_from(rng.within(0..1 << 32)).expect("32 bits");
        datagram.payload[RKEY..RKEY + 4].copy_from_slice(&guess.to_be_bytes());
        datagram.payload[WRITE_PAYLOAD..WRITE_PAYLOAD + 64].fill(0xbd);
        seal(datagram);
    };
    expect_dropped("guessed_key", is_data, forge, DropReason::UnknownKey);
}

/// A second peer sees the packets of the first one, and sends them with other bytes over its own
/// queue pair, while the message of the first one is open.
#[test]
fn data_of_a_peer_under_the_keys_of_another() {
    let mut world = World::new(1, long_haul(), &options());
    let link = long_haul();
    let second = world.network.endpoint(addr(3), 1).expect("a free address");
    let mut second = Endpoint::new(second, [3; 32]);
    let joined = world
        .network
        .connect(addr(3).ip(), addr(2).ip(), link, link);
    joined.expect("a good link");
    let at_second = second.create_qp(options()).expect("good options");
    let b = &mut world.b.endpoint;
    let at_b = b.create_qp(options()).expect("good options");
    let known = b.qp_info(at_b).expect("its own");
    let mut info = second.qp_info(at_second).expect("its own");
    // The watch on the network knows this key.
    let first = world.a.endpoint.qp_info(world.a.qp).expect("its own");
    info.control_key = first.control_key;
    b.connect_qp(at_b, &info).expect("equal options");

    let taken = Rc::new(RefCell::new(Vec::new()));
    let out = Rc::clone(&taken);
    let qpn = known.data_qpns[0][0].to_be_bytes();
    world.traffic.filter(move |seen| {
        if seen.way != Way::Forth || !seen.is_data() {
            return Verdict::Pass;
        }
        let mut taken = out.borrow_mut();
        let mut datagram = seen.datagram.clone();
        datagram.src = addr(3);
        datagram.payload[DEST_QP..DEST_QP + 3].copy_from_slice(&qpn[1..]);
        datagram.payload[WRITE_PAYLOAD..WRITE_PAYLOAD + 64].fill(0xbd);
        seal(&mut datagram);
        taken.push(datagram);
        // The first packet is lost, so that the message stays open for another round trip.
        if taken.len() == 1 {
            Verdict::Drop
        } else {
            Verdict::Pass
        }
    });
    let parcel = world.ship(Order::new(SplitMix::new(1).bytes(1 << 20), tag("sr-nack")));
    world.run_for(RTT + RTT / 4);
    let forged = std::mem::take(&mut *taken.borrow_mut());
    assert_eq!(forged.len(), 256);
    assert_eq!(parcel.out.send.outcome(), None);
    world.traffic.pass_all();
    forged
        .into_iter()
        .for_each(|datagram| world.network.inject(datagram));
    world.run_for(2 * RTT);
    let counters = world.b.endpoint.counters();
    assert_eq!(
        counters.dropped(DropReason::ForeignKey),
        256,
        "{counters:?}"
    );
    world.finish(vec![parcel]);
}

#[test]
fn packets_for_a_guessed_queue_pair() {
    let forge: Forgery = |datagram, rng| {
        let guess = u32::try_from(rng.within(0..1 << 24)).expect("24 bits");
        datagram.payload[DEST_QP..DEST_QP + 3].copy_from_slice(&guess.to_be_bytes()[1..]);
        seal(datagram);
    };
    expect_dropped("guessed_queue_pair", is_any, forge, DropReason::UnknownQp);
}

#[test]
fn packets_from_a_stranger() {
    let forge: Forgery = |datagram, _| {
        datagram.src.set_ip(Ipv4Addr::new(10, 0, 0, 66).into());
        seal(datagram);
    };
    expect_dropped("stranger", is_data, forge, DropReason::Stranger);
    // A peer may have a new address, so the fabric passes on all packets that may be its control
    // packets.
    expect_refused("stranger", is_control, forge);
}

#[test]
fn data_past_the_buffer() {
    let forge: Forgery = |datagram, rng| {
        let offset = rng.pick(&[1 << 20, 1 << 29, 1 << 40, u64::MAX - 4096]);
        datagram.payload[REMOTE_ADDR..REMOTE_ADDR + 8].copy_from_slice(&offset.to_be_bytes());
        seal(datagram);
    };
    // This reason applies only while the buffer is bound. After that, the slot has the null key.
    let mut world = World::new(1, long_haul(), &options());
    let parcel = world.ship(Order::new(SplitMix::new(1).bytes(1 << 20), tag("sr-nack")));
    let mut rng = SplitMix::new(1);
    let network = world.network.clone();
    world.traffic.filter(move |seen| {
        if seen.is_data() {
            let mut datagram = seen.datagram.clone();
            forge(&mut datagram, &mut rng);
            network.inject(datagram);
        }
        Verdict::Pass
    });
    world.run_for(2 * RTT);
    assert_eq!(
        world.b.endpoint.counters().dropped(DropReason::OutOfBounds),
        256
    );
    world.finish(vec![parcel]);
}

#[test]
fn control_packets_sent_back_to_their_sender() {
    let control_qpn = |world: &World| {
        let info = world.a.endpoint.qp_info(world.a.qp).expect("its own");
        info.control_qpn.to_be_bytes()
    };
    let mut world = World::new(1, long_haul(), &options());
    let (network, qpn) = (world.network.clone(), control_qpn(&world));
    let reflected = Rc::new(RefCell::new(0));
    let count = Rc::clone(&reflected);
    world.traffic.filter(move |seen| {
        if seen.way == Way::Forth && !seen.is_data() {
            let mut datagram = seen.datagram.clone();
            (datagram.src, datagram.dst) = (addr(2), addr(1));
            datagram.payload[DEST_QP..DEST_QP + 3].copy_from_slice(&qpn[1..]);
            seal(&mut datagram);
            network.inject(datagram);
            *count.borrow_mut() += 1;
        }
        Verdict::Pass
    });
    let parcel = world.ship(Order::new(SplitMix::new(1).bytes(1 << 20), tag("sr-nack")));
    world.deliver(std::slice::from_ref(&parcel), SECOND);
    world.run_for(MS);
    assert_eq!(world.a.stats().refused_controls, *reflected.borrow());
    world.finish(vec![parcel]);
}

#[test]
fn noise() {
    seeds::each("noise", 3, |seed| {
        let mut world = World::new(seed, long_haul(), &options());
        let parcel = world.ship(Order::new(
            SplitMix::new(seed).bytes(1 << 20),
            tag("sr-nack"),
        ));
        let mut rng = SplitMix::new(seed);
        let mut sent = 0;
        world.run_until(10 * SECOND, |world| {
            let bytes = usize::try_from(rng.within(0..200)).expect("small");
            let (src, dst) = (addr(1), addr(2));
            let payload = rng.bytes(bytes);
            world.network.inject(Datagram {
                src,
                dst,
                tos: 0,
                id: 0,
                payload,
            });
            sent += 1;
            parcel.out.send.outcome().is_some()
        });
        world.run_for(MS);
        let counters = world.b.endpoint.counters();
        assert_eq!(counters.dropped.iter().sum::<u64>(), sent, "{counters:?}");
        world.finish(vec![parcel]);
    });
}
