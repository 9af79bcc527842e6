//! Policers.

use std::time::Duration;

use crate::common::{datagram, link};
use farwrite_link::{Link, LinkConfig, Policer, Step};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

/// A byte each microsecond.
fn policed(burst_bytes: u64) -> LinkConfig {
    LinkConfig {
        policer: Some(Policer {
            rate_bps: 8_000_000,
            burst_bytes,
        }),
        ..LinkConfig::default()
    }
}

#[test]
fn a_full_bucket_passes_a_burst_and_then_the_rate() {
    let mut link = link(policed(3000), 0);
    for i in 0..5 {
        link.send(0, datagram(i, 1000));
    }
    assert_eq!((link.in_flight(), link.counters().policed), (3, 2));
    // A millisecond brings a thousand tokens, and a nanosecond less does not.
    link.send(MS - 1, datagram(5, 1000));
    link.send(MS, datagram(6, 1000));
    assert_eq!((link.in_flight(), link.counters().policed), (4, 3));
    // The bucket is full again after 3 ms, and holds no more after 100.
    for i in 7..12 {
        link.send(100 * MS, datagram(i, 1000));
    }
    assert_eq!((link.in_flight(), link.counters().policed), (7, 5));
}

/// The queue smooths what reaches the policer, and a dropped datagram has used the rate.
#[test]
fn the_policer_is_behind_the_queue() {
    let config = LinkConfig {
        rate_bps: Some(16_000_000),
        ..policed(1500)
    };
    let mut link = link(config, 0);
    for i in 0..4 {
        link.send(0, datagram(i, 1000));
    }
    // They leave the queue every half millisecond, which brings 500 tokens each time.
    assert_eq!((link.in_flight(), link.counters().policed), (3, 1));
    assert_eq!(link.queue_bytes(0), 4000);
}

#[test]
fn a_step_brings_another_policer_with_a_full_bucket() {
    let step = Step {
        at: Duration::from_millis(10),
        policer: Some(Policer {
            rate_bps: 8_000,
            burst_bytes: 2000,
        }),
        ..Step::default()
    };
    let mut link = Link::with_steps(policed(1000), &[step], 0).expect("valid");
    for i in 0..3 {
        link.send(10 * MS - 1, datagram(i, 1000));
    }
    assert_eq!(link.counters().policed, 2);
    for i in 0..3 {
        link.send(10 * MS, datagram(i, 1000));
    }
    assert_eq!(link.counters().policed, 3);
}

proptest! {
    /// In no interval more than the burst and the rate passes, and what is dropped would have been
    /// more.
    #[test]
    fn what_passes_conforms(
        burst_bytes in 100..5000u64,
        sends in prop::collection::vec((0..3 * MS, 32..1500usize), 1..100),
    ) {
        let mut link = link(policed(burst_bytes), 0);
        let (mut now_ns, mut passed) = (0, Vec::new());
        for (gap_ns, ip_bytes) in sends {
            now_ns += gap_ns;
            let before = link.counters().policed;
            link.send(now_ns, datagram(0, ip_bytes));
            // The bytes since each earlier datagram, and the tokens of that time.
            let mut fits = ip_bytes as u64 <= burst_bytes;
            let mut sum = ip_bytes as u64;
            for (at_ns, bytes) in passed.iter().rev() {
                sum += bytes;
                // A partly missing token is missing.
                fits &= sum <= burst_bytes + (now_ns - at_ns) / 1000;
            }
            prop_assert_eq!(link.counters().policed == before, fits);
            if fits {
                passed.push((now_ns, ip_bytes as u64));
            }
        }
    }
}
