//! When datagrams arrive: delay, rate, queue, order.

use std::time::Duration;

use crate::common::{datagram, link, number};
use farwrite_link::{Datagram, LinkConfig, Reorder};

const MS: u64 = 1_000_000;

#[test]
fn a_perfect_link_delivers_at_once_and_unchanged() {
    let mut link = link(LinkConfig::default(), 0);
    assert_eq!(link.next_ns(), None);
    let sent = datagram(7, 100);
    link.send(5, sent.clone());
    assert_eq!(link.next_ns(), Some(5));
    assert_eq!(link.poll(4), None);
    assert_eq!(link.poll(5), Some(sent));
    assert_eq!((link.poll(5), link.next_ns()), (None, None));
    assert_eq!(link.counters().delivered_bytes, 100);
}

#[test]
fn ip_bytes_count_the_headers_of_the_address_family() {
    let v4 = datagram(0, 100);
    assert_eq!((v4.payload.len(), v4.ip_bytes()), (72, 100));
    let v6 = Datagram {
        src: "[fd00::1]:1".parse().unwrap(),
        dst: "[fd00::2]:2".parse().unwrap(),
        ..v4
    };
    assert_eq!(v6.ip_bytes(), 120);
}

/// A million datagrams back to back, at rates that do not divide a second. Each arrives at the
/// exact time, rounded up to a nanosecond, so rounding errors do not accumulate.
#[test]
fn serialisation_does_not_drift() {
    for rate_bps in [1, 3, 7_777_777_777, 400_000_000_000, 999_999_999_989] {
        let mut link = link(
            LinkConfig {
                rate_bps: Some(rate_bps),
                delay: Duration::from_nanos(11),
                ..LinkConfig::default()
            },
            0,
        );
        let mut bits = 0u128;
        for i in 0..1_000_000u32 {
            if rate_bps < 10 && i == 1000 {
                break;
            }
            let ip_bytes = 32 + (i as usize * 37) % 1500;
            bits += 8 * ip_bytes as u128;
            link.send(0, datagram(i, ip_bytes));
            let want = (bits * 1_000_000_000).div_ceil(u128::from(rate_bps)) + 11;
            assert_eq!(
                link.next_ns().map(u128::from),
                Some(want),
                "{rate_bps} bit/s, {i}"
            );
            assert!(link.poll(u64::MAX).is_some());
        }
    }
}

#[test]
fn an_idle_link_starts_at_once_and_a_busy_one_when_free() {
    let mut link = link(
        LinkConfig {
            rate_bps: Some(8_000_000),
            ..LinkConfig::default()
        },
        0,
    );
    // 1000 bytes take 1 ms.
    for (now_ns, due_ns) in [(0, MS), (0, 2 * MS), (MS, 3 * MS), (10 * MS, 11 * MS)] {
        link.send(now_ns, datagram(0, 1000));
        assert!(link.poll(due_ns - 1).is_none());
        assert!(link.poll(due_ns).is_some());
    }
}

#[test]
fn the_queue_drops_its_tail_and_drains_at_the_rate() {
    let mut link = link(
        LinkConfig {
            rate_bps: Some(8_000_000),
            queue_bytes: Some(3000),
            ..LinkConfig::default()
        },
        0,
    );
    for i in 0..5 {
        link.send(0, datagram(i, 1000));
    }
    assert_eq!(link.queue_bytes(0), 3000);
    assert_eq!(link.counters().queue_dropped, 2);
    // Half of a datagram has been sent. A full datagram does not fit yet, one of half the length
    // does.
    assert_eq!(link.queue_bytes(MS / 2), 2500);
    link.send(MS / 2, datagram(5, 1000));
    assert_eq!(link.counters().queue_dropped, 3);
    link.send(MS / 2, datagram(6, 500));
    assert_eq!(link.counters().queue_dropped, 3);
    assert_eq!(link.queue_bytes(MS / 2), 3000);
    assert_eq!(link.queue_bytes(3 * MS + MS / 2), 0);

    let arrived: Vec<_> = std::iter::from_fn(|| link.poll(u64::MAX)).collect();
    let numbers: Vec<_> = arrived.iter().map(number).collect();
    assert_eq!(numbers, [0, 1, 2, 6]);
}

#[test]
fn an_idle_link_takes_a_datagram_larger_than_its_queue() {
    let mut link = link(
        LinkConfig {
            rate_bps: Some(8_000_000),
            queue_bytes: Some(0),
            ..LinkConfig::default()
        },
        0,
    );
    link.send(0, datagram(0, 1000));
    link.send(MS - 1, datagram(1, 1000));
    link.send(MS, datagram(2, 1000));
    let numbers: Vec<_> = std::iter::from_fn(|| link.poll(u64::MAX))
        .map(|datagram| number(&datagram))
        .collect();
    assert_eq!(numbers, [0, 2]);
}

/// Held-back datagrams are late by the extra delay; the others stay in order.
#[test]
fn reordering_delays_some_and_leaves_the_rest_in_order() {
    let mut link = link(
        LinkConfig {
            delay: Duration::from_millis(1),
            reorder: Reorder {
                probability: 0.1,
                extra_delay: Duration::from_micros(55),
            },
            ..LinkConfig::default()
        },
        3,
    );
    const COUNT: u32 = 10_000;
    for i in 0..COUNT {
        link.send(u64::from(i) * 10_000, datagram(i, 100));
    }
    let mut arrived = Vec::new();
    while let Some(due_ns) = link.next_ns() {
        arrived.push((due_ns, number(&link.poll(due_ns).unwrap())));
    }
    assert!(arrived.is_sorted_by_key(|(due_ns, _)| *due_ns));
    let (in_time, late): (Vec<_>, Vec<_>) = arrived
        .iter()
        .partition(|(due_ns, i)| *due_ns == u64::from(*i) * 10_000 + MS);
    assert_eq!(late.len() as u64, link.counters().reordered);
    assert!(
        (800..1200).contains(&late.len()),
        "{} held back",
        late.len()
    );
    assert!(
        late.iter()
            .all(|(due_ns, i)| *due_ns == u64::from(*i) * 10_000 + MS + 55_000)
    );
    assert!(in_time.is_sorted_by_key(|(_, i)| *i));
    // A delay of 55 us with one datagram every 10 us: the next five overtake, unless they are held
    // back too.
    assert!(!arrived.is_sorted_by_key(|(_, i)| *i));
}

#[test]
fn a_cut_loses_what_is_in_flight_and_what_is_offered() {
    let mut link = link(
        LinkConfig {
            delay: Duration::from_millis(1),
            rate_bps: Some(8_000_000),
            ..LinkConfig::default()
        },
        0,
    );
    for i in 0..10 {
        link.send(0, datagram(i, 1000));
    }
    assert!(link.poll(2 * MS).is_some());
    link.set_down(true);
    assert_eq!((link.next_ns(), link.in_flight()), (None, 0));
    link.send(3 * MS, datagram(10, 1000));
    assert_eq!(link.counters().lost, 10);
    link.set_down(false);
    link.send(4 * MS, datagram(11, 1000));
    assert_eq!(link.next_ns(), Some(6 * MS));
    assert_eq!(number(&link.poll(6 * MS).unwrap()), 11);
    assert_eq!(link.counters().delivered, 2);
}
