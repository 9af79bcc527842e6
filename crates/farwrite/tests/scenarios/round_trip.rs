//! Measurements of the round trip while the fabrics of both ends are full.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use farwrite::fabric::sim::Verdict;
use farwrite::{RateControl, SendOptions};
use farwrite_link::LinkConfig;

use crate::slow_world::SlowWorld;
use crate::world::{MS, RTT, SECOND, Way, World, options, tag};

/// Returns a world in which the round trip of 25 ms is known and a long message is in progress.
fn busy() -> SlowWorld {
    let mut slow = options();
    slow.rate_control = RateControl::Fixed {
        rate_bps: 50_000_000,
    };
    let mut world = SlowWorld::new(&[slow]);
    let (a, b) = (&mut world.a, &mut world.b);
    let source = a.endpoint.register(vec![7; 16 << 20]).expect("room");
    let target = b.endpoint.register(vec![0; 16 << 20]).expect("room");
    let recv = b.endpoint.post_recv(b.qps[0], target.whole());
    recv.expect("a free slot");
    let send = SendOptions {
        scheme: tag("sr-nack"),
        ..SendOptions::default()
    };
    let send = a.endpoint.post_send(a.qps[0], source.whole(), send);
    send.expect("a free slot");
    world.run_for(200 * MS);
    world
}

#[test]
fn control_packets_that_wait_for_room_do_not_lengthen_the_round_trip() {
    for full in ["sender", "receiver"] {
        let mut world = busy();
        // Repeat this, so that many samples are affected.
        for _ in 0..10 {
            let ends = [&world.a, &world.b];
            let end = ends[usize::from(full == "receiver")];
            let room = end.controls.room.clone();
            room.set(Some(0));
            world.run_for(40 * MS);
            room.set(None);
            world.run_for(10 * MS);
        }
        for stats in [world.a.stats(0), world.b.stats(0)] {
            let rtt_ns = stats.rtt_ns;
            assert!(rtt_ns.abs_diff(RTT) < MS, "{full}: {rtt_ns} ns");
        }
    }
}

#[test]
fn a_full_fabric_is_not_polled_without_pause() {
    let mut world = busy();
    world.a.controls.room.set(Some(0));
    let (mut polls, limit_ns) = (0, world.now_ns() + 100 * MS);
    world.run_until(limit_ns, |_| {
        polls += 1;
        false
    });
    assert!(polls < 5_000, "{polls} polls in 100 ms");
}

/// With a ping every quarter of a round trip, they took 16 kbit/s.
#[test]
fn pings_leave_a_slow_path_to_the_data() {
    const RATE_BPS: u64 = 64_000;
    let link = LinkConfig {
        delay: Duration::from_millis(50),
        rate_bps: Some(RATE_BPS),
        ..LinkConfig::default()
    };
    let mut options = options();
    options.sdr.mtu = 1024;
    options.sdr.max_message_bytes = 1 << 20;
    options.initial_rtt = Duration::from_millis(100);
    options.rate_control = RateControl::Fixed {
        rate_bps: RATE_BPS * 3 / 4,
    };
    let mut world = World::new(1, link, &options);
    let ping_bytes = Rc::new(Cell::new(0));
    let count = Rc::clone(&ping_bytes);
    world.traffic.filter(move |seen| {
        if seen.way == Way::Forth && seen.control.as_ref().is_some_and(Vec::is_empty) {
            count.set(count.get() + seen.datagram.ip_bytes());
        }
        Verdict::Pass
    });
    let source = world.a.endpoint.register(vec![7; 1 << 20]).expect("room");
    let target = world.b.endpoint.register(vec![0; 1 << 20]).expect("room");
    let recv = world.b.endpoint.post_recv(world.b.qp, target.whole());
    recv.expect("a free slot");
    let send = SendOptions {
        scheme: tag("sr-nack"),
        ..SendOptions::default()
    };
    let send = world.a.endpoint.post_send(world.a.qp, source.whole(), send);
    send.expect("a free slot");
    world.run_for(20 * SECOND);
    let ping_bps = ping_bytes.get() * 8 / 20;
    assert!(ping_bps < RATE_BPS / 25, "{ping_bps} bit/s");
    let rtt_ns = world.a.stats().rtt_ns;
    assert!((100 * MS..500 * MS).contains(&rtt_ns), "{rtt_ns} ns");
}
