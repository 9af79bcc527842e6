//! The queue: its limits and its ECN marks.

use std::time::Duration;

use crate::common::{datagram, link, number};
use farwrite_link::{Datagram, Link, LinkConfig, Ramp};
use proptest::prelude::*;

/// 1000 bytes take a millisecond.
const RATE: u64 = 8_000_000;
const MS: u64 = 1_000_000;

fn arrived(link: &mut Link) -> Vec<Datagram> {
    std::iter::from_fn(|| link.poll(u64::MAX)).collect()
}

#[test]
fn a_queue_of_packets_counts_them_whatever_their_length() {
    let mut link = link(
        LinkConfig {
            rate_bps: Some(RATE),
            queue_packets: Some(3),
            ..LinkConfig::default()
        },
        0,
    );
    for (i, ip_bytes) in (0..).zip([1000, 40, 1000, 40, 40]) {
        link.send(0, datagram(i, ip_bytes));
    }
    assert_eq!(link.counters().queue_dropped, 2);
    // The first datagram leaves at 1 ms. Then there is room for one.
    link.send(MS - 1, datagram(5, 40));
    link.send(MS, datagram(6, 40));
    link.send(MS, datagram(7, 40));
    let numbers: Vec<_> = arrived(&mut link).iter().map(number).collect();
    assert_eq!(numbers, [0, 1, 2, 6]);
}

#[test]
fn a_queue_of_time_drops_what_would_wait_longer() {
    let mut link = link(
        LinkConfig {
            rate_bps: Some(RATE),
            queue_time: Some(Duration::from_millis(2)),
            ..LinkConfig::default()
        },
        0,
    );
    for i in 0..5 {
        link.send(0, datagram(i, 1000));
    }
    // They wait 0, 1 and 2 ms; the others would wait 3.
    assert_eq!(link.counters().queue_dropped, 2);
    assert_eq!(arrived(&mut link).len(), 3);
}

fn capable(number: u32, tos: u8) -> Datagram {
    Datagram {
        tos,
        ..datagram(number, 1000)
    }
}

#[test]
fn a_step_marks_what_finds_a_longer_queue_and_can_be_marked() {
    let mut link = link(
        LinkConfig {
            rate_bps: Some(RATE),
            ecn: Some(Ramp::step(2000)),
            ..LinkConfig::default()
        },
        0,
    );
    // Behind two that wait: ECT(0) with a DSCP of 46, ECT(1), already CE, and not ECN-capable.
    for (i, tos) in (0..).zip([2, 2, 2, 46 << 2 | 2, 1, 3, 0]) {
        link.send(0, capable(i, tos));
    }
    assert_eq!(link.counters().marked, 2);
    let tos: Vec<_> = arrived(&mut link).iter().map(|d| d.tos).collect();
    assert_eq!(tos, [2, 2, 2, 46 << 2 | 3, 3, 3, 0]);
}

#[test]
fn a_ramp_marks_in_proportion() {
    let ramp = Ramp {
        low_bytes: 1000,
        high_bytes: 3000,
        most: 0.5,
    };
    let levels = [0, 1000, 1001, 2000, 3000, 3001];
    let probabilities = levels.map(|bytes| ramp.probability(bytes));
    assert_eq!(probabilities, [0.0, 0.0, 0.00025, 0.25, 0.5, 1.0]);
    let mut marked = 0;
    for seed in 0..10_000 {
        let mut link = link(
            LinkConfig {
                rate_bps: Some(RATE),
                ecn: Some(ramp),
                ..LinkConfig::default()
            },
            seed,
        );
        for i in 0..3 {
            link.send(0, capable(i, 2));
        }
        marked += link.counters().marked;
    }
    // The third datagram finds 2000 bytes in the queue: a quarter of these are marked, within 7
    // standard deviations.
    assert!((2200..2800).contains(&marked), "{marked} of 10000");
}

/// A seed gives the same losses with and without marks.
#[test]
fn marks_and_losses_are_drawn_apart() {
    let config = LinkConfig {
        rate_bps: Some(RATE),
        loss: farwrite_link::Loss::Iid { loss_packet: 0.3 },
        ..LinkConfig::default()
    };
    let ecn = Some(Ramp {
        low_bytes: 0,
        high_bytes: 1 << 20,
        most: 1.0,
    });
    let numbers = |config| {
        let mut link = link(config, 5);
        for i in 0..1000 {
            link.send(0, capable(i, 2));
        }
        let numbers: Vec<_> = arrived(&mut link).iter().map(number).collect();
        (numbers, link.counters().marked)
    };
    let (plain, none) = numbers(config);
    let (marked, some) = numbers(LinkConfig { ecn, ..config });
    assert_eq!(plain, marked);
    assert!(none == 0 && some > 0, "{none}, {some}");
}

proptest! {
    /// For any arrivals, no limit is exceeded, and no datagram waits longer than the limit.
    #[test]
    fn limits_hold(
        bytes in prop::option::of(0..8_000u64),
        packets in prop::option::of(0..8u64),
        queue_us in prop::option::of(0..8_000u64),
        sends in prop::collection::vec((0..2_000u64, 32..1_500usize), 1..200),
    ) {
        let mut link = link(
            LinkConfig {
                rate_bps: Some(RATE),
                queue_bytes: bytes,
                queue_packets: packets,
                queue_time: queue_us.map(Duration::from_micros),
                ..LinkConfig::default()
            },
            0,
        );
        let (mut now_ns, mut taken) = (0, Vec::new());
        for (i, (after_us, ip_bytes)) in (0..).zip(sends) {
            now_ns += after_us * 1000;
            while link.poll(now_ns).is_some() {}
            let (waiting, before) = (link.queue_bytes(now_ns), link.counters().queue_dropped);
            let in_queue = link.in_flight();
            link.send(now_ns, datagram(i, ip_bytes));
            let fits = bytes.is_none_or(|limit| waiting + ip_bytes as u64 <= limit)
                && packets.is_none_or(|limit| in_queue < limit)
                && queue_us.is_none_or(|limit| waiting <= limit);
            let took = link.counters().queue_dropped == before;
            // A byte takes one microsecond, so all times are whole microseconds.
            prop_assert_eq!(took, waiting == 0 || fits, "{} at {}", i, now_ns);
            taken.push(took);
        }
        prop_assert!(taken[0]);
    }
}
