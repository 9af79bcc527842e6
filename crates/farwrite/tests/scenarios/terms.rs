//! Receives that are posted with terms: properties of the message that are known before its offer
//! arrives.

use farwrite::schemes::registry::SchemeName;
use farwrite::schemes::scheme::{Receiver, Scheme, Sender};
use farwrite::{Error, Outcome, QpConfig, QpOptions, RecvOptions, Refusal, SchemeTag};
use farwrite_rng::SplitMix;
use farwrite_wire::control::Control;

use crate::parcel::{Order, Parcel};
use crate::traffic::Seen;
use crate::world::{MS, RTT, SCHEMES, SECOND, Way, World, long_haul, options, tag};

fn order(bytes: usize, scheme: &str) -> Order {
    Order::new(SplitMix::new(1).bytes(bytes), tag(scheme))
}

/// Returns terms with all properties that follow from the order.
fn exactly(order: &Order) -> RecvOptions {
    RecvOptions {
        scheme: Some(order.scheme),
        exact_length: true,
        immediate: order.immediate.is_some(),
        ..RecvOptions::default()
    }
}

fn is_offer(seen: &Seen<'_>) -> bool {
    seen.says(|c| matches!(c, Control::Offer(_)))
}

#[test]
fn a_message_that_is_as_foreseen_arrives() {
    for scheme in SCHEMES {
        for bytes in [0, 1, 4096, 30_000, 3_000_000] {
            for immediate in [None, Some(0xcafe_f00d)] {
                let order = Order {
                    immediate,
                    ..order(bytes, scheme)
                };
                let mut world = World::new(1, long_haul(), &options());
                let terms = exactly(&order);
                let parcel = world.ship_to(order, terms);
                assert_eq!(parcel.inn.recv.length(), Some(bytes as u64));
                world.deliver(std::slice::from_ref(&parcel), SECOND);
                world.finish(vec![parcel]);
            }
        }
    }
}

/// Sends a message. The data packets in `lost` are lost once, and no offer arrives before
/// `offers_ns`. Returns when the receive was whole.
fn arrives_ns(scheme: &str, lost: &'static [u64], offers_ns: u64, terms: bool) -> u64 {
    let mut world = World::new(1, long_haul(), &options());
    let mut packets = 0;
    world.traffic.filter(move |seen| {
        let number = packets;
        packets += u64::from(seen.is_data());
        let is_lost = seen.is_data() && lost.contains(&number);
        let drop = is_lost || (is_offer(seen) && seen.now_ns < offers_ns);
        match drop {
            true => farwrite::fabric::sim::Verdict::Drop,
            false => farwrite::fabric::sim::Verdict::Pass,
        }
    });
    let order = Order {
        immediate: Some(0xcafe_f00d),
        ..order(1 << 20, scheme)
    };
    let terms = if terms {
        exactly(&order)
    } else {
        RecvOptions {
            scheme: Some(order.scheme),
            ..RecvOptions::default()
        }
    };
    let parcel = world.ship_to(order, terms);
    world.run_until(10 * SECOND, |_| parcel.inn.recv.outcome().is_some());
    let took_ns = world.now_ns();
    world.deliver(std::slice::from_ref(&parcel), 10 * SECOND);
    world.finish(vec![parcel]);
    took_ns
}

#[test]
fn reports_do_not_wait_for_the_offer() {
    for scheme in SCHEMES {
        for lost in [&[][..], &[20], &[20, 21, 22, 90]] {
            let usual_ns = arrives_ns(scheme, lost, 0, false);
            let early_ns = arrives_ns(scheme, lost, 3 * SECOND, true);
            let late_ns = arrives_ns(scheme, lost, 3 * SECOND, false);
            println!("{scheme}, {lost:?}: {usual_ns}, {early_ns}, {late_ns} ns");
            // Without offers, reports leave at slightly other times.
            assert!(
                early_ns <= usual_ns + RTT / 64,
                "{scheme}: {early_ns} > {usual_ns}"
            );
            assert!(late_ns >= 3 * SECOND, "{scheme}: the others do wait");
        }
    }
}

/// All packets and offers of a message are lost at first. The next message shows that it was sent.
#[test]
fn a_newer_message_shows_what_is_missing() {
    for scheme in ["sr-nack", "gbn", "ec-xor:32,8", "ec-mds:32,8"] {
        let mut world = World::new(1, long_haul(), &options());
        let mut packets = 0;
        world.traffic.filter(move |seen| {
            packets += u64::from(seen.is_data());
            let is_first = seen.is_data() && packets <= 10;
            match is_first || (is_offer(seen) && seen.now_ns < 3 * SECOND) {
                true => farwrite::fabric::sim::Verdict::Drop,
                false => farwrite::fabric::sim::Verdict::Pass,
            }
        });
        let bytes = if scheme.starts_with("ec") {
            8192
        } else {
            40_960
        };
        let parcels = [bytes, 400_000].map(|bytes| {
            let order = order(bytes, scheme);
            let terms = exactly(&order);
            world.ship_to(order, terms)
        });
        let took_ns = world.deliver(&parcels, 3 * SECOND);
        println!("{scheme}: {took_ns} ns");
        assert!(took_ns <= 4 * RTT, "{scheme}: {took_ns}");
        world.finish(parcels.into());
    }
}

#[test]
fn a_receive_that_waits_is_silent() {
    for scheme in SCHEMES {
        let mut world = World::new(1, long_haul(), &options());
        let order = order(1 << 20, scheme);
        let terms = exactly(&order);
        let inn = world.post_recv_with(Way::Forth, 1 << 20, terms);
        let inn = inn.expect("a free slot");
        world.expect_silence();
        let before = world.b.stats();
        let out = world.post_send(&order).expect("a free slot");
        let parcel = Parcel { order, out, inn };
        world.deliver(std::slice::from_ref(&parcel), SECOND);
        let sender = world.a.stats().sender;
        assert_eq!(sender.retransmitted_chunks, 0, "{scheme}: {before:?}");
        world.finish(vec![parcel]);
    }
}

/// A message that violates the terms of its receive fails at both ends, and both name the reason.
fn contradict(order: Order, capacity: usize, terms: RecvOptions, refusal: Refusal) {
    let mut world = World::new(1, long_haul(), &options());
    // The receive is posted before the send starts, before the offer arrives, or after it has arrived.
    for posted_after in [None, Some(MS), Some(RTT)] {
        let post = |world: &mut World| {
            let inn = world.post_recv_with(Way::Forth, capacity, terms);
            inn.expect("a free slot")
        };
        let before = world.traffic.tally();
        let early = posted_after.is_none().then(|| post(&mut world));
        world.run_for(RTT);
        let out = world.post_send(&order).expect("a free slot");
        world.run_for(posted_after.unwrap_or(MS));
        let inn = early.unwrap_or_else(|| post(&mut world));
        let order = order.clone();
        let parcel = Parcel { order, out, inn };
        let over = |_: &mut World| parcel.outcomes().iter().all(Option::is_some);
        let limit_ns = world.now_ns() + SECOND;
        assert!(world.run_until(limit_ns, over), "{refusal}");
        assert_eq!(parcel.outcomes(), [Some(Outcome::Failed); 2], "{refusal}");
        assert_eq!(parcel.inn.recv.refusal(), Some(refusal));
        assert_eq!(parcel.out.send.refusal(), Some(refusal), "{refusal}");
        assert_eq!(world.traffic.tally().data, before.data, "{refusal}");
        world.forget(parcel);
        let next = world.ship(Order::new(vec![7; 10_000], tag("sr-nack")));
        world.deliver(std::slice::from_ref(&next), SECOND);
        world.check(&next);
        assert_eq!(next.inn.recv.refusal(), None);
        world.forget(next);
    }
    world.finish(Vec::new());
}

#[test]
fn a_message_that_contradicts_fails_by_name() {
    for scheme in SCHEMES {
        let order = order(100_000, scheme);
        let terms = exactly(&order);
        for capacity in [99_999, 100_001] {
            let refusal = Refusal::Length {
                offered: 100_000,
                expected: capacity as u64,
            };
            contradict(order.clone(), capacity, terms, refusal);
        }
        let demanded = RecvOptions {
            scheme: Some(tag("ec-mds:8,2")),
            ..terms
        };
        let refusal = Refusal::Scheme {
            offered: order.scheme,
            expected: tag("ec-mds:8,2"),
        };
        contradict(order.clone(), 100_000, demanded, refusal);
        let demanded = RecvOptions {
            immediate: true,
            ..terms
        };
        let refusal = Refusal::Immediate { offered: false };
        contradict(order.clone(), 100_000, demanded, refusal);
        let refusal = Refusal::TooLong {
            length: 100_000,
            capacity: 50_000,
        };
        contradict(order, 50_000, RecvOptions::default(), refusal);
    }
}

#[test]
fn a_slot_is_used_again_though_no_offer_ever_came() {
    let sdr = QpConfig {
        slots: 1,
        parity: false,
        ..QpConfig::default()
    };
    let mut world = World::new(1, long_haul(), &QpOptions { sdr, ..options() });
    world.traffic.drop_first(u64::MAX, is_offer);
    for _ in 0..8 {
        let order = order(100_000, "sr-nack");
        let terms = exactly(&order);
        let parcel = world.ship_to(order, terms);
        world.deliver(std::slice::from_ref(&parcel), SECOND);
        world.check(&parcel);
        world.forget(parcel);
    }
    world.finish(Vec::new());
}

/// Selective repeat under a number that no endpoint knows.
struct Private;

impl Scheme for Private {
    fn tag(&self) -> SchemeTag {
        SchemeTag {
            id: 200,
            params: [0; 6],
        }
    }
    fn sender(&self) -> Box<dyn Sender + Send> {
        SchemeName::SrNack.scheme().sender()
    }
    fn receiver(&self) -> Box<dyn Receiver + Send> {
        SchemeName::SrNack.scheme().receiver()
    }
}

#[test]
fn terms_that_cannot_be_are_refused_when_they_are_posted() {
    let mut world = World::new(1, long_haul(), &options());
    let terms = RecvOptions {
        scheme: Some(Private.tag()),
        ..RecvOptions::default()
    };
    let unknown = world.post_recv_with(Way::Forth, 1000, terms).err();
    assert!(
        matches!(unknown, Some(Error::UnknownScheme(200))),
        "{unknown:?}"
    );
    let resolver = |tag| (tag == Private.tag()).then(|| Box::new(Private) as Box<dyn Scheme>);
    world.a.endpoint.add_scheme(resolver);
    world.b.endpoint.add_scheme(resolver);
    let parcel = world.ship_to(Order::new(vec![1; 1000], Private.tag()), terms);
    world.deliver(std::slice::from_ref(&parcel), SECOND);
    world.finish(vec![parcel]);
}

/// The first offer is lost, and all data arrive. The receiver has no terms, so it waits for the
/// repeat of the offer.
#[test]
fn a_lost_offer_delays_a_message_by_a_small_part_of_a_round_trip() {
    for scheme in SCHEMES {
        let usual_ns = arrives_ns(scheme, &[], 0, false);
        let late_ns = arrives_ns(scheme, &[], 1, false);
        println!("{scheme}: {usual_ns}, {late_ns} ns");
        assert!(
            late_ns <= usual_ns + RTT / 32 + MS,
            "{scheme}: {late_ns} > {usual_ns}"
        );
    }
}
