//! Bounded operations beside a rank that stalls, dies or leaves: they end by their deadlines at all
//! other ranks, and their reports name what they lack.
#![allow(clippy::cast_possible_truncation, reason = "sizes are small")]

use std::time::Duration;

use farwrite::RateControl;
use farwrite_collectives::{
    BoundedOptions, Buffers, CollectiveError, Delivery, GroupOptions, Operation, OperationOptions,
    Reduction,
};
use farwrite_deadline::{Bounds, Policy};

use crate::bounded::with;
use crate::rounds::{COUNT, F32, Loop, MARGIN, buffers};
use crate::world::{MS, SECOND, World, clean, faulty};

/// The operations that reduce, gather and exchange parts.
fn operations() -> [Operation; 3] {
    [
        Operation::ReduceScatter {
            element: F32,
            reduction: Reduction::Mean,
        },
        Operation::AllGather,
        Operation::AllToAll {
            send_bytes: vec![],
            receive_bytes: vec![],
        },
    ]
}

pub(crate) fn options() -> GroupOptions {
    with(BoundedOptions {
        policy: Policy::OptiNic,
        bounds: Bounds {
            min_ns: MS,
            max_ns: 100 * MS,
        },
        ..BoundedOptions::default()
    })
}

#[test]
fn a_rank_that_stalls_delays_no_other_and_comes_back() {
    let (ranks, late, before, after) = (4, 2, 5, 30);
    for (operation, link) in operations()
        .into_iter()
        .flat_map(|operation| [clean(), faulty()].map(|link| (operation.clone(), link)))
    {
        let mut ranks_loop = Loop::new(
            (21, ranks),
            link,
            &options(),
            operation,
            Duration::from_secs(20),
        );
        ranks_loop.run(before);
        ranks_loop.world.stopped[late] = true;
        ranks_loop.run(after);
        let others = (0..ranks).filter(|&rank| rank != late);
        for (rank, number) in others
            .clone()
            .flat_map(|r| (before..after).map(move |n| (r, n)))
        {
            let report = ranks_loop.report(rank, number);
            let limit = report.limit.expect("it is no warm-up");
            assert!(report.elapsed <= limit + MARGIN, "{report:?}");
            // It sent nothing of later operations. Its last messages may still have been on the way.
            let lacks = report.missing.iter().filter(|m| m.ranks.contains(&late));
            let lacks: u64 = lacks.map(|m| m.range.end - m.range.start).sum();
            let all = if report.bytes == 4 * COUNT as u64 {
                1
            } else {
                ranks as u64
            };
            assert!(
                number == before || lacks == report.bytes / all,
                "{report:?}"
            );
        }
        ranks_loop.world.stopped[late] = false;
        ranks_loop.run(after);
        for number in 0..after {
            ranks_loop.report(late, number);
        }
        // When all have caught up, everything arrives that the path does not drop.
        let whole = Operation::Barrier;
        ranks_loop
            .world
            .all(&whole, OperationOptions::default(), |_| Buffers::default());
        // The barrier has a number too.
        for ended in &mut ranks_loop.ended {
            ended.push(Err(CollectiveError::NotConnected));
        }
        for _ in 0..5 {
            for rank in 0..ranks {
                ranks_loop.start(rank);
            }
            ranks_loop.world.run_until_over(1);
            for rank in 0..ranks {
                ranks_loop.ended[rank].extend(ranks_loop.world.take(rank));
            }
        }
        for rank in 0..ranks {
            let missing: u64 = (after + 1..after + 6)
                .map(|number| ranks_loop.report(rank, number).missing_bytes)
                .sum();
            let most = if link == clean() { 0 } else { COUNT as u64 * 5 };
            assert!(missing <= most, "rank {rank}: {missing}");
        }
    }
}

#[test]
fn a_rank_that_dies_is_left_out_until_the_timeout_names_it() {
    let timeout = Duration::from_secs(1);
    for operation in operations() {
        let mut ranks = Loop::new((22, 3), clean(), &options(), operation, timeout);
        ranks.run(5);
        ranks.world.stopped[1] = true;
        let stopped_ns = ranks.world.network.now_ns();
        ranks.run(10_000);
        let ended_ns = ranks.world.network.now_ns();
        let most_ns = stopped_ns + timeout.as_nanos() as u64 + 10 * MS;
        assert!(ended_ns <= most_ns, "{ended_ns}");
        for rank in [0, 2] {
            let (last, before) = ranks.ended[rank].split_last().expect("operations");
            let error = last.as_ref().unwrap_err().to_string();
            assert!(error.contains("rank 1 does not answer"), "{error}");
            assert!(before.len() > 20, "{} operations", before.len());
            for number in 5..before.len() {
                let report = ranks.report(rank, number);
                let limit = report.limit.expect("it is no warm-up");
                assert!(report.elapsed <= limit + MARGIN, "{report:?}");
            }
        }
    }
}

#[test]
fn a_rank_may_start_operations_long_before_others() {
    let bounded = OperationOptions {
        delivery: Delivery::Bounded,
        ..OperationOptions::default()
    };
    // Rank 1 waits for each operation. The second number exceeds what a rank keeps of records of
    // operations that it has not started.
    for count in [12, 4_200] {
        let mut world = World::new(26, 2, clean(), &options());
        let start = |world: &mut World, rank| {
            let buffers = Buffers::new(vec![1; 64], vec![0; 128]);
            world.start(rank, &Operation::AllGather, bounded, buffers);
        };
        for _ in 0..count {
            start(&mut world, 0);
        }
        world.run(50 * MS, |_| false);
        for number in 0..count {
            start(&mut world, 1);
            let is_over = world.run(SECOND, |world| world.finished(1) > number);
            assert!(is_over, "operation {number} of {count} hangs");
        }
        assert!(world.run(SECOND, |world| world.finished(0) == count));
        for ended in (0..2).flat_map(|rank| world.take(rank)) {
            ended.expect("the operation succeeds");
        }
    }
}

#[test]
fn a_rank_that_is_too_far_behind_is_named() {
    // So slow that it is asked, and has time to answer.
    let mut options = options();
    options.bounded.bounds.min_ns = 5 * MS;
    let mut ranks = Loop::new(
        (23, 2),
        clean(),
        &options,
        Operation::AllGather,
        Duration::from_secs(1_000),
    );
    ranks.run(3);
    // The records of the third operation are still to be sent.
    ranks.world.run(10 * MS, |_| false);
    ranks.world.stopped[1] = true;
    ranks.run(10_000);
    let (last, before) = ranks.ended[0].split_last().expect("operations");
    assert_eq!(before.len(), 3 + 1_025);
    let error = last.as_ref().unwrap_err().to_string();
    let expected = "rank 1 does not answer: its record of operation 3 (all-gather) is missing, and \
                    1024 later bounded operations have ended without it";
    assert_eq!(error, expected);
}

#[test]
fn the_timeouts_of_an_operation_are_equal_at_all_ranks() {
    for operation in operations() {
        let mut ranks = Loop::new(
            (24, 4),
            clean(),
            &options(),
            operation,
            Duration::from_secs(20),
        );
        ranks.run(40);
        let mut limits = std::collections::BTreeSet::new();
        for number in 0..40 {
            let of_ranks = (0..4).map(|rank| ranks.report(rank, number).limit);
            let of_ranks: Vec<_> = of_ranks.collect();
            assert!(
                of_ranks.windows(2).all(|two| two[0] == two[1]),
                "{of_ranks:?}"
            );
            assert_eq!(of_ranks[0].is_none(), number == 0);
            limits.insert(of_ranks[0]);
        }
        assert!(limits.len() > 5, "they adapt: {limits:?}");
    }
}

#[test]
fn a_rank_that_leaves_sends_its_contributions_first() {
    // Sending takes 10 ms, and the deadline leaves enough time for a rank that starts late.
    let mut options = options();
    options.segments_in_flight = 16;
    options.rate_control = RateControl::Fixed {
        rate_bps: 10_000_000,
    };
    options.bounded.bounds = Bounds {
        min_ns: 100 * MS,
        max_ns: 100 * MS,
    };
    let mut ranks = Loop::new(
        (25, 2),
        clean(),
        &options,
        Operation::AllGather,
        Duration::from_secs(20),
    );
    ranks.run(4);
    ranks.start(1);
    ranks.world.run(8 * MS, |_| false);
    ranks.start(0);
    assert!(ranks.world.run(SECOND, |world| world.finished(0) == 1));
    assert_eq!(ranks.world.finished(1), 0, "rank 1 still receives");
    ranks.world.members[0].leave();
    let mut in_flight = true;
    while in_flight {
        ranks.world.run(MS, |_| false);
        let now_ns = ranks.world.network.now_ns();
        in_flight = ranks.world.members[0].in_flight(now_ns) > 0;
    }
    ranks.world.stopped[0] = true;
    assert!(ranks.world.run(SECOND, |world| world.finished(1) == 1));
    ranks.ended[1].extend(ranks.world.take(1));
    assert_eq!(ranks.report(1, 4).missing, []);
}

#[test]
fn a_rank_that_runs_an_exact_operation_is_named() {
    for (operation, before) in operations()
        .into_iter()
        .flat_map(|o| [(o.clone(), 0), (o, 4)])
    {
        let mut ranks = Loop::new(
            (26, 2),
            clean(),
            &options(),
            operation,
            Duration::from_secs(20),
        );
        ranks.run(before);
        ranks.start(0);
        ranks.options.delivery = Delivery::Exact;
        ranks.start(1);
        let both = |world: &World| world.finished(1) == 1;
        assert!(ranks.world.run(10 * SECOND, both), "the exact one hangs");
        let error = ranks.world.take(1).remove(0).unwrap_err().to_string();
        assert!(error.contains("delivery = "), "{error}");
        let now_ns = ranks.world.network.now_ns();
        ranks.world.run(SECOND, |_| false);
        let next = buffers(&ranks.operation, 0, 2);
        let next = ranks.world.members[0].start(now_ns, &ranks.operation, ranks.options, next);
        let error = next.unwrap_err().to_string();
        assert!(error.contains("delivery = "), "{error}");
    }
}
