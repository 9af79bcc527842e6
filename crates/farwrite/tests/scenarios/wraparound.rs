//! Message numbers that wrap, and very old packets.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use farwrite::fabric::sim::{Datagram, Verdict};
use farwrite::{DropReason, QpConfig, QpOptions};
use farwrite_rng::SplitMix;

use crate::parcel::{Order, Parcel};
use crate::world::{MS, SCHEMES, SECOND, World, long_haul, options, tag};

const BYTES: usize = 2_500;
/// Data packets of a message.
const PACKETS: u64 = 3;

fn many_small(slots: u32, generations: u8) -> QpOptions {
    let sdr = QpConfig {
        mtu: 1000,
        slots,
        // There are enough ids for parity only with half as many slots.
        parity: slots <= 512,
        generations,
        max_message_bytes: 1 << 20,
        ..QpConfig::default()
    };
    QpOptions { sdr, ..options() }
}

/// Returns the content of a message, which differs from that of every other message.
fn words(message: u64) -> Vec<u8> {
    SplitMix::new(message).bytes(BYTES)
}

/// Copies of all data packets, in the order of sending.
fn keep_copies(world: &World) -> Rc<RefCell<Vec<Datagram>>> {
    let copies = Rc::new(RefCell::new(Vec::new()));
    let out = Rc::clone(&copies);
    world.traffic.filter(move |seen| {
        if seen.is_data() {
            out.borrow_mut().push(seen.datagram.clone());
        }
        Verdict::Pass
    });
    copies
}

/// Sends messages in batches that fill all slots. All data packets of the last `generations - 1`
/// batches arrive again twice: when the receives of a batch are posted and none of its data has
/// arrived yet, and while its data is in flight.
fn wrap(scheme: &str, slots: u32, generations: u8, messages: u64) {
    let mut world = World::new(1, long_haul(), &many_small(slots, generations));
    let copies = keep_copies(&world);
    let mut past: VecDeque<Vec<Datagram>> = VecDeque::new();
    let mut injected = 0;
    let mut message = 0;
    while message < messages {
        let batch = messages.min(message + u64::from(slots)) - message;
        let order = |number| Order::new(words(number), tag(scheme));
        let parcels: Vec<Parcel> = (message..message + batch)
            .map(|number| world.ship(order(number)))
            .collect();
        // The first data packets leave after half a round trip, and arrive after a whole one.
        for at_ns in [MS, 13 * MS] {
            world.run_for(at_ns);
            for late in past.iter().flatten() {
                world.network.inject(late.clone());
                injected += 1;
            }
            let seen = parcels.iter().map(|p| p.inn.recv.bitmap().count());
            assert_eq!(
                seen.sum::<u32>(),
                0,
                "a late packet counted for a new message"
            );
        }
        world.deliver(&parcels, SECOND);
        for Parcel { order, out, inn } in parcels {
            let parcel = Parcel { order, out, inn };
            world.check(&parcel);
            world.forget(parcel);
        }
        past.push_back(std::mem::take(&mut *copies.borrow_mut()));
        if past.len() == usize::from(generations) {
            past.pop_front();
        }
        message += batch;
    }
    let stats = world.b.stats();
    println!("{scheme}, {slots} slots, {generations} generations: {injected} late, {stats:?}");
    assert_eq!((stats.duplicate_packets, stats.invalid_packets), (0, 0));
    // An old packet has the root key of an old generation. The slot's current buffer is bound to
    // the root key of another generation, so the write reaches the null key.
    let nowhere = world.b.endpoint.counters().dropped(DropReason::NullKey);
    assert_eq!(nowhere, stats.late_packets);
    if scheme.starts_with("ec") {
        // If a message needs no parity, its parity arrives after the message has ended.
        assert!(stats.late_packets >= injected);
    } else {
        assert_eq!(stats.late_packets, injected);
        assert_eq!(stats.received_packets, messages * PACKETS + injected);
    }
    world.finish(Vec::new());
}

#[test]
fn ten_thousand_messages_with_late_packets_of_each_past_generation() {
    wrap("sr-nack", 1024, 4, 10_000);
}

#[test]
fn few_slots_wrap_often() {
    for scheme in SCHEMES {
        wrap(scheme, 64, 2, 1_000);
    }
    wrap("sr-rto", 16, 8, 500);
}
