//! Exact operations, bit for bit, over clean and faulty paths.
#![allow(clippy::cast_possible_truncation, reason = "sizes are small")]

use farwrite_collectives::schedule::cut;
use farwrite_collectives::{
    Algorithm, Buffers, Delivery, ElementType, GroupOptions, Operation, OperationOptions,
    Reduction, kernel,
};

use crate::world::{World, clean, faulty, options, values};

const DEFAULT: OperationOptions = OperationOptions {
    algorithm: Algorithm::Auto,
    timeout: None,
    delivery: Delivery::Exact,
};

fn with(algorithm: Algorithm) -> OperationOptions {
    OperationOptions {
        algorithm,
        ..DEFAULT
    }
}

/// Combines the values of ranks, from left to right.
fn join(element: ElementType, reduction: Reduction, all: &[Vec<u8>], order: &[usize]) -> Vec<u8> {
    let mut sum = all[order[0]].clone();
    for &rank in &order[1..] {
        kernel::reduce(element, reduction, &mut sum, &all[rank]);
    }
    sum
}

/// Returns the result of an all-reduce, in the documented order. `sites` holds the site of each rank.
fn reduced(
    algorithm: Algorithm,
    (element, reduction): (ElementType, Reduction),
    all: &[Vec<u8>],
    sites: &[u32],
) -> Vec<u8> {
    let ranks = all.len();
    let mut result = match algorithm {
        Algorithm::Tree => tree(element, reduction, all, 0),
        Algorithm::HalvingDoubling => halving(element, reduction, all),
        Algorithm::Hierarchical => hierarchical(element, reduction, all, sites),
        Algorithm::Ring => in_turn(element, reduction, all, 1),
        _ => in_turn(element, reduction, all, 0),
    };
    if reduction == Reduction::Mean && ranks > 1 {
        kernel::divide(element, &mut result, u32::try_from(ranks).unwrap());
    }
    result
}

/// Cuts memory into equal parts, and returns the part `number` of each rank.
fn part(element: ElementType, all: &[Vec<u8>], parts: usize, number: usize) -> Vec<Vec<u8>> {
    let size = element.bytes();
    let range = cut(all[0].len() as u64 / size, size, parts)[number].clone();
    let range = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
    all.iter()
        .map(|bytes| bytes[range.clone()].to_vec())
        .collect()
}

/// Part p is reduced from rank p + `skip` on, from left to right.
fn in_turn(element: ElementType, reduction: Reduction, all: &[Vec<u8>], skip: usize) -> Vec<u8> {
    let ranks = all.len();
    let parts = (0..ranks).map(|number| {
        let order: Vec<usize> = (0..ranks).map(|d| (number + skip + d) % ranks).collect();
        join(
            element,
            reduction,
            &part(element, all, ranks, number),
            &order,
        )
    });
    parts.collect::<Vec<_>>().concat()
}

fn halving(element: ElementType, reduction: Reduction, all: &[Vec<u8>]) -> Vec<u8> {
    let parts = 1 << all.len().ilog2();
    let pairs = all.len() - parts;
    let paired = (0..pairs).map(|pair| join(element, reduction, all, &[2 * pair + 1, 2 * pair]));
    let values: Vec<_> = paired.chain(all[2 * pairs..].iter().cloned()).collect();
    let of = |number: usize| {
        let mut sums = part(element, &values, parts, number);
        let mut distance = parts / 2;
        while distance > 0 {
            let pairs = (0..parts).map(|v| join(element, reduction, &sums, &[v, v ^ distance]));
            sums = pairs.collect();
            distance /= 2;
        }
        sums.swap_remove(number)
    };
    (0..parts).flat_map(of).collect()
}

fn hierarchical(
    element: ElementType,
    reduction: Reduction,
    all: &[Vec<u8>],
    sites: &[u32],
) -> Vec<u8> {
    let mut names = sites.to_vec();
    names.sort_by_key(|name| sites.iter().position(|site| site == name));
    names.dedup();
    let of_site = |name: &u32| {
        let ranks = all.iter().zip(sites).filter(|(_, site)| *site == name);
        ranks.map(|(values, _)| values.clone()).collect::<Vec<_>>()
    };
    let members: Vec<Vec<Vec<u8>>> = names.iter().map(of_site).collect();
    let between = |sums: &[Vec<u8>]| in_turn(element, reduction, sums, 1);
    let ranks = members[0].len();
    if members.iter().any(|site| site.len() != ranks) {
        let sums = members.iter().map(|site| tree(element, reduction, site, 0));
        return between(&sums.collect::<Vec<_>>());
    }
    let sums = members
        .iter()
        .map(|site| in_turn(element, reduction, site, 1));
    let sums: Vec<_> = sums.collect();
    (0..ranks)
        .flat_map(|number| between(&part(element, &sums, ranks, number)))
        .collect()
}

/// Returns the result that a rank of a binomial tree with root 0 sends to its parent.
fn tree(element: ElementType, reduction: Reduction, all: &[Vec<u8>], rank: usize) -> Vec<u8> {
    let mut sum = all[rank].clone();
    let mut bit = 1;
    while rank & bit == 0 && rank + bit < all.len() {
        let child = tree(element, reduction, all, rank + bit);
        kernel::reduce(element, reduction, &mut sum, &child);
        bit <<= 1;
    }
    sum
}

/// Checks all-reduces of all types of values, bit for bit.
fn check_order(world: &mut World, sites: &[u32], algorithms: &[Algorithm]) {
    let ranks = sites.len();
    for element in ElementType::ALL {
        for reduction in Reduction::ALL.into_iter().filter(|r| r.supports(element)) {
            for &algorithm in algorithms {
                let operation = Operation::AllReduce { element, reduction };
                let all: Vec<_> = (0..ranks).map(|rank| values(element, rank, 1003)).collect();
                let outputs = world.all(&operation, with(algorithm), |rank| {
                    Buffers::in_place(all[rank].clone())
                });
                let expected = reduced(algorithm, (element, reduction), &all, sites);
                let what = format!("sites {sites:?}, {algorithm}, {reduction} of {element}");
                assert!(outputs.iter().all(|output| *output == expected), "{what}");
            }
        }
    }
}

#[test]
fn all_reduces_equal_their_documented_order() {
    for ranks in [2, 3, 4, 5] {
        let mut world = World::new(1, ranks, clean(), &options());
        let algorithms = [
            Algorithm::Ring,
            Algorithm::Direct,
            Algorithm::Tree,
            Algorithm::HalvingDoubling,
        ];
        check_order(&mut world, &vec![0; ranks], &algorithms);
    }
}

#[test]
fn all_reduces_by_sites_equal_their_documented_order() {
    for sites in [
        vec![7, 3, 7, 3],
        vec![0, 0, 1, 1, 2, 2],
        vec![5, 1, 1, 1, 5, 2],
    ] {
        let options = GroupOptions {
            sites: sites.clone(),
            ..options()
        };
        let mut world = World::new(1, sites.len(), clean(), &options);
        check_order(&mut world, &sites, &[Algorithm::Hierarchical]);
    }
}

#[test]
fn every_operation_survives_a_faulty_path() {
    let element = ElementType::F32;
    let reduction = Reduction::Sum;
    for ranks in [1, 2, 3, 5] {
        let mut world = World::new(2, ranks, faulty(), &options());
        let count = 3001;
        let own: Vec<_> = (0..ranks)
            .map(|rank| values(element, rank, count))
            .collect();
        let whole: Vec<_> = (0..ranks)
            .map(|rank| values(element, rank, count * ranks))
            .collect();
        let bytes = 4 * count;
        let part = |from: usize, of: usize| whole[from][of * bytes..][..bytes].to_vec();
        let column = |of: usize| (0..ranks).map(|from| part(from, of)).collect::<Vec<_>>();
        let order = |first: usize| (0..ranks).map(|d| (first + d) % ranks).collect::<Vec<_>>();

        for (algorithm, first) in [(Algorithm::Ring, 1), (Algorithm::Direct, 0)] {
            let operation = Operation::ReduceScatter { element, reduction };
            let scattered = world.all(&operation, with(algorithm), |rank| {
                Buffers::new(whole[rank].clone(), vec![0; bytes])
            });
            for (rank, output) in scattered.iter().enumerate() {
                let order = order((rank + first) % ranks);
                let expected = join(element, reduction, &column(rank), &order);
                assert!(*output == expected, "{algorithm}, {rank} of {ranks}");
            }
            let gathered = world.all(&Operation::AllGather, with(algorithm), |rank| {
                Buffers::new(own[rank].clone(), vec![0; bytes * ranks])
            });
            assert!(gathered.iter().all(|output| *output == own.concat()));
            let in_place = world.all(&Operation::AllGather, with(algorithm), |rank| {
                let mut memory = vec![0; bytes * ranks];
                memory[rank * bytes..][..bytes].copy_from_slice(&own[rank]);
                Buffers::in_place(memory)
            });
            assert!(in_place == gathered);
        }
        let operation = Operation::AllToAll {
            send_bytes: vec![],
            receive_bytes: vec![],
        };
        let exchanged = world.all(&operation, DEFAULT, |rank| {
            Buffers::new(whole[rank].clone(), vec![0; bytes * ranks])
        });
        for (rank, output) in exchanged.iter().enumerate() {
            assert!(*output == column(rank).concat());
        }
        for root in 0..ranks {
            check_root(&mut world, root, &own, &whole);
        }
        world.all(&Operation::Barrier, DEFAULT, |_| Buffers::default());
    }
}

/// Checks the operations that have a root.
fn check_root(world: &mut World, root: usize, own: &[Vec<u8>], whole: &[Vec<u8>]) {
    let (ranks, bytes) = (own.len(), own[0].len());
    let sent = world.all(&Operation::Broadcast { root }, DEFAULT, |rank| {
        Buffers::in_place(own[rank].clone())
    });
    assert!(sent.iter().all(|output| *output == own[root]));

    let (element, reduction) = (ElementType::F32, Reduction::Mean);
    let operation = Operation::Reduce {
        root,
        element,
        reduction,
    };
    let sums = world.all(&operation, DEFAULT, |rank| match rank == root {
        true => Buffers::in_place(own[rank].clone()),
        false => Buffers::input(own[rank].clone()),
    });
    let from_root: Vec<_> = (0..ranks)
        .map(|d| own[(root + d) % ranks].clone())
        .collect();
    let mut expected = tree(element, reduction, &from_root, 0);
    if ranks > 1 {
        kernel::divide(element, &mut expected, u32::try_from(ranks).unwrap());
    }
    assert!(sums[root] == expected);

    let gathered = world.all(&Operation::Gather { root }, DEFAULT, |rank| {
        match rank == root {
            true => Buffers::new(own[rank].clone(), vec![0; bytes * ranks]),
            false => Buffers::input(own[rank].clone()),
        }
    });
    assert!(gathered[root] == own.concat());

    let scattered = world.all(&Operation::Scatter { root }, DEFAULT, |rank| {
        match rank == root {
            true => Buffers::new(whole[rank].clone(), vec![0; bytes]),
            false => Buffers::in_place(vec![0; bytes]),
        }
    });
    for (rank, output) in scattered.iter().enumerate() {
        assert!(*output == whole[root][rank * bytes..][..bytes]);
    }
}

#[test]
fn all_to_all_takes_any_sizes() {
    let ranks = 4;
    let mut world = World::new(3, ranks, faulty(), &options());
    let size = |from: usize, to: usize| (from * 1000 + to * 700) as u64 % 3100;
    let data = |from: usize, to: usize| vec![(from * 16 + to) as u8; size(from, to) as usize];
    let sizes = |rank: usize| {
        let send_bytes = (0..ranks).map(|to| size(rank, to)).collect();
        let receive_bytes = (0..ranks).map(|from| size(from, rank)).collect();
        Operation::AllToAll {
            send_bytes,
            receive_bytes,
        }
    };
    for rank in 0..ranks {
        let input: Vec<u8> = (0..ranks).flat_map(|to| data(rank, to)).collect();
        let output: u64 = (0..ranks).map(|from| size(from, rank)).sum();
        let buffers = Buffers::new(input, vec![0; output as usize]);
        world.start(rank, &sizes(rank), DEFAULT, buffers);
    }
    world.run_until_over(1);
    for rank in 0..ranks {
        let (report, output) = world.take(rank).remove(0).unwrap();
        let expected: Vec<u8> = (0..ranks).flat_map(|from| data(from, rank)).collect();
        assert!(output == expected);
        assert_eq!(
            (report.bytes, report.missing_bytes),
            (expected.len() as u64, 0)
        );
    }
}

#[test]
fn runs_are_bit_identical_whatever_the_path_does() {
    let element = ElementType::Bf16;
    let operation = Operation::AllReduce {
        element,
        reduction: Reduction::Sum,
    };
    let run = |seed, link, options: &GroupOptions| {
        let mut world = World::new(seed, 4, link, options);
        world.all(&operation, with(Algorithm::Ring), |rank| {
            Buffers::in_place(values(element, rank, 20_000))
        })
    };
    let reference = run(1, clean(), &options());
    let parity = GroupOptions {
        scheme: "ec-mds:4,2".parse().unwrap(),
        ..options()
    };
    for seed in 2..5 {
        assert!(run(seed, faulty(), &options()) == reference);
        assert!(run(seed, faulty(), &parity) == reference);
    }
}

#[test]
fn operations_overlap_and_keep_their_order() {
    let ranks = 3;
    let mut world = World::new(5, ranks, faulty(), &options());
    let sum = Operation::AllReduce {
        element: ElementType::I32,
        reduction: Reduction::Sum,
    };
    let operations = 30;
    let value = |i: usize, rank: usize| i32::try_from(i * 10 + rank).unwrap();
    for i in 0..operations {
        // Ranks arrive at different times, with a large operation before small ones.
        for rank in 0..ranks {
            let count = if i % 10 == 0 { 5000 } else { 3 };
            let input = value(i, rank).to_ne_bytes().repeat(count);
            world.start(rank, &sum, DEFAULT, Buffers::in_place(input));
            world.run(100_000, |_| false);
        }
    }
    world.run_until_over(operations);
    for rank in 0..ranks {
        let ended = world.take(rank).into_iter().map(Result::unwrap);
        for (report, output) in ended {
            let i = usize::try_from(report.operation).unwrap();
            let sum: i32 = (0..ranks).map(|rank| value(i, rank)).sum();
            assert!(output.chunks(4).all(|bytes| bytes == sum.to_ne_bytes()));
        }
    }
}

#[test]
fn other_algorithms_reduce_whatever_the_path_does() {
    let (element, reduction) = (ElementType::F32, Reduction::Sum);
    let operation = Operation::AllReduce { element, reduction };
    for sites in [vec![0, 1, 0, 1, 0, 1], vec![0, 0, 0, 1, 1, 2]] {
        let options = GroupOptions {
            sites: sites.clone(),
            ..options()
        };
        let mut world = World::new(9, 6, faulty(), &options);
        let all: Vec<_> = (0..6).map(|rank| values(element, rank, 5000)).collect();
        for algorithm in [Algorithm::HalvingDoubling, Algorithm::Hierarchical] {
            let outputs = world.all(&operation, with(algorithm), |rank| {
                Buffers::in_place(all[rank].clone())
            });
            let expected = reduced(algorithm, (element, reduction), &all, &sites);
            assert!(
                outputs.iter().all(|output| *output == expected),
                "{algorithm}"
            );
        }
    }
}
