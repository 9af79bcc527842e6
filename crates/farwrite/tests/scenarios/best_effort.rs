//! Best-effort messages: they end by a deadline, and report exactly what arrived.

use std::time::Duration;

use farwrite::fabric::sim::Verdict;
use farwrite::schemes::scheme::{Receiver, Scheme, Sender};
use farwrite::{Error, QpOptions, RecvOptions, SchemeName, SchemeTag};
use farwrite_link::{LinkConfig, Reorder};
use farwrite_wire::control::{Control, Offer, Withdrawal};

use crate::deadlines::{FAILED, PACKET, PARTIAL, WHOLE, end, order, settle, until};
use crate::parcel::{Order, Parcel};
use crate::traffic::Seen;
use crate::world::{MS, RTT, SECOND, Way, World, long_haul, options};

pub(crate) const BOUNDED: [&str; 4] = [
    "best-effort",
    "best-effort+sr",
    "best-effort+ec-xor:32,8",
    "best-effort+ec-mds:32,8",
];
/// The reordering window for a path of 25 ms there and back.
const WINDOW: u64 = RTT / 8;
/// The time that 1 MiB takes at the pace of [`options`], rounded up.
pub(crate) const MIB: u64 = MS;

/// Posts a receive before its message, so that the sender already has the clearance when it posts.
pub(crate) fn post_ahead(world: &mut World, order: Order, terms: RecvOptions) -> Parcel {
    let capacity = order.bytes.len() + order.spare;
    let inn = world.post_recv_with(order.way, capacity, terms);
    let inn = inn.expect("a free slot");
    world.run_for(RTT);
    let out = world.post_send(&order).expect("a free slot");
    Parcel { order, out, inn }
}

pub(crate) fn run_to_received(world: &mut World, parcel: &Parcel) -> u64 {
    let start_ns = world.now_ns();
    let over = world.run_until(start_ns + SECOND, |_| parcel.inn.recv.outcome().is_some());
    assert!(over, "{}", parcel.describe());
    world.now_ns() - start_ns
}

/// Drops the data packets of the first message whose numbers `lost` selects.
pub(crate) fn lose_packets(world: &World, lost: impl Fn(u64) -> bool + 'static) {
    let mut sent = 0;
    world.traffic.filter(move |seen| {
        if !seen.is_data() || seen.way != Way::Forth {
            return Verdict::Pass;
        }
        sent += 1;
        match lost(sent - 1) {
            true => Verdict::Drop,
            false => Verdict::Pass,
        }
    });
}

fn is_done(seen: &Seen<'_>) -> bool {
    let done = |offer: &Offer| offer.withdrawn == Some(Withdrawal::Expired);
    seen.says(|c| matches!(c, Control::Offer(offer) if done(offer)))
}

#[test]
fn a_message_into_a_receive_posted_ahead_takes_half_a_round_trip() {
    for scheme in BOUNDED {
        let mut world = World::new(1, long_haul(), &options());
        let parcel = post_ahead(&mut world, order(1 << 20, scheme), RecvOptions::default());
        let took_ns = run_to_received(&mut world, &parcel);
        assert!(took_ns < RTT / 2 + 2 * MIB, "{scheme}: {took_ns}");
        assert_eq!(parcel.inn.recv.outcome(), WHOLE, "{scheme}");
        assert_eq!(parcel.inn.recv.partial(), None);
        let [sent, _] = settle(&mut world, &parcel);
        // With plain best effort, the sender does not wait for the end of the receive.
        let alone = scheme == "best-effort";
        assert_eq!(sent, if alone { PARTIAL } else { WHOLE }, "{scheme}");
        assert!(parcel.out.send.is_injected());
        end(world, vec![parcel]);
    }
}

#[test]
fn the_sender_is_done_when_the_last_fragment_has_left() {
    let mut world = World::new(1, long_haul(), &options());
    let parcel = post_ahead(
        &mut world,
        order(1 << 20, "best-effort"),
        RecvOptions::default(),
    );
    let start_ns = world.now_ns();
    world.run_until(SECOND, |_| parcel.out.send.outcome().is_some());
    assert!(world.now_ns() - start_ns < MIB, "no word from the receiver");
    assert!(parcel.out.send.is_injected());
    assert_eq!(world.traffic.tally().data, 256);
    assert_eq!(settle(&mut world, &parcel), [PARTIAL, WHOLE]);
    end(world, vec![parcel]);
}

#[test]
fn the_last_fragment_ends_a_message_a_window_later() {
    let mut world = World::new(1, long_haul(), &options());
    let parcel = post_ahead(
        &mut world,
        order(1 << 20, "best-effort"),
        RecvOptions::default(),
    );
    lose_packets(&world, |packet| packet % 10 == 3);
    let took_ns = run_to_received(&mut world, &parcel);
    let ends_ns = RTT / 2 + WINDOW;
    assert!((ends_ns..ends_ns + MIB).contains(&took_ns), "{took_ns}");
    world.check_part(&parcel, PACKET);
    let partial = parcel.inn.recv.partial().expect("partial");
    assert_eq!((partial.chunks(), partial.bytes()), (256, 230 * 4096));
    assert!((0..256).all(|chunk| partial.has_chunk(chunk) == (chunk % 10 != 3)));
    settle(&mut world, &parcel);
    assert_eq!(world.traffic.tally().data, 256, "nothing is sent again");
    assert_eq!(world.a.stats().sender.retransmitted_chunks, 0);
    end(world, vec![parcel]);
}

#[test]
fn where_the_path_keeps_order_no_window_is_waited() {
    let options = QpOptions {
        reordering_window: Some(Duration::ZERO),
        ..options()
    };
    let mut world = World::new(1, long_haul(), &options);
    let parcel = post_ahead(
        &mut world,
        order(1 << 20, "best-effort"),
        RecvOptions::default(),
    );
    lose_packets(&world, |packet| packet == 7);
    let took_ns = run_to_received(&mut world, &parcel);
    assert!(took_ns < RTT / 2 + MIB, "{took_ns}");
    world.check_part(&parcel, PACKET);
    settle(&mut world, &parcel);
    end(world, vec![parcel]);
}

#[test]
fn a_sender_that_is_done_ends_a_message_whose_last_fragment_is_lost() {
    let mut world = World::new(1, long_haul(), &options());
    let parcel = post_ahead(
        &mut world,
        order(1 << 20, "best-effort"),
        RecvOptions::default(),
    );
    lose_packets(&world, |packet| packet >= 200);
    let took_ns = run_to_received(&mut world, &parcel);
    assert!(took_ns < RTT / 2 + WINDOW + 2 * MIB, "{took_ns}");
    world.check_part(&parcel, PACKET);
    let partial = parcel.inn.recv.partial().expect("partial");
    assert_eq!(partial.bytes(), 200 * 4096);
    world.traffic.pass_all();
    settle(&mut world, &parcel);
    end(world, vec![parcel]);
}

#[test]
fn a_queue_pair_that_is_broken_ends_them_with_what_has_arrived() {
    const LONG: usize = 16 << 20;
    for scheme in BOUNDED {
        let mut world = World::new(1, long_haul(), &options());
        let parcel = post_ahead(&mut world, order(LONG, scheme), RecvOptions::default());
        world.run_for(RTT / 2 + 2 * MIB);
        assert_eq!(parcel.outcomes(), [None; 2], "{scheme}: under way");
        for end in [&mut world.a, &mut world.b] {
            let broken = end.endpoint.break_qp(end.qp, Error::NotConnected(7));
            broken.expect("it works until then");
            let again = end.endpoint.qp_stats(end.qp).expect_err("broken");
            assert!(
                again.to_string().contains("queue pair 7 is not connected"),
                "{again}"
            );
        }
        assert_eq!(parcel.outcomes(), [PARTIAL; 2], "{scheme}");
        world.check_part(&parcel, PACKET);
        let partial = parcel.inn.recv.partial().expect("partial");
        assert!((1..LONG as u64).contains(&partial.bytes()), "{scheme}");
    }
}

#[test]
fn a_newer_message_ends_an_older_one_of_which_no_end_came() {
    let mut world = World::new(1, long_haul(), &options());
    let inns = [1 << 20, 1 << 20].map(|capacity| {
        let inn = world.post_recv_with(Way::Forth, capacity, RecvOptions::default());
        inn.expect("a free slot")
    });
    world.run_for(RTT);
    // The last packets of the first message are lost. Every notice that its sender is done is lost
    // too.
    let mut sent = 0;
    world.traffic.filter(move |seen| {
        sent += u64::from(seen.is_data());
        match seen.is_data() && (250..=256).contains(&sent) || is_done(seen) {
            true => Verdict::Drop,
            false => Verdict::Pass,
        }
    });
    let mut parcels = Vec::new();
    for inn in inns {
        let order = order(1 << 20, "best-effort");
        let out = world.post_send(&order).expect("a free slot");
        parcels.push(Parcel { order, out, inn });
    }
    let start_ns = world.now_ns();
    world.run_until(SECOND, |_| parcels[0].inn.recv.outcome().is_some());
    let took_ns = world.now_ns() - start_ns;
    assert!(took_ns < RTT / 2 + WINDOW + 2 * MIB, "{took_ns}");
    world.check_part(&parcels[0], PACKET);
    let partial = parcels[0].inn.recv.partial().expect("partial");
    assert_eq!(partial.bytes(), 249 * 4096);
    assert_eq!(parcels[1].inn.recv.outcome(), WHOLE);
    for parcel in &parcels {
        settle(&mut world, parcel);
    }
    world.traffic.pass_all();
    end(world, parcels);
}

#[test]
fn a_clearance_that_is_lost_does_not_let_a_newer_message_end_an_older_one() {
    for scheme in BOUNDED {
        let mut world = World::new(1, long_haul(), &options());
        let is_first = |seen: &Seen<'_>| {
            seen.says(|c| {
                matches!(c, Control::ClearToSend(cts) if cts.first == 0 && !cts.clearances.is_empty())
            })
        };
        world.traffic.drop_first(2, is_first);
        let post = |world: &mut World| {
            let inn = world.post_recv_with(Way::Forth, 1 << 20, RecvOptions::default());
            inn.expect("a free slot")
        };
        let first = post(&mut world);
        world.run_for(MS);
        let second = post(&mut world);
        let mut parcels = Vec::new();
        for inn in [first, second] {
            let order = order(1 << 20, scheme);
            let out = world.post_send(&order).expect("a free slot");
            parcels.push(Parcel { order, out, inn });
        }
        for parcel in &parcels {
            settle(&mut world, parcel);
            assert_eq!(parcel.inn.recv.outcome(), WHOLE, "{scheme}");
        }
        end(world, parcels);
    }
}

#[test]
fn a_message_that_is_never_cleared_does_not_hold_newer_ones_back() {
    for scheme in BOUNDED {
        let mut world = World::new(1, long_haul(), &options());
        // The first message is longer than its receive buffer.
        let inn = world.post_recv_with(Way::Forth, 1000, RecvOptions::default());
        let refused_order = order(1 << 20, scheme);
        let out = world.post_send(&refused_order).expect("a free slot");
        let refused = Parcel {
            order: refused_order,
            out,
            inn: inn.expect("a free slot"),
        };
        let next = world.ship(order(1 << 20, scheme));
        settle(&mut world, &next);
        assert_eq!(next.inn.recv.outcome(), WHOLE, "{scheme}");
        assert_eq!(settle(&mut world, &refused), [FAILED; 2], "{scheme}");
        end(world, vec![refused, next]);
    }
}

#[test]
fn a_message_that_ends_before_it_was_cleared_does_not_hold_newer_ones_back() {
    for scheme in BOUNDED {
        let mut world = World::new(1, long_haul(), &options());
        let clears_first = |seen: &Seen<'_>| {
            seen.says(|c| {
                matches!(c, Control::ClearToSend(cts) if cts.first == 0 && !cts.clearances.is_empty())
            })
        };
        world.traffic.drop_first(u64::MAX, clears_first);
        let post = |world: &mut World, deadline_ns| {
            let inn = world.post_recv_with(Way::Forth, 1 << 20, RecvOptions::default());
            world.run_for(MS);
            let order = Order {
                deadline_ns,
                ..order(1 << 20, scheme)
            };
            let out = world.post_send(&order).expect("a free slot");
            Parcel {
                order,
                out,
                inn: inn.expect("a free slot"),
            }
        };
        let first = post(&mut world, Some(60 * MS));
        let second = post(&mut world, None);
        world.run_for(59 * MS - world.now_ns());
        assert_eq!(second.inn.recv.bitmap().count(), 0, "{scheme}");
        assert_eq!(second.out.send.outcome(), None, "{scheme}");
        settle(&mut world, &second);
        assert_eq!(second.inn.recv.outcome(), WHOLE, "{scheme}");
        assert_eq!(first.out.send.outcome(), FAILED, "{scheme}");
        settle(&mut world, &first);
        world.traffic.pass_all();
        end(world, vec![first, second]);
    }
}

#[test]
fn a_message_is_whole_though_only_the_last_offer_arrived() {
    let mut world = World::new(1, long_haul(), &options());
    let in_progress = |seen: &Seen<'_>| {
        let plain = |offer: &Offer| offer.withdrawn.is_none();
        seen.says(|c| matches!(c, Control::Offer(offer) if plain(offer)))
    };
    world.traffic.drop_first(u64::MAX, in_progress);
    // The buffer is longer than the message, so the receiver cannot infer the length of the
    // message.
    let order = Order {
        spare: 50_000,
        ..order(1 << 20, "best-effort")
    };
    let parcel = post_ahead(&mut world, order, RecvOptions::default());
    settle(&mut world, &parcel);
    assert_eq!(parcel.inn.recv.outcome(), WHOLE);
    assert_eq!(parcel.inn.recv.length(), Some(1 << 20));
    world.traffic.pass_all();
    end(world, vec![parcel]);
}

#[test]
fn packets_that_are_late_by_less_than_the_window_are_not_missing() {
    let link = LinkConfig {
        reorder: Reorder {
            probability: 0.2,
            extra_delay: Duration::from_nanos(WINDOW * 9 / 10),
        },
        ..long_haul()
    };
    for scheme in BOUNDED {
        let mut world = World::new(1, link, &options());
        for _ in 0..5 {
            let parcel = post_ahead(&mut world, order(1 << 20, scheme), RecvOptions::default());
            settle(&mut world, &parcel);
            assert_eq!(parcel.inn.recv.outcome(), WHOLE, "{scheme}");
            world.forget(parcel);
        }
        world.finish(Vec::new());
    }
}

#[test]
fn late_packets_are_fenced() {
    let mut world = World::new(1, long_haul(), &options());
    let deadline_ns = RTT + RTT / 2 + MIB / 2;
    let parcel = post_ahead(
        &mut world,
        order(1 << 20, "best-effort"),
        until(deadline_ns),
    );
    run_to_received(&mut world, &parcel);
    assert_eq!(world.now_ns(), deadline_ns);
    world.check_part(&parcel, PACKET);
    let before = parcel.inn.recv.partial().expect("partial").clone();
    assert!((1..1 << 20).contains(&before.bytes()));
    world.run_for(RTT);
    assert!(world.b.stats().late_packets > 0);
    world.check_part(&parcel, PACKET);
    assert_eq!(parcel.inn.recv.partial(), Some(&before));
    settle(&mut world, &parcel);
    end(world, vec![parcel]);
}

#[test]
fn a_sender_that_stalls_or_a_path_that_dies_keeps_no_receive_open() {
    for scheme in BOUNDED {
        let mut world = World::new(1, long_haul(), &options());
        let order = Order {
            deadline_ns: Some(300 * MS),
            ..order(4 << 20, scheme)
        };
        let parcel = post_ahead(&mut world, order, until(200 * MS));
        world.run_for(RTT / 2 + MIB);
        world.set_down(true);
        world.run_until(SECOND, |_| parcel.inn.recv.outcome().is_some());
        assert_eq!(world.now_ns(), 200 * MS, "{scheme}");
        world.check_part(&parcel, PACKET);
        world.run_until(SECOND, |_| parcel.out.send.outcome().is_some());
        assert_eq!(parcel.out.send.outcome(), PARTIAL, "{scheme}");
        // With plain best effort, the sender was done when the last packet had left.
        let at_deadline = world.now_ns() == 300 * MS;
        assert_eq!(at_deadline, scheme != "best-effort", "{scheme}");
        world.set_down(false);
        end(world, vec![parcel]);
    }
}

/// A bounded scheme that only one end knows.
struct Foreign;

impl Scheme for Foreign {
    fn tag(&self) -> SchemeTag {
        SchemeTag {
            id: 200,
            params: [0; 6],
        }
    }

    fn sender(&self) -> Box<dyn Sender + Send> {
        SchemeName::BestEffort.scheme().sender()
    }

    fn receiver(&self) -> Box<dyn Receiver + Send> {
        SchemeName::BestEffort.scheme().receiver()
    }

    fn is_bounded(&self) -> bool {
        true
    }
}

#[test]
fn a_message_of_an_unknown_scheme_that_is_over_fails_alone() {
    let mut world = World::new(1, long_haul(), &options());
    let resolver = |tag| (tag == Foreign.tag()).then(|| Box::new(Foreign) as Box<dyn Scheme>);
    world.a.endpoint.add_scheme(resolver);
    // All offers are lost until one reports that the sender is done.
    world.traffic.drop_first(u64::MAX, |seen| {
        seen.says(|c| matches!(c, Control::Offer(offer) if offer.withdrawn.is_none()))
    });
    let order = Order {
        scheme: Foreign.tag(),
        ..order(10_000, "best-effort")
    };
    let parcel = post_ahead(&mut world, order, RecvOptions::default());
    assert_eq!(settle(&mut world, &parcel), [PARTIAL, FAILED]);
    world.traffic.pass_all();
    end(world, vec![parcel]);
}
