//! Messages of all sizes, over queue pairs of all shapes.

use farwrite::{Awaited, Error, ImmediateSplit, Outcome, QpConfig, QpOptions, SchemeTag};
use farwrite_link::{LinkConfig, Loss};
use farwrite_rng::SplitMix;

use crate::parcel::{Order, Parcel};
use crate::seeds;
use crate::world::{SCHEMES, SECOND, Way, World, long_haul, options, tag};

fn lossy() -> LinkConfig {
    LinkConfig {
        loss: Loss::Iid { loss_packet: 0.05 },
        ..long_haul()
    }
}

fn shaped(sdr: QpConfig) -> QpOptions {
    QpOptions { sdr, ..options() }
}

/// Returns a queue pair that needs little memory.
fn small(mtu: u32, packets_per_chunk: u32) -> QpConfig {
    QpConfig {
        mtu,
        packets_per_chunk,
        slots: 64,
        max_message_bytes: 16 << 20,
        ..QpConfig::default()
    }
}

/// Sends messages that end just before, at and just after the ends of packets and chunks. Half of
/// them have an immediate.
fn exchange(seed: u64, sdr: QpConfig, scheme: SchemeTag) {
    let mut world = World::new(seed, lossy(), &shaped(sdr));
    let mtu = sdr.mtu as usize;
    let chunk = mtu * sdr.packets_per_chunk as usize;
    let sizes = [
        0,
        1,
        mtu - 1,
        mtu,
        mtu + 1,
        chunk - 1,
        chunk,
        chunk + 1,
        2 * chunk,
        3 * chunk + 5,
    ];
    let mut rng = SplitMix::new(seed);
    let mut parcels = Vec::new();
    for bytes in sizes {
        for immediate in [
            None,
            Some(0xfeed_0000 + u32::try_from(bytes).expect("small")),
        ] {
            parcels.push(world.ship(Order {
                immediate: immediate.filter(|_| sdr.split.user_bits > 0),
                spare: usize::try_from(rng.within(0..100)).expect("small"),
                ..Order::new(rng.bytes(bytes), scheme)
            }));
        }
    }
    world.deliver(&parcels, 60 * SECOND);
    world.finish(parcels);
}

#[test]
fn packets_and_chunks_of_all_sizes() {
    for scheme in SCHEMES {
        for mtu in [64, 256, 1000, 4096, 9000] {
            for packets_per_chunk in [1, 4, 64] {
                println!("{scheme}, MTU {mtu}, {packets_per_chunk} packets a chunk");
                seeds::each("packets_and_chunks", 1, |seed| {
                    exchange(seed, small(mtu, packets_per_chunk), tag(scheme));
                });
            }
        }
    }
}

#[test]
fn one_to_many_channels() {
    for scheme in SCHEMES {
        for channels in [1, 2, 3, 8] {
            for (generations, parity) in [(2, false), (2, true), (4, true)] {
                if scheme.starts_with("ec") && !parity {
                    continue;
                }
                println!("{scheme}, {channels} channels, {generations} generations, {parity}");
                let sdr = QpConfig {
                    channels,
                    generations,
                    parity,
                    ..small(1024, 4)
                };
                seeds::each("channels", 1, |seed| exchange(seed, sdr, tag(scheme)));
            }
        }
    }
}

#[test]
fn immediates_split_otherwise() {
    for (id_bits, offset_bits, user_bits) in [(6, 26, 0), (8, 16, 8), (6, 25, 1), (6, 10, 16)] {
        let split = ImmediateSplit {
            id_bits,
            offset_bits,
            user_bits,
        };
        let sdr = QpConfig {
            split,
            parity: false,
            max_message_bytes: 1 << 20,
            ..small(1024, 4)
        };
        println!("{split:?}");
        seeds::each("immediates", 1, |seed| exchange(seed, sdr, tag("sr-nack")));
    }
}

#[test]
fn as_many_messages_in_flight_as_there_are_slots() {
    for scheme in SCHEMES {
        let mut world = World::new(1, lossy(), &shaped(small(1024, 1)));
        let mut rng = SplitMix::new(1);
        let mut order = || {
            let bytes = usize::try_from(rng.within(0..20_000)).expect("small");
            Order::new(rng.bytes(bytes), tag(scheme))
        };
        let parcels: Vec<Parcel> = (0..64).map(|_| world.ship(order())).collect();
        let refused = [
            (world.post_recv(Way::Forth, 10).err(), Awaited::RecvSlot),
            (world.post_send(&order()).err(), Awaited::SendSlot),
        ];
        for (error, event) in refused {
            let Some(Error::Retry { slots: 64, awaited }) = error else {
                panic!("{error:?}");
            };
            assert_eq!(awaited, event);
        }
        world.deliver(&parcels, 60 * SECOND);
        // A slot is free again as soon as its message has ended.
        let again: Vec<Parcel> = (0..64).map(|_| world.ship(order())).collect();
        world.deliver(&again, 60 * SECOND);
        world.finish(parcels.into_iter().chain(again).collect());
    }
}

/// Receives that their user has completed take no slot, but the sender may still use them.
#[test]
fn a_slot_waits_for_the_offer_of_its_last_message() {
    let mut world = World::new(1, long_haul(), &shaped(small(1024, 1)));
    let mut inns = Vec::new();
    for _ in 0..64 {
        let inn = world.post_recv(Way::Forth, 10).expect("a free slot");
        let endpoint = &mut world.b.endpoint;
        let ended = endpoint.complete_recv(&inn.recv, Outcome::Failed);
        ended.expect("open");
        inns.push((Way::Forth, inn));
    }
    let error = world.post_recv(Way::Forth, 10).err().expect("no offer yet");
    assert!(
        matches!(
            error,
            Error::Retry {
                awaited: Awaited::LastOffer,
                ..
            }
        ),
        "{error:?}"
    );
    assert_eq!(
        error.to_string(),
        "the last message of this slot is not offered yet; poll and try again"
    );
    world.close(vec![], inns);
}

#[test]
fn both_ways_at_once_with_all_schemes() {
    seeds::each("both_ways", 4, |seed| {
        let mut world = World::new(seed, lossy(), &shaped(small(4096, 4)));
        let mut rng = SplitMix::new(seed);
        let mut parcels = Vec::new();
        for _ in 0..40 {
            let most = rng.pick(&[1, 1000, 20_000, 1 << 20]);
            let bytes = usize::try_from(rng.within(0..most)).expect("small");
            parcels.push(world.ship(Order {
                way: rng.pick(&[Way::Forth, Way::Back]),
                immediate: rng.pick(&[None, Some(7), Some(u32::MAX)]),
                ..Order::new(rng.bytes(bytes), tag(rng.pick(&SCHEMES)))
            }));
        }
        world.deliver(&parcels, 60 * SECOND);
        world.finish(parcels);
    });
}

#[test]
fn small_messages_behind_a_large_one_do_not_wait_for_its_repairs() {
    let mut world = World::new(1, lossy(), &shaped(small(4096, 4)));
    let large = world.ship(Order::new(SplitMix::new(1).bytes(8 << 20), tag("sr-nack")));
    let small: Vec<_> = (0..10)
        .map(|i| world.ship(Order::new(SplitMix::new(i).bytes(100), tag("sr-nack"))))
        .collect();
    let took_ns = world.deliver(&small, 60 * SECOND);
    println!("small ones over after {} us", took_ns / 1000);
    assert_eq!(
        large.out.send.outcome(),
        None,
        "the large one is not over yet"
    );
    world.deliver(std::slice::from_ref(&large), 60 * SECOND);
    world.finish(small.into_iter().chain([large]).collect());
}
