//! Real routes: translators, losses, small packets, new mappings.

use std::time::Duration;

use farwrite_rng::SplitMix;
use farwrite_route::{PROBE_BYTES, SizeSearch};
use proptest::prelude::*;

use crate::world::{DELAY, MS, World, addr};

#[test]
fn both_ends_know_the_route_and_its_size_after_two_round_trips() {
    let mut world = World::new();
    world.run(4 * DELAY + 5 * MS, |_| true);
    assert_eq!(world.routes(), world.right_routes());
    assert!(world.initiator.is_ready() && world.responder.is_ready());
    assert_eq!(world.initiator.largest(), Some(8972));
    let rtt = Duration::from_nanos(world.initiator.rtt_ns().expect("answered"));
    assert!(rtt.as_millis().abs_diff(40) <= 2, "{rtt:?}");
}

#[test]
fn a_route_without_translation_is_known_as_soon() {
    let mut world = World::new();
    world.mapped = addr("192.0.2.1:5000");
    world.run(4 * DELAY + 5 * MS, |_| true);
    assert_eq!(world.routes(), world.right_routes());
    assert!(world.initiator.is_ready() && world.responder.is_ready());
}

/// Both ends know the addresses from a handshake. Their first probes show what it does not.
#[test]
fn a_handshake_makes_the_route_known() {
    let mut world = World::new();
    world.mapped = addr("192.0.2.1:5000");
    let known = world.right_routes();
    let [at_responder, at_initiator] =
        known.map(|route| route.and_then(|route| route.sealed_as).expect("known"));
    let none = (addr("192.0.2.1:0"), at_responder.1);
    assert!(!world.initiator.know(none, 0) && world.routes() == [None; 2]);
    assert!(world.initiator.know(at_responder, 500 * MS));
    assert!(world.responder.know(at_initiator, 500 * MS));
    assert_eq!(world.routes(), known);
    assert!(world.responder.is_ready());
    for _ in 0..20 {
        for mut datagram in world.poll() {
            world.reseal(&mut datagram);
            world.deliver(&datagram);
        }
        world.now += MS;
    }
    let resealed = known.map(|route| {
        route.map(|route| farwrite_route::Addresses {
            sealed_as: None,
            ..route
        })
    });
    assert_eq!(world.routes(), resealed);
    let measured = [&world.initiator, &world.responder].map(|end| end.rtt_ns());
    assert!(
        measured.iter().all(|rtt_ns| *rtt_ns < Some(10 * MS)),
        "{measured:?}"
    );
}

#[test]
fn a_relay_that_puts_icrcs_right_is_noticed() {
    let mut world = World::new();
    for _ in 0..500 {
        for mut datagram in world.poll() {
            world.reseal(&mut datagram);
            world.deliver(&datagram);
        }
        world.now += MS;
    }
    let right = world.right_routes().map(|route| {
        route.map(|route| farwrite_route::Addresses {
            sealed_as: None,
            ..route
        })
    });
    assert_eq!(world.routes(), right);
}

#[test]
fn a_path_that_carries_less_is_measured() {
    let mut world = World::new();
    world.carries = 1472;
    world.run(1500 * MS, |_| true);
    assert_eq!(world.initiator.largest(), Some(1472));
    assert_eq!(world.routes(), world.right_routes());
}

#[test]
fn a_path_that_begins_to_carry_less_is_measured_again() {
    let mut world = World::new();
    world.run(1000 * MS, |_| true);
    assert_eq!(world.initiator.largest(), Some(8972));
    world.carries = 4500;
    world
        .initiator
        .search(SizeSearch::new([1216, 1472, 4132, 8972]));
    world.run(3000 * MS, |_| true);
    let largest = world.initiator.largest().expect("found");
    assert!((4132..=4500).contains(&largest), "{largest}");
    // A path that is down gives no information about sizes.
    world.initiator.search(SizeSearch::new([1216, 4132]));
    world.run(8000 * MS, |_| false);
    assert_eq!(world.initiator.largest(), None);
    world.run(12_000 * MS, |_| true);
    assert_eq!(world.initiator.largest(), Some(4132));
}

#[test]
fn an_initiator_that_hears_its_peer_elsewhere_says_where() {
    let mut world = World::new();
    let rewritten = addr("198.51.100.7:61000");
    for _ in 0..500 {
        for mut datagram in world.poll() {
            if datagram.dst == world.mapped {
                datagram.src = rewritten;
            }
            world.deliver(&datagram);
        }
        world.now += MS;
    }
    assert_eq!(world.initiator.addresses(), None);
    assert_eq!(world.initiator.elsewhere(), Some(rewritten));
}

#[test]
fn an_end_that_moves_sends_from_its_new_address_at_once() {
    let mut world = World::new();
    world.run(4 * DELAY + 5 * MS, |_| true);
    assert!(world.initiator.poll_transmit(world.now).is_none());
    let moved = addr("10.5.5.5:5000");
    world.initiator.set_local(moved);
    let probe = world.initiator.poll_transmit(world.now).expect("a probe");
    assert_eq!(probe.from, moved.ip());
    // Its translator is another one.
    world.mapped = addr("203.0.113.5:6000");
    world.run(world.now + 2000 * MS, |_| true);
    assert_eq!(world.routes(), world.right_routes());
}

#[test]
fn an_idle_route_is_kept_alive_and_costs_little() {
    let mut world = World::new();
    world.run(1000 * MS, |_| true);
    let (mut packets, mut bytes) = (0, 0);
    world.run(121_000 * MS, |datagram| {
        packets += 1;
        bytes += datagram.bytes.len();
        true
    });
    // Both ends send a probe every 15 s, unless the other end has just sent one.
    assert!((16..=40).contains(&packets), "{packets}");
    assert!(bytes <= packets * PROBE_BYTES);
    assert_eq!(world.routes(), world.right_routes());
}

#[test]
fn an_idle_mapping_sees_a_packet_of_its_own_end_every_fifteen_seconds() {
    let mut world = World::new();
    world.run(1000 * MS, |_| true);
    let (mut last, mut longest) = (world.now, 0);
    for _ in 0..120 {
        let (until, mapped) = (world.now + 500 * MS, world.mapped);
        let mut out = false;
        world.run(until, |datagram| {
            out |= datagram.src == mapped;
            true
        });
        if out {
            longest = longest.max(world.now - last);
            last = world.now;
        }
    }
    assert!(longest <= 16_000 * MS, "{longest}");
}

#[test]
fn a_peer_that_is_gone_is_asked_ever_more_rarely() {
    let mut world = World::new();
    world.run(1000 * MS, |_| true);
    let (mut packets, mut now) = (0, world.now);
    while now < 60_000 * MS {
        now += 10 * MS;
        world.now = now;
        world.initiator.note_sent(now);
        packets += std::iter::from_fn(|| world.initiator.poll_transmit(now)).count();
    }
    assert!((12..=24).contains(&packets), "{packets}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The translator forgets its mapping in the middle, while a fifth of the packets are lost.
    #[test]
    fn a_new_mapping_is_found_and_validated(
        seed in any::<u64>(),
        rebinds_at in 4000..5000_u64,
    ) {
        let mut world = World::new();
        let mut rng = SplitMix::new(seed);
        let mut passes = |_: &_| !rng.percent(20);
        world.run(rebinds_at * MS, &mut passes);
        prop_assert_eq!(world.routes(), world.right_routes());
        world.mapped = addr("192.0.2.1:40777");
        // Data flows, and its acknowledgements go to the old mapping.
        for _ in 0..1000 {
            world.send_data();
            let until = world.now + 10 * MS;
            world.run(until, &mut passes);
        }
        prop_assert_eq!(world.routes(), world.right_routes());
    }
}
