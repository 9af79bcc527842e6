//! Ranks that stall or differ, or that die in an operation: every operation ends by its deadline, and the error names
//! the rank.

use std::time::Duration;

use farwrite::fabric::sim::LinkConfig;
use farwrite_collectives::{
    Algorithm, Buffers, CollectiveError, Delivery, ElementType, Operation, OperationOptions,
    Reduction,
};

use crate::world::{MS, SECOND, World, address, clean, faulty, options, values};

pub(crate) const SUM: Operation = Operation::AllReduce {
    element: ElementType::F32,
    reduction: Reduction::Sum,
};
pub(crate) const RING: OperationOptions = OperationOptions {
    algorithm: Algorithm::Ring,
    timeout: Some(Duration::from_secs(2)),
    delivery: Delivery::Exact,
};
pub(crate) const POINT: OperationOptions = OperationOptions {
    algorithm: Algorithm::Auto,
    ..RING
};

pub(crate) fn start_all(world: &mut World, count: usize, without: Option<usize>) {
    for rank in (0..world.ranks()).filter(|rank| Some(*rank) != without) {
        let buffers = Buffers::in_place(values(ElementType::F32, rank, count));
        world.start(rank, &SUM, RING, buffers);
    }
}

/// Checks that every rank except `without` has failed by `limit_ns`, and that the error names that
/// rank.
fn check_named(world: &mut World, without: usize, limit_ns: u64, state: &str) {
    assert!(
        world.network.now_ns() <= limit_ns,
        "late: {}",
        world.network.now_ns()
    );
    for rank in (0..world.ranks()).filter(|&rank| rank != without) {
        let error = world.take(rank).remove(0).unwrap_err().to_string();
        assert!(
            error.contains(&format!("rank {without} {state}")),
            "rank {rank}: {error}"
        );
    }
}

#[test]
fn a_rank_that_dies_is_named_by_all() {
    for link in [clean(), faulty()] {
        let mut world = World::new(1, 5, link, &options());
        start_all(&mut world, 200_000, None);
        world.run(3 * MS, |_| false);
        world.stopped[3] = true;
        world.run_until_over(1);
        check_named(&mut world, 3, 3 * SECOND, "does not answer");
        // No operation can start any more.
        let error = world.members[0].start(world.network.now_ns(), &SUM, RING, Buffers::default());
        assert!(error.is_err());
    }
}

#[test]
fn a_rank_that_is_cut_off_is_named_by_the_others() {
    let mut world = World::new(1, 4, clean(), &options());
    start_all(&mut world, 200_000, None);
    world.run(3 * MS, |_| false);
    for other in [0, 1, 3] {
        for (a, b) in [(2, other), (other, 2)] {
            world
                .network
                .set_down(address(a).ip(), address(b).ip(), true)
                .unwrap();
        }
    }
    world.run_until_over(1);
    assert!(matches!(
        world.take(2).remove(0),
        Err(CollectiveError::Timeout { .. })
    ));
    check_named(&mut world, 2, 3 * SECOND, "does not answer");
}

#[test]
fn a_rank_that_has_not_started_is_named() {
    let mut world = World::new(1, 4, faulty(), &options());
    start_all(&mut world, 1000, Some(1));
    let over = |world: &World| world.network.now_ns() > 2_100 * MS;
    world.run(3 * SECOND, over);
    check_named(&mut world, 1, 3 * SECOND, "has not started it");
    // The rank returns late, and is informed of the failure.
    let now_ns = world.network.now_ns();
    let buffers = Buffers::in_place(values(ElementType::F32, 1, 1000));
    let error = world.members[1]
        .start(now_ns, &SUM, RING, buffers)
        .unwrap_err();
    assert!(
        matches!(error, CollectiveError::Ended { rank, .. } if rank != 1),
        "{error}"
    );
}

#[test]
fn a_timeout_names_all_ranks_that_are_its_cause() {
    let mut world = World::new(1, 4, faulty(), &options());
    for rank in [0, 2] {
        let buffers = Buffers::in_place(values(ElementType::F32, rank, 1000));
        world.start(rank, &SUM, RING, buffers);
    }
    world.stopped[3] = true;
    let over = |world: &World| [0, 2].iter().all(|&rank| world.finished(rank) == 1);
    assert!(world.run(3 * SECOND, over));
    let causes = ": rank 3 does not answer, rank 1 has not started it";
    let errors = [0, 2].map(|rank| world.take(rank).remove(0).unwrap_err().to_string());
    assert!(
        errors.iter().any(|error| error.ends_with(causes)),
        "{errors:?}"
    );
}

#[test]
fn a_rank_that_comes_back_in_time_is_waited_for() {
    let mut world = World::new(1, 4, faulty(), &options());
    start_all(&mut world, 50_000, None);
    world.run(2 * MS, |_| false);
    world.stopped[2] = true;
    world.run(SECOND, |_| false);
    world.stopped[2] = false;
    world.run_until_over(1);
    for rank in 0..4 {
        let (report, _) = world.take(rank).remove(0).unwrap();
        assert!(report.elapsed > Duration::from_secs(1) && report.elapsed < report.timeout);
    }
}

#[test]
fn ranks_that_differ_are_named_with_argument_and_values() {
    let f32s = |count: usize| Buffers::in_place(vec![0; 4 * count]);
    let reduce = |element, reduction| Operation::AllReduce { element, reduction };
    let sum = || reduce(ElementType::F32, Reduction::Sum);
    let with = |algorithm| OperationOptions { algorithm, ..RING };
    let ring = Algorithm::Ring;
    type Side = (Operation, OperationOptions, Buffers);
    let cases: [(Side, Side, &str); 5] = [
        (
            (sum(), with(ring), f32s(8)),
            (sum(), with(ring), f32s(9)),
            "rank 1 has bytes = 36, this rank 32",
        ),
        (
            (sum(), with(ring), f32s(8)),
            (
                reduce(ElementType::I32, Reduction::Sum),
                with(ring),
                f32s(8),
            ),
            "rank 1 has element type = int32, this rank float32",
        ),
        (
            (sum(), with(ring), f32s(8)),
            (
                reduce(ElementType::F32, Reduction::Max),
                with(ring),
                f32s(8),
            ),
            "rank 1 has reduction = max, this rank sum",
        ),
        (
            (sum(), with(ring), f32s(8)),
            (sum(), with(Algorithm::Direct), f32s(8)),
            "rank 1 has algorithm = direct, this rank ring",
        ),
        (
            (sum(), with(Algorithm::Direct), f32s(8)),
            (Operation::AllGather, with(Algorithm::Direct), f32s(8)),
            "rank 1 has operation = all-gather, this rank all-reduce",
        ),
    ];
    for (ours, theirs, expected) in cases {
        let mut world = World::new(1, 2, clean(), &options());
        for (rank, (operation, options, buffers)) in [ours, theirs].into_iter().enumerate() {
            world.start(rank, &operation, options, buffers);
        }
        world.run_until_over(1);
        let error = world.take(0).remove(0).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(world.take(1).remove(0).is_err());
    }
}

/// All ranks run operations on their buffers. The first that fails names another rank and what
/// differs, long before the timeout, and none succeeds.
fn check_different(world: &mut World, sides: Vec<(Operation, Buffers)>, expected: &[&str]) {
    for (rank, (operation, buffers)) in sides.into_iter().enumerate() {
        world.start(rank, &operation, POINT, buffers);
    }
    world.run_until_over(1);
    assert!(world.network.now_ns() < SECOND);
    for rank in 0..world.ranks() {
        let error = world.take(rank).remove(0).unwrap_err().to_string();
        let is_named = expected.iter().any(|expected| error.contains(expected));
        assert!(is_named, "rank {rank}: {error}");
    }
}

#[test]
fn roots_that_differ_are_named() {
    let element = ElementType::F32;
    let bytes = || Buffers::in_place(vec![0; 40]);
    let two = || World::new(1, 2, clean(), &options());
    for swapped in [false, true] {
        let root = |rank: usize| if swapped { 1 - rank } else { rank };
        let broadcast = |rank| (Operation::Broadcast { root: root(rank) }, bytes());
        let differ = ["rank 1 has root = ", "rank 0 has root = "];
        check_different(&mut two(), vec![broadcast(0), broadcast(1)], &differ);
        let reduce = |rank: usize| {
            let operation = Operation::Reduce {
                root: root(rank),
                element,
                reduction: Reduction::Sum,
            };
            let is_root = root(rank) == rank;
            let input = || Buffers::input(vec![0; 40]);
            (operation, if is_root { bytes() } else { input() })
        };
        check_different(&mut two(), vec![reduce(0), reduce(1)], &differ);
    }
    let mut world = World::new(1, 5, faulty(), &options());
    let sides = (0..5).map(|rank| {
        let root = usize::from(rank == 4) * 3;
        (Operation::Broadcast { root }, bytes())
    });
    check_different(&mut world, sides.collect(), &["has root = "]);
}

#[test]
fn sizes_that_differ_fail_at_the_root_too() {
    let two = || World::new(1, 2, clean(), &options());
    for other in [0, 36, 44_usize] {
        let root = 0;
        let in_place = |bytes| Buffers::in_place(vec![0; bytes]);
        let broadcast = |bytes| (Operation::Broadcast { root }, in_place(bytes));
        check_different(
            &mut two(),
            vec![broadcast(40), broadcast(other)],
            &["has bytes = "],
        );
        let scatter = |buffers| (Operation::Scatter { root }, buffers);
        let whole = Buffers::new(vec![0; 80], vec![0; 40]);
        let sides = vec![scatter(whole), scatter(in_place(other))];
        check_different(&mut two(), sides, &["has bytes = "]);
        let sum = |bytes| (SUM, in_place(bytes));
        check_different(&mut two(), vec![sum(40), sum(other)], &["has bytes = "]);
    }
}

#[test]
fn an_all_to_all_compares_the_sizes_of_each_pair() {
    let all_to_all = |sends: [u64; 2], receives: [u64; 2]| {
        let memory = |sizes: &[u64]| vec![0; usize::try_from(sizes.iter().sum::<u64>()).unwrap()];
        let buffers = Buffers::new(memory(&sends), memory(&receives));
        let operation = Operation::AllToAll {
            send_bytes: sends.to_vec(),
            receive_bytes: receives.to_vec(),
        };
        (operation, buffers)
    };
    for (sent, expected) in [(40, 0), (0, 40), (40, 36), (36, 40)] {
        let mut world = World::new(1, 2, clean(), &options());
        let sides = [
            all_to_all([8, sent], [8, 0]),
            all_to_all([0, 8], [expected, 8]),
        ];
        for (rank, (operation, buffers)) in sides.into_iter().enumerate() {
            world.start(rank, &operation, POINT, buffers);
        }
        world.run_until_over(1);
        assert!(world.network.now_ns() < SECOND);
        let error = world.take(1).remove(0).unwrap_err().to_string();
        let named = format!("rank 0 has bytes = {sent}, this rank {expected}");
        assert!(error.contains(&named), "{error}");
    }
}

#[test]
fn a_rank_at_which_an_operation_cannot_start_is_named() {
    let mut world = World::new(1, 3, faulty(), &options());
    let start = |world: &mut World, rank: usize, send_bytes: Vec<u64>| {
        let operation = Operation::AllToAll {
            send_bytes,
            receive_bytes: Vec::new(),
        };
        let now_ns = world.network.now_ns();
        let buffers = Buffers::new(vec![0; 12], vec![0; 12]);
        world.members[rank].start(now_ns, &operation, POINT, buffers)
    };
    // A rank that starts the operation with other arguments in time is waited for.
    let problem = "rank 1: send_bytes = [4, 4, 5]: a sum of 12";
    for is_corrected in [true, false] {
        let since_ns = world.network.now_ns();
        let error = start(&mut world, 1, vec![4, 4, 5]).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
        for rank in [0, 2] {
            start(&mut world, rank, Vec::new()).unwrap();
        }
        if is_corrected {
            start(&mut world, 1, Vec::new()).unwrap();
        }
        world.run(SECOND, |world| {
            [0, 2].iter().all(|&rank| world.finished(rank) == 1)
        });
        assert!(world.network.now_ns() - since_ns < SECOND);
        for rank in [0, 2] {
            match world.take(rank).remove(0) {
                Ok(_) => assert!(is_corrected),
                Err(error) => {
                    let error = error.to_string();
                    assert!(!is_corrected && error.contains(problem), "{error}");
                }
            }
        }
        world.run(SECOND, |_| false);
        world.take(1);
    }
}

#[test]
fn an_operation_that_another_rank_does_not_run_ends_by_its_deadline() {
    let mut world = World::new(1, 3, clean(), &options());
    let empty = || Buffers::in_place(Vec::new());
    // Without values, rank 2 is done at once.
    for rank in 0..3 {
        let count = if rank == 2 { 0 } else { 100 };
        world.start(rank, &SUM, RING, Buffers::in_place(vec![0; 4 * count]));
    }
    world.start(2, &SUM, RING, empty());
    world.run(3 * SECOND, |world| world.network.now_ns() > 2_500 * MS);
    for rank in 0..2 {
        assert!(world.take(rank).remove(0).is_err());
    }
}

#[test]
fn a_live_rank_on_a_long_path_is_not_named_as_silent() {
    let link = LinkConfig {
        delay: Duration::from_millis(30),
        ..clean()
    };
    let options = farwrite_collectives::GroupOptions {
        initial_rtt: Duration::from_millis(60),
        ..options()
    };
    let mut world = World::new(1, 2, link, &options);
    // Ranks are asked every 2 s: the last answer is in flight when the deadline passes.
    let late = OperationOptions {
        timeout: Some(Duration::from_millis(16_030)),
        ..RING
    };
    let buffers = Buffers::in_place(values(ElementType::F32, 0, 1000));
    world.start(0, &SUM, late, buffers);
    world.run(17 * SECOND, |_| false);
    check_named(&mut world, 1, 17 * SECOND, "has not started it");
}

#[test]
fn an_operation_that_a_rank_starts_after_a_refusal_succeeds() {
    let mut world = World::new(1, 3, clean(), &options());
    let buffers = |rank| Buffers::in_place(values(ElementType::F32, rank, 1000));
    let options = OperationOptions::default();
    for rank in [0, 1] {
        world.start(rank, &SUM, options, buffers(rank));
    }
    let now_ns = world.network.now_ns();
    let error = world.members[0].start(now_ns, &SUM, options, Buffers::default());
    error.unwrap_err();
    // Rank 1 waits for rank 2, asks each 2 s, and learns of the refusal.
    world.run(5 * SECOND, |_| false);
    world.start(0, &SUM, options, buffers(0));
    for _ in 0..2 {
        world.start(2, &SUM, options, buffers(2));
    }
    assert!(world.run(SECOND, |world| world.finished(1) == 1));
    world.start(1, &SUM, options, buffers(1));
    world.run_until_over(2);
    for ended in (0..3).flat_map(|rank| world.take(rank)) {
        ended.expect("the operation succeeds");
    }
}

#[test]
fn parts_of_a_reduce_scatter_consist_of_elements() {
    let mut world = World::new(1, 2, clean(), &options());
    let scatter = Operation::ReduceScatter {
        element: ElementType::F32,
        reduction: Reduction::Sum,
    };
    let buffers = Buffers::new(vec![0; 4], vec![0; 2]);
    let now_ns = world.network.now_ns();
    let error = world.members[0].start(now_ns, &scatter, OperationOptions::default(), buffers);
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("bytes = 2") && error.contains("a multiple of the 4 bytes of float32"),
        "{error}"
    );
}

#[test]
fn information_that_does_not_fit_is_refused_by_name() {
    let info = |rank, ranks, packet_bytes| {
        let network = farwrite::fabric::sim::SimNetwork::new(1);
        let fabric = network.endpoint(address(rank), 1).unwrap();
        let endpoint = farwrite::Endpoint::new(fabric, [1; 32]);
        let options = farwrite_collectives::GroupOptions {
            packet_bytes,
            ..options()
        };
        let member = farwrite_collectives::Member::new(endpoint, rank, ranks, options);
        member.unwrap()
    };
    let ours = info(0, 2, 512).info().unwrap();
    let good = info(1, 2, 512).info().unwrap();
    let mut newer = good.clone();
    newer[5] = 11;
    let cases = [
        (vec![1, 2, 3], "3 bytes are too few"),
        (good[..good.len() - 1].to_vec(), "bytes are too few"),
        ([&good[..], &[0]].concat(), "1 bytes follow"),
        (
            [b"ABCD", &good[4..]].concat(),
            "this is not the information of a rank",
        ),
        (
            newer,
            "it speaks version 11 of the protocol of groups, this rank 10",
        ),
        (info(0, 2, 512).info().unwrap(), "says that it is rank 0"),
        (
            info(1, 3, 512).info().unwrap(),
            "it has a group of 3 ranks, this rank of 2",
        ),
        (info(1, 2, 1024).info().unwrap(), "it has options"),
    ];
    for (theirs, expected) in cases {
        let error = info(0, 2, 512)
            .connect(&[ours.clone(), theirs])
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("rank 1: ") && error.contains(expected),
            "{error}"
        );
    }
    // Truncated bytes are never accepted as information.
    for length in 0..good.len() {
        assert!(
            info(0, 2, 512)
                .connect(&[ours.clone(), good[..length].to_vec()])
                .is_err()
        );
    }
}
