//! Deadlines on paths that lose packets, go down and recover, and in slots that are reused often.

use std::cell::Cell;
use std::rc::Rc;

use farwrite::fabric::sim::Verdict;
use farwrite::{QpConfig, QpOptions, RecvOptions, SchemeTag};
use farwrite_rng::SplitMix;
use farwrite_wire::control::{Control, Offer, Withdrawal};

use crate::deadlines::{
    FAILED, PACKET, PARTIAL, WHOLE, accepting, end, losing, lossy, order, settle, until,
};
use crate::parcel::{Order, Parcel};
use crate::seeds;
use crate::traffic::Seen;
use crate::world::{MS, SCHEMES, SECOND, Way, World, long_haul, options, tag};

fn is_expiry(seen: &Seen<'_>) -> bool {
    let expired = |offer: &Offer| offer.withdrawn == Some(Withdrawal::Expired);
    seen.says(|c| matches!(c, Control::Offer(offer) if expired(offer)))
}

fn is_end(seen: &Seen<'_>) -> bool {
    seen.says(|c| matches!(c, Control::ReceiveComplete { .. }))
}

/// Ends a message early, and drops the first `count` datagrams for which `which` is true.
fn end_with_losses(scheme: &str, by_sender: bool, count: u64, which: fn(&Seen<'_>) -> bool) {
    let mut world = World::new(1, lossy(), &options());
    let dropped = Rc::new(Cell::new(0));
    let counter = Rc::clone(&dropped);
    world.traffic.filter(move |seen| {
        // Only packets that end the message are lost, not those that begin it.
        let is_lost = counter.get() < count && seen.now_ns >= 26 * MS && which(seen);
        counter.set(counter.get() + u64::from(is_lost));
        if is_lost {
            Verdict::Drop
        } else {
            Verdict::Pass
        }
    });
    let order = Order {
        deadline_ns: by_sender.then_some(26 * MS),
        ..order(4 << 20, scheme)
    };
    let terms = if by_sender {
        accepting()
    } else {
        until(27 * MS)
    };
    let parcel = world.ship_to(order, terms);
    let outcomes = settle(&mut world, &parcel);
    assert_eq!(outcomes, [PARTIAL; 2], "{scheme}, {count} lost");
    assert!(dropped.get() > 0, "{scheme}: nothing was said of the end");
    world.check_part(&parcel, PACKET);
    end(world, vec![parcel]);
}

#[test]
fn lost_words_about_the_end_are_told_again() {
    for scheme in SCHEMES {
        for count in [1, 2, 3, 4, 8, 20] {
            end_with_losses(scheme, true, count, is_expiry);
            end_with_losses(scheme, true, count, is_end);
            end_with_losses(scheme, false, count, is_end);
        }
        for count in [5, 40] {
            for way in [Way::Forth, Way::Back] {
                let which: fn(&Seen<'_>) -> bool = match way {
                    Way::Forth => |seen| seen.way == Way::Forth && !seen.is_data(),
                    Way::Back => |seen| seen.way == Way::Back && !seen.is_data(),
                };
                end_with_losses(scheme, true, count, which);
                end_with_losses(scheme, false, count, which);
            }
        }
    }
}

#[test]
fn a_dead_path_keeps_neither_end_open() {
    for scheme in SCHEMES {
        let mut world = World::new(1, long_haul(), &options());
        let order = Order {
            deadline_ns: Some(300 * MS),
            ..order(4 << 20, scheme)
        };
        let terms = RecvOptions {
            accept_partial: true,
            ..until(200 * MS)
        };
        let parcel = world.ship_to(order, terms);
        world.run_for(27 * MS);
        world.set_down(true);
        world.run_until(SECOND, |_| parcel.inn.recv.outcome().is_some());
        assert_eq!(world.now_ns(), 200 * MS, "{scheme}");
        world.run_until(SECOND, |_| parcel.out.send.outcome().is_some());
        assert_eq!(world.now_ns(), 300 * MS, "{scheme}");
        assert_eq!(parcel.outcomes(), [PARTIAL; 2]);
        world.check_part(&parcel, PACKET);
        world.run_for(10 * SECOND);
        world.set_down(false);
        end(world, vec![parcel]);
    }
}

#[test]
fn slots_are_used_again_after_partial_messages() {
    let sdr = QpConfig {
        mtu: 1000,
        slots: 4,
        generations: 2,
        max_message_bytes: 1 << 20,
        ..QpConfig::default()
    };
    let options = QpOptions { sdr, ..options() };
    for scheme in SCHEMES {
        let mut world = World::new(1, lossy(), &options);
        let mut rng = SplitMix::new(1);
        let mut kept = Vec::new();
        for round in 0..40 {
            let start_ns = world.now_ns();
            let parcels: Vec<Parcel> = (0..4)
                .map(|index| {
                    // Half of the messages barely have enough time to arrive.
                    let deadline_ns = start_ns + rng.within(13 * MS..30 * MS);
                    let terms = match (round + index) % 2 {
                        0 => RecvOptions::default(),
                        _ => until(deadline_ns),
                    };
                    world.ship_to(Order::new(rng.bytes(50_000), tag(scheme)), terms)
                })
                .collect();
            world.deliver(&parcels, 60 * SECOND);
            for parcel in parcels {
                if parcel.inn.recv.outcome() == PARTIAL {
                    world.check_part(&parcel, 1000);
                    let recv = parcel.inn.recv.clone();
                    kept.push((recv.partial().expect("partial").clone(), recv));
                } else {
                    world.check(&parcel);
                }
                world.forget(parcel);
            }
        }
        assert!(kept.len() > 20, "{scheme}: {} partial", kept.len());
        for (partial, recv) in kept {
            assert_eq!(recv.partial(), Some(&partial), "it does not change");
        }
        world.finish(Vec::new());
    }
}

/// Checks the guarantees that each end gets from its outcome.
fn check_promises(world: &mut World, parcel: &Parcel) {
    let (name, [sent, received]) = (parcel.describe(), parcel.outcomes());
    match received {
        PARTIAL => world.check_part(parcel, 1000),
        WHOLE => {
            let buffer = world.buffer(parcel.order.way, &parcel.inn);
            assert!(buffer.starts_with(&parcel.order.bytes), "{name}");
        }
        _ => assert_eq!(sent, FAILED, "{name}"),
    }
    match sent {
        WHOLE => assert_eq!(received, WHOLE, "{name}"),
        PARTIAL => assert!(matches!(received, PARTIAL | WHOLE), "{name}: {received:?}"),
        _ => {}
    }
}

/// Sends messages with random deadlines over a random path, in both directions.
fn mix(seed: u64) {
    let rng = &mut SplitMix::new(seed);
    let link = losing(rng.pick(&[0.0, 0.001, 0.01, 0.1, 0.3]));
    let sdr = QpConfig {
        mtu: 1000,
        slots: rng.pick(&[2, 8, 64]).try_into().expect("small"),
        max_message_bytes: 1 << 20,
        ..QpConfig::default()
    };
    let mut world = World::new(seed, link, &QpOptions { sdr, ..options() });
    let mut open: Vec<Parcel> = Vec::new();
    for _ in 0..rng.within(1..60) {
        world.run_for(rng.within(0..20 * MS));
        let start_ns = world.now_ns();
        let within = |rng: &mut SplitMix| {
            let has_one = rng.chance(0.5);
            has_one.then(|| start_ns + rng.within(0..100 * MS))
        };
        let bytes = usize::try_from(rng.within(0..200_000)).expect("small");
        let deadline_ns = within(rng);
        // Without a scheme, only a deadline ends a receive.
        let scheme = match rng.chance(0.2) && deadline_ns.is_some() {
            true => SchemeTag::NONE,
            false => tag(rng.pick(&SCHEMES)),
        };
        let order = Order {
            way: rng.pick(&[Way::Forth, Way::Back]),
            deadline_ns: within(rng),
            spare: rng.pick(&[0, 0, 0, 5000]),
            ..Order::new(rng.bytes(bytes), scheme)
        };
        let terms = RecvOptions {
            scheme: rng.pick(&[None, Some(order.scheme)]),
            exact_length: rng.chance(0.5),
            deadline_ns,
            accept_partial: rng.chance(0.5),
            ..RecvOptions::default()
        };
        let capacity = bytes + order.spare;
        let Ok(inn) = world.post_recv_with(order.way, capacity, terms) else {
            continue;
        };
        world.run_for(rng.pick(&[0, MS, 30 * MS]));
        // A slot becomes free once the peer has received the end of an older message.
        let out = loop {
            match world.post_send(&order) {
                Ok(out) => break out,
                Err(farwrite::Error::Retry { .. }) => world.run_for(MS),
                Err(error) => panic!("{error}"),
            }
        };
        open.push(Parcel { order, out, inn });
    }
    let over = |parcel: &Parcel| parcel.outcomes().iter().all(Option::is_some);
    let limit_ns = world.now_ns() + 60 * SECOND;
    let done = world.run_until(limit_ns, |_| open.iter().all(over));
    let mut outcomes = [0; 3];
    for parcel in &open {
        assert!(done, "{}: {:?}", parcel.describe(), parcel.outcomes());
        check_promises(&mut world, parcel);
        let index = [WHOLE, PARTIAL, FAILED]
            .iter()
            .position(|outcome| *outcome == parcel.outcomes()[1]);
        outcomes[index.expect("an outcome")] += 1;
    }
    println!("whole, partial, failed: {outcomes:?}");
    let (outs, inns) = open
        .into_iter()
        .map(|Parcel { order, out, inn }| ((order.way, out), (order.way, inn)))
        .unzip();
    world.close(outs, inns);
}

#[test]
fn random_deadlines_keep_every_promise() {
    seeds::each("random_deadlines", 150, mix);
}
