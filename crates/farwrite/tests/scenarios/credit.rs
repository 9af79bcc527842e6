//! EQDS: a sender sends a first window, and then what the receiver grants (P4.12).

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use farwrite::fabric::sim::Verdict;
use farwrite::{EqdsOptions, Error, Outcome, QpOptions, RateControl};
use farwrite_link::{LinkConfig, Loss};
use farwrite_rng::SplitMix;
use farwrite_wire::control::Control;

use crate::controls::{PACKET, RATE_BPS, US, peer_stats, ship};
use crate::parcel::{Order, Parcel};
use crate::traffic::Seen;
use crate::world::{MS, SECOND, Way, World, addr, tag};

const FIRST_WINDOW: u64 = 16_000;

/// 10 us there and back at 10 Gbit/s.
fn links(loss: Loss) -> [LinkConfig; 2] {
    let back = LinkConfig {
        delay: Duration::from_micros(5),
        loss,
        ..LinkConfig::default()
    };
    let forth = LinkConfig {
        rate_bps: Some(RATE_BPS),
        queue_bytes: Some(1_000_000),
        ..back
    };
    [forth, back]
}

fn eqds(line_rate_bps: u64) -> RateControl {
    RateControl::Eqds(EqdsOptions {
        line_rate_bps,
        first_window_bytes: FIRST_WINDOW,
    })
}

fn options(rate_control: RateControl) -> QpOptions {
    QpOptions {
        rate_control,
        ..QpOptions::datacenter()
    }
}

fn world(seed: u64, loss: Loss) -> World {
    let [forth, back] = links(loss);
    World::with_links(seed, forth, back, &options(eqds(RATE_BPS)))
}

/// Ends a message that will not arrive.
fn abandon(mut world: World, parcel: &Parcel) {
    world.traffic.pass_all();
    let (a, b) = (&mut world.a.endpoint, &mut world.b.endpoint);
    a.cancel_send(&parcel.out.send).expect("open");
    let ended = b.complete_recv(&parcel.inn.recv, Outcome::Failed);
    ended.expect("open");
    for end in [&mut world.a, &mut world.b] {
        end.endpoint.destroy_qp(end.qp).expect("it is there");
    }
}

fn is_credit(seen: &Seen<'_>) -> bool {
    seen.says(|said| matches!(said, Control::Credit(_)))
}

fn is_request(seen: &Seen<'_>) -> bool {
    seen.says(|said| matches!(said, Control::CreditRequest(_)))
}

#[test]
fn one_flow_fills_the_port_of_its_receiver() {
    let packets = 5_000;
    let (took_ns, stats) = ship(world(1, Loss::None), packets);
    let share = (packets * PACKET) as f64 * 8e9 / RATE_BPS as f64 / took_ns as f64;
    println!("{share:.3} of the path, {stats:?}");
    assert!(share > 0.9, "{share:.3}");
    assert_eq!(stats.delivered_bytes, stats.sent_bytes);
    assert_eq!(stats.refused_feedback, 0);
}

#[test]
fn a_message_within_the_first_window_needs_no_credit() {
    let world = world(1, Loss::None);
    let credits = Rc::new(Cell::new(0));
    let count = Rc::clone(&credits);
    world.traffic.filter(move |seen| {
        count.set(count.get() + u32::from(is_credit(seen) || is_request(seen)));
        Verdict::Pass
    });
    let (took_ns, _) = ship(world, 3);
    assert_eq!(credits.get(), 0);
    assert!(took_ns < 100 * US, "{took_ns}");
}

#[test]
fn losses_in_both_directions_are_repaired() {
    for seed in 1..=10 {
        let loss = Loss::Iid { loss_packet: 0.05 };
        let (took_ns, stats) = ship(world(seed, loss), 1_000);
        println!("seed {seed}: {} us", took_ns / US);
        assert!(took_ns < 100 * MS, "seed {seed}: {took_ns} ns");
        assert_eq!(stats.refused_feedback, 0);
    }
}

#[test]
fn a_sender_whose_credit_or_requests_are_lost_asks_again() {
    for which in [is_credit, is_request] {
        for count in [1, 3, 8] {
            let world = world(count, Loss::None);
            world.traffic.drop_first(count, which);
            let (took_ns, _) = ship(world, 1_000);
            println!("{count} lost: {} us", took_ns / US);
            assert!(took_ns < 100 * MS, "{count} lost: {took_ns} ns");
        }
    }
}

/// All packets with credit are lost, as when the sender has no route for a while.
#[test]
fn a_flow_goes_on_after_an_outage() {
    let mut world = world(1, Loss::None);
    let bytes = SplitMix::new(1).bytes(5_000 * PACKET);
    let parcel = world.ship(Order::new(bytes, tag("sr-nack")));
    world.run_for(MS);
    world.set_down(true);
    world.run_for(50 * MS);
    world.set_down(false);
    let took_ns = world.deliver(std::slice::from_ref(&parcel), SECOND);
    println!("{} us", took_ns / US);
    assert!(took_ns < 300 * MS, "{took_ns} ns");
    world.finish(vec![parcel]);
}

/// The peer has died. The sender asks less and less often, and holds its packets back.
#[test]
fn a_silent_peer_gets_few_requests_and_no_more_than_its_credit() {
    let mut world = world(1, Loss::None);
    let parcel = world.ship(Order::new(vec![7; 5_000 * PACKET], tag("sr-nack")));
    world.run_for(MS);
    let requests = Rc::new(Cell::new(0));
    let count = Rc::clone(&requests);
    world.traffic.filter(move |seen| {
        count.set(count.get() + u32::from(seen.way == Way::Forth && is_request(seen)));
        Verdict::Drop
    });
    let before = peer_stats(&world).sent_bytes;
    world.run_for(SECOND);
    let sent = peer_stats(&world).sent_bytes - before;
    println!("{} requests, {sent} bytes", requests.get());
    assert!((5..60).contains(&requests.get()), "{}", requests.get());
    assert!(sent < 300_000, "{sent} bytes");
    abandon(world, &parcel);
}

/// A receiver that lies may grant at most what the sender wants.
#[test]
fn credit_that_was_not_wanted_is_refused_and_counted() {
    let mut world = world(1, Loss::None);
    let parcel = world.ship(Order::new(vec![7; 5_000 * PACKET], tag("sr-nack")));
    let forged = crate::turncoat::turn(&world, 0.3, 5);
    for _ in 0..30 {
        world.run_for(100 * US);
        let due = std::mem::take(&mut *forged.borrow_mut());
        due.into_iter()
            .for_each(|datagram| world.network.inject(datagram));
    }
    let stats = peer_stats(&world);
    assert!(stats.refused_feedback > 0, "{stats:?}");
    abandon(world, &parcel);
}

/// An end of an older version grants no credit, and does not say that it does. An end under another
/// controller is the same.
#[test]
fn a_peer_that_grants_no_credit_is_refused_when_it_is_connected() {
    let [forth, back] = links(Loss::None);
    let mut world = World::with_links(1, forth, back, &options(RateControl::default()));
    let credited = world.a.endpoint.create_qp(options(eqds(RATE_BPS)));
    let credited = credited.expect("good options");
    let plain = world.b.endpoint.create_qp(options(RateControl::default()));
    let plain = plain.expect("good options");
    let theirs = world.b.endpoint.qp_info(plain).expect("its own");
    let refused = world.a.endpoint.connect_qp(credited, &theirs);
    assert!(matches!(refused, Err(Error::NoCredit)), "{refused:?}");
    let ours = world.a.endpoint.qp_info(credited).expect("its own");
    assert!(ours.grants_credit && !theirs.grants_credit);
    // The other end does not send by credit, so it would connect.
    world.b.endpoint.connect_qp(plain, &ours).expect("fits");
}

#[test]
fn queue_pairs_of_one_port_have_one_line_rate() {
    let mut world = world(1, Loss::None);
    let fast = world.a.endpoint.create_qp(options(eqds(2 * RATE_BPS)));
    let fast = fast.expect("good options");
    let mut theirs = world.b.endpoint.qp_info(world.b.qp).expect("its own");
    theirs.control = addr(3);
    let refused = world.a.endpoint.connect_qp(fast, &theirs);
    let Err(Error::LineRate {
        present_bps,
        wanted_bps,
    }) = refused
    else {
        panic!("{refused:?}");
    };
    assert_eq!((present_bps, wanted_bps), (RATE_BPS, 2 * RATE_BPS));
}
