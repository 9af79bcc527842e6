//! Coded messages without memory for their parity.

use std::cell::Cell;
use std::rc::Rc;

use farwrite::fabric::sim::Verdict;
use farwrite::{Outcome, QpOptions, RateControl, SendOptions};
use farwrite_link::{LinkConfig, Loss};
use farwrite_rng::SplitMix;
use farwrite_wire::control::Control;

use crate::parcel::Order;
use crate::slow_world::SlowWorld;
use crate::world::{SECOND, Way, World, long_haul, options, tag};

const CODED: &str = "ec-mds:32,8";
const BYTES: usize = 1 << 20;

#[test]
fn a_message_goes_without_parity_where_a_fabric_has_no_room_and_others_go_on() {
    for starved in ["sender", "receiver"] {
        let mut world = SlowWorld::new(&[options(), options()]);
        let (a, b) = (&mut world.a, &mut world.b);
        let source = a.endpoint.register(vec![7; BYTES]).expect("room");
        let mut post = |index: usize, scheme: &str| {
            let target = b.endpoint.register(vec![0; BYTES]).expect("room");
            let recv = b.endpoint.post_recv(b.qps[index], target.whole());
            recv.expect("a free slot");
            let send = SendOptions {
                scheme: tag(scheme),
                ..SendOptions::default()
            };
            let send = a.endpoint.post_send(a.qps[index], source.whole(), send);
            send.expect("a free slot")
        };
        let sends = [post(0, CODED), post(1, "sr-nack")];
        match starved {
            "sender" => world.a.controls.is_out_of_memory.set(true),
            _ => world.b.controls.is_out_of_memory.set(true),
        }
        let over = |_: &mut SlowWorld| sends.iter().all(|send| send.outcome().is_some());
        assert!(world.run_until(SECOND, over), "{starved}: not over");
        for send in sends {
            assert_eq!(send.outcome(), Some(Outcome::Whole), "{starved}");
        }
    }
}

#[test]
fn a_scheme_with_more_parity_than_was_expected_goes_without_once() {
    let lossy = LinkConfig {
        loss: Loss::Iid { loss_packet: 0.02 },
        ..long_haul()
    };
    let expecting = QpOptions {
        expected_scheme: tag("ec-mds:32,1"),
        ..options()
    };
    let mut world = World::with_links(3, lossy, long_haul(), &expecting);
    let mut rebuilt = Vec::new();
    for scheme in [CODED, CODED, "ec-mds:32,4", CODED] {
        let parcel = world.ship(Order::new(SplitMix::new(1).bytes(BYTES), tag(scheme)));
        world.deliver(std::slice::from_ref(&parcel), SECOND);
        world.check(&parcel);
        world.forget(parcel);
        rebuilt.push(world.b.stats().rebuilt_chunks);
    }
    assert_eq!(rebuilt[0], 0, "there was memory for an eighth of it");
    let grows = rebuilt.windows(2).all(|pair| pair[0] < pair[1]);
    assert!(grows, "{rebuilt:?}");
    world.finish(vec![]);
}

#[test]
fn a_sender_whose_parity_is_refused_stops_offering() {
    let stingy = QpOptions {
        rate_control: RateControl::Fixed {
            rate_bps: 50_000_000,
        },
        max_parity_bytes: 0,
        ..options()
    };
    let mut world = World::new(1, long_haul(), &stingy);
    let (offers, clearances) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let (offered, cleared) = (Rc::clone(&offers), Rc::clone(&clearances));
    world.traffic.filter(move |seen| {
        for control in seen.control.iter().flatten() {
            match control {
                Control::Offer(_) => offered.set(offered.get() + 1),
                Control::ClearToSend(cts) => cleared.set(cleared.get() + cts.clearances.len()),
                _ => {}
            }
        }
        Verdict::Pass
    });
    // These receives wait for later messages. If the sender asks, the reply names all of them.
    let parcel = world.ship(Order::new(SplitMix::new(1).bytes(16 << 20), tag(CODED)));
    let later: Vec<_> = (0..63)
        .map(|_| world.post_recv(Way::Forth, 1000).expect("a free slot"))
        .collect();
    // The message takes nearly three seconds.
    world.deliver(std::slice::from_ref(&parcel), 10 * SECOND);
    world.check(&parcel);
    let (offers, clearances) = (offers.get(), clearances.get());
    assert!(offers <= 4, "{offers} offers");
    assert!(clearances <= 64 * 10, "{clearances} clearances");
    drop(later);
}
