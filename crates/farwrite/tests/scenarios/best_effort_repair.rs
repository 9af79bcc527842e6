//! Best effort with a scheme that repairs: repeats and parity are sent only while they can arrive
//! in time.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use farwrite::QpOptions;
use farwrite::fabric::sim::Verdict;
use farwrite_link::{LinkConfig, Loss};
use farwrite_wire::control::Control;

use crate::best_effort::{BOUNDED, MIB, lose_packets, post_ahead, run_to_received};
use crate::deadlines::{PACKET, PARTIAL, WHOLE, end, losing, order, settle, until};
use crate::parcel::{Order, Parcel};
use crate::world::{MS, RTT, SECOND, World, long_haul, options, tag};

#[test]
fn repeats_go_only_while_they_can_arrive_in_time() {
    let schemes = ["best-effort+sr", "best-effort+ec-mds:32,1"];
    // Each case has the deadlines of the sender and of the receiver.
    let far_ns = 2 * SECOND;
    for (limits, may_repeat) in [
        ([far_ns, far_ns], true),
        ([60 * MS, far_ns], false),
        ([far_ns, 60 * MS], false),
    ] {
        for scheme in schemes {
            let mut world = World::new(1, losing(0.1), &options());
            let order = Order {
                deadline_ns: Some(limits[0]),
                ..order(4 << 20, scheme)
            };
            let parcel = post_ahead(&mut world, order, until(limits[1]));
            let asked = Rc::new(Cell::new(0));
            let counter = Rc::clone(&asked);
            world.traffic.filter(move |seen| {
                let asks = seen.says(|c| matches!(c, Control::Nack(_)));
                counter.set(counter.get() + u64::from(asks));
                Verdict::Pass
            });
            settle(&mut world, &parcel);
            let again = world.a.stats().sender.retransmitted_chunks;
            assert_eq!(again > 0, may_repeat, "{scheme} {limits:?}: {again}");
            assert_eq!(asked.get() > 0, limits[1] == far_ns, "{scheme} {limits:?}");
            if may_repeat {
                assert_eq!(parcel.inn.recv.outcome(), WHOLE);
            } else {
                world.check_part(&parcel, PACKET);
            }
            end(world, vec![parcel]);
        }
    }
}

#[test]
fn parity_repairs_without_a_round_trip_and_ends_partial_where_it_cannot() {
    let parity_options = QpOptions {
        expected_scheme: tag("best-effort+ec-mds:32,8"),
        ..options()
    };
    for (lost_percent, whole) in [(5, true), (40, false)] {
        let mut world = World::new(1, losing(0.0), &parity_options);
        world.run_for(MS);
        let deadline_ns = world.now_ns() + RTT + RTT / 2 + 8 * MIB;
        let order = Order {
            deadline_ns: Some(deadline_ns),
            ..order(4 << 20, "best-effort+ec-mds:32,8")
        };
        lose_packets(&world, move |packet| packet * 37 % 100 < lost_percent);
        let parcel = post_ahead(&mut world, order, until(deadline_ns));
        run_to_received(&mut world, &parcel);
        assert!(world.now_ns() <= deadline_ns);
        assert_eq!(world.a.stats().sender.retransmitted_chunks, 0);
        let outcome = parcel.inn.recv.outcome();
        assert_eq!(
            outcome,
            if whole { WHOLE } else { PARTIAL },
            "{lost_percent}%"
        );
        if whole {
            assert!(world.b.stats().rebuilt_chunks > 0);
        } else {
            world.check_part(&parcel, PACKET);
        }
        settle(&mut world, &parcel);
        end(world, vec![parcel]);
    }
}

#[test]
fn what_can_be_rebuilt_at_the_deadline_is_rebuilt() {
    for has_threads in [false, true] {
        rebuild_at_the_deadline(has_threads);
    }
}

/// With threads, groups of other schemes are rebuilt long after the deadline.
fn rebuild_at_the_deadline(has_threads: bool) {
    let scheme = "best-effort+ec-mds:32,8";
    let parity_options = QpOptions {
        expected_scheme: tag(scheme),
        ..options()
    };
    let mut world = World::new(1, long_haul(), &parity_options);
    if has_threads {
        let late = Duration::from_millis(500);
        world.b.endpoint.delay_coding(late).expect("no threads");
    }
    // The 32 groups are interleaved. Half of them lose 4 of 32 chunks, the others 20.
    lose_packets(&world, |packet| {
        let (group, row) = (packet % 32, packet / 32);
        packet < 1024 && row < if group < 16 { 4 } else { 20 }
    });
    let deadline_ns = RTT + RTT / 2 + 5 * MIB;
    let order = Order {
        deadline_ns: Some(deadline_ns),
        ..order(4 << 20, scheme)
    };
    let parcel = post_ahead(&mut world, order, until(deadline_ns));
    run_to_received(&mut world, &parcel);
    assert_eq!(world.now_ns(), deadline_ns);
    world.check_part(&parcel, PACKET);
    let partial = parcel.inn.recv.partial().expect("partial");
    assert_eq!(partial.bytes(), (1024 - 16 * 20) * 4096);
    assert_eq!(world.b.stats().rebuilt_chunks, 16 * 4);
    world.traffic.pass_all();
    settle(&mut world, &parcel);
    end(world, vec![parcel]);
}

#[test]
fn with_repair_the_next_message_waits_until_this_one_is_over() {
    for scheme in &BOUNDED[1..] {
        let mut world = World::new(1, losing(0.05), &options());
        let parcels = [0, 1].map(|_| {
            let order = order(1 << 20, scheme);
            world.ship(order)
        });
        world.run_until(10 * SECOND, |_| parcels[0].inn.recv.outcome().is_some());
        assert_eq!(parcels[0].inn.recv.outcome(), WHOLE, "{scheme}");
        assert_eq!(parcels[1].inn.recv.bitmap().count(), 0, "{scheme}");
        let open = |parcel: &Parcel| parcel.out.send.outcome().is_none();
        assert!(open(&parcels[1]), "{scheme}");
        for parcel in &parcels {
            assert_eq!(settle(&mut world, parcel), [WHOLE; 2], "{scheme}");
        }
        end(world, parcels.into());
    }
}

#[test]
fn critical_bytes_go_first_and_whole_in_a_message_of_their_own() {
    let link = LinkConfig {
        loss: Loss::Iid { loss_packet: 0.05 },
        ..long_haul()
    };
    let mut world = World::new(1, link, &options());
    let deadline_ns = 8 * RTT;
    let critical = Order {
        deadline_ns: Some(deadline_ns),
        ..order(100_000, "best-effort+sr")
    };
    let bulk = Order {
        deadline_ns: Some(deadline_ns),
        ..order(4 << 20, "best-effort")
    };
    let critical = world.ship_to(critical, until(deadline_ns));
    let bulk = world.ship_to(bulk, until(deadline_ns));
    assert_eq!(settle(&mut world, &critical), [WHOLE; 2]);
    settle(&mut world, &bulk);
    world.check_part(&bulk, PACKET);
    end(world, vec![critical, bulk]);
}

#[test]
fn a_message_that_waited_for_an_older_one_sends_its_parity() {
    let scheme = "best-effort+ec-mds:32,8";
    let parity_options = QpOptions {
        expected_scheme: tag(scheme),
        ..options()
    };
    let mut world = World::new(1, losing(0.05), &parity_options);
    // Message 1 and its parity are cleared before message 0 is.
    world.traffic.drop_first(2, |seen| {
        seen.says(|c| matches!(c, Control::ClearToSend(cts) if cts.first == 0 && !cts.clearances.is_empty()))
    });
    let first = world.ship(order(1 << 20, scheme));
    world.run_for(RTT / 64);
    let second = world.ship(order(1 << 20, scheme));
    for parcel in [&first, &second] {
        assert_eq!(settle(&mut world, parcel), [WHOLE; 2]);
    }
    assert_eq!(world.a.stats().sender.retransmitted_chunks, 0);
    assert!(world.b.stats().rebuilt_chunks > 0);
    world.traffic.pass_all();
    end(world, vec![first, second]);
}
