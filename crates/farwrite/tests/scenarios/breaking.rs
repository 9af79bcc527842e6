//! A queue pair that breaks ends without an effect on other queue pairs.

use farwrite::{Error, MemoryRegion, Outcome, RecvHandle, SendHandle, SendOptions};

use crate::slow_world::SlowWorld;
use crate::world::{SECOND, options};

const BYTES: usize = 100_000;

/// Starts a message from `a` to `b` on each of their queue pairs.
fn start(world: &mut SlowWorld) -> Vec<(SendHandle, RecvHandle, MemoryRegion)> {
    let (a, b) = (&mut world.a, &mut world.b);
    let ends = a.qps.iter().zip(&b.qps);
    let messages = ends.map(|(&qa, &qb)| {
        let target = b.endpoint.register(vec![0; BYTES]).expect("room");
        let recv = b.endpoint.post_recv(qb, target.whole());
        let source = a.endpoint.register(vec![7; BYTES]).expect("room");
        let send = a
            .endpoint
            .post_send(qa, source.whole(), SendOptions::default());
        (
            send.expect("a free slot"),
            recv.expect("a free slot"),
            source,
        )
    });
    messages.collect()
}

#[test]
fn a_broken_queue_pair_ends_alone() {
    let mut world = SlowWorld::new(&[options(), options(), options()]);
    world.a.controls.breaks_next.set(true);
    let messages = start(&mut world);
    let over = |_: &mut SlowWorld| messages.iter().all(|(send, ..)| send.outcome().is_some());
    assert!(world.run_until(SECOND, over), "not over in time");
    let outcomes: Vec<_> = messages.iter().map(|(send, ..)| send.outcome()).collect();
    let failed: Vec<_> = (0..3)
        .filter(|&index| outcomes[index] == Some(Outcome::Failed))
        .collect();
    assert_eq!(failed.len(), 1, "{outcomes:?}");
    let broken = failed[0];

    // A call that names the broken queue pair returns the reason.
    let (endpoint, qp) = (&mut world.a.endpoint, world.a.qps[broken]);
    let source = messages[broken].2;
    let posted = endpoint.post_send(qp, source.whole(), SendOptions::default());
    let Err(error @ Error::BrokenQueuePair { .. }) = posted else {
        panic!("{posted:?}");
    };
    assert!(error.to_string().contains("is broken: "), "{error}");
    assert!(matches!(
        endpoint.qp_stats(qp),
        Err(Error::BrokenQueuePair { .. })
    ));

    // The broken queue pair holds no resources, and can be destroyed once.
    assert_eq!(
        *endpoint.deregister(source).expect("it is free"),
        [7; BYTES]
    );
    assert!(endpoint.destroy_qp(qp).is_ok());
    assert!(matches!(
        endpoint.destroy_qp(qp),
        Err(Error::NoSuchQueuePair(_))
    ));

    // The other queue pairs continue.
    let (mut rest_a, mut rest_b) = (world.a.qps.clone(), world.b.qps.clone());
    rest_a.remove(broken);
    rest_b.remove(broken);
    (world.a.qps, world.b.qps) = (rest_a, rest_b);
    let messages = start(&mut world);
    let over = |_: &mut SlowWorld| messages.iter().all(|(_, recv, _)| recv.outcome().is_some());
    assert!(world.run_until(2 * SECOND, over), "not over in time");
    for (_, recv, _) in &messages {
        assert_eq!(recv.outcome(), Some(Outcome::Whole));
    }
}

#[test]
fn the_name_of_a_destroyed_queue_pair_is_not_used_again() {
    let mut world = SlowWorld::new(&[options()]);
    let (endpoint, old) = (&mut world.a.endpoint, world.a.qps[0]);
    endpoint.destroy_qp(old).expect("it exists");
    let new = endpoint.create_qp(options()).expect("good options");
    assert_ne!(old, new);
    assert!(matches!(
        endpoint.qp_stats(old),
        Err(Error::NoSuchQueuePair(1))
    ));
    assert!(endpoint.qp_stats(new).is_ok());
}
