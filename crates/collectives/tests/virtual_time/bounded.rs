//! Bounded operations: every value is the reduction of the contributions of exactly those ranks
//! that the report does not name, for all behaviour of the path and the ranks.
#![allow(clippy::cast_possible_truncation, reason = "sizes are small")]

use std::time::Duration;

use farwrite_collectives::schedule::cut;
use farwrite_collectives::{
    Algorithm, BoundedOptions, Buffers, CollectiveError, Delivery, ElementType, GroupOptions,
    Missing, Operation, OperationOptions, Reduction, Report, kernel, replay,
};
use farwrite_deadline::{Bounds, CutCounts, Policy};

use crate::world::{MS, SECOND, World, clean, faulty, losing, options, values};

const BOUNDED: OperationOptions = OperationOptions {
    algorithm: Algorithm::Auto,
    timeout: Some(Duration::from_secs(5)),
    delivery: Delivery::Bounded,
};
const F32: ElementType = ElementType::F32;
const COUNT: usize = 6_001;

fn all_reduce(reduction: Reduction) -> Operation {
    Operation::AllReduce {
        element: F32,
        reduction,
    }
}

/// Returns the ranks whose contributions a byte of a result lacks.
fn lacks(missing: &[Missing], at: u64) -> &[usize] {
    let range = missing.iter().find(|missing| missing.range.contains(&at));
    range.map_or(&[], |missing| &missing.ranks)
}

/// Returns the reduction of a value by the owner of its part and the ranks after it, without the
/// missing ranks.
fn reduced(
    reduction: Reduction,
    owner: usize,
    ranks: usize,
    lacks: &[usize],
    value: impl Fn(usize) -> [u8; 4],
) -> [u8; 4] {
    let order = (0..ranks).map(|distance| (owner + distance) % ranks);
    let mut order = order.filter(|rank| !lacks.contains(rank));
    let mut sum = value(order.next().expect("the owner contributes"));
    for rank in order {
        kernel::reduce(F32, reduction, &mut sum, &value(rank));
    }
    if reduction == Reduction::Mean {
        kernel::divide(F32, &mut sum, (ranks - lacks.len()) as u32);
    }
    sum
}

pub(crate) fn start_all_reduce(world: &mut World, rank: usize, reduction: Reduction, count: usize) {
    let buffers = Buffers::in_place(values(F32, rank, count));
    world.start(rank, &all_reduce(reduction), BOUNDED, buffers);
}

/// Runs an all-reduce at all ranks, and checks each value against the report. Returns one report.
pub(crate) fn check_all_reduce(world: &mut World, reduction: Reduction) -> Report {
    for rank in 0..world.ranks() {
        start_all_reduce(world, rank, reduction, COUNT);
    }
    check_started(world, reduction, COUNT, 1).remove(0)
}

/// Like [`check_all_reduce`] for several operations. The rank `late` starts them one second after
/// all others.
fn check_with_late_rank(
    world: &mut World,
    late: usize,
    reduction: Reduction,
    count: usize,
    operations: usize,
) -> Vec<Report> {
    let others = (0..world.ranks()).filter(|&rank| rank != late);
    for rank in others.chain([late]) {
        if rank == late {
            world.run(SECOND, |_| false);
        }
        for _ in 0..operations {
            start_all_reduce(world, rank, reduction, count);
        }
    }
    check_started(world, reduction, count, operations)
}

/// Waits for the all-reduces of `count` values that all ranks have started, and checks each value
/// against the reports. Returns the reports of one rank, in the order of operations.
pub(crate) fn check_started(
    world: &mut World,
    reduction: Reduction,
    count: usize,
    operations: usize,
) -> Vec<Report> {
    world.run_until_over(operations);
    let ended = (0..world.ranks()).map(|rank| {
        let mut ended: Vec<_> = world.take(rank).into_iter().map(Result::unwrap).collect();
        ended.sort_by_key(|(report, _)| report.operation);
        ended
    });
    let mut ended: Vec<_> = ended.map(Vec::into_iter).collect();
    let check = |_| {
        let of_ranks = ended.iter_mut().map(|ended| ended.next().unwrap());
        check_operation(&of_ranks.collect::<Vec<_>>(), reduction, count)
    };
    (0..operations).map(check).collect()
}

/// Checks the result of an operation at each rank.
fn check_operation(ended: &[(Report, Vec<u8>)], reduction: Reduction, count: usize) -> Report {
    let ranks = ended.len();
    let inputs: Vec<_> = (0..ranks).map(|rank| values(F32, rank, count)).collect();
    let (report, output) = &ended[0];
    for (other, same) in ended {
        assert!(same == output, "all ranks have the same");
        assert_eq!(other.missing, report.missing, "and know the same of it");
    }
    for (owner, part) in cut(count as u64, 4, ranks).into_iter().enumerate() {
        for at in part.step_by(4) {
            let lacks = lacks(&report.missing, at);
            assert!(!lacks.contains(&owner));
            let at = at as usize;
            let of = |rank: usize| *inputs[rank][at..].first_chunk().unwrap();
            let expected = reduced(reduction, owner, ranks, lacks, of);
            assert_eq!(output[at..at + 4], expected, "byte {at}, without {lacks:?}");
        }
    }
    let missing = report.missing.iter();
    let missing_bytes: u64 = missing.map(|m| m.range.end - m.range.start).sum();
    assert_eq!(report.missing_bytes, missing_bytes);
    let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let again = replay(
        &options(),
        0,
        &all_reduce(reduction),
        &inputs,
        &report.missing,
    );
    assert!(
        again.unwrap() == *output,
        "the report replays the operation"
    );
    report.clone()
}

pub(crate) fn with(bounded: BoundedOptions) -> GroupOptions {
    GroupOptions {
        bounded,
        ..options()
    }
}

pub(crate) fn scheme(name: &str) -> GroupOptions {
    with(BoundedOptions {
        scheme: name.parse().expect("a scheme"),
        ..BoundedOptions::default()
    })
}

/// Returns the error when a rank with these options is created.
pub(crate) fn problem(options: GroupOptions) -> Option<String> {
    let network = farwrite::fabric::sim::SimNetwork::new(1);
    let fabric = network.endpoint(crate::world::address(0), 1).unwrap();
    let endpoint = farwrite::Endpoint::new(fabric, [1; 32]);
    let error = farwrite_collectives::Member::new(endpoint, 0, 2, options).err();
    error.map(|error| error.to_string())
}

#[test]
fn without_losses_nothing_is_missing() {
    for ranks in [1, 2, 4] {
        let mut world = World::new(1, ranks, clean(), &options());
        for round in 0..4 {
            let report = check_all_reduce(&mut world, Reduction::Sum);
            assert_eq!(report.missing, []);
            // The first operation measures how long it takes. A rank alone waits for nothing.
            assert_eq!(
                report.limit.is_none(),
                round == 0 || ranks == 1,
                "{ranks} ranks, {report:?}"
            );
        }
    }
}

#[test]
fn the_first_limit_is_at_most_twice_the_warm_up() {
    for ranks in [2, 4] {
        let mut world = World::new(1, ranks, clean(), &options());
        let mut run = || {
            let scatter = Operation::ReduceScatter {
                element: F32,
                reduction: Reduction::Sum,
            };
            for rank in 0..ranks {
                let source = values(F32, rank, COUNT * ranks);
                let buffers = Buffers::new(source, vec![0; 4 * COUNT]);
                world.start(rank, &scatter, BOUNDED, buffers);
            }
            world.run_until_over(1);
            let mut report = |rank| world.take(rank).remove(0).unwrap().0;
            (0..ranks).map(&mut report).collect::<Vec<_>>()
        };
        let longest = run().iter().map(|report| report.elapsed).max();
        let limit = run()[0].limit.expect("a limit after the warm-up");
        // The time of the warm-up includes the records of the second phase.
        let most = longest.expect("ranks") * 2 + Duration::from_micros(50);
        assert!(limit <= most, "{ranks} ranks: {limit:?}, at most {most:?}");
    }
}

#[test]
fn every_value_has_exactly_the_contributors_that_are_named() {
    for name in ["best-effort", "best-effort+sr", "best-effort+ec-mds:4,2"] {
        let mut world = World::new(2, 4, faulty(), &scheme(name));
        let mut missing_bytes = 0;
        for round in 0..6 {
            let reduction = [Reduction::Sum, Reduction::Mean, Reduction::Max][round % 3];
            missing_bytes += check_all_reduce(&mut world, reduction).missing_bytes;
        }
        if name == "best-effort" {
            assert!(missing_bytes > 0, "the path drops packets");
        }
        // Exact operations also work in this group.
        world.all(&Operation::Barrier, OperationOptions::default(), |_| {
            Buffers::default()
        });
    }
}

#[test]
fn parts_are_reduced_gathered_and_exchanged_in_time() {
    let ranks = 3;
    let mut world = World::new(3, ranks, faulty(), &options());
    let bytes = 4 * COUNT;
    let whole: Vec<_> = (0..ranks)
        .map(|rank| values(F32, rank, COUNT * ranks))
        .collect();
    let mut missing_bytes = 0;
    for _ in 0..3 {
        let scatter = Operation::ReduceScatter {
            element: F32,
            reduction: Reduction::Mean,
        };
        let exchange = Operation::AllToAll {
            send_bytes: vec![],
            receive_bytes: vec![],
        };
        for (rank, input) in whole.iter().enumerate() {
            let input = || input.clone();
            world.start(
                rank,
                &scatter,
                BOUNDED,
                Buffers::new(input(), vec![1; bytes]),
            );
            let own = input()[..bytes].to_vec();
            let buffers = Buffers::new(own, vec![1; bytes * ranks]);
            world.start(rank, &Operation::AllGather, BOUNDED, buffers);
            let buffers = Buffers::new(input(), vec![1; bytes * ranks]);
            world.start(rank, &exchange, BOUNDED, buffers);
        }
        world.run_until_over(3);
        for rank in 0..ranks {
            let ended: Vec<_> = world.take(rank).into_iter().map(Result::unwrap).collect();
            missing_bytes += ended
                .iter()
                .map(|(report, _)| report.missing_bytes)
                .sum::<u64>();
            let (report, scattered) = &ended[0];
            for at in (0..bytes).step_by(4) {
                let of = |from: usize| *whole[from][rank * bytes + at..].first_chunk().unwrap();
                let lacks = lacks(&report.missing, at as u64);
                let expected = reduced(Reduction::Mean, rank, ranks, lacks, of);
                assert_eq!(scattered[at..at + 4], expected);
            }
            // Bytes are zero if they are missing, otherwise equal to what was sent.
            let check = |ended: &(Report, Vec<u8>), part: &dyn Fn(usize) -> Vec<u8>| {
                let mut expected: Vec<u8> = (0..ranks).flat_map(part).collect();
                for missing in &ended.0.missing {
                    let range = missing.range.start as usize..missing.range.end as usize;
                    assert_eq!(missing.ranks, [range.start / bytes]);
                    expected[range].fill(0);
                }
                assert!(ended.1 == expected);
            };
            let again = |operation: &Operation, report: &Report, length: usize| {
                let inputs: Vec<&[u8]> = whole.iter().map(|input| &input[..length]).collect();
                replay(&options(), rank, operation, &inputs, &report.missing).unwrap()
            };
            assert!(again(&scatter, report, bytes * ranks) == *scattered);
            assert!(again(&Operation::AllGather, &ended[1].0, bytes) == ended[1].1);
            assert!(again(&exchange, &ended[2].0, bytes * ranks) == ended[2].1);
            check(&ended[1], &|from| whole[from][..bytes].to_vec());
            check(&ended[2], &|from| {
                whole[from][rank * bytes..][..bytes].to_vec()
            });
        }
    }
    assert!(missing_bytes > 0, "the path drops packets");
}

#[test]
fn a_replay_of_what_cannot_have_been_is_refused_by_value() {
    let input = values(F32, 0, 8);
    let sum = all_reduce(Reduction::Sum);
    let broadcast = Operation::Broadcast { root: 0 };
    let lost = |range, rank| {
        let ranks = vec![rank];
        [Missing { range, ranks }]
    };
    let no_range = lost(0..0, 0);
    for (rank, operation, other, missing, expected) in [
        (2, &sum, 32, &no_range, "rank = 2"),
        (0, &sum, 28, &no_range, "28 bytes"),
        (0, &broadcast, 32, &no_range, "always exact"),
        (0, &sum, 32, &lost(0..33, 1), "0 to 33"),
        (0, &sum, 32, &lost(0..32, 2), "missing rank = 2"),
    ] {
        let inputs = [&input[..], &input[..other]];
        let error = replay(&options(), rank, operation, &inputs, missing).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    let scatter = Operation::ReduceScatter {
        element: F32,
        reduction: Reduction::Sum,
    };
    let error = replay(&options(), 0, &scatter, &[&input[..4], &input[..4]], &[]).unwrap_err();
    assert!(error.to_string().contains("bytes = 2"), "{error}");
    let packets = GroupOptions {
        packet_bytes: 0,
        ..options()
    };
    let error = replay(&packets, 0, &sum, &[&input, &input], &[]).unwrap_err();
    assert!(error.to_string().contains("packet_bytes = 0"), "{error}");
}

#[test]
fn a_rank_that_comes_late_is_left_out_and_comes_back() {
    let bounded = BoundedOptions {
        policy: Policy::OptiNic,
        bounds: Bounds {
            min_ns: MS,
            max_ns: 200 * MS,
        },
        ..BoundedOptions::default()
    };
    let mut world = World::new(4, 4, clean(), &with(bounded));
    for _ in 0..3 {
        check_all_reduce(&mut world, Reduction::Sum);
    }
    let report = check_with_late_rank(&mut world, 2, Reduction::Mean, COUNT, 1).remove(0);
    let parts = cut(COUNT as u64, 4, 4);
    for (owner, part) in parts.into_iter().enumerate() {
        for at in part.step_by(4) {
            let expected = if owner == 2 { &[][..] } else { &[2] };
            assert_eq!(lacks(&report.missing, at), expected, "part of {owner}");
        }
    }
    // Data that no rank waited for does not disturb later operations.
    for _ in 0..4 {
        check_all_reduce(&mut world, Reduction::Sum);
    }
    assert!(world.members[0].cut_counts().cut >= 1);
}

#[test]
fn the_counts_sum_up_what_reports_say_of_cuts_and_missing_bytes() {
    let bounded = BoundedOptions {
        policy: Policy::OptiNic,
        ..BoundedOptions::default()
    };
    let scatter = Operation::ReduceScatter {
        element: F32,
        reduction: Reduction::Sum,
    };
    let mut world = World::new(14, 2, losing(0.03), &with(bounded));
    let (mut cut, mut lossy_but_not_cut) = (0, 0);
    let mut sums = [[0; 4]; 2];
    for _ in 0..40 {
        for rank in 0..2 {
            let source = values(F32, rank, 2 * COUNT);
            let buffers = Buffers::new(source, vec![0; 4 * COUNT]);
            world.start(rank, &scatter, BOUNDED, buffers);
        }
        world.run_until_over(1);
        for (rank, [operations, cuts, bytes, missing]) in sums.iter_mut().enumerate() {
            let (report, _) = world.take(rank).remove(0).unwrap();
            let Some(limit) = report.limit else {
                assert!(!report.was_cut, "a warm-up has no deadline");
                continue;
            };
            if report.was_cut {
                assert!(report.elapsed >= limit, "{report:?}");
                assert!(report.missing_bytes > 0, "{report:?}");
                cut += 1;
            } else if report.missing_bytes > 0 {
                lossy_but_not_cut += 1;
            }
            *operations += 1;
            *cuts += u64::from(report.was_cut);
            *bytes += report.bytes;
            *missing += report.missing_bytes;
        }
    }
    assert!(cut > 0 && lossy_but_not_cut > 0, "the path makes both");
    for (rank, sums) in sums.into_iter().enumerate() {
        let cut_counts = world.members[rank].cut_counts();
        let CutCounts {
            operations,
            cut,
            expected_bytes,
            missing_bytes,
        } = cut_counts;
        assert_eq!([operations, cut, expected_bytes, missing_bytes], sums);
    }
}

#[test]
fn a_rank_whose_peers_came_in_time_was_not_cut() {
    let mut world = World::new(15, 3, clean(), &options());
    for _ in 0..3 {
        check_all_reduce(&mut world, Reduction::Sum);
    }
    for rank in [0, 2, 1] {
        if rank == 1 {
            world.run(SECOND, |_| false);
        }
        start_all_reduce(&mut world, rank, Reduction::Sum, COUNT);
    }
    world.run_until_over(1);
    for rank in 0..3 {
        let (report, _) = world.take(rank).remove(0).unwrap();
        // Rank 1 came late: all lack its contributions and know of it, but it waited for nobody.
        assert!(report.missing_bytes > 0, "rank {rank}");
        assert_eq!(report.was_cut, rank != 1, "rank {rank}");
    }
}

#[test]
fn segments_that_were_never_sent_are_missing() {
    // There are 16 segments for each rank: 4 have a receive and 4 more have a buffer. The deadline
    // of rank 0 passes before it has posted the others. Receives are open when rank 1 is informed
    // of them.
    let count = 16 << 10;
    let mut world = World::new(11, 2, clean(), &options());
    for _ in 0..3 {
        check_all_reduce(&mut world, Reduction::Sum);
        for rank in 0..2 {
            start_all_reduce(&mut world, rank, Reduction::Sum, count);
        }
        check_started(&mut world, Reduction::Sum, count, 1);
    }
    for (late, operations) in [(1, 1), (0, 1), (1, 3)] {
        let reports = check_with_late_rank(&mut world, late, Reduction::Sum, count, operations);
        assert!(reports.iter().any(|report| report.missing_bytes > 0));
    }
    for _ in 0..3 {
        check_all_reduce(&mut world, Reduction::Sum);
    }
}

#[test]
fn a_rank_that_dies_is_named_by_all() {
    for after_ns in [0, MS / 2] {
        let mut world = World::new(5, 4, faulty(), &options());
        check_all_reduce(&mut world, Reduction::Sum);
        for rank in 0..4 {
            start_all_reduce(&mut world, rank, Reduction::Sum, COUNT);
        }
        world.run(after_ns, |_| false);
        world.stopped[1] = true;
        world.run_until_over(1);
        for rank in [0, 2, 3] {
            let error = world.take(rank).remove(0).unwrap_err().to_string();
            assert!(error.contains("rank 1 does not answer"), "{error}");
        }
    }
}

#[test]
fn what_cannot_be_bounded_is_refused_by_name() {
    let mut world = World::new(1, 2, clean(), &options());
    let cases = [
        (
            Operation::AllReduce {
                element: ElementType::I32,
                reduction: Reduction::Sum,
            },
            "rank 0: element type = int32: bounded operations are for floats",
        ),
        (
            Operation::Broadcast { root: 0 },
            "rank 0: delivery = bounded: broadcast is always exact",
        ),
        (
            Operation::AllToAll {
                send_bytes: vec![4, 4],
                receive_bytes: vec![4, 4],
            },
            "rank 0: delivery = bounded: an all-to-all of given sizes is always exact",
        ),
    ];
    for (operation, expected) in cases {
        let buffers = match operation {
            Operation::AllToAll { .. } => Buffers::new(vec![0; 8], vec![0; 8]),
            _ => Buffers::in_place(vec![0; 8]),
        };
        let error = world.members[0]
            .start(0, &operation, BOUNDED, buffers)
            .unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    for scheme in ["sr-nack", "best-effort+exact"] {
        let options = BoundedOptions {
            scheme: scheme.parse().unwrap(),
            ..BoundedOptions::default()
        };
        let expected = "a scheme of best effort without critical ranges";
        let expected = format!("rank 0: bounded scheme = {scheme}: {expected}");
        assert_eq!(problem(with(options)), Some(expected));
    }
    // One rank is bounded, the other is not.
    for (rank, delivery) in [Delivery::Bounded, Delivery::Exact].into_iter().enumerate() {
        let options = OperationOptions {
            delivery,
            ..BOUNDED
        };
        world.start(
            rank,
            &all_reduce(Reduction::Sum),
            options,
            Buffers::in_place(vec![0; 4000]),
        );
    }
    world.run_until_over(1);
    let error = world.take(0).remove(0).unwrap_err();
    assert!(!matches!(error, CollectiveError::Timeout { .. }), "{error}");
    assert!(error.to_string().contains("delivery = "), "{error}");
}

#[test]
fn operations_end_soon_on_a_path_that_loses_packets() {
    // The timeout adapts: no operation takes a long time.
    let mut world = World::new(6, 3, losing(0.05), &options());
    let mut slowest = Duration::ZERO;
    for round in 0..20 {
        let report = check_all_reduce(&mut world, Reduction::Sum);
        let share = report.missing_bytes as f64 / report.bytes as f64;
        assert!(share < 0.35, "round {round}: {share}");
        slowest = slowest.max(report.elapsed);
    }
    assert!(slowest < Duration::from_millis(200), "{slowest:?}");
}

#[test]
fn an_all_to_all_of_different_sizes_is_refused_by_name() {
    let mut world = World::new(1, 2, clean(), &options());
    for (rank, bytes) in [1600, 800].into_iter().enumerate() {
        let exchange = Operation::AllToAll {
            send_bytes: vec![],
            receive_bytes: vec![],
        };
        let buffers = Buffers::new(vec![1; bytes], vec![0; bytes]);
        world.start(rank, &exchange, BOUNDED, buffers);
    }
    world.run_until_over(1);
    let error = world.take(0).remove(0).unwrap_err().to_string();
    assert!(
        error.contains("rank 1 has bytes = 800, this rank 1600"),
        "{error}"
    );
}
