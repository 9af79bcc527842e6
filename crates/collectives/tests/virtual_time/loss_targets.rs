//! Groups with a loss target: what they do on paths that lose more, and less.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use farwrite::SchemeName;
use farwrite::fabric::sim::Verdict;
use farwrite_collectives::{BoundedOptions, GroupOptions, Reduction, Report};
use farwrite_deadline::{Bounds, Policy, RepairChoice};

use crate::bounded::{check_all_reduce, check_started, problem, scheme, start_all_reduce, with};
use crate::world::{MS, SECOND, World, address, clean, losing};

/// Runs all-reduces with a target on a path that loses packets. Returns the scheme of the last one,
/// the repair that was chosen, and its report.
fn toward_target(world: &mut World, rounds: usize) -> (SchemeName, RepairChoice, Report) {
    let mut last = None;
    for _ in 0..rounds {
        last = Some(check_all_reduce(world, Reduction::Sum));
    }
    let report = last.expect("some rounds");
    let (scheme, repair_choice) = report.repair.expect("a bounded operation");
    (scheme, repair_choice, report)
}

fn target(target_ppm: u32, rtt_ns: u64, max_ns: u64) -> GroupOptions {
    GroupOptions {
        packets_per_segment: 64,
        ..with(BoundedOptions {
            policy: Policy::LossTarget { target_ppm, rtt_ns },
            bounds: Bounds { min_ns: MS, max_ns },
            ..BoundedOptions::default()
        })
    }
}

#[test]
fn a_path_that_drops_more_than_the_target_gets_repeats_or_parity() {
    // The round trip is first short relative to the operation, then long.
    for (rtt_ns, expected) in [
        (MS / 100, "best-effort+sr"),
        (SECOND, "best-effort+ec-mds:32,"),
    ] {
        let options = target(10_000, rtt_ns, 10 * SECOND);
        let mut world = World::new(7, 3, losing(0.04), &options);
        let (scheme, repair_choice, _) = toward_target(&mut world, 1);
        assert_eq!(
            (scheme, repair_choice),
            (SchemeName::BestEffort, RepairChoice::Wait)
        );
        let (scheme, repair_choice, _) = toward_target(&mut world, 12);
        assert!(
            scheme.to_string().starts_with(expected),
            "{scheme}, {repair_choice:?}"
        );
        let before = world.members[0].cut_counts();
        toward_target(&mut world, 30);
        let cut_counts = world.members[0].cut_counts();
        let missing = cut_counts.missing_bytes - before.missing_bytes;
        let share = missing as f64 / (cut_counts.expected_bytes - before.expected_bytes) as f64;
        assert!(share < 0.01, "{expected}: {share} is missing");
    }
}

/// Control messages are shorter, and data packets longer.
const SHORT: usize = 200;

#[test]
fn losses_at_the_end_of_messages_count() {
    // A part of the all-reduce is one message of 24 packets. Of that to rank 0, the second half is lost.
    let options = target(100_000, MS / 100, 10 * SECOND);
    let mut world = World::new(14, 2, clean(), &options);
    let sent: Rc<Cell<u32>> = Rc::default();
    let count = Rc::clone(&sent);
    world.network.set_tap(move |datagram| {
        if datagram.src.ip() != address(1).ip() || datagram.payload.len() < SHORT {
            return Verdict::Pass;
        }
        count.set(count.get() + 1);
        match (13..=24).contains(&count.get()) {
            true => Verdict::Drop,
            false => Verdict::Pass,
        }
    });
    let mut missing = Vec::new();
    for _ in 0..8 {
        sent.set(0);
        missing.push(toward_target(&mut world, 1).2.missing_bytes);
    }
    assert!(missing[0] > 0, "{missing:?}");
    assert_eq!(missing[7], 0, "{missing:?}");
}

#[test]
fn losses_of_any_share_can_follow_one_another() {
    // Each amount of parity is a separate scheme, and a queue pair accepts 16 schemes of its peer.
    let mut world = World::new(12, 2, clean(), &target(20_000, SECOND, 10 * SECOND));
    let mut schemes = std::collections::BTreeSet::new();
    let levels = (3..48).flat_map(|percent| [0.001, f64::from(percent) / 100.0]);
    for loss_packet in levels.chain([0.03]) {
        let [a, b] = [0, 1].map(|rank| crate::world::address(rank).ip());
        for (from, to) in [(a, b), (b, a)] {
            let link = losing(loss_packet);
            world.network.set_link(from, to, link, &[]).unwrap();
        }
        for _ in 0..12 {
            schemes.insert(toward_target(&mut world, 1).0.to_string());
        }
    }
    assert!((5..=14).contains(&schemes.len()), "{schemes:?}");
    let (_, _, report) = toward_target(&mut world, 30);
    assert!(report.missing_bytes < report.bytes / 10, "{report:?}");
}

#[test]
fn parity_is_no_longer_than_segments_of_any_length() {
    // 48 packets form two groups. Each group has at most 24 packets of parity.
    let options = GroupOptions {
        packets_per_segment: 48,
        ..target(20_000, SECOND, 10 * SECOND)
    };
    let mut world = World::new(13, 2, losing(0.33), &options);
    let count = 16 << 10;
    for _ in 0..20 {
        for rank in 0..2 {
            start_all_reduce(&mut world, rank, Reduction::Sum, count);
        }
        let report = check_started(&mut world, Reduction::Sum, count, 1).remove(0);
        let scheme = match report.repair.expect("a bounded operation") {
            (scheme, RepairChoice::Parity { k, m }) => {
                assert_eq!(scheme.to_string(), format!("best-effort+ec-mds:{k},{m}"));
                assert!(m <= 24, "{scheme}");
                continue;
            }
            (scheme, RepairChoice::Repeats { .. }) => (scheme, SchemeName::BestEffortSr),
            (scheme, _) => (scheme, SchemeName::BestEffort),
        };
        assert_eq!(scheme.0, scheme.1);
    }
}

#[test]
fn parity_longer_than_a_segment_is_refused_by_name() {
    let with = |packets, exact: &str, bounded: &str| GroupOptions {
        packets_per_segment: packets,
        scheme: exact.parse().unwrap(),
        ..scheme(bounded)
    };
    let refused = [
        (
            with(512, "ec-mds:8,16", "best-effort"),
            "scheme = ec-mds:8,16",
        ),
        (
            with(33, "ec-mds:32,17", "best-effort"),
            "scheme = ec-mds:32,17",
        ),
        (
            with(64, "sr-nack", "best-effort+ec-mds:4,8"),
            "bounded scheme = best-effort+ec-mds:4,8",
        ),
    ];
    for (options, what) in refused {
        let packets = options.packets_per_segment;
        let expected = format!(
            "rank 0: {what}: at most {packets} packets of parity for a segment of {packets}"
        );
        assert_eq!(problem(options), Some(expected));
    }
    assert_eq!(
        problem(with(512, "ec-mds:32,32", "best-effort+ec-mds:4,4")),
        None
    );
    assert_eq!(problem(with(33, "ec-mds:32,16", "best-effort")), None);
}

#[test]
fn a_path_that_drops_less_than_the_target_gets_neither() {
    let mut world = World::new(8, 3, losing(0.004), &target(20_000, MS, SECOND));
    let (scheme, repair_choice, _) = toward_target(&mut world, 30);
    assert_eq!(
        (scheme, repair_choice),
        (SchemeName::BestEffort, RepairChoice::Wait)
    );
}

#[test]
fn a_target_that_cannot_be_met_in_time_is_reported_with_what_can() {
    // Not even one chunk of parity fits into the maximum timeout.
    let mut world = World::new(9, 3, losing(0.2), &target(1_000, SECOND, MS));
    let (scheme, repair_choice, report) = toward_target(&mut world, 20);
    assert_eq!(scheme, SchemeName::BestEffort);
    let RepairChoice::CannotBeMet { least_ppm } = repair_choice else {
        panic!("{repair_choice:?}");
    };
    assert!((100_000..300_000).contains(&least_ppm), "{least_ppm}");
    assert!(report.missing_bytes > 0);
}

#[test]
fn a_scheme_with_repair_stays_whatever_the_path_does() {
    let mut options = target(10_000, MS, SECOND);
    options.bounded.scheme = SchemeName::BestEffortSr;
    let mut world = World::new(10, 2, losing(0.04), &options);
    let (scheme, _, _) = toward_target(&mut world, 12);
    assert_eq!(scheme, SchemeName::BestEffortSr);
}

#[test]
fn a_scheme_that_leaves_more_than_the_target_is_reported() {
    // One chunk of parity for 32, or for 4, repairs a part if a path drops 20%.
    for name in ["best-effort+ec-mds:32,1", "best-effort+ec-xor:32,8"] {
        let mut options = target(10_000, MS, SECOND);
        options.bounded.scheme = name.parse().expect("a scheme");
        let mut world = World::new(10, 3, losing(0.2), &options);
        let (scheme, repair_choice, report) = toward_target(&mut world, 30);
        assert_eq!(scheme, options.bounded.scheme);
        let RepairChoice::CannotBeMet { least_ppm } = repair_choice else {
            panic!("{name}: {repair_choice:?}");
        };
        assert!(
            (50_000..300_000).contains(&least_ppm),
            "{name}: {least_ppm}"
        );
        // No waiting brings these bytes, so the timeouts stay short.
        assert!(report.elapsed < Duration::from_millis(100), "{report:?}");
    }
}
