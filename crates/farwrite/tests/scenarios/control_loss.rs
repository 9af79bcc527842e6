//! A lost control packet delays a message only a little.

use farwrite_rng::SplitMix;
use farwrite_wire::control::Control;

use crate::parcel::Order;
use crate::traffic::Seen;
use crate::world::{MS, RTT, SCHEMES, SECOND, Way, World, long_haul, options, tag};

const BYTES: usize = 2 << 20;

/// Sends a message with a scheme over a path without faults, and drops the first `count` datagrams
/// for which `which` is true. Returns how long the message took.
fn with_lost(scheme: &str, count: u64, which: fn(&Seen<'_>) -> bool) -> u64 {
    let mut world = World::new(1, long_haul(), &options());
    world.traffic.drop_first(count, which);
    let parcel = world.ship(Order {
        immediate: Some(0xcafe_f00d),
        ..Order::new(SplitMix::new(1).bytes(BYTES), tag(scheme))
    });
    let took_ns = world.deliver(std::slice::from_ref(&parcel), 60 * SECOND);
    let (again, tally) = (
        world.a.stats().sender.retransmitted_chunks,
        world.traffic.tally(),
    );
    println!(
        "{scheme}, {count} lost: {} us, {again} chunks again, {tally:?}",
        took_ns / 1000
    );
    world.finish(vec![parcel]);
    took_ns
}

/// Returns the maximum time that the loss of the first `count` such packets adds, over all schemes. A
/// loss may also change when reports leave, so that a message ends earlier.
fn cost(count: u64, which: fn(&Seen<'_>) -> bool) -> u64 {
    let costs = SCHEMES
        .map(|scheme| with_lost(scheme, count, which).saturating_sub(with_lost(scheme, 0, which)));
    costs.into_iter().max().expect("three")
}

fn is_clear_to_send(seen: &Seen<'_>) -> bool {
    seen.says(|c| matches!(c, Control::ClearToSend(cts) if !cts.clearances.is_empty()))
}

fn is_offer(seen: &Seen<'_>) -> bool {
    seen.says(|c| matches!(c, Control::Offer(_)))
}

/// Returns whether this is the receiver's last packet, which carries both the final ACK and
/// receive-complete.
fn is_final(seen: &Seen<'_>) -> bool {
    seen.says(|c| matches!(c, Control::ReceiveComplete { .. }))
}

fn is_back(seen: &Seen<'_>) -> bool {
    seen.way == Way::Back && !seen.is_data()
}

fn is_forth(seen: &Seen<'_>) -> bool {
    seen.way == Way::Forth && !seen.is_data()
}

#[test]
fn lost_clear_to_send() {
    // The first clear-to-send is repeated after a 32nd, and then after a quarter, a half, and a whole round trip.
    for (lost, at_most) in [
        (1, RTT / 32),
        (2, RTT * 9 / 32),
        (3, RTT * 25 / 32),
        (6, 20 * RTT),
    ] {
        let cost_ns = cost(lost, is_clear_to_send);
        assert!(cost_ns <= at_most + MS, "{lost} lost: {cost_ns} ns");
    }
}

#[test]
fn lost_offers() {
    // An offer is repeated after a 32nd, and then after a quarter, a half, and a whole round trip.
    for (lost, at_most) in [
        (1, RTT / 32),
        (2, RTT * 9 / 32),
        (3, RTT * 25 / 32),
        (6, 20 * RTT),
    ] {
        let cost_ns = cost(lost, is_offer);
        assert!(cost_ns <= at_most + MS, "{lost} lost: {cost_ns} ns");
    }
}

#[test]
fn lost_final_acks() {
    // The final ACK is repeated twice without a request, within 3/8 and 7/8 of a round trip. After
    // that, late packets request it.
    for (lost, at_most) in [(1, RTT * 3 / 8), (2, RTT), (3, 4 * RTT), (6, 16 * RTT)] {
        let cost_ns = cost(lost, is_final);
        assert!(cost_ns <= at_most + MS, "{lost} lost: {cost_ns} ns");
    }
}

#[test]
fn lost_everything_one_way_for_a_while() {
    for lost in [1, 5, 20] {
        for which in [is_back, is_forth] {
            let cost_ns = cost(lost, which);
            assert!(
                cost_ns <= 10 * RTT + lost * RTT,
                "{lost} lost: {cost_ns} ns"
            );
        }
    }
}
