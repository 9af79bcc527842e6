//! Random operations that start in random order, with ranks that stall, over a faulty path.

use farwrite_collectives::{
    Algorithm, Buffers, Delivery, ElementType, Operation, OperationOptions, Reduction,
};
use farwrite_rng::SplitMix;

use crate::world::{MS, World, faulty, options};

/// One value, repeated: sums of it are exact in any order.
fn value(number: usize, rank: usize) -> f32 {
    let value = u16::try_from(number * 8 + rank * 3 + 1).expect("small");
    f32::from(value)
}

/// The properties of one operation, which are equal at all ranks.
struct Case {
    operation: Operation,
    options: OperationOptions,
    count: usize,
}

fn draw(rng: &mut SplitMix, ranks: usize) -> Case {
    let (element, reduction) = (ElementType::F32, Reduction::Sum);
    let all_reduce = Operation::AllReduce { element, reduction };
    let root = rng.index(ranks);
    let (mut algorithm, mut delivery) = (Algorithm::Auto, Delivery::Exact);
    let operation = match rng.below(5) {
        0 => Operation::Broadcast { root },
        1 => Operation::AllGather,
        2 => {
            delivery = Delivery::Bounded;
            all_reduce
        }
        _ => {
            algorithm = Algorithm::ALL[rng.index(Algorithm::ALL.len())];
            all_reduce
        }
    };
    Case {
        operation,
        options: OperationOptions {
            algorithm,
            delivery,
            timeout: None,
        },
        count: [1, 40, 700, 5_000][rng.index(4)],
    }
}

fn buffers(case: &Case, number: usize, rank: usize, ranks: usize) -> Buffers {
    let own = value(number, rank).to_ne_bytes().repeat(case.count);
    match case.operation {
        Operation::AllGather => Buffers::new(own, vec![0; 4 * case.count * ranks]),
        _ => Buffers::in_place(own),
    }
}

/// Returns the expected value at each place if the ranks in `lacks` did not contribute.
fn expected(case: &Case, number: usize, place: usize, ranks: usize, lacks: &[usize]) -> f32 {
    match case.operation {
        Operation::Broadcast { root } => value(number, root),
        Operation::AllGather => value(number, place / case.count),
        _ => {
            let ranks = (0..ranks).filter(|rank| !lacks.contains(rank));
            ranks.map(|rank| value(number, rank)).sum()
        }
    }
}

#[test]
fn random_operations_are_right() {
    for seed in 0..12 {
        let mut rng = SplitMix::new(seed);
        let ranks = 2 + rng.index(4);
        let cases: Vec<Case> = (0..12).map(|_| draw(&mut rng, ranks)).collect();
        let mut world = World::new(seed, ranks, faulty(), &options());
        let mut next = vec![0; ranks];
        // Each rank starts the same operations, at its own times.
        while next.iter().any(|&next| next < cases.len()) {
            let rank = rng.index(ranks);
            if let Some(case) = cases.get(next[rank]) {
                let buffers = buffers(case, next[rank], rank, ranks);
                world.start(rank, &case.operation, case.options, buffers);
                next[rank] += 1;
            }
            world.stopped[rank] = rng.below(8) == 0;
            world.run(rng.below(2 * MS), |_| false);
        }
        world.stopped.fill(false);
        world.run_until_over(cases.len());
        for rank in 0..ranks {
            for (report, output) in world.take(rank).into_iter().map(Result::unwrap) {
                let number = usize::try_from(report.operation).expect("few");
                let case = &cases[number];
                for (place, bytes) in output.as_chunks().0.iter().enumerate() {
                    let at = 4 * place as u64;
                    let mut missing = report.missing.iter();
                    let missing = missing.find(|missing| missing.range.contains(&at));
                    let lacks = missing.map_or(&[][..], |missing| &missing.ranks);
                    let expected = expected(case, number, place, ranks, lacks);
                    let what = format!("seed {seed}, rank {rank}, operation {number}");
                    assert_eq!(f32::from_ne_bytes(*bytes), expected, "{what}");
                }
            }
        }
    }
}
