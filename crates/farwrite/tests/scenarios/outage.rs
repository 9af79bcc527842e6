//! A path that is down for a while.

use farwrite::fabric::sim::Verdict;
use farwrite::{Outcome, RateControl, RecvOptions};
use farwrite_link::LinkConfig;
use farwrite_rng::SplitMix;

use crate::deadlines::order;
use crate::parcel::{Order, Parcel};
use crate::traffic::Tally;
use crate::world::{MS, RTT, SCHEMES, SECOND, Way, World, long_haul, options, tag};

/// Returns a path on which 4 MiB take 34 ms to send.
fn slow_haul() -> LinkConfig {
    LinkConfig {
        rate_bps: Some(1_000_000_000),
        ..long_haul()
    }
}

/// Cuts the path for 5 s while a message is in flight. Returns the time from the repair of the path
/// to the end of the message, and the packets that were sent during the cut.
fn recovery(scheme: &str, cut_at_ns: u64) -> (u64, Tally) {
    const DEAD_NS: u64 = 5 * SECOND;
    let options = farwrite::QpOptions {
        rate_control: RateControl::Fixed {
            rate_bps: 950_000_000,
        },
        ..options()
    };
    let mut world = World::new(1, slow_haul(), &options);
    let parcel = world.ship(Order::new(SplitMix::new(1).bytes(4 << 20), tag(scheme)));
    world.run_until(cut_at_ns, |_| false);
    assert_eq!(parcel.out.send.outcome(), None, "cut before the end");
    world.set_down(true);
    let before = world.traffic.tally();
    world.run_for(DEAD_NS);
    world.set_down(false);
    let during = world.traffic.tally();
    let took_ns = world.deliver(std::slice::from_ref(&parcel), 60 * SECOND);
    world.finish(vec![parcel]);
    let sent = Tally {
        data: during.data - before.data,
        controls: during.controls - before.controls,
        control_bytes: during.control_bytes - before.control_bytes,
    };
    (took_ns, sent)
}

#[test]
fn a_path_dead_for_five_seconds_in_the_middle_of_a_message() {
    for scheme in SCHEMES {
        // The path is cut before the clear-to-send arrives; with the first packets in flight; in
        // the middle of the message; and when only the last report is missing.
        for cut_at_ns in [5 * MS, 20 * MS, 40 * MS, 64 * MS] {
            let (took_ns, sent) = recovery(scheme, cut_at_ns);
            println!(
                "{scheme}, cut at {} ms: over {} ms after the mending; in the dark {sent:?}",
                cut_at_ns / MS,
                took_ns / MS
            );
            // The interval between probes is at most one second.
            assert!(
                took_ns <= SECOND + 4 * RTT + 40 * MS,
                "{scheme}: {took_ns} ns"
            );
            // The sender sends the rest of the message, all of it again after the timeout, and
            // probes.
            assert!(sent.data <= 2 * 1024 + 64, "{scheme}: {sent:?}");
            // The missing chunks of groups take more control packets to describe than those of a
            // message.
            let controls = if scheme.starts_with("ec") { 200 } else { 100 };
            assert!(sent.controls <= controls, "{scheme}: {sent:?}");
        }
    }
}

/// The wait between tests of the path does not grow with the outage.
#[test]
fn a_measured_path_dead_for_a_minute_is_used_within_two_seconds() {
    for dead_ns in [5 * SECOND, 60 * SECOND] {
        let options = farwrite::QpOptions {
            rate_control: RateControl::Adaptive {
                max_bps: None,
                start: None,
            },
            ..options()
        };
        let mut world = World::new(1, slow_haul(), &options);
        let parcel = world.ship(Order::new(SplitMix::new(1).bytes(64 << 20), tag("sr-nack")));
        world.run_for(400 * MS);
        assert_eq!(parcel.out.send.outcome(), None, "cut before the end");
        world.set_down(true);
        world.run_for(dead_ns);
        world.set_down(false);
        let before = world.traffic.tally();
        world.run_for(2 * SECOND);
        let sent = world.traffic.tally().data - before.data;
        assert!(sent > 100, "{sent} packets after an outage of {dead_ns} ns");
        world.deliver(std::slice::from_ref(&parcel), 60 * SECOND);
        world.finish(vec![parcel]);
    }
}

/// The answers to messages with short deadlines come after these messages have ended.
#[test]
fn messages_with_short_deadlines_go_again_after_a_long_outage() {
    for scheme in ["best-effort+sr", "best-effort+ec-mds:32,8"] {
        let mut world = World::new(1, long_haul(), &options());
        let ship = |world: &mut World, time_ns: u64| {
            let inn = world.post_recv_with(Way::Forth, 40_000, RecvOptions::default());
            let inn = inn.expect("a free slot");
            world.run_for(RTT);
            let order = Order {
                deadline_ns: Some(world.now_ns() + time_ns),
                ..order(40_000, scheme)
            };
            let out = world.post_send(&order).expect("a free slot");
            Parcel { order, out, inn }
        };
        let cut = ship(&mut world, 40 * SECOND);
        world.set_down(true);
        // A queue pair that is idle for a second would forget the silence.
        world.run_for(40 * SECOND + 200 * MS);
        assert_eq!(cut.out.send.outcome(), Some(Outcome::Partial), "{scheme}");
        world.set_down(false);
        let mut parcels = vec![cut];
        for _ in 0..100 {
            parcels.push(ship(&mut world, RTT / 2));
            world.run_for(RTT);
        }
        let later = parcels[50..].iter();
        let whole = later.filter(|parcel| parcel.inn.recv.outcome() == Some(Outcome::Whole));
        assert_eq!(whole.count(), 51, "{scheme}");
        let (outs, inns) = parcels
            .into_iter()
            .map(|Parcel { order, out, inn }| ((order.way, out), (order.way, inn)))
            .unzip();
        world.close(outs, inns);
    }
}

#[test]
fn one_direction_dead_for_five_seconds() {
    for scheme in SCHEMES {
        for dead in [Way::Forth, Way::Back] {
            let mut world = World::new(1, long_haul(), &options());
            world.traffic.filter(move |seen| {
                let in_the_dark = (14 * MS..5 * SECOND).contains(&seen.now_ns);
                if in_the_dark && seen.way == dead {
                    Verdict::Drop
                } else {
                    Verdict::Pass
                }
            });
            let parcel = world.ship(Order::new(SplitMix::new(1).bytes(4 << 20), tag(scheme)));
            let took_ns = world.deliver(std::slice::from_ref(&parcel), 60 * SECOND);
            println!(
                "{scheme}, {dead:?} dead: {} ms, {:?}",
                took_ns / MS,
                world.traffic.tally()
            );
            assert!(took_ns <= 6 * SECOND + 5 * RTT, "{scheme}: {took_ns} ns");
            world.finish(vec![parcel]);
        }
    }
}

#[test]
fn a_peer_that_is_gone_costs_little() {
    for scheme in SCHEMES {
        let mut world = World::new(1, long_haul(), &options());
        let parcel = world.ship(Order::new(SplitMix::new(1).bytes(1 << 20), tag(scheme)));
        world.run_for(20 * MS);
        world.set_down(true);
        world.run_for(20 * SECOND);
        let before = world.traffic.tally();
        world.run_for(60 * SECOND);
        let after = world.traffic.tally();
        let (data, controls) = (after.data - before.data, after.controls - before.controls);
        println!("{scheme}: {data} data and {controls} control packets in a minute");
        assert!(data <= 4 * 60, "{scheme}");
        assert!(controls <= 6 * 60, "{scheme}");
        world.set_down(false);
        world.deliver(std::slice::from_ref(&parcel), 2 * SECOND);
        world.finish(vec![parcel]);
    }
}

#[test]
fn an_end_without_messages_that_was_never_answered_falls_silent() {
    let mut world = World::new(1, long_haul(), &options());
    world.traffic.filter(|seen| match seen.way {
        Way::Forth => Verdict::Pass,
        Way::Back => Verdict::Drop,
    });
    world.run_for(10 * SECOND);
    let before = world.traffic.tally();
    world.run_for(60 * SECOND);
    assert_eq!(world.traffic.tally(), before);
    world.close(vec![], vec![]);
}
