//! Ranks that leave or abort: others get what was sent before, and operations that need such a rank end.

use farwrite_collectives::{Buffers, CollectiveError, ElementType, Operation};

use crate::faults::{POINT, RING, SUM, start_all};
use crate::world::{MS, SECOND, World, address, clean, faulty, losing, options, values};

#[test]
fn a_send_to_a_rank_that_has_left_fails_at_once() {
    let mut world = World::new(1, 3, faulty(), &options());
    world.members[1].leave();
    world.run(SECOND, |_| false);
    let send = Operation::Send { to: 1, tag: 4 };
    world.start(0, &send, POINT, Buffers::input(vec![1; 5000]));
    world.run(SECOND, |_| false);
    let error = world.take(0).remove(0).unwrap_err().to_string();
    assert_eq!(error, "rank 1 ended the group: it has left");
    // Rank 2 is informed that rank 0 starts no more operations.
    let buffers = Buffers::in_place(values(ElementType::F32, 2, 10));
    let now_ns = world.network.now_ns();
    let error = world.members[2].start(now_ns, &SUM, RING, buffers);
    let error = error.unwrap_err().to_string();
    let expected = "rank 0 ended the group: rank 1 ended the group: it has left";
    assert_eq!(error, expected);
}

#[test]
fn receives_get_what_a_rank_sent_before_it_left_and_no_others_wait() {
    let mut world = World::new(1, 3, faulty(), &options());
    let receive = |tag| Operation::Receive { from: 1, tag };
    let data = values(ElementType::F32, 1, 50_000);
    let output = || Buffers::in_place(vec![0; 200_000]);
    // The second send is matched and done before the first one, which is never matched.
    for tag in [7, 8] {
        world.start(0, &receive(tag), POINT, output());
    }
    let empty = world.start(0, &receive(9), POINT, Buffers::in_place(Vec::new()));
    let send = Operation::Send { to: 0, tag: 8 };
    world.start(1, &send, POINT, Buffers::input(data.clone()));
    world.run(SECOND, |world| world.finished(1) == 1);
    // Segments are still in flight.
    world.members[1].leave();
    world.run(SECOND, |_| false);
    let ended = world.take(0);
    assert_eq!(ended.len(), 3, "{empty:?} is done at once");
    assert!(ended[0].as_ref().unwrap().1.is_empty());
    assert!(ended[1].as_ref().unwrap().1 == data);
    let error = ended[2].as_ref().unwrap_err().to_string();
    assert_eq!(error, "rank 1 ended the group: it has left");
}

#[test]
fn a_rank_that_has_left_is_not_blamed_for_others() {
    let mut world = World::new(1, 3, clean(), &options());
    let receive = Operation::Receive { from: 2, tag: 0 };
    world.start(0, &receive, POINT, Buffers::in_place(vec![0; 100]));
    // Rank 1 is idle, leaves, and no longer answers.
    world.members[1].leave();
    world.run(SECOND, |_| false);
    world.stopped[1] = true;
    world.run(3 * SECOND, |_| false);
    let error = world.take(0).remove(0).unwrap_err().to_string();
    assert!(error.contains("rank 2 has not sent"), "{error}");
    // A send and receive has no number among the collective operations.
    assert!(
        error.starts_with("a send and receive is not done after"),
        "{error}"
    );
}

#[test]
fn a_rank_that_leaves_ends_later_operations_alone() {
    let mut world = World::new(1, 3, faulty(), &options());
    start_all(&mut world, 20_000, None);
    world.run_until_over(1);
    for rank in 0..3 {
        world.take(rank).remove(0).unwrap();
    }
    world.members[1].leave();
    world.run(SECOND, |_| false);
    let now_ns = world.network.now_ns();
    assert_eq!(world.members[1].in_flight(now_ns), 0);
    start_all(&mut world, 10, Some(1));
    world.run(SECOND, |_| false);
    for rank in [0, 2] {
        let error = world.take(rank).remove(0).unwrap_err().to_string();
        assert!(
            error.contains("rank 1 ended the group: it has left"),
            "{error}"
        );
    }
}

/// Ends the group at a rank, as `Communicator::abort` does.
fn abort(world: &mut World, rank: usize) {
    let reason = "it aborted".into();
    world.members[rank].fail(CollectiveError::Ended { rank, reason });
}

/// Whether the operations at a rank ended without an error, in the order of their end.
fn successes(world: &mut World, rank: usize) -> Vec<bool> {
    let ended = world.take(rank);
    let errors = ended.iter().filter_map(|ended| ended.as_ref().err());
    for error in errors {
        assert_eq!(error.to_string(), "rank 0 ended the group: it aborted");
    }
    ended.iter().map(Result::is_ok).collect()
}

#[test]
fn operations_that_ended_before_an_abort_end_at_all_ranks() {
    let mut owed = 0;
    for seed in 0..20 {
        let mut world = World::new(seed, 3, losing(0.1), &options());
        start_all(&mut world, 2_000, None);
        assert!(world.run(SECOND, |world| world.finished(0) == 1));
        start_all(&mut world, 200_000, None);
        owed += usize::from((1..3).any(|rank| world.finished(rank) == 0));
        abort(&mut world, 0);
        let over = |world: &World| (0..3).all(|rank| world.finished(rank) == 2);
        assert!(world.run(SECOND, over), "seed {seed}");
        for rank in 0..3 {
            // Which of the two is first depends on the rank.
            let mut ended = successes(&mut world, rank);
            ended.sort_unstable();
            assert_eq!(ended, [false, true], "seed {seed}, rank {rank}");
        }
    }
    assert!(owed > 2, "no rank waited for data after the abort");
}

#[test]
fn what_a_rank_owes_after_an_abort_is_waited_for_one_second() {
    let mut failed = 0;
    for seed in 0..20 {
        let mut world = World::new(seed, 3, losing(0.1), &options());
        start_all(&mut world, 2_000, None);
        assert!(world.run(SECOND, |world| world.finished(0) == 1));
        abort(&mut world, 0);
        let began_ns = world.network.now_ns();
        // The rank sends its last messages, and repairs nothing any more.
        world.run(MS / 10, |_| false);
        world.stopped[0] = true;
        let over = |world: &World| (1..3).all(|rank| world.finished(rank) == 1);
        if !world.run(SECOND + 10 * MS, over) {
            // The message about the end was lost, so that the rank counts as dead later.
            continue;
        }
        let took_ns = world.network.now_ns() - began_ns;
        let ended = [1, 2].map(|rank| successes(&mut world, rank) == [true]);
        failed += usize::from(ended.contains(&false));
        assert!(!ended.contains(&false) || took_ns >= SECOND, "{took_ns}");
    }
    assert!(failed > 2, "no data was lost");
}

#[test]
fn what_was_sent_before_an_abort_is_received() {
    let mut world = World::new(1, 3, losing(0.1), &options());
    let receive = |from, tag| Operation::Receive { from, tag };
    for (from, tag) in [(0, 0), (0, 1), (2, 0)] {
        world.start(
            1,
            &receive(from, tag),
            POINT,
            Buffers::in_place(vec![0; 8_000]),
        );
    }
    world.run(10 * MS, |_| false);
    let data = vec![3; 8_000];
    let send = Operation::Send { to: 1, tag: 0 };
    world.start(0, &send, POINT, Buffers::input(data.clone()));
    assert!(world.run(SECOND, |world| world.finished(0) == 1));
    assert_eq!(world.finished(1), 0);
    abort(&mut world, 0);
    assert!(world.run(SECOND, |world| world.finished(1) == 3));
    let mut ended = successes(&mut world, 1);
    ended.sort_unstable();
    assert_eq!(ended, [false, false, true]);
}

#[test]
fn a_rank_that_leaves_waits_for_a_short_silence() {
    let mut world = World::new(1, 3, clean(), &options());
    let set_down = |world: &World, down| {
        for (a, b) in [(0, 1), (1, 0)] {
            let [a, b] = [a, b].map(|rank| address(rank).ip());
            world.network.set_down(a, b, down).unwrap();
        }
    };
    let data = vec![3; 5000];
    let receive = |from| Operation::Receive { from, tag: 0 };
    world.start(0, &receive(2), POINT, Buffers::in_place(vec![0; 100]));
    world.start(1, &receive(0), POINT, Buffers::in_place(vec![0; 5000]));
    world.run(10 * MS, |_| false);
    set_down(&world, true);
    let send = |to| Operation::Send { to, tag: 0 };
    world.start(0, &send(1), POINT, Buffers::input(data.clone()));
    // Rank 0 asks rank 1 during this time.
    world.run(300 * MS, |_| false);
    world.start(2, &send(0), POINT, Buffers::input(vec![0; 100]));
    world.run(20 * MS, |_| false);
    assert_eq!(world.finished(0), 2);
    world.members[0].leave();
    let now_ns = world.network.now_ns();
    let in_flight = [now_ns, now_ns + SECOND].map(|at_ns| world.members[0].in_flight(at_ns));
    assert!(in_flight[0] > in_flight[1], "{in_flight:?}");
    set_down(&world, false);
    world.run(SECOND, |_| false);
    assert!(world.take(1).remove(0).unwrap().1 == data);
    assert_eq!(world.members[0].in_flight(world.network.now_ns()), 0);
}
