//! Bounded all-reduces around a ring: each value has exactly the contributors that are named, for all
//! behaviour of the path and the ranks.
#![allow(clippy::cast_possible_truncation, reason = "sizes are small")]

use std::time::Duration;

use farwrite::fabric::sim::LinkConfig;
use farwrite_collectives::schedule::cut;
use farwrite_collectives::{
    Algorithm, Delivery, GroupOptions, Hadamard, Operation, Reduction, Report, kernel,
};

use crate::bounded::problem;
use crate::late_ranks;
use crate::rounds::{F32, Loop, MARGIN, input};
use crate::world::{MS, clean, faulty};

const TIMEOUT: Duration = Duration::from_secs(20);

fn options(parts: Delivery) -> GroupOptions {
    let mut options = late_ranks::options();
    options.bounded.algorithm = Algorithm::Ring;
    options.bounded.parts = parts;
    options
}

fn all_reduce(reduction: Reduction) -> Operation {
    Operation::AllReduce {
        element: F32,
        reduction,
    }
}

fn around(
    (seed, ranks): (u64, usize),
    link: LinkConfig,
    options: &GroupOptions,
    reduction: Reduction,
) -> Loop {
    Loop::new((seed, ranks), link, options, all_reduce(reduction), TIMEOUT)
}

/// Checks each value of a result: the sum begins at the contributor that is farthest before the
/// owner. Returns the report, which also replays the operation.
fn check(rounds: &Loop, rank: usize, number: usize) -> &Report {
    let report = rounds.report(rank, number);
    let (_, output) = rounds.ended[rank][number].as_ref().unwrap();
    let ranks = rounds.world.ranks();
    let Operation::AllReduce { reduction, .. } = rounds.operation else {
        panic!("all operations are all-reduces");
    };
    let inputs: Vec<_> = (0..ranks)
        .map(|rank| input(&rounds.operation, rank, ranks))
        .collect();
    for (owner, part) in cut(output.len() as u64 / 4, 4, ranks)
        .into_iter()
        .enumerate()
    {
        for at in part.step_by(4) {
            let missing = report.missing.iter().find(|m| m.range.contains(&at));
            let lacks = missing.map_or(&[][..], |missing| &missing.ranks);
            let chain = (1..=ranks).map(|distance| (owner + distance) % ranks);
            let contributors: Vec<usize> = chain.filter(|rank| !lacks.contains(rank)).collect();
            if contributors != [rank] {
                let suffix = (1..=ranks).map(|distance| (owner + distance) % ranks);
                let suffix: Vec<usize> = suffix.skip(ranks - contributors.len()).collect();
                assert_eq!(contributors, suffix, "the last ranks before the owner");
            }
            let at = at as usize;
            let of = |rank: usize| -> [u8; 4] { *inputs[rank][at..].first_chunk().unwrap() };
            let mut sum = of(contributors[0]);
            for &rank in &contributors[1..] {
                let mut next = of(rank);
                kernel::reduce(F32, reduction, &mut next, &sum);
                sum = next;
            }
            if reduction == Reduction::Mean {
                kernel::divide(F32, &mut sum, contributors.len() as u32);
            }
            assert_eq!(output[at..at + 4], sum, "byte {at}, without {lacks:?}");
        }
    }
    report
}

#[test]
fn without_losses_a_ring_has_all_contributions() {
    for parts in [Delivery::Exact, Delivery::Bounded] {
        for ranks in [1, 2, 3, 5] {
            let mut rounds = around((41, ranks), clean(), &options(parts), Reduction::Sum);
            rounds.run(4);
            for number in 0..4 {
                let (_, first) = rounds.ended[0][number].as_ref().unwrap();
                for rank in 0..ranks {
                    assert_eq!(check(&rounds, rank, number).missing, []);
                    let (_, output) = rounds.ended[rank][number].as_ref().unwrap();
                    assert!(output == first, "{ranks} ranks, operation {number}");
                }
            }
        }
    }
}

#[test]
fn each_value_around_a_ring_has_the_contributors_that_are_named() {
    for reduction in [Reduction::Sum, Reduction::Mean, Reduction::Max] {
        let mut rounds = around((42, 4), faulty(), &options(Delivery::Exact), reduction);
        rounds.run(20);
        let mut missing_bytes = 0;
        for number in 0..20 {
            let first = check(&rounds, 0, number);
            missing_bytes += first.missing_bytes;
            for rank in 1..4 {
                assert_eq!(check(&rounds, rank, number).missing, first.missing);
            }
        }
        assert!(missing_bytes > 0, "the path drops packets");
    }
}

#[test]
fn with_bounded_parts_a_ring_ends_by_its_deadline_at_each_rank() {
    for reduction in [Reduction::Sum, Reduction::Mean] {
        let mut rounds = around((43, 4), faulty(), &options(Delivery::Bounded), reduction);
        rounds.run(30);
        let (mut alone, mut others, mut differ) = (0, 0, 0);
        for (rank, number) in (0..4).flat_map(|rank| (0..30).map(move |number| (rank, number))) {
            let report = check(&rounds, rank, number);
            for missing in &report.missing {
                let bytes = missing.range.end - missing.range.start;
                let is_alone = missing.ranks.len() == 3 && !missing.ranks.contains(&rank);
                *(if is_alone { &mut alone } else { &mut others }) += bytes;
            }
            let limit = report.limit.unwrap_or(Duration::MAX - MARGIN);
            assert!(report.elapsed <= limit + MARGIN, "{report:?}");
            let [ours, theirs] =
                [rank, 0].map(|rank| &rounds.ended[rank][number].as_ref().unwrap().1);
            differ += usize::from(ours != theirs);
        }
        assert!(
            alone > 0 && others > 0 && differ > 0,
            "{alone} {others} {differ}"
        );
    }
}

#[test]
fn a_rank_of_a_ring_that_stalls_delays_no_other_and_comes_back() {
    for link in [clean(), faulty()] {
        let (ranks, late, before, after) = (4, 2, 5, 25);
        let mean = all_reduce(Reduction::Mean);
        let options = options(Delivery::Bounded);
        let timeout = Duration::from_secs(2);
        let mut rounds = Loop::new((44, ranks), link, &options, mean, timeout);
        rounds.run(before);
        rounds.world.stopped[late] = true;
        rounds.run(after);
        for rank in (0..ranks).filter(|&rank| rank != late) {
            for number in before..after {
                let report = check(&rounds, rank, number);
                let limit = report.limit.expect("it is no warm-up");
                assert!(report.elapsed <= limit + MARGIN, "{report:?}");
                let lacks = report.missing.iter().filter(|m| m.ranks.contains(&late));
                let lacks: u64 = lacks.map(|m| m.range.end - m.range.start).sum();
                assert!(number == before || lacks == report.bytes, "{report:?}");
            }
        }
        rounds.world.stopped[late] = false;
        rounds.run(after);
        for number in 0..after {
            check(&rounds, late, number);
        }
        rounds.run(after + 20);
        for rank in 0..ranks {
            // All have caught up.
            let missing = (after + 10..after + 20).map(|number| check(&rounds, rank, number));
            let whole = missing
                .filter(|report| report.missing_bytes < report.bytes)
                .count();
            assert!(whole > 5, "rank {rank}: {whole}");
        }
    }
}

#[test]
fn rings_in_flight_keep_their_contributors_apart() {
    for parts in [Delivery::Exact, Delivery::Bounded] {
        let mut rounds = around((45, 3), faulty(), &options(parts), Reduction::Sum);
        rounds.run(3);
        for late in 0..3 {
            for rank in (0..3).filter(|&rank| rank != late).chain([late]) {
                if rank == late {
                    rounds.world.run(20 * MS, |_| false);
                }
                (0..4).for_each(|_| rounds.start(rank));
            }
            rounds.world.run_until_over(4);
            for rank in 0..3 {
                let ended = rounds.world.take(rank);
                rounds.ended[rank].extend(ended);
            }
        }
        for (rank, number) in (0..3).flat_map(|rank| (0..15).map(move |number| (rank, number))) {
            check(&rounds, rank, number);
        }
    }
}

/// Returns the largest difference to the sum of all contributions.
fn largest_error(rounds: &Loop, rank: usize, number: usize) -> f32 {
    let ranks = rounds.world.ranks();
    let inputs: Vec<_> = (0..ranks)
        .map(|rank| input(&rounds.operation, rank, ranks))
        .collect();
    let (_, output) = rounds.ended[rank][number].as_ref().unwrap();
    let value = |bytes: &[u8], at: usize| f32::from_ne_bytes(*bytes[at..].first_chunk().unwrap());
    let errors = (0..output.len()).step_by(4).map(|at| {
        let sum: f32 = inputs.iter().map(|input| value(input, at)).sum();
        (sum - value(output, at)).abs()
    });
    errors.fold(0.0, f32::max)
}

#[test]
fn transformed_contributions_travel_around_a_ring() {
    for parts in [Delivery::Exact, Delivery::Bounded] {
        let mut options = options(parts);
        options.bounded.hadamard = Some(Hadamard {
            block: 64,
            stride: 0,
        });
        let mut rounds = around((46, 3), clean(), &options, Reduction::Sum);
        rounds.run(4);
        for (rank, number) in (0..3).flat_map(|rank| (0..4).map(move |number| (rank, number))) {
            assert_eq!(rounds.report(rank, number).missing, []);
            let error = largest_error(&rounds, rank, number);
            assert!(error < 0.02, "{error}: values are up to 10,000");
        }
        let mut rounds = around((47, 3), faulty(), &options, Reduction::Mean);
        rounds.run(20);
        let mut missing_bytes = 0;
        for (rank, number) in (0..3).flat_map(|rank| (0..20).map(move |number| (rank, number))) {
            // The report replays the operation.
            missing_bytes += rounds.report(rank, number).missing_bytes;
        }
        assert!(missing_bytes > 0, "the path drops packets");
    }
}

#[test]
fn an_algorithm_that_has_no_deadlines_is_refused_by_name() {
    let mut tree = options(Delivery::Exact);
    tree.bounded.algorithm = Algorithm::Tree;
    let expected = "rank 0: bounded.algorithm = tree: auto, direct or ring";
    assert_eq!(problem(tree).as_deref(), Some(expected));
}
