//! Erasure coding over whole endpoints: which chunks are rebuilt, which are requested, and what
//! happens when there is no memory for parity.

use std::collections::HashSet;
use std::time::Duration;

use farwrite::fabric::sim::Verdict;
use farwrite::{Outcome, QpConfig, QpOptions, SendOptions};
use farwrite_link::{LinkConfig, Loss};
use farwrite_rng::SplitMix;
use farwrite_wire::packet::Packet;

use crate::parcel::{Order, Parcel};
use crate::seeds;
use crate::traffic::Seen;
use crate::world::{MS, RTT, SECOND, Way, World, long_haul, options, tag};

/// Time that a packet of 4096 bytes takes at 9 Gbit/s.
const PACKET_NS: u64 = 3_698;

/// Returns the position of a data packet: whether it is a parity packet, and its number.
fn place(seen: &Seen<'_>) -> Option<(bool, u32)> {
    if !seen.is_data() || seen.way != Way::Forth {
        return None;
    }
    let packet = Packet::parse(&seen.datagram.payload).expect("a whole packet");
    let imm = packet.imm().expect("data packets carry one");
    let slots = QpConfig::default().slots;
    Some((imm >> 22 >= slots, imm >> 4 & 0x3_ffff))
}

/// Drops the first copy of every packet for which `which(is_parity, number)` is true.
fn drop_first_copies(world: &World, which: impl Fn(bool, u32) -> bool + 'static) {
    let mut seen_before = HashSet::new();
    world.traffic.filter(move |seen| match place(seen) {
        Some((parity, number)) if which(parity, number) && seen_before.insert((parity, number)) => {
            Verdict::Drop
        }
        _ => Verdict::Pass,
    });
}

fn expecting(scheme: &str) -> QpOptions {
    QpOptions {
        expected_scheme: tag(scheme),
        ..options()
    }
}

/// Ships a message, and lets its clearance arrive before the measured time begins.
fn ship_cleared(world: &mut World, bytes: Vec<u8>, scheme: &str) -> Parcel {
    let order = Order::new(bytes, tag(scheme));
    let inn = world
        .post_recv(Way::Forth, order.bytes.len())
        .expect("a slot");
    world.run_for(RTT);
    let out = world.post_send(&order).expect("a slot");
    Parcel { order, out, inn }
}

/// Draws `lost` lost chunks for each group of `k` data and `m` parity chunks.
fn losses(seed: u64, groups: u32, k: u32, m: u32, lost: usize) -> HashSet<(bool, u32)> {
    let mut rng = SplitMix::new(seed);
    let mut all = HashSet::new();
    for group in 0..groups {
        let mut chosen = HashSet::new();
        while chosen.len() < lost {
            chosen.insert(rng.within(0..u64::from(k + m)));
        }
        all.extend(chosen.into_iter().map(|chunk| {
            let chunk = u32::try_from(chunk).expect("small");
            if chunk < k {
                (false, group * k + chunk)
            } else {
                (true, group * m + chunk - k)
            }
        }));
    }
    all
}

#[test]
fn every_group_just_decodable_costs_no_round_trip() {
    let (k, m, groups) = (8, 3, 64);
    seeds::each("just_decodable", 10, |seed| {
        let mut world = World::new(seed, long_haul(), &expecting("ec-mds:8,3"));
        let bytes = SplitMix::new(seed).bytes(4096 * (k * groups) as usize);
        let lost = losses(seed, groups, k, m, m as usize);
        let lost_data = lost.iter().filter(|(parity, _)| !parity).count() as u64;
        let parcel = {
            let lost = lost.clone();
            drop_first_copies(&world, move |parity, number| {
                lost.contains(&(parity, number))
            });
            ship_cleared(&mut world, bytes, "ec-mds:8,3")
        };
        let took_ns = world.deliver(std::slice::from_ref(&parcel), SECOND);
        let injection_ns = u64::from((k + m) * groups) * PACKET_NS;
        println!("{} us, {:?}", took_ns / 1000, world.b.stats());
        assert!(took_ns <= injection_ns + RTT + MS, "{took_ns}");
        assert_eq!(world.a.stats().sender.retransmitted_chunks, 0);
        assert_eq!(world.b.stats().rebuilt_chunks, lost_data);
        world.finish(vec![parcel]);
    });
}

/// Data leave, and reports too, while groups are coded elsewhere. No chunk is requested that is
/// being rebuilt.
#[test]
fn coding_beside_other_work_delays_only_what_it_computes() {
    let (k, m, groups) = (8, 3, 64);
    // Four groups are coded at once, which is faster than their packets leave.
    let delay_ns = MS / 10;
    for seed in 0..4 {
        let mut world = World::new(seed, long_haul(), &expecting("ec-mds:8,3"));
        for end in [&mut world.a, &mut world.b] {
            let delay = Duration::from_nanos(delay_ns);
            end.endpoint.delay_coding(delay).expect("no threads");
        }
        let bytes = SplitMix::new(seed).bytes(4096 * (k * groups) as usize);
        let lost = losses(seed, groups, k, m, m as usize);
        let lost_data = lost.iter().filter(|(parity, _)| !parity).count() as u64;
        drop_first_copies(&world, move |parity, number| {
            lost.contains(&(parity, number))
        });
        let parcel = ship_cleared(&mut world, bytes, "ec-mds:8,3");
        let took_ns = world.deliver(std::slice::from_ref(&parcel), SECOND);
        println!("{} us, {:?}", took_ns / 1000, world.b.stats());
        let injection_ns = u64::from((k + m) * groups) * PACKET_NS;
        let most_ns = injection_ns + 2 * delay_ns + RTT + MS;
        assert!(
            (injection_ns + RTT..=most_ns).contains(&took_ns),
            "{took_ns}"
        );
        assert_eq!(world.a.stats().sender.retransmitted_chunks, 0);
        assert_eq!(world.b.stats().rebuilt_chunks, lost_data);
        world.finish(vec![parcel]);
    }
}

/// Messages end while their groups are coded: their memory is free at once, and what was computed
/// does not reach it.
#[test]
fn messages_can_end_while_they_are_coded() {
    let lossy = LinkConfig {
        loss: Loss::Iid { loss_packet: 0.05 },
        ..long_haul()
    };
    let mut world = World::with_links(4, lossy, long_haul(), &expecting("ec-mds:8,3"));
    for end in [&mut world.a, &mut world.b] {
        let delay = Duration::from_nanos(2 * MS);
        end.endpoint.delay_coding(delay).expect("no threads");
    }
    let order = Order::new(SplitMix::new(4).bytes(4096 * 64 * 8), tag("ec-mds:8,3"));
    let (a, b) = (&mut world.a, &mut world.b);
    let target = b
        .endpoint
        .register(vec![0; order.bytes.len()])
        .expect("room");
    let recv = b.endpoint.post_recv(b.qp, target.whole()).expect("a slot");
    let source = a.endpoint.register(order.bytes).expect("room");
    let options = SendOptions {
        scheme: order.scheme,
        ..SendOptions::default()
    };
    let send = a.endpoint.post_send(a.qp, source.whole(), options);
    let send = send.expect("a slot");
    world.run_until(SECOND, |world| world.b.stats().rebuilt_chunks > 3);
    assert_eq!((send.outcome(), recv.outcome()), (None, None));
    let (a, b) = (&mut world.a, &mut world.b);
    a.endpoint.cancel_send(&send).expect("it is open");
    b.endpoint
        .complete_recv(&recv, Outcome::Failed)
        .expect("it is open");
    a.endpoint.deregister(source).expect("nothing uses it");
    let mut memory = b.endpoint.deregister(target).expect("nothing uses it");
    memory.fill(0xEE);
    let target = b.endpoint.register_region(memory).expect("room");
    world.run_for(4 * RTT);
    let memory = world.b.endpoint.memory(target).expect("registered");
    assert!(memory.iter().all(|&byte| byte == 0xEE));
    let (a, b) = (&mut world.a, &mut world.b);
    a.endpoint.destroy_qp(a.qp).expect("it exists");
    b.endpoint.destroy_qp(b.qp).expect("it exists");
}

#[test]
fn every_group_just_not_decodable_is_repaired_by_asking() {
    let (k, m, groups) = (8, 3, 64);
    seeds::each("just_not", 10, |seed| {
        let mut world = World::new(seed, long_haul(), &expecting("ec-mds:8,3"));
        let bytes = SplitMix::new(seed).bytes(4096 * (k * groups) as usize);
        let lost = losses(seed, groups, k, m, m as usize + 1);
        let lost_data = lost.iter().filter(|(parity, _)| !parity).count() as u64;
        drop_first_copies(&world, move |parity, number| {
            lost.contains(&(parity, number))
        });
        let parcel = ship_cleared(&mut world, bytes, "ec-mds:8,3");
        let took_ns = world.deliver(std::slice::from_ref(&parcel), SECOND);
        let repeats = world.a.stats().sender.retransmitted_chunks;
        println!("{} us, {repeats} of {lost_data} repeated", took_ns / 1000);
        // The time for one NACK, sent after at most half a round trip, and its repair.
        assert!(took_ns <= 5 * RTT / 2 + RTT / 4, "{took_ns}");
        assert!(
            (1..=lost_data).contains(&repeats),
            "{repeats} of {lost_data}"
        );
        world.finish(vec![parcel]);
    });
}

#[test]
fn data_or_parity_may_be_lost_entirely() {
    for (scheme, parity_lost, repeats) in [
        ("ec-mds:4,4", false, 0),
        ("ec-mds:4,4", true, 0),
        ("ec-mds:8,3", false, 256),
        ("ec-xor:8,8", false, 0),
        ("ec-xor:8,3", true, 0),
    ] {
        let mut world = World::new(1, long_haul(), &expecting(scheme));
        drop_first_copies(&world, move |parity, _| parity == parity_lost);
        let bytes = SplitMix::new(1).bytes(1 << 20);
        let parcel = ship_cleared(&mut world, bytes, scheme);
        world.deliver(std::slice::from_ref(&parcel), 2 * SECOND);
        let stats = world.a.stats().sender;
        assert_eq!(stats.retransmitted_chunks, repeats, "{scheme} {stats:?}");
        world.finish(vec![parcel]);
    }
}

#[test]
fn the_first_message_waits_for_memory_and_the_next_does_not() {
    let lossy = LinkConfig {
        loss: Loss::Iid { loss_packet: 0.02 },
        ..long_haul()
    };
    let mut world = World::with_links(3, lossy, long_haul(), &options());
    let (mut times_ns, mut repeats) = (Vec::new(), Vec::new());
    for seed in 0..3 {
        let bytes = SplitMix::new(seed).bytes(1 << 20);
        let parcel = ship_cleared(&mut world, bytes, "ec-mds:32,8");
        times_ns.push(world.deliver(std::slice::from_ref(&parcel), SECOND));
        repeats.push(world.a.stats().sender.retransmitted_chunks);
        world.check(&parcel);
        world.forget(parcel);
    }
    println!("{times_ns:?} {repeats:?}");
    let injection_ns = 320 * PACKET_NS;
    // The parity of the first message is cleared a round trip after its offer.
    assert!(times_ns[0] > 2 * RTT);
    assert!(times_ns[1..].iter().all(|t| *t <= injection_ns + RTT + MS));
    assert_eq!(repeats, [repeats[0]; 3]);
}

#[test]
fn a_message_without_parity_leaves_the_memory_for_that_of_later_ones() {
    let lossy = LinkConfig {
        loss: Loss::Iid { loss_packet: 0.02 },
        ..long_haul()
    };
    let mut world = World::with_links(3, lossy, long_haul(), &expecting("ec-mds:32,8"));
    for (seed, scheme) in (0..).zip(["sr-nack", "ec-mds:32,8"]) {
        let parcel = ship_cleared(&mut world, SplitMix::new(seed).bytes(1 << 20), scheme);
        let took_ns = world.deliver(std::slice::from_ref(&parcel), SECOND);
        let repairs_ns = if scheme == "sr-nack" { 3 * RTT } else { 0 };
        // Parity does not wait for a separate clearance.
        let least_ns = 256 * PACKET_NS + RTT;
        assert!(
            took_ns <= least_ns + 64 * PACKET_NS + MS + repairs_ns,
            "{scheme}: {took_ns} ns"
        );
        world.check(&parcel);
        world.forget(parcel);
    }
    assert!(world.b.stats().rebuilt_chunks > 0);
}

#[test]
fn without_memory_for_parity_losses_are_asked_for() {
    let lossy = LinkConfig {
        loss: Loss::Iid { loss_packet: 0.05 },
        ..long_haul()
    };
    let stingy = QpOptions {
        max_parity_bytes: 100_000,
        ..expecting("ec-mds:32,8")
    };
    let mut world = World::new(5, lossy, &stingy);
    let bytes = SplitMix::new(5).bytes(1 << 20);
    let parcel = ship_cleared(&mut world, bytes, "ec-mds:32,8");
    world.deliver(std::slice::from_ref(&parcel), 10 * SECOND);
    assert_eq!(world.b.stats().rebuilt_chunks, 0);
    world.finish(vec![parcel]);
}

#[test]
fn short_messages_with_and_without_immediates() {
    let lossy = LinkConfig {
        loss: Loss::Iid { loss_packet: 0.3 },
        ..long_haul()
    };
    for scheme in ["ec-mds:4,2", "ec-xor:4,2", "ec-mds:1,1", "ec-mds:200,55"] {
        seeds::each("short_coded", 3, |seed| {
            let mut world = World::new(seed, lossy, &expecting(scheme));
            let mut rng = SplitMix::new(seed);
            let mut parcels = Vec::new();
            for length in [0, 1, 4095, 4096, 4097, 16_384, 16_385, 40_000] {
                for immediate in [None, Some(0xdead_beef)] {
                    parcels.push(world.ship(Order {
                        immediate,
                        ..Order::new(rng.bytes(length), tag(scheme))
                    }));
                }
            }
            world.deliver(&parcels, 60 * SECOND);
            world.finish(parcels);
        });
    }
}

#[test]
fn an_immediate_whose_packets_were_all_lost_is_asked_for() {
    let mut world = World::new(1, long_haul(), &expecting("ec-mds:4,4"));
    drop_first_copies(&world, |parity, _| !parity);
    let inn = world.post_recv(Way::Forth, 16_384).expect("a slot");
    world.run_for(RTT);
    let order = Order {
        immediate: Some(0x0123_4567),
        ..Order::new(SplitMix::new(1).bytes(16_384), tag("ec-mds:4,4"))
    };
    let out = world.post_send(&order).expect("a slot");
    let parcel = Parcel { order, out, inn };
    world.deliver(std::slice::from_ref(&parcel), 10 * SECOND);
    world.finish(vec![parcel]);
}

#[test]
fn parity_that_comes_when_its_message_is_over_counts_for_no_other() {
    let lossy = LinkConfig {
        loss: Loss::Iid { loss_packet: 0.02 },
        ..long_haul()
    };
    for (slots, link) in [(1, long_haul()), (1, lossy), (4, lossy)] {
        let sdr = QpConfig {
            slots,
            generations: 2,
            ..QpConfig::default()
        };
        let scheme = "ec-mds:8,4";
        let options = QpOptions {
            sdr,
            ..expecting(scheme)
        };
        let mut world = World::with_links(1, link, long_haul(), &options);
        let (mut inns, mut outs) = (Vec::new(), Vec::new());
        let orders: Vec<_> = (0..12)
            .map(|seed| Order::new(SplitMix::new(seed).bytes(1 << 19), tag(scheme)))
            .collect();
        // Receives and sends are posted as soon as a slot is free.
        world.run_until(20 * SECOND, |world| {
            while inns.len() < orders.len()
                && let Ok(inn) = world.post_recv(Way::Forth, 1 << 19)
            {
                inns.push(inn);
            }
            while let Some(order) = orders.get(outs.len())
                && let Ok(out) = world.post_send(order)
            {
                outs.push(out);
            }
            outs.len() == orders.len() && outs.iter().all(|out| out.send.outcome().is_some())
        });
        assert!(world.b.stats().late_packets > 0);
        let ends = outs.into_iter().zip(inns);
        let parcels = orders.into_iter().zip(ends);
        let parcels = parcels.map(|(order, (out, inn))| Parcel { order, out, inn });
        world.finish(parcels.collect());
    }
}

#[test]
fn parity_longer_than_the_longest_message_is_refused() {
    let sdr = QpConfig {
        max_message_bytes: 1 << 20,
        ..QpConfig::default()
    };
    let options = QpOptions { sdr, ..options() };
    let mut world = World::new(1, long_haul(), &options);
    let order = Order::new(vec![7; 1 << 20], tag("ec-mds:4,5"));
    let error = world.post_send(&order).err().expect("too much parity");
    assert!(
        matches!(error, farwrite::Error::TooLong { length, .. } if length == 5 << 18),
        "{error}"
    );
}

#[test]
fn as_much_as_is_lost_is_asked_for_at_once() {
    let sdr = QpConfig {
        mtu: 256,
        max_message_bytes: 1 << 26,
        ..QpConfig::default()
    };
    let stingy = QpOptions {
        sdr,
        max_parity_bytes: 0,
        ..expecting("ec-mds:32,8")
    };
    let mut world = World::new(1, long_haul(), &stingy);
    // The NACKs do not fit into 100 control packets.
    drop_first_copies(&world, |_, number| number % 8 == 0);
    let bytes = SplitMix::new(1).bytes(100_000 * 256);
    let parcel = ship_cleared(&mut world, bytes, "ec-mds:32,8");
    let took_ns = world.deliver(std::slice::from_ref(&parcel), 10 * SECOND);
    println!("{} us, {:?}", took_ns / 1000, world.a.stats());
    // The limit includes the data and a round trip, the wait before the NACKs, and the repairs and
    // a round trip.
    let injection_ns = (100_000 + 12_500) * (256 + 64) * 8 / 9;
    let waiting_ns = RTT / 2 + RTT / 4 + MS;
    assert!(took_ns <= injection_ns + waiting_ns + 2 * RTT, "{took_ns}");
    world.finish(vec![parcel]);
}
