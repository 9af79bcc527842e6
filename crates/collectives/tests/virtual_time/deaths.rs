//! Ranks that die: others notice it long before the timeout of an operation.

use std::time::Duration;

use farwrite_collectives::{Buffers, ElementType, OperationOptions};

use crate::faults::{RING, SUM, start_all};
use crate::world::{MS, SECOND, World, address, clean, faulty, options, values};

/// A timeout that is too long for a job that has lost a rank.
const LONG: OperationOptions = OperationOptions {
    timeout: Some(Duration::from_secs(1_800)),
    ..RING
};

/// Checks that every other rank names a rank that died at `died_ns` as dead, and when it was heard.
fn check_dead(world: &mut World, dead: usize, died_ns: u64) {
    let since_ns = world.network.now_ns() - died_ns;
    assert!((5 * SECOND..7 * SECOND).contains(&since_ns), "{since_ns}");
    for rank in (0..world.ranks()).filter(|&rank| rank != dead) {
        let error = world.take(rank).remove(0).unwrap_err().to_string();
        let what = format!("rank {dead} does not answer: it was last heard ");
        assert!(error.contains(&what), "rank {rank}: {error}");
        assert!(error.ends_with(" s ago; the limit is 5s"), "{error}");
    }
}

#[test]
fn a_rank_that_dies_is_noticed_long_before_the_timeout() {
    for link in [clean(), faulty()] {
        let mut world = World::new(1, 5, link, &options());
        for rank in 0..5 {
            let buffers = Buffers::in_place(values(ElementType::F32, rank, 200_000));
            world.start(rank, &SUM, LONG, buffers);
        }
        world.run(3 * MS, |_| false);
        world.stopped[3] = true;
        world.run_until_over(1);
        check_dead(&mut world, 3, 3 * MS);
    }
}

#[test]
fn a_rank_that_died_earlier_is_noticed_and_one_that_computes_is_not() {
    let mut world = World::new(1, 3, clean(), &options());
    start_all(&mut world, 1000, None);
    world.run_until_over(1);
    (0..3).for_each(|rank| drop(world.take(rank)));
    // An operation that a rank starts a minute later, because it computes.
    let start = |world: &mut World, rank| {
        let buffers = Buffers::in_place(values(ElementType::F32, rank, 1000));
        world.start(rank, &SUM, LONG, buffers);
    };
    start(&mut world, 0);
    world.run(60 * SECOND, |_| false);
    (1..3).for_each(|rank| start(&mut world, rank));
    world.run_until_over(1);
    (0..3).for_each(|rank| drop(world.take(rank).remove(0).expect("no rank is dead")));
    world.stopped[2] = true;
    world.run(60 * SECOND, |_| false);
    let started_ns = world.network.now_ns();
    (0..2).for_each(|rank| start(&mut world, rank));
    world.run_until_over(1);
    check_dead(&mut world, 2, started_ns);
}

#[test]
fn a_rank_that_was_stopped_itself_blames_no_other() {
    let mut world = World::new(1, 3, faulty(), &options());
    for rank in 0..2 {
        let buffers = Buffers::in_place(values(ElementType::F32, rank, 1000));
        world.start(rank, &SUM, LONG, buffers);
    }
    // It has asked, and the answers are lost while it does nothing.
    world.run(1_249 * MS, |_| false);
    world.run(SECOND, |world| world.network.now_ns() > 1_250 * MS);
    let set_down = |world: &World, down| {
        for other in [1, 2] {
            let [from, to] = [other, 0].map(|rank| address(rank).ip());
            world.network.set_down(from, to, down).unwrap();
        }
    };
    set_down(&world, true);
    world.stopped[0] = true;
    world.run(4_500 * MS, |_| false);
    world.stopped[0] = false;
    set_down(&world, false);
    world.run(SECOND, |_| false);
    let buffers = Buffers::in_place(values(ElementType::F32, 2, 1000));
    world.start(2, &SUM, LONG, buffers);
    world.run_until_over(1);
    (0..3).for_each(|rank| drop(world.take(rank).remove(0).expect("no rank is dead")));
}

#[test]
fn a_rank_that_watches_learns_of_a_death_without_an_operation() {
    let mut world = World::new(1, 2, clean(), &options());
    world.stopped[1] = true;
    world.run(60 * SECOND, |_| false);
    assert!(world.members[0].failure().is_none());
    world.members[0].watch(true);
    world.run(6 * SECOND, |_| false);
    let failure = world.members[0].failure().map(ToString::to_string);
    let expected = "rank 1 does not answer: it was never heard; the limit is 5s";
    assert_eq!(failure.as_deref(), Some(expected));
}
