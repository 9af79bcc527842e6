//! Lost offers, clearances and ends (P3.8).

use std::collections::VecDeque;

use farwrite_sdr::{Event, QpConfig, QpInfo, SdrQp, SendSpec, Timing};
use farwrite_wire::control::{Control, Offer, Outcome};

use crate::lossy::plain;
use crate::world::{Faults, RTT_NS, World};
use crate::{connected, info, offer, post, small, tell};

/// Returns the time until ten messages have ended at both ends and both ends are silent, in
/// nanoseconds.
fn time_ns(faults: Faults) -> u64 {
    let mut world = World::new(small(), faults, 1, plain(10, 1000));
    world.run();
    assert!(world.sender_outcomes.values().all(|&o| o == Outcome::Whole));
    assert_eq!(world.sender_outcomes.len(), 10);
    world.over_ns
}

#[test]
fn one_lost_control_message_costs_less_than_two_round_trips() {
    let baseline_ns = time_ns(Faults::NONE);
    for lost in [[1, 0, 0], [0, 1, 0], [0, 0, 1]] {
        for late_vanish in [false, true] {
            let faults = Faults {
                lost,
                late_vanish,
                ..Faults::NONE
            };
            // If late packets vanish and an end is lost, the sender requests it after 250 ms of
            // silence.
            let patience_ns = if late_vanish { 250_000_000 } else { 0 };
            let limit_ns = baseline_ns + 2 * RTT_NS + patience_ns;
            let took_ns = time_ns(faults);
            assert!(
                took_ns <= limit_ns,
                "{lost:?}: {took_ns} ns, {baseline_ns} without loss"
            );
        }
    }
}

#[test]
fn many_lost_control_messages_heal() {
    for lost in [[40, 0, 0], [0, 40, 0], [0, 0, 40], [15, 15, 15]] {
        time_ns(Faults {
            lost,
            ..Faults::NONE
        });
    }
}

#[test]
fn clearances_that_nobody_uses_fall_silent() {
    let config = QpConfig {
        slots: 64,
        ..small()
    };
    let (mut sender, mut receiver) = (connected(config), connected(config));
    for _ in 0..64 {
        post(&mut receiver, 1000);
    }
    let mut messages = 0;
    while let Some(now_ns) = receiver.next_timeout() {
        // All control messages are lost.
        while receiver.poll_control(now_ns, RTT_NS).is_some() {
            messages += 1;
        }
    }
    assert!((4..=4 * 8).contains(&messages), "{messages} messages");
    // A sender that starts much later sends an offer, and gets an answer at once.
    let now_ns = 3600 * 1_000_000_000;
    let spec = SendSpec {
        length: Some(1),
        ..SendSpec::default()
    };
    let message = sender.start_send(spec).unwrap();
    tell(now_ns, &mut sender, &mut receiver);
    tell(now_ns, &mut receiver, &mut sender);
    assert_eq!(
        sender.poll_event(),
        Some(Event::ClearToSend {
            message: message.into()
        })
    );
}

#[test]
fn a_clear_to_send_leaves_room_for_others() {
    let config = QpConfig {
        slots: 64,
        ..small()
    };
    let mut receiver = connected(config);
    for _ in 0..40 {
        post(&mut receiver, 10);
    }
    let mut told = Vec::new();
    while let Some(Control::ClearToSend(cts)) = receiver.poll_control(0, RTT_NS) {
        assert_eq!(cts.posted, 40);
        told.push((cts.first, cts.clearances.len()));
    }
    assert_eq!(told, [(0, 16), (16, 16), (32, 8)]);
}

#[test]
fn an_end_is_told_again_but_not_for_every_late_packet() {
    let mut receiver = connected(small());
    let message = post(&mut receiver, 10).message();
    receiver.complete_recv(message, Outcome::Partial).unwrap();
    let end = Control::ReceiveComplete {
        message,
        outcome: Outcome::Partial,
    };
    let mut told = 0;
    for now_ns in (0..100).map(|part| part * RTT_NS / 100) {
        receiver.handle_late(message);
        while let Some(control) = receiver.poll_control(now_ns, RTT_NS) {
            told += u32::from(control == end);
        }
    }
    // Sent at once, repeated soon after without a request, and then once per quarter of the round
    // trip.
    assert_eq!(told, 5);
}

#[test]
fn a_clearance_is_told_again_unasked_until_it_is_known() {
    let mut receiver = connected(small());
    post(&mut receiver, 10);
    let told = |receiver: &mut SdrQp, now_ns| {
        std::iter::from_fn(|| receiver.poll_control(now_ns, RTT_NS)).count()
    };
    assert_eq!(told(&mut receiver, 0), 1);
    // The first clearance is told again early.
    for again_ns in [RTT_NS / 32, RTT_NS / 32 + RTT_NS / 4] {
        assert_eq!(told(&mut receiver, again_ns - 1), 0);
        assert_eq!(receiver.next_timeout(), Some(again_ns));
        assert_eq!(told(&mut receiver, again_ns), 1);
    }
    let held = Offer {
        cleared: 1,
        ..offer(0, 5)
    };
    receiver
        .handle_control(RTT_NS / 2, &Control::Offer(held))
        .unwrap();
    // The only control message is the answer to the offer.
    assert_eq!(told(&mut receiver, RTT_NS), 1);
    assert_eq!(told(&mut receiver, 100 * RTT_NS), 0);
    assert_eq!(receiver.next_timeout(), None);
}

/// A sender that lacks a clearance asks for it by an offer, before it has used the other clearances.
#[test]
fn a_clearance_is_told_again_once_to_a_sender_that_holds_another() {
    let mut receiver = connected(small());
    let mut now_ns = 0;
    // What the clear-to-sends have until the receiver is silent: the first message, and how many.
    let mut told = |receiver: &mut SdrQp| {
        let mut told = Vec::new();
        while let Some(next_ns) = receiver.next_timeout() {
            now_ns = now_ns.max(next_ns);
            while let Some(control) = receiver.poll_control(now_ns, RTT_NS) {
                if let Control::ClearToSend(cts) = control
                    && !cts.clearances.is_empty()
                {
                    told.push((cts.first, cts.clearances.len()));
                }
            }
        }
        told
    };
    let next = |receiver: &mut SdrQp, message| {
        let held = Offer {
            cleared: 3,
            ..offer(message, 5)
        };
        receiver.handle_control(0, &Control::Offer(held)).unwrap();
        receiver.complete_recv(message, Outcome::Whole).unwrap();
        post(receiver, 10);
    };
    (0..3).for_each(|_| drop(post(&mut receiver, 10)));
    assert!(told(&mut receiver).len() > 3, "the sender may hold none");
    next(&mut receiver, 0);
    assert_eq!(told(&mut receiver), [(3, 1), (3, 1)]);
    // The sender has not got it, so it comes again with the next one.
    next(&mut receiver, 1);
    assert_eq!(told(&mut receiver), [(4, 1), (3, 2)]);
    next(&mut receiver, 2);
    assert!(told(&mut receiver).len() > 3, "the sender has used all");
}

#[test]
fn a_sender_that_waits_for_its_clearance_goes_on_asking() {
    let (mut sender, mut receiver) = (connected(small()), connected(small()));
    let spec = SendSpec {
        length: Some(1),
        ..SendSpec::default()
    };
    sender.start_send(spec).unwrap();
    let mut now_ns = 0;
    while now_ns < 4 * RTT_NS {
        tell(now_ns, &mut sender, &mut receiver);
        tell(now_ns, &mut receiver, &mut sender);
        let next_ns = sender.next_timeout().unwrap();
        assert!(next_ns < now_ns + 5 * RTT_NS, "silent until {next_ns}");
        now_ns = next_ns;
    }
}

#[test]
fn a_sender_does_not_wait_for_clearances_of_what_is_over() {
    let (mut sender, mut receiver) = (connected(small()), connected(small()));
    let spec = SendSpec {
        length: Some(1),
        ..SendSpec::default()
    };
    for message in 0..4 {
        sender.start_send(spec).unwrap();
        post(&mut receiver, 1);
        receiver.complete_recv(message, Outcome::Failed).unwrap();
    }
    tell(0, &mut sender, &mut receiver);
    post(&mut receiver, 1);
    tell(0, &mut receiver, &mut sender);
    let message = sender.start_send(spec).unwrap();
    assert!(sender.is_clear(message));
    let Some(Control::Offer(offer)) = sender.poll_control(0, RTT_NS) else {
        panic!("no offer");
    };
    assert_eq!((offer.message, offer.cleared), (4, 5));
}

/// Returns the control messages in `under_way` that arrive by `now_ns`.
fn take_due(under_way: &mut VecDeque<(u64, Control)>, now_ns: u64) -> Vec<Control> {
    let due = under_way.iter().take_while(|(at_ns, _)| *at_ns <= now_ns);
    let due = due.count();
    under_way.drain(..due).map(|(_, control)| control).collect()
}

/// Returns the number of round trips from the first offer until a sender is cleared, if its first
/// clearance is lost. The receiver sends that clearance a twentieth of the round trip before the
/// offer arrives. The sender's estimate of the round trip is a fifth longer than that of the
/// receiver, `rtt_ns`. After that, `posts` more receives are posted, thirty per round trip.
fn round_trips_until_clear(timing: Timing, rtt_ns: u64, posts: u64) -> u64 {
    let config = QpConfig {
        slots: 512,
        ..small()
    };
    let [mut sender, mut receiver] = [0, 1].map(|_| {
        let mut qp = SdrQp::new(config, timing).unwrap();
        let peer = QpInfo {
            timing,
            ..info(config)
        };
        qp.connect(&peer).unwrap();
        qp
    });
    let spec = SendSpec {
        length: Some(1),
        ..SendSpec::default()
    };
    let message = sender.start_send(spec).unwrap();
    let post_ns = rtt_ns / 2 - rtt_ns / 20;
    let mut to_receiver = VecDeque::new();
    let mut to_sender = VecDeque::new();
    let mut is_lost = false;
    let mut posted = 0;
    for now_ns in (0..100 * rtt_ns).step_by(10_000) {
        for control in take_due(&mut to_receiver, now_ns) {
            receiver.handle_control(now_ns, &control).unwrap();
        }
        for control in take_due(&mut to_sender, now_ns) {
            sender.handle_control(now_ns, &control).unwrap();
        }
        let due = now_ns.checked_sub(post_ns).map(|ns| ns / (rtt_ns / 30));
        if due.is_some_and(|due| due >= posted && posted <= posts) {
            post(&mut receiver, 1);
            posted += 1;
        }
        let arrives_ns = now_ns + rtt_ns / 2;
        while let Some(control) = sender.poll_control(now_ns, rtt_ns / 5 * 6) {
            to_receiver.push_back((arrives_ns, control));
        }
        while let Some(control) = receiver.poll_control(now_ns, rtt_ns) {
            if std::mem::replace(&mut is_lost, true) {
                to_sender.push_back((arrives_ns, control));
            }
        }
        if sender.is_clear(message) {
            return now_ns / rtt_ns;
        }
    }
    panic!("never cleared at a round trip of {rtt_ns} ns, {timing}");
}

/// When a receiver answers an offer, this does not count as sending a clearance. Otherwise the
/// answer to one offer would suppress the clearance that the next offer asks for.
#[test]
fn a_lost_clearance_is_told_again_however_long_the_round_trip_is() {
    for (timing, rtt_ms) in [
        (Timing::datacenter(), 10),
        (Timing::datacenter(), 200),
        (Timing::wide_area(), 200),
        (Timing::wide_area(), 2_000),
    ] {
        let round_trips = round_trips_until_clear(timing, rtt_ms * 1_000_000, 0);
        assert!(round_trips <= 2, "{rtt_ms} ms, {timing}: {round_trips}");
    }
}

/// Only the requested clearance counts, not clearances of newer messages.
#[test]
fn a_lost_clearance_does_not_wait_for_others_that_are_told() {
    for timing in [Timing::datacenter(), Timing::wide_area()] {
        let round_trips = round_trips_until_clear(timing, 25_000_000, 400);
        assert!(round_trips <= 2, "{timing}: {round_trips}");
    }
}
