//! Random operations in random order of arrival, with ranks that stall, over a faulty path.

use farwrite_collectives::{
    Algorithm, Buffers, Delivery, ElementType, Operation, OperationOptions, Reduction,
};

use crate::world::{MS, World, faulty, options};

/// A generator of small numbers, the same for a seed everywhere.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % limit
    }

    fn place(&mut self, limit: usize) -> usize {
        usize::try_from(self.below(limit as u64)).expect("small")
    }
}

/// One value, repeated: sums of it are exact in any order.
fn value(number: usize, rank: usize) -> f32 {
    let value = u16::try_from(number * 8 + rank * 3 + 1).expect("small");
    f32::from(value)
}

/// What one operation is, alike at all ranks.
struct Case {
    operation: Operation,
    options: OperationOptions,
    count: usize,
}

fn draw(dice: &mut Dice, ranks: usize) -> Case {
    let (element, reduction) = (ElementType::F32, Reduction::Sum);
    let all_reduce = Operation::AllReduce { element, reduction };
    let root = dice.place(ranks);
    let (mut algorithm, mut delivery) = (Algorithm::Auto, Delivery::Exact);
    let operation = match dice.below(5) {
        0 => Operation::Broadcast { root },
        1 => Operation::AllGather,
        2 => {
            delivery = Delivery::Bounded;
            all_reduce
        }
        _ => {
            algorithm = Algorithm::ALL[dice.place(Algorithm::ALL.len())];
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
        count: [1, 40, 700, 5_000][dice.place(4)],
    }
}

fn buffers(case: &Case, number: usize, rank: usize, ranks: usize) -> Buffers {
    let own = value(number, rank).to_ne_bytes().repeat(case.count);
    match case.operation {
        Operation::AllGather => Buffers::new(own, vec![0; 4 * case.count * ranks]),
        _ => Buffers::in_place(own),
    }
}

/// The value that each place must have, if the ranks of `lacks` did not contribute.
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
        let mut dice = Dice(seed);
        let ranks = 2 + dice.place(4);
        let cases: Vec<Case> = (0..12).map(|_| draw(&mut dice, ranks)).collect();
        let mut world = World::new(seed, ranks, faulty(), &options());
        let mut next = vec![0; ranks];
        // Each rank starts the same operations, in its own time.
        while next.iter().any(|&next| next < cases.len()) {
            let rank = dice.place(ranks);
            if let Some(case) = cases.get(next[rank]) {
                let buffers = buffers(case, next[rank], rank, ranks);
                world.start(rank, &case.operation, case.options, buffers);
                next[rank] += 1;
            }
            world.stopped[rank] = dice.below(8) == 0;
            world.run(dice.below(2 * MS), |_| false);
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
