//! Links that change while they run.

use std::time::Duration;

use crate::common::{datagram, number};
use farwrite_link::{ConfigError, Link, LinkConfig, MAX_DELAY, Step};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn stepping(config: LinkConfig, steps: &[Step]) -> Link {
    Link::with_steps(config, steps, 0).expect("a valid configuration")
}

/// 1000 bytes take a millisecond.
fn slow() -> LinkConfig {
    LinkConfig {
        rate_bps: Some(8_000_000),
        ..LinkConfig::default()
    }
}

fn rate_step(at_ns: u64, rate_bps: u64) -> Step {
    Step {
        at: Duration::from_nanos(at_ns),
        rate_bps: Some(rate_bps),
        ..Step::default()
    }
}

fn delay_step(at_ms: u64, delay_ms: u64) -> Step {
    Step {
        at: Duration::from_millis(at_ms),
        delay: Some(Duration::from_millis(delay_ms)),
        ..Step::default()
    }
}

#[test]
fn a_new_rate_applies_to_what_is_queued() {
    // The steps are not sorted: a quarter of the rate from 1.5 ms on, the old rate again from 5.5
    // ms on.
    let steps = [
        rate_step(5 * MS + MS / 2, 8_000_000),
        rate_step(MS + MS / 2, 2_000_000),
    ];
    let mut link = stepping(slow(), &steps);
    for i in 0..4 {
        link.send(0, datagram(i, 1000));
    }
    // Half of the second datagram is sent at 1.5 ms, and the rest takes 2 ms. Half of the third is
    // sent at 5.5 ms.
    assert_eq!(link.queue_bytes(0), 4000);
    assert_eq!(link.queue_bytes(MS + MS / 2), 2500);
    assert_eq!(link.queue_bytes(5 * MS + MS / 2), 1500);
    for due_ns in [MS, 3 * MS + MS / 2, 6 * MS, 7 * MS] {
        assert_eq!(link.next_ns(), Some(due_ns));
        assert!(link.poll(due_ns).is_some());
    }
}

#[test]
fn a_new_delay_applies_to_what_leaves_the_queue_from_then_on() {
    let config = LinkConfig {
        delay: Duration::from_millis(20),
        ..slow()
    };
    let mut link = stepping(config, &[delay_step(2, 50), delay_step(4, 5)]);
    for i in 0..5 {
        link.send(0, datagram(i, 1000));
    }
    // They leave at 1, 2, 3, 4 and 5 ms.
    let mut arrivals = Vec::new();
    while let Some(due_ns) = link.next_ns() {
        let datagram = link.poll(due_ns).expect("due");
        arrivals.push((number(&datagram), due_ns / MS));
    }
    assert_eq!(arrivals, [(3, 9), (4, 10), (0, 21), (1, 52), (2, 53)]);
    assert_eq!(link.counters().reordered, 0);
}

#[test]
fn steps_that_cannot_be_are_refused() {
    let late = Step {
        at: MAX_DELAY * 2,
        ..Step::default()
    };
    let far = Step {
        delay: Some(MAX_DELAY * 2),
        ..Step::default()
    };
    for (config, step, want) in [
        (slow(), rate_step(0, 0), "rate_bps = 0"),
        (slow(), late, "step.at = 172800s"),
        (slow(), far, "step.delay = 172800s"),
        (
            LinkConfig::default(),
            rate_step(0, 5),
            "step.rate_bps = 5: an unlimited link",
        ),
    ] {
        let error: Result<Link, ConfigError> = Link::with_steps(config, &[step], 0);
        let text = error.expect_err(want).to_string();
        assert!(text.contains(want), "{text:?} lacks {want:?}");
    }
}

/// Returns the departure time of each datagram, by a simple algorithm: each nanosecond sends bits
/// of the queue at the current rate.
fn slowly(sends: &[(u64, usize)], rate_at: impl Fn(u64) -> u64) -> Vec<u64> {
    let (mut now_ns, mut offered, mut served) = (0, 0u128, 0u128);
    let (mut ends, mut out) = (Vec::new(), Vec::new());
    let mut rest = sends.iter().peekable();
    while out.len() < sends.len() {
        while let Some((_, ip_bytes)) = rest.next_if(|(at_ns, _)| *at_ns <= now_ns) {
            offered += *ip_bytes as u128 * 8_000_000_000;
            ends.push(offered);
        }
        served = offered.min(served + u128::from(rate_at(now_ns)));
        now_ns += 1;
        let done = ends[out.len()..].iter().take_while(|end| **end <= served);
        out.extend(std::iter::repeat_n(now_ns, done.count()));
    }
    out
}

proptest! {
    /// The arithmetic over steps is exact to the nanosecond.
    #[test]
    fn departures_follow_the_rate_over_time(
        first in 500_000_000..20_000_000_000u64,
        changes in prop::collection::vec((0..20_000u64, 500_000_000..20_000_000_000u64), 0..6),
        gaps in prop::collection::vec((0..1_500u64, 32..1_500usize), 1..20),
    ) {
        let mut now_ns = 0;
        let sends: Vec<_> = gaps
            .into_iter()
            .map(|(gap_ns, ip_bytes)| {
                now_ns += gap_ns;
                (now_ns, ip_bytes)
            })
            .collect();
        let steps: Vec<_> = changes.iter().map(|(at, rate)| rate_step(*at, *rate)).collect();
        let config = LinkConfig { rate_bps: Some(first), ..LinkConfig::default() };
        let mut link = stepping(config, &steps);
        for (i, (at_ns, ip_bytes)) in (0..).zip(&sends) {
            link.send(*at_ns, datagram(i, *ip_bytes));
        }
        let mut sorted = changes;
        sorted.sort_by_key(|(at_ns, _)| *at_ns);
        let want = slowly(&sends, |now_ns| {
            let mut passed = sorted.iter().filter(|(at_ns, _)| *at_ns <= now_ns);
            passed.next_back().map_or(first, |(_, rate)| *rate)
        });
        for due_ns in want {
            prop_assert_eq!(link.next_ns(), Some(due_ns));
            link.poll(due_ns);
        }
    }
}
