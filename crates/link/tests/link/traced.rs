//! Links whose rate is a trace.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{datagram, number};
use farwrite_link::{ConfigError, DeliveryTrace, Link, LinkConfig, Step};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn traced(text: &str, config: LinkConfig) -> Link {
    let trace = DeliveryTrace::parse(text).expect("a trace");
    Link::traced(config, Arc::new(trace), &[], 0).expect("valid")
}

fn arrivals_ms(link: &mut Link) -> Vec<(u32, u64)> {
    let mut arrivals = Vec::new();
    while let Some(due_ns) = link.next_ns() {
        arrivals.push((number(&link.poll(due_ns).expect("due")), due_ns / MS));
    }
    arrivals
}

#[test]
fn datagrams_share_opportunities_and_span_them() {
    let mut link = traced("1\n4\n4\n10\n", LinkConfig::default());
    for (i, ip_bytes) in (0..).zip([500, 500, 1000, 2500, 100]) {
        link.send(0, datagram(i, ip_bytes));
    }
    assert_eq!(link.queue_bytes(0), 4600);
    assert_eq!(link.queue_bytes(MS), 3100);
    assert_eq!(link.queue_bytes(4 * MS), 100);
    let want = [(0, 1), (1, 1), (2, 4), (3, 4), (4, 10)];
    assert_eq!(arrivals_ms(&mut link), want);
}

#[test]
fn what_nobody_uses_is_wasted() {
    let mut link = traced("1\n4\n4\n10\n", LinkConfig::default());
    link.send(5 * MS, datagram(0, 100));
    link.send(12 * MS, datagram(1, 1500));
    link.send(12 * MS, datagram(2, 1500));
    assert_eq!(arrivals_ms(&mut link), [(0, 10), (1, 14), (2, 14)]);
}

#[test]
fn the_queue_has_its_limits_and_the_wire_its_delay() {
    let config = LinkConfig {
        delay: Duration::from_millis(20),
        queue_bytes: Some(3000),
        ..LinkConfig::default()
    };
    let mut link = traced("5\n", config);
    for i in 0..3 {
        link.send(0, datagram(i, 1500));
    }
    assert_eq!(link.counters().queue_dropped, 1);
    link.set_down(true);
    link.set_down(false);
    link.send(6 * MS, datagram(3, 1500));
    assert_eq!(arrivals_ms(&mut link), [(3, 30)]);
}

#[test]
fn a_rate_beside_a_trace_is_refused() {
    let trace = Arc::new(DeliveryTrace::parse("1").expect("a trace"));
    let rate = LinkConfig {
        rate_bps: Some(5),
        ..LinkConfig::default()
    };
    let step = Step {
        rate_bps: Some(5),
        ..Step::default()
    };
    for (config, steps) in [(rate, &[][..]), (LinkConfig::default(), &[step][..])] {
        let link: Result<Link, _> = Link::traced(config, Arc::clone(&trace), steps, 0);
        assert_eq!(link.map(|_| ()), Err(ConfigError::TracedRate { value: 5 }));
    }
}

proptest! {
    /// A simple algorithm that visits each opportunity delivers the same datagrams at the same time.
    #[test]
    fn departures_are_those_of_mahimahi(
        mut at_ms in prop::collection::vec(0..40u32, 1..20),
        sends in prop::collection::vec((0..20 * MS, 32..4000usize), 1..30),
        opportunity_bytes in 100..2000u64,
    ) {
        at_ms.sort_unstable();
        at_ms.push(at_ms.last().expect("not empty") + 1);
        let period_ms = u64::from(at_ms[at_ms.len() - 1]);
        let trace = DeliveryTrace::new(at_ms.clone()).expect("a trace").delivering(opportunity_bytes);
        let mut link: Link = Link::traced(LinkConfig::default(), Arc::new(trace), &[], 0).expect("valid");

        let (mut now_ns, mut want, mut backlogs) = (0, Vec::new(), Vec::new());
        let rounds = (0..).flat_map(|round| {
            at_ms.iter().map(move |at| (round * period_ms + u64::from(*at)) * MS)
        });
        let mut opportunities = rounds.map(|at_ns| (at_ns, opportunity_bytes));
        let mut current = opportunities.next().expect("endless");
        for (i, (gap_ns, ip_bytes)) in (0..).zip(&sends) {
            now_ns += gap_ns;
            backlogs.push((link.queue_bytes(now_ns), now_ns));
            link.send(now_ns, datagram(i, *ip_bytes));
            let mut left_bytes = *ip_bytes as u64;
            while left_bytes > 0 {
                if current.0 < now_ns || current.1 == 0 {
                    current = opportunities.next().expect("endless");
                    continue;
                }
                let used = left_bytes.min(current.1);
                current.1 -= used;
                left_bytes -= used;
            }
            want.push((current.0, i));
        }
        // Whole datagrams that have not left are a part of the backlog.
        for (i, (backlog, at_ns)) in backlogs.iter().enumerate() {
            let waiting = want[..i].iter().zip(&sends).filter(|((due_ns, _), _)| due_ns > at_ns);
            let bytes: usize = waiting.map(|(_, (_, ip_bytes))| *ip_bytes).sum();
            prop_assert!(*backlog <= bytes as u64, "{backlog} of {bytes}");
            prop_assert_eq!(*backlog == 0, bytes == 0);
        }
        for (due_ns, number_) in want {
            prop_assert_eq!(link.next_ns(), Some(due_ns));
            prop_assert_eq!(number(&link.poll(due_ns).expect("due")), number_);
        }
    }
}
