//! Bounded operations: every value is the reduction of exactly the contributors that the report
//! names, whatever the path and the ranks do.
#![allow(clippy::cast_possible_truncation, reason = "sizes are small")]

use std::time::Duration;

use farwrite::deadline::{Bounds, Policy};
use farwrite::fabric::sim::{LinkConfig, Loss};
use farwrite_collectives::schedule::cut;
use farwrite_collectives::{
    Algorithm, BoundedOptions, Buffers, CollectiveError, Delivery, ElementType, GroupOptions,
    Missing, Operation, OperationOptions, Reduction, Report, kernel,
};

use crate::world::{MS, SECOND, World, clean, faulty, options, values};

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

/// Ranks that a byte of a result lacks.
fn lacks(missing: &[Missing], at: u64) -> &[usize] {
    let range = missing.iter().find(|missing| missing.range.contains(&at));
    range.map_or(&[], |missing| &missing.ranks)
}

/// The reduction of a value by the owner of its part and those after it, without those missing.
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

fn value(rank: usize, place: usize) -> [u8; 4] {
    let all = values(F32, rank, place + 1);
    *all.last_chunk().expect("at least one value")
}

/// Runs an all-reduce at all ranks, and checks each value against the report. Returns one report.
fn check_all_reduce(world: &mut World, reduction: Reduction) -> Report {
    let ranks = world.ranks();
    let inputs: Vec<_> = (0..ranks).map(|rank| values(F32, rank, COUNT)).collect();
    for (rank, input) in inputs.iter().enumerate() {
        let buffers = Buffers::in_place(input.clone());
        world.start(rank, &all_reduce(reduction), BOUNDED, buffers);
    }
    world.run_until_over(1);
    let ended: Vec<_> = (0..ranks)
        .map(|rank| world.take(rank).remove(0).unwrap())
        .collect();
    let (report, output) = &ended[0];
    for (other, same) in &ended {
        assert!(same == output, "all ranks have the same");
        assert_eq!(other.missing, report.missing, "and know the same of it");
    }
    for (owner, part) in cut(COUNT as u64, 4, ranks).into_iter().enumerate() {
        for at in part.step_by(4) {
            let lacks = lacks(&report.missing, at);
            assert!(!lacks.contains(&owner));
            let at = at as usize;
            let of = |rank: usize| *inputs[rank][at..].first_chunk().unwrap();
            let expected = reduced(reduction, owner, ranks, lacks, of);
            assert_eq!(output[at..at + 4], expected, "byte {at}, without {lacks:?}");
        }
    }
    let missing_bytes: u64 = report
        .missing
        .iter()
        .map(|m| m.range.end - m.range.start)
        .sum();
    assert_eq!(report.missing_bytes, missing_bytes);
    report.clone()
}

fn with(bounded: BoundedOptions) -> GroupOptions {
    GroupOptions {
        bounded,
        ..options()
    }
}

fn scheme(name: &str) -> GroupOptions {
    with(BoundedOptions {
        scheme: name.parse().expect("a scheme"),
        ..BoundedOptions::default()
    })
}

#[test]
fn without_losses_nothing_is_missing() {
    for ranks in [1, 2, 4] {
        let mut world = World::new(1, ranks, clean(), &options());
        for round in 0..4 {
            let report = check_all_reduce(&mut world, Reduction::Sum);
            assert_eq!(report.missing, []);
            // The first one finds out how long it takes.
            assert_eq!(
                report.limit.is_none(),
                round == 0,
                "{ranks} ranks, {report:?}"
            );
        }
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
        // Operations that are exact work beside them.
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
            // Zeros where something is missing, else what was sent.
            let check = |ended: &(Report, Vec<u8>), part: &dyn Fn(usize) -> Vec<u8>| {
                let mut expected: Vec<u8> = (0..ranks).flat_map(part).collect();
                for missing in &ended.0.missing {
                    let range = missing.range.start as usize..missing.range.end as usize;
                    assert_eq!(missing.ranks, [range.start / bytes]);
                    expected[range].fill(0);
                }
                assert!(ended.1 == expected);
            };
            check(&ended[1], &|from| whole[from][..bytes].to_vec());
            check(&ended[2], &|from| {
                whole[from][rank * bytes..][..bytes].to_vec()
            });
        }
    }
    assert!(missing_bytes > 0, "the path drops packets");
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
    let operation = all_reduce(Reduction::Mean);
    let start = |world: &mut World, rank| {
        let buffers = Buffers::in_place(values(F32, rank, COUNT));
        world.start(rank, &operation, BOUNDED, buffers);
    };
    for rank in [0, 1, 3] {
        start(&mut world, rank);
    }
    world.run(SECOND, |_| false);
    start(&mut world, 2);
    world.run_until_over(1);
    let ended: Vec<_> = (0..4)
        .map(|rank| world.take(rank).remove(0).unwrap())
        .collect();
    assert!(ended.iter().all(|(_, output)| *output == ended[0].1));
    let parts = cut(COUNT as u64, 4, 4);
    for (owner, part) in parts.iter().enumerate() {
        for at in part.clone().step_by(4) {
            let lacks = lacks(&ended[0].0.missing, at);
            assert_eq!(
                lacks,
                if owner == 2 { &[][..] } else { &[2] },
                "part of {owner}"
            );
        }
    }
    let place = parts[0].start as usize;
    let expected = reduced(Reduction::Mean, 0, 4, &[2], |rank| value(rank, place / 4));
    assert_eq!(ended[0].1[place..place + 4], expected);
    // What was sent for nobody does not disturb what comes next.
    for _ in 0..4 {
        check_all_reduce(&mut world, Reduction::Sum);
    }
    assert!(world.members[0].tally().cut >= 1);
}

#[test]
fn a_rank_that_dies_is_named_by_all() {
    for after_ns in [0, MS / 2] {
        let mut world = World::new(5, 4, faulty(), &options());
        check_all_reduce(&mut world, Reduction::Sum);
        for rank in 0..4 {
            let buffers = Buffers::in_place(values(F32, rank, COUNT));
            world.start(rank, &all_reduce(Reduction::Sum), BOUNDED, buffers);
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
    let exact = BoundedOptions {
        scheme: "sr-nack".parse().unwrap(),
        ..BoundedOptions::default()
    };
    let network = farwrite::fabric::sim::SimNetwork::new(1);
    let fabric = network.endpoint(crate::world::address(0), 1).unwrap();
    let endpoint = farwrite::Endpoint::new(fabric, [1; 32]);
    let error = farwrite_collectives::Member::new(endpoint, 0, 2, with(exact)).err();
    assert_eq!(
        error.unwrap().to_string(),
        "rank 0: bounded scheme = sr-nack: a scheme of best effort"
    );
    // One rank bounded, the other not.
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
    // The timeout adapts: no operation takes long.
    let link = LinkConfig {
        loss: Loss::Iid { loss_packet: 0.05 },
        ..clean()
    };
    let mut world = World::new(6, 3, link, &options());
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
