//! Receives from any rank: one send is taken, the sends of other ranks wait, and only the death of all ends the wait.

use std::time::Duration;

use farwrite_collectives::{Buffers, Operation, OperationOptions};
use farwrite_rng::SplitMix;

use crate::faults::POINT;
use crate::world::{Ended, MS, SECOND, World, clean, faulty, options};

const ANY: Operation = Operation::ReceiveAny { tag: 7 };
const BYTES: usize = 5000;

fn send(world: &mut World, from: usize, byte: u8) {
    let send = Operation::Send { to: 0, tag: 7 };
    world.start(from, &send, POINT, Buffers::input(vec![byte; BYTES]));
}

fn receive(world: &mut World, operation: &Operation) {
    let output = Buffers::in_place(vec![0; BYTES]);
    world.start(0, operation, POINT, output);
}

/// The sender of each receive, and the byte that it sent, in the order of their ends.
fn received(world: &mut World) -> Vec<(usize, u8)> {
    let read = |ended: Ended| {
        let (report, data) = ended.expect("it succeeds");
        assert!(data.iter().all(|byte| *byte == data[0]));
        (report.source.expect("a sender"), data[0])
    };
    world.take(0).into_iter().map(read).collect()
}

#[test]
fn of_two_ranks_that_send_at_once_each_receive_gets_one() {
    for receives_first in [false, true] {
        let mut world = World::new(1, 3, clean(), &options());
        if receives_first {
            receive(&mut world, &ANY);
            world.run(10 * MS, |_| false);
        }
        for rank in [1, 2] {
            send(
                &mut world,
                rank,
                10 + u8::try_from(rank).expect("few ranks"),
            );
        }
        if !receives_first {
            world.run(10 * MS, |_| false);
            receive(&mut world, &ANY);
        }
        world.run(SECOND, |_| false);
        let first = received(&mut world);
        assert_eq!((first.len(), world.finished(1) + world.finished(2)), (1, 1));
        receive(&mut world, &ANY);
        world.run(SECOND, |_| false);
        let mut both = [first, received(&mut world)].concat();
        both.sort_unstable();
        assert_eq!(both, [(1, 11), (2, 12)]);
    }
}

#[test]
fn every_send_is_received_once_and_those_of_a_rank_in_order() {
    for seed in 0..30 {
        let mut rng = SplitMix::new(seed);
        let mut world = World::new(seed, 4, faulty(), &options());
        // Receives from one rank are posted first. So those from any rank take what is left.
        let mut sends: Vec<_> = (1..4).flat_map(|rank| [rank; 4]).collect();
        let mut receives: Vec<_> = (1..4)
            .map(|from| Operation::Receive { from, tag: 7 })
            .collect();
        receives.resize(sends.len(), ANY);
        receives.reverse();
        let mut sent = [0_u8; 4];
        while !sends.is_empty() || !receives.is_empty() {
            let sends_next = receives.is_empty() || (!sends.is_empty() && rng.chance(0.5));
            if sends_next {
                let place = rng.index(sends.len());
                let rank = sends.swap_remove(place);
                send(&mut world, rank, sent[rank]);
                sent[rank] += 1;
            } else if let Some(operation) = receives.pop() {
                receive(&mut world, &operation);
            }
            world.run(rng.below(4) * MS / 2, |_| false);
        }
        assert!(
            world.run(5 * SECOND, |world| world.finished(0) == 12),
            "seed {seed}"
        );
        let mut all = received(&mut world);
        // The receives of one rank end in the order of their sends.
        all.sort_by_key(|(rank, _)| *rank);
        let expected: Vec<_> = (1..4)
            .flat_map(|rank| (0..4).map(move |byte| (rank, byte)))
            .collect();
        assert_eq!(all, expected, "seed {seed}");
        let sent = [1, 2, 3].map(|rank| world.finished(rank));
        assert_eq!(sent, [4, 4, 4], "seed {seed}");
    }
}

#[test]
fn a_dead_rank_among_living_ones_does_not_end_the_wait() {
    let long = OperationOptions {
        timeout: Some(Duration::from_secs(1_800)),
        ..POINT
    };
    let mut world = World::new(1, 3, clean(), &options());
    let output = || Buffers::in_place(vec![0; BYTES]);
    world.start(0, &ANY, long, output());
    world.run(10 * MS, |_| false);
    world.stopped[2] = true;
    world.run(60 * SECOND, |_| false);
    assert_eq!(world.finished(0), 0);
    send(&mut world, 1, 3);
    world.run(SECOND, |_| false);
    assert_eq!(received(&mut world), [(1, 3)]);
    world.start(0, &ANY, long, output());
    world.run(60 * SECOND, |_| false);
    assert_eq!(world.finished(0), 0);
    world.stopped[1] = true;
    assert!(world.run(10 * SECOND, |world| world.finished(0) == 1));
    let error = world.take(0).remove(0).unwrap_err().to_string();
    assert!(error.starts_with("rank 2 does not answer: "), "{error}");
}

#[test]
fn the_wait_ends_when_all_others_have_left() {
    let mut world = World::new(1, 3, faulty(), &options());
    receive(&mut world, &ANY);
    world.run(10 * MS, |_| false);
    world.members[1].leave();
    world.run(SECOND, |_| false);
    assert_eq!(world.finished(0), 0);
    world.members[2].leave();
    world.run(SECOND, |_| false);
    let error = world.take(0).remove(0).unwrap_err().to_string();
    assert_eq!(error, "rank 1 ended the group: it has left");
}

#[test]
fn a_timeout_names_all_ranks_that_did_not_send() {
    let mut world = World::new(1, 3, clean(), &options());
    receive(&mut world, &ANY);
    world.run(60 * SECOND, |_| false);
    let error = world.take(0).remove(0).unwrap_err().to_string();
    let named = "rank 1 has not sent or taken all of its data, rank 2 has not sent";
    assert!(error.contains(named), "{error}");
}

#[test]
fn a_message_without_bytes_has_a_sender_and_one_of_another_size_is_an_error() {
    let mut world = World::new(1, 3, clean(), &options());
    world.start(0, &ANY, POINT, Buffers::in_place(Vec::new()));
    world.run(SECOND, |_| false);
    assert_eq!(world.finished(0), 0);
    let to_0 = Operation::Send { to: 0, tag: 7 };
    world.start(2, &to_0, POINT, Buffers::input(Vec::new()));
    world.run(SECOND, |_| false);
    let (report, data) = world.take(0).remove(0).expect("it succeeds");
    assert_eq!((report.source, data.len(), report.bytes), (Some(2), 0, 0));
    receive(&mut world, &ANY);
    world.start(1, &to_0, POINT, Buffers::input(vec![1; BYTES + 1]));
    world.run_until_over(1);
    let error = world.take(0).remove(0).unwrap_err().to_string();
    assert!(
        error.contains("bytes of the receive = 5000, this rank 5001"),
        "{error}"
    );
}
