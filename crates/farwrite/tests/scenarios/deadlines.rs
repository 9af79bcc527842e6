//! Messages that end at a deadline, at one end or at both.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use farwrite::fabric::sim::SimNetwork;
use farwrite::{Endpoint, Outcome, QpConfig, QpOptions, RecvOptions, SchemeTag};
use farwrite_link::{LinkConfig, Loss};
use farwrite_rng::SplitMix;
use farwrite_wire::control::Control;

use crate::parcel::{Order, Parcel};
use crate::traffic::Seen;
use crate::world::{MS, RTT, SCHEMES, SECOND, Way, World, long_haul, options, tag};

pub(crate) const WHOLE: Option<Outcome> = Some(Outcome::Whole);
pub(crate) const PARTIAL: Option<Outcome> = Some(Outcome::Partial);
pub(crate) const FAILED: Option<Outcome> = Some(Outcome::Failed);

pub(crate) const PACKET: usize = 4096;

pub(crate) fn order(bytes: usize, scheme: &str) -> Order {
    Order::new(SplitMix::new(1).bytes(bytes), tag(scheme))
}

pub(crate) fn until(deadline_ns: u64) -> RecvOptions {
    RecvOptions {
        deadline_ns: Some(deadline_ns),
        ..RecvOptions::default()
    }
}

pub(crate) fn accepting() -> RecvOptions {
    RecvOptions {
        accept_partial: true,
        ..RecvOptions::default()
    }
}

pub(crate) fn losing(loss_packet: f64) -> LinkConfig {
    LinkConfig {
        loss: Loss::Iid { loss_packet },
        ..long_haul()
    }
}

pub(crate) fn lossy() -> LinkConfig {
    losing(0.2)
}

/// Runs until both ends know the outcome of a message.
pub(crate) fn settle(world: &mut World, parcel: &Parcel) -> [Option<Outcome>; 2] {
    let limit_ns = world.now_ns() + 10 * SECOND;
    let over = |_: &mut World| parcel.outcomes().iter().all(Option::is_some);
    assert!(world.run_until(limit_ns, over), "{:?}", parcel.outcomes());
    parcel.outcomes()
}

/// Sends one more message, which must arrive, and destroys the world.
pub(crate) fn end(mut world: World, parcels: Vec<Parcel>) {
    let next = world.ship(order(10_000, "sr-nack"));
    world.deliver(std::slice::from_ref(&next), 10 * SECOND);
    world.check(&next);
    let (outs, inns) = parcels
        .into_iter()
        .chain([next])
        .map(|Parcel { order, out, inn }| ((order.way, out), (order.way, inn)))
        .unzip();
    world.close(outs, inns);
}

fn is_offer(seen: &Seen<'_>) -> bool {
    seen.says(|c| matches!(c, Control::Offer(_)))
}

fn is_clear_to_send(seen: &Seen<'_>) -> bool {
    seen.says(|c| matches!(c, Control::ClearToSend(_)))
}

#[test]
fn a_receive_that_was_never_offered_ends_at_its_deadline() {
    let mut world = World::new(1, long_haul(), &options());
    let inn = world.post_recv_with(Way::Forth, 100_000, until(40 * MS));
    let inn = inn.expect("a free slot");
    let ended = world.run_until(SECOND, |_| inn.recv.outcome().is_some());
    assert!(ended && world.now_ns() == 40 * MS, "{}", world.now_ns());
    let recv = &inn.recv;
    assert_eq!((recv.outcome(), recv.length()), (PARTIAL, None));
    let partial = recv.partial().expect("partial");
    assert_eq!((partial.bytes(), partial.chunks()), (0, 25));
    assert_eq!(partial.bits(), [0; 4]);
    assert!(world.buffer(Way::Forth, &inn).iter().all(|&b| b == 0xee));
    // The sender starts late, and is notified that the message has ended.
    world.run_for(SECOND);
    let order = order(100_000, "sr-nack");
    let out = world.post_send(&order).expect("a free slot");
    let parcel = Parcel { order, out, inn };
    assert_eq!(settle(&mut world, &parcel), [PARTIAL; 2]);
    end(world, vec![parcel]);
}

#[test]
fn the_default_deadline_ends_messages_of_a_vanished_peer() {
    let options = QpOptions {
        default_deadline: Some(Duration::from_secs(2)),
        ..options()
    };
    let mut world = World::new(1, long_haul(), &options);
    world.run_for(SECOND);
    world.set_down(true);
    let posted_ns = world.now_ns();
    let parcel = world.ship(order(100_000, "sr-nack"));
    assert_eq!(settle(&mut world, &parcel), [FAILED, PARTIAL]);
    let took_ns = world.now_ns() - posted_ns;
    assert!(
        (2 * SECOND..2 * SECOND + 100 * MS).contains(&took_ns),
        "{took_ns}"
    );
    world.set_down(false);
    // A deadline of the caller is not replaced.
    let inn = world.post_recv_with(Way::Forth, 1000, until(world.now_ns() + 5 * SECOND));
    let inn = inn.expect("a free slot");
    world.run_for(4 * SECOND);
    assert_eq!(inn.recv.outcome(), None);
    world.run_for(2 * SECOND);
    assert_eq!(inn.recv.outcome(), PARTIAL);
    let order = order(1000, "sr-nack");
    let out = world.post_send(&order).expect("a free slot");
    let second = Parcel { order, out, inn };
    assert_eq!(settle(&mut world, &second), [PARTIAL; 2]);
    end(world, vec![parcel, second]);
}

#[test]
fn sends_to_a_vanished_peer_fail_and_those_to_a_patient_one_stay_open() {
    let options = QpOptions {
        vanished_after: Some(Duration::from_secs(60)),
        ..options()
    };
    let mut world = World::new(1, long_haul(), &options);
    // The peer lives, and has posted no receive.
    let first = order(100_000, "sr-nack");
    let out = world.post_send(&first).expect("a free slot");
    world.run_for(100 * SECOND);
    assert_eq!(out.send.outcome(), None);
    let inn = world.post_recv(Way::Forth, 100_000).expect("a free slot");
    let arrived = Parcel {
        order: first,
        out,
        inn,
    };
    assert_eq!(settle(&mut world, &arrived), [WHOLE; 2]);
    world.run_for(100 * SECOND);
    world.set_down(true);
    // An idle queue pair asks nobody, so the time before the send does not count.
    world.run_for(100 * SECOND);
    let posted_ns = world.now_ns();
    let lost = world.ship(order(100_000, "sr-nack"));
    world.run_for(59 * SECOND);
    assert_eq!(lost.outcomes(), [None; 2]);
    let ended = world.run_until(posted_ns + 70 * SECOND, |_| {
        lost.out.send.outcome().is_some()
    });
    assert!(ended, "{} ms", (world.now_ns() - posted_ns) / MS);
    assert_eq!(lost.out.send.outcome(), FAILED);
    world.set_down(false);
    // The receiver learns of it.
    assert_eq!(settle(&mut world, &lost), [FAILED; 2]);
    end(world, vec![arrived, lost]);
}

#[test]
fn a_lost_offer_does_not_keep_a_receive_open() {
    for scheme in SCHEMES {
        let mut world = World::new(1, long_haul(), &options());
        world.traffic.drop_first(u64::MAX, is_offer);
        // The buffer is longer than the message, so the receiver cannot infer the length of the
        // message.
        let order = Order {
            spare: 50_000,
            ..order(100_000, scheme)
        };
        let parcel = world.ship_to(order, until(100 * MS));
        world.run_until(SECOND, |_| parcel.inn.recv.outcome().is_some());
        assert_eq!(world.now_ns(), 100 * MS);
        world.check_part(&parcel, PACKET);
        let partial = parcel.inn.recv.partial().expect("partial");
        assert_eq!(partial.bytes(), 100_000, "{scheme}: its data did arrive");
        assert_eq!(settle(&mut world, &parcel), [PARTIAL; 2]);
        world.traffic.pass_all();
        end(world, vec![parcel]);
    }
}

#[test]
fn a_deadline_holds_without_a_peer() {
    let network = SimNetwork::new(1);
    let here = SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), 4791));
    let fabric = network.endpoint(here, 1).expect("a free address");
    let mut endpoint = Endpoint::new(fabric, [1; 32]);
    let qp = endpoint.create_qp(options()).expect("good options");
    let target = endpoint.register(vec![0; 1000]).expect("room");
    let recv = endpoint.post_recv_with(qp, target.whole(), until(40 * MS));
    let recv = recv.expect("a free slot");
    assert_eq!(endpoint.poll(MS).expect("no fault"), Some(40 * MS));
    assert_eq!(endpoint.poll(40 * MS).expect("no fault"), None);
    assert_eq!(recv.outcome(), PARTIAL);
    assert!(endpoint.deregister(target).is_ok());
}

#[test]
fn a_deadline_in_the_midst_of_a_message_names_what_arrived() {
    for scheme in SCHEMES {
        let mut world = World::new(1, lossy(), &options());
        let parcel = world.ship_to(order(4 << 20, scheme), until(27 * MS));
        world.run_until(SECOND, |_| parcel.inn.recv.outcome().is_some());
        assert_eq!(world.now_ns(), 27 * MS, "{scheme}");
        world.check_part(&parcel, PACKET);
        let partial = parcel.inn.recv.partial().expect("partial").clone();
        assert!((1..4 << 20).contains(&partial.bytes()), "{scheme}");
        assert_eq!(partial.chunks(), 1024);
        assert_eq!(settle(&mut world, &parcel), [PARTIAL; 2]);
        // The sender has stopped, and packets in flight change nothing.
        let before = world.traffic.tally();
        world.run_for(SECOND);
        assert_eq!(world.traffic.tally().data, before.data, "{scheme}");
        assert!(world.b.stats().late_packets > 0, "{scheme}");
        world.check_part(&parcel, PACKET);
        assert_eq!(parcel.inn.recv.partial(), Some(&partial));
        end(world, vec![parcel]);
    }
}

#[test]
fn chunks_of_several_packets_count_when_all_of_them_arrived() {
    let sdr = QpConfig {
        packets_per_chunk: 16,
        ..QpConfig::default()
    };
    let mut world = World::new(1, losing(0.05), &QpOptions { sdr, ..options() });
    let parcel = world.ship_to(order(4 << 20, "sr-nack"), until(28 * MS));
    assert_eq!(settle(&mut world, &parcel), [PARTIAL; 2]);
    let partial = parcel.inn.recv.partial().expect("partial").clone();
    let order = parcel.order.bytes.clone();
    let buffer = world.buffer(Way::Forth, &parcel.inn);
    let there = |at: &[u8]| !at.iter().all(|&byte| byte == 0xee);
    let written = buffer.chunks(PACKET).filter(|packet| there(packet)).count();
    assert_eq!(partial.bytes(), (written * PACKET) as u64);
    let pairs = buffer.chunks(16 * PACKET).zip(order.chunks(16 * PACKET));
    let whole: Vec<bool> = pairs.map(|(is, sent)| is == sent).collect();
    let named: Vec<bool> = (0..64).map(|chunk| partial.has_chunk(chunk)).collect();
    assert_eq!(named, whole);
    let count = named.iter().filter(|&&named| named).count();
    assert!((1..64).contains(&count), "{count}");
    end(world, vec![parcel]);
}

#[test]
fn a_message_that_is_whole_at_its_deadline_is_whole() {
    for scheme in SCHEMES {
        for immediate in [None, Some(7)] {
            let order = Order {
                immediate,
                ..order(300_000, scheme)
            };
            let mut world = World::new(1, long_haul(), &options());
            let parcel = world.ship(order.clone());
            world.run_until(SECOND, |_| parcel.inn.recv.outcome().is_some());
            let whole_ns = world.now_ns();
            for (deadline_ns, outcome) in [(whole_ns, WHOLE), (whole_ns - 1, PARTIAL)] {
                let mut world = World::new(1, long_haul(), &options());
                let parcel = world.ship_to(order.clone(), until(deadline_ns));
                world.run_until(SECOND, |_| parcel.inn.recv.outcome().is_some());
                assert_eq!(world.now_ns(), deadline_ns);
                assert_eq!(parcel.inn.recv.outcome(), outcome, "{scheme}");
                assert_eq!(settle(&mut world, &parcel), [outcome; 2], "{scheme}");
                assert_eq!(parcel.inn.recv.partial().is_some(), outcome == PARTIAL);
                end(world, vec![parcel]);
            }
        }
    }
}

#[test]
fn a_message_that_arrives_in_time_leaves_no_timer() {
    let hour_ns = 3600 * SECOND;
    for scheme in SCHEMES {
        let mut world = World::new(1, long_haul(), &options());
        let order = Order {
            deadline_ns: Some(hour_ns),
            ..order(100_000, scheme)
        };
        let parcel = world.ship_to(order, until(hour_ns));
        world.deliver(std::slice::from_ref(&parcel), SECOND);
        world.run_for(60 * SECOND);
        let now_ns = world.now_ns();
        for end in [&mut world.a, &mut world.b] {
            let next = end.endpoint.poll(now_ns).expect("no fault");
            assert_eq!(next, None, "{scheme}");
        }
        world.finish(vec![parcel]);
    }
}

#[test]
fn a_deadline_ends_a_message_without_a_scheme_as_whole_or_partial() {
    for (deadline_ns, outcome) in [(27 * MS, PARTIAL), (200 * MS, WHOLE)] {
        let mut world = World::new(1, long_haul(), &options());
        let order = Order::new(SplitMix::new(1).bytes(4 << 20), SchemeTag::NONE);
        let parcel = world.ship_to(order, until(deadline_ns));
        world.run_until(SECOND, |_| parcel.inn.recv.outcome().is_some());
        assert_eq!(world.now_ns(), deadline_ns);
        assert_eq!(settle(&mut world, &parcel), [outcome; 2]);
        if outcome == PARTIAL {
            world.check_part(&parcel, PACKET);
        } else {
            world.check(&parcel);
        }
        end(world, vec![parcel]);
    }
}

#[test]
fn a_sender_ends_at_its_deadline_as_the_receiver_accepts() {
    for scheme in SCHEMES {
        for (terms, outcome) in [(accepting(), PARTIAL), (RecvOptions::default(), FAILED)] {
            let mut world = World::new(1, lossy(), &options());
            let order = Order {
                deadline_ns: Some(27 * MS),
                ..order(4 << 20, scheme)
            };
            let parcel = world.ship_to(order, terms);
            world.run_until(SECOND, |_| parcel.out.send.outcome().is_some());
            assert_eq!(world.now_ns(), 27 * MS, "{scheme}");
            let before = world.traffic.tally();
            assert_eq!(settle(&mut world, &parcel), [outcome; 2], "{scheme}");
            assert_eq!(world.traffic.tally().data, before.data, "it has stopped");
            if outcome == PARTIAL {
                world.check_part(&parcel, PACKET);
                let partial = parcel.inn.recv.partial().expect("partial");
                assert!(partial.bytes() > 0, "{scheme}");
            }
            end(world, vec![parcel]);
        }
    }
}

#[test]
fn a_sender_that_was_never_cleared_fails_at_its_deadline() {
    for scheme in SCHEMES {
        // The receive is posted after the deadline, or its clearance is lost.
        for late in [true, false] {
            let mut world = World::new(1, long_haul(), &options());
            world.traffic.drop_first(u64::MAX, is_clear_to_send);
            let order = Order {
                deadline_ns: Some(40 * MS),
                ..order(100_000, scheme)
            };
            let capacity = order.bytes.len();
            let post = |world: &mut World| {
                let inn = world.post_recv_with(Way::Forth, capacity, accepting());
                inn.expect("a free slot")
            };
            let early = (!late).then(|| post(&mut world));
            let out = world.post_send(&order).expect("a free slot");
            world.run_until(SECOND, |_| out.send.outcome().is_some());
            assert_eq!((world.now_ns(), out.send.outcome()), (40 * MS, FAILED));
            world.traffic.pass_all();
            let inn = early.unwrap_or_else(|| post(&mut world));
            let parcel = Parcel { order, out, inn };
            assert_eq!(settle(&mut world, &parcel), [FAILED; 2]);
            assert_eq!(world.traffic.tally().data, 0, "{scheme}");
            end(world, vec![parcel]);
        }
    }
}

#[test]
fn deadlines_at_both_ends() {
    for scheme in SCHEMES {
        // The sender's deadline is first; both are at the same time; the receiver's is first.
        for (send_ms, recv_ms) in [(20, 60), (27, 27), (33, 27), (45, 27)] {
            for accept_partial in [true, false] {
                let mut world = World::new(1, lossy(), &options());
                let order = Order {
                    deadline_ns: Some(send_ms * MS),
                    ..order(4 << 20, scheme)
                };
                let terms = RecvOptions {
                    accept_partial,
                    ..until(recv_ms * MS)
                };
                let parcel = world.ship_to(order, terms);
                let [sent, received] = settle(&mut world, &parcel);
                assert!(world.now_ns() <= send_ms.max(recv_ms) * MS);
                // Except in the first case, the receiver's deadline passes before it is informed of
                // the sender's.
                let refused = send_ms < recv_ms && !accept_partial;
                assert_eq!(received, if refused { FAILED } else { PARTIAL }, "{scheme}");
                let heard = send_ms * MS >= recv_ms * MS + RTT / 2;
                let partial = accept_partial || heard;
                assert_eq!(sent, if partial { PARTIAL } else { FAILED }, "{scheme}");
                if received == PARTIAL {
                    world.check_part(&parcel, PACKET);
                }
                end(world, vec![parcel]);
            }
        }
    }
}
