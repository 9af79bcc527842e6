//! Bounded sums of transformed contributions. Each result is computed from the packets of each
//! contribution that arrived, and missing packets become a small error of many values.
#![allow(clippy::cast_possible_truncation, reason = "sizes are small")]

use std::ops::Range;
use std::time::Duration;

use farwrite::fabric::sim::{LinkConfig, Loss};
use farwrite_codes::hadamard::{Interleave, Rescale, Transform};
use farwrite_collectives::schedule::cut;
use farwrite_collectives::{
    Algorithm, BoundedOptions, Buffers, Delivery, ElementType, GroupOptions, Hadamard, Operation,
    OperationOptions, Reduction, Report, replay,
};
use farwrite_rng::SplitMix;

use crate::world::{World, clean, options};

const BOUNDED: OperationOptions = OperationOptions {
    algorithm: Algorithm::Auto,
    timeout: Some(Duration::from_secs(5)),
    delivery: Delivery::Bounded,
};
const BLOCK: u32 = 64;
/// The number of values in a packet of 512 bytes.
const PACKET: usize = 128;
/// A length that is not a multiple of the sizes of packets, blocks or parts.
const COUNT: usize = 40_003;

/// Only losses: packets that arrive are in time.
fn lossy() -> LinkConfig {
    LinkConfig {
        loss: Loss::Iid { loss_packet: 0.03 },
        ..clean()
    }
}

fn with(hadamard: Option<Hadamard>) -> GroupOptions {
    let base = options();
    GroupOptions {
        // Transformed contributions travel in packets of the next smaller power of two.
        packet_bytes: if hadamard.is_some() { 600 } else { 512 },
        bounded: BoundedOptions {
            hadamard,
            // Losses are not repaired: there is neither parity nor repeats.
            policy: farwrite_deadline::Policy::OptiNic,
            ..base.bounded
        },
        ..base
    }
}

/// Returns values from -1 to 1, like gradients: their mean is near 0.
fn gradient(rank: usize) -> Vec<f32> {
    let mut rng = SplitMix::new(rank as u64);
    let mut value = || f32::from((rng.next() >> 48) as u16) / 32_768.0 - 1.0;
    (0..COUNT).map(|_| value()).collect()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_ne_bytes())
        .collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let values = bytes.as_chunks().0;
    values
        .iter()
        .map(|bytes| f32::from_ne_bytes(*bytes))
        .collect()
}

/// Sums the gradients of all ranks. Returns the report and the result, which must be equal to that
/// of a replay.
fn sum(world: &mut World, hadamard: Option<Hadamard>, reduction: Reduction) -> (Report, Vec<f32>) {
    let ranks = world.ranks();
    let operation = Operation::AllReduce {
        element: ElementType::F32,
        reduction,
    };
    for rank in 0..ranks {
        let buffers = Buffers::in_place(bytes(&gradient(rank)));
        world.start(rank, &operation, BOUNDED, buffers);
    }
    world.run_until_over(1);
    let ended: Vec<_> = (0..ranks)
        .map(|rank| world.take(rank).remove(0).unwrap())
        .collect();
    assert!(ended.iter().all(|other| other.1 == ended[0].1));
    assert!(
        ended
            .iter()
            .all(|other| other.0.missing == ended[0].0.missing)
    );
    let (report, output) = &ended[0];
    let inputs: Vec<_> = (0..ranks).map(|rank| bytes(&gradient(rank))).collect();
    let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let again = replay(&with(hadamard), 0, &operation, &inputs, &report.missing);
    assert!(
        again.unwrap() == *output,
        "the report replays the operation"
    );
    (report.clone(), floats(output))
}

fn transform(stride: usize) -> Transform {
    Transform::new(Interleave::new(BLOCK as usize, PACKET, stride).unwrap())
}

/// Returns whether a byte of a result lacks the contribution of a rank.
fn lacks(report: &Report, at: u64, rank: usize) -> bool {
    let mut missing = report.missing.iter();
    missing.any(|missing| missing.range.contains(&at) && missing.ranks.contains(&rank))
}

/// Returns the expected coefficients of a part at its owner: the estimates of all contributions. A
/// mean is divided, group by group, by the number of ranks from which packets arrived.
fn reduced(
    report: &Report,
    part: &Range<u64>,
    ranks: usize,
    stride: usize,
    reduction: Reduction,
) -> Vec<f32> {
    let transform = transform(stride);
    let place = part.start as usize / 4..part.end as usize / 4;
    let mut sums = vec![0.0; place.len()];
    let has_arrived = |rank: usize, packet: usize| {
        !lacks(report, part.start + (packet * PACKET * 4) as u64, rank)
    };
    for rank in 0..ranks {
        let mut estimate = encoded(rank, &place, stride);
        let arrived = |_, packet: usize| has_arrived(rank, packet);
        let ends = [place.len()];
        transform
            .rescale(&mut estimate, &ends, arrived, Rescale::ByArrived)
            .unwrap();
        let sums = sums.iter_mut().zip(&estimate);
        sums.for_each(|(sum, value)| *sum += value);
    }
    if reduction == Reduction::Mean {
        let group = transform.interleave().group();
        for (index, values) in sums.chunks_mut(group).enumerate() {
            let first = index * group / PACKET;
            let packets = first..first + values.len().div_ceil(PACKET);
            let has_some = |rank: &usize| packets.clone().any(|at| has_arrived(*rank, at));
            let contributors = (0..ranks).filter(has_some).count();
            values
                .iter_mut()
                .for_each(|value| *value /= contributors as f32);
        }
    }
    sums
}

/// Returns the coefficients of values of a rank.
fn encoded(rank: usize, place: &Range<usize>, stride: usize) -> Vec<f32> {
    let mut encoded = vec![0.0; place.len()];
    let values = &gradient(rank)[place.clone()];
    transform(stride)
        .encode(values, &mut encoded, &[place.len()])
        .unwrap();
    encoded
}

fn decoded(coefficients: &[f32], stride: usize) -> Vec<f32> {
    let mut values = vec![0.0; coefficients.len()];
    transform(stride)
        .decode(coefficients, &mut values, &[coefficients.len()])
        .unwrap();
    values
}

/// Returns the expected result for a report, part by part.
fn expected(report: &Report, ranks: usize, stride: usize, reduction: Reduction) -> Vec<f32> {
    let parts = cut(COUNT as u64, 4, ranks).into_iter();
    let parts = parts.map(|part| reduced(report, &part, ranks, stride, reduction));
    parts.flat_map(|part| decoded(&part, stride)).collect()
}

/// Returns the largest difference between values.
fn largest(some: &[f32], others: &[f32]) -> f32 {
    let differences = some.iter().zip(others).map(|(a, b)| (a - b).abs());
    differences.fold(0.0, f32::max)
}

fn exact(ranks: usize) -> Vec<f32> {
    let mut sum = vec![0.0; COUNT];
    for rank in 0..ranks {
        let values = gradient(rank);
        sum.iter_mut()
            .zip(&values)
            .for_each(|(sum, value)| *sum += value);
    }
    sum
}

#[test]
fn without_losses_a_sum_is_right_but_for_rounding() {
    for stride in [0, 1, 8] {
        let hadamard = Hadamard {
            block: BLOCK,
            stride,
        };
        for ranks in [1, 3] {
            let mut world = World::new(1, ranks, clean(), &with(Some(hadamard)));
            for _ in 0..2 {
                let (report, result) = sum(&mut world, Some(hadamard), Reduction::Sum);
                assert_eq!(report.missing, []);
                assert!(largest(&result, &exact(ranks)) < 1e-4);
            }
            let (_, mean) = sum(&mut world, Some(hadamard), Reduction::Mean);
            let expected: Vec<f32> = exact(ranks).iter().map(|sum| sum / ranks as f32).collect();
            assert!(largest(&mean, &expected) < 1e-4);
        }
    }
}

#[test]
fn each_result_is_that_of_the_packets_that_came() {
    for (stride, seed) in [(PACKET, 1), (8, 2), (1, 3)] {
        let hadamard = Hadamard {
            block: BLOCK,
            stride: stride as u32,
        };
        let mut world = World::new(seed, 3, lossy(), &with(Some(hadamard)));
        let mut missing_bytes = 0;
        for reduction in [
            Reduction::Sum,
            Reduction::Mean,
            Reduction::Sum,
            Reduction::Mean,
        ] {
            let (report, result) = sum(&mut world, Some(hadamard), reduction);
            let expected = expected(&report, 3, stride, reduction);
            assert!(largest(&result, &expected) < 1e-3, "stride {stride}");
            missing_bytes += report.missing_bytes;
        }
        assert!(missing_bytes > 0, "the path drops packets");
    }
}

fn with_bounded_parts(hadamard: Hadamard) -> GroupOptions {
    let mut options = with(Some(hadamard));
    options.bounded.parts = Delivery::Bounded;
    options
}

/// Starts an all-reduce of the gradients at these ranks, and returns their reports and results.
fn reduce_at(
    world: &mut World,
    ranks: Range<usize>,
    reduction: Reduction,
) -> Vec<(Report, Vec<f32>)> {
    let operation = Operation::AllReduce {
        element: ElementType::F32,
        reduction,
    };
    for rank in ranks.clone() {
        let buffers = Buffers::in_place(bytes(&gradient(rank)));
        world.start(rank, &operation, BOUNDED, buffers);
    }
    world.run_until_over(1);
    ranks
        .map(|rank| {
            let (report, output) = world.take(rank).remove(0).unwrap();
            (report, floats(&output))
        })
        .collect()
}

/// Returns the expected part of an owner at another rank: its coefficients, without those that the
/// rank lacks, scaled up group by group. A group that it lacks completely is its own contribution.
fn expected_at(
    (rank, report): (usize, &Report),
    (owner, part): (usize, &Range<u64>),
    mut coefficients: Vec<f32>,
    stride: usize,
) -> Vec<f32> {
    let place = part.start as usize / 4..part.end as usize / 4;
    let own = encoded(rank, &place, stride);
    let group = transform(stride).interleave().group();
    let groups = coefficients.chunks_mut(group).zip(own.chunks(group));
    for (index, (values, own)) in groups.enumerate() {
        let at = |i: usize| part.start + 4 * (index * group + i) as u64;
        let has_arrived: Vec<bool> = (0..values.len())
            .map(|i| !lacks(report, at(i), owner))
            .collect();
        let there = has_arrived.iter().filter(|arrived| **arrived).count();
        if there == 0 {
            values.copy_from_slice(own);
            assert!(!lacks(report, at(0), rank), "its own contribution is there");
            continue;
        }
        let factor = values.len() as f32 / there as f32;
        for (value, arrived) in values.iter_mut().zip(has_arrived) {
            *value *= if arrived { factor } else { 0.0 };
        }
    }
    decoded(&coefficients, stride)
}

#[test]
fn reduced_parts_with_a_deadline_are_transformed_too() {
    let ranks = 3;
    for (stride, seed) in [(PACKET, 11), (8, 12), (1, 13)] {
        let hadamard = Hadamard {
            block: BLOCK,
            stride: stride as u32,
        };
        let mut world = World::new(seed, ranks, lossy(), &with_bounded_parts(hadamard));
        let (mut error, mut energy, mut share, mut lost) = (0.0, 0.0, 0.0, 0.0);
        for round in 0..6 {
            let reduction = [Reduction::Sum, Reduction::Mean][round % 2];
            let ended = reduce_at(&mut world, 0..ranks, reduction);
            for (owner, part) in cut(COUNT as u64, 4, ranks).iter().enumerate() {
                let place = part.start as usize / 4..part.end as usize / 4;
                let sums = reduced(&ended[owner].0, part, ranks, stride, reduction);
                let whole = decoded(&sums, stride);
                let theirs = &ended[owner].1[place.clone()];
                assert!(largest(theirs, &whole) < 1e-3, "stride {stride}");
                for rank in (0..ranks).filter(|&rank| rank != owner) {
                    let (report, output) = &ended[rank];
                    let expected = expected_at((rank, report), (owner, part), sums.clone(), stride);
                    let ours = &output[place.clone()];
                    assert!(largest(ours, &expected) < 1e-3, "stride {stride}");
                    let squares =
                        |values: &[f32]| values.iter().map(|value| value * value).sum::<f32>();
                    let differences: Vec<f32> =
                        ours.iter().zip(theirs).map(|(a, b)| a - b).collect();
                    error += squares(&differences);
                    energy += squares(theirs);
                    let at = part.clone().step_by(4);
                    lost += at.filter(|&at| lacks(report, at, owner)).count() as f32;
                    share += place.len() as f32;
                }
            }
        }
        let (error, lost) = (error / energy, lost / share);
        assert!((0.01..0.2).contains(&lost), "stride {stride}: {lost} lost");
        // With a stride of 1, a packet is a group, so what is lost becomes the own contribution.
        if stride == 1 {
            continue;
        }
        // The mean of docs/collectives.md, for losses that are independent.
        let bound = lost / (1.0 - lost);
        assert!(
            error < 2.0 * bound,
            "stride {stride}: {error}, bound {bound}"
        );
        assert!(
            error > bound / 2.0,
            "stride {stride}: {error}, bound {bound}"
        );
    }
}

#[test]
fn without_losses_bounded_parts_are_equal_at_all_ranks() {
    let hadamard = Hadamard {
        block: BLOCK,
        stride: 0,
    };
    let mut world = World::new(14, 3, clean(), &with_bounded_parts(hadamard));
    for reduction in [Reduction::Sum, Reduction::Mean, Reduction::Sum] {
        let ended = reduce_at(&mut world, 0..3, reduction);
        for (report, output) in &ended {
            assert_eq!(report.missing, []);
            assert!(*output == ended[0].1, "bit for bit");
        }
        let scale = if reduction == Reduction::Mean {
            3.0
        } else {
            1.0
        };
        let exact: Vec<f32> = exact(3).iter().map(|sum| sum / scale).collect();
        assert!(largest(&ended[0].1, &exact) < 1e-4);
    }
}

#[test]
fn in_place_of_the_part_of_a_rank_that_stalls_is_the_own_contribution() {
    let hadamard = Hadamard {
        block: BLOCK,
        stride: 0,
    };
    let mut world = World::new(15, 3, clean(), &with_bounded_parts(hadamard));
    for _ in 0..3 {
        reduce_at(&mut world, 0..3, Reduction::Mean);
    }
    world.stopped[2] = true;
    let ended = reduce_at(&mut world, 0..2, Reduction::Mean);
    let part = cut(COUNT as u64, 4, 3)[2].clone();
    let place = part.start as usize / 4..part.end as usize / 4;
    for (rank, (report, output)) in ended.iter().enumerate() {
        let own = &gradient(rank)[place.clone()];
        assert!(largest(&output[place.clone()], own) < 1e-4);
        let expected = [1 - rank, 2];
        let of_part = report
            .missing
            .iter()
            .filter(|m| m.range.start >= part.start);
        assert!(of_part.clone().all(|m| m.ranks == expected), "{report:?}");
        let lacked: u64 = of_part.map(|m| m.range.end - m.range.start).sum();
        assert_eq!(lacked, part.end - part.start);
        // The other parts lack only the rank that stalls.
        let mean: Vec<f32> = gradient(0)
            .iter()
            .zip(gradient(1))
            .map(|(a, b)| (a + b) / 2.0)
            .collect();
        assert!(largest(&output[..place.start], &mean[..place.start]) < 1e-4);
    }
}

#[test]
fn a_replay_of_transformed_bounded_parts_is_refused_by_name() {
    let input = bytes(&gradient(0));
    let options = with_bounded_parts(Hadamard::default());
    let sum = |element| Operation::AllReduce {
        element,
        reduction: Reduction::Sum,
    };
    let inputs = [&input[..]; 2];
    let error = replay(&options, 0, &sum(ElementType::F32), &inputs, &[]).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("bounded.parts = bounded"), "{error}");
    let input = vec![0; 8_000];
    let inputs = [&input[..]; 2];
    // Values of this type are not transformed.
    assert!(replay(&options, 0, &sum(ElementType::F64), &inputs, &[]).is_ok());
}

/// Returns the values of whole blocks. The remainder of a part has smaller blocks, which can be
/// lost completely.
fn whole_blocks(values: &[f32], ranks: usize) -> Vec<f32> {
    let parts = cut(COUNT as u64, 1, ranks).into_iter();
    let block = u64::from(BLOCK);
    let whole = parts.map(|part| part.start..part.end - (part.end - part.start) % block);
    let values = whole.map(|range| &values[range.start as usize..range.end as usize]);
    values.flatten().copied().collect()
}

#[test]
fn a_loss_becomes_a_small_error_of_many_values() {
    let all = whole_blocks(&exact(3), 3);
    let hadamard = Hadamard {
        block: BLOCK,
        stride: 0,
    };
    let errors = [None, Some(hadamard)].map(|hadamard| {
        let mut world = World::new(4, 3, lossy(), &with(hadamard));
        // The warm-up waits for everything that the path does not drop.
        let (report, result) = sum(&mut world, hadamard, Reduction::Sum);
        let share = report.missing_bytes as f32 / report.bytes as f32;
        assert!((0.01..0.15).contains(&share), "{share}");
        let result = whole_blocks(&result, 3);
        let wrong = result.iter().zip(&all);
        let wrong = wrong.filter(|(a, b)| (**a - **b).abs() > 1e-4);
        (largest(&result, &all), wrong.count())
    });
    let [(hole, holes), (spread, spreads)] = errors;
    assert!(hole > 0.95, "values lack a contribution: {hole}");
    // The largest of all values. It depends on which packets are lost.
    assert!(spread < 0.8, "no error is that large: {spread}");
    assert!(spreads > 4 * holes, "{spreads} values instead of {holes}");
}

#[test]
fn half_precision_and_scattered_sums_are_transformed_too() {
    let hadamard = Some(Hadamard::default());
    let mut world = World::new(5, 2, clean(), &with(hadamard));
    for element in [ElementType::F16, ElementType::Bf16, ElementType::F64] {
        let operation = Operation::AllReduce {
            element,
            reduction: Reduction::Sum,
        };
        let one = match element {
            ElementType::F16 => half::f16::from_f32(0.5).to_ne_bytes().to_vec(),
            ElementType::Bf16 => half::bf16::from_f32(0.5).to_ne_bytes().to_vec(),
            _ => 0.5_f64.to_ne_bytes().to_vec(),
        };
        let outputs = world.all(&operation, BOUNDED, |_| {
            Buffers::in_place(one.repeat(5_000))
        });
        for value in outputs[1].chunks(one.len()) {
            let value = match element {
                ElementType::F16 => half::f16::from_ne_bytes([value[0], value[1]]).to_f64(),
                ElementType::Bf16 => half::bf16::from_ne_bytes([value[0], value[1]]).to_f64(),
                _ => f64::from_ne_bytes(*value.first_chunk().unwrap()),
            };
            assert!((value - 1.0).abs() < 0.02, "{element}: {value}");
        }
    }
    let scatter = Operation::ReduceScatter {
        element: ElementType::F32,
        reduction: Reduction::Mean,
    };
    let length = 2 * (COUNT / 2);
    let outputs = world.all(&scatter, BOUNDED, |rank| {
        let input = bytes(&gradient(rank)[..length]);
        Buffers::new(input, vec![0; 2 * length])
    });
    for (rank, output) in outputs.iter().enumerate() {
        let part = rank * length / 2..(rank + 1) * length / 2;
        let mean: Vec<f32> = exact(2)[part].iter().map(|sum| sum / 2.0).collect();
        assert!(largest(&floats(output), &mean) < 1e-4);
    }
}

#[test]
fn a_transform_that_cannot_be_is_refused_by_value() {
    for (block, stride, expected) in [
        (0, 0, "0"),
        (1000, 0, "1000"),
        (64, 3, "3"),
        (64, 98_304, "98304"),
    ] {
        let network = farwrite::fabric::sim::SimNetwork::new(1);
        let fabric = network.endpoint(crate::world::address(0), 1).unwrap();
        let endpoint = farwrite::Endpoint::new(fabric, [1; 32]);
        let options = with(Some(Hadamard { block, stride }));
        let error = farwrite_collectives::Member::new(endpoint, 0, 2, options).err();
        let error = error.unwrap().to_string();
        assert!(error.starts_with("rank 0: bounded.hadamard = "), "{error}");
        assert!(error.contains(expected), "{error}");
    }
}
