//! Packets that a receiver's sockets drop because they are full, and the reaction of the senders.

use std::net::SocketAddr;

use farwrite::fabric::sim::Datagram;
use farwrite::{QpOptions, RateControl, SendOptions};

use crate::slow_world::SlowWorld;
use crate::world::{MS, addr, options, tag};

const BYTES: usize = 16 << 20;

fn paced(rate_bps: u64) -> QpOptions {
    QpOptions {
        rate_control: RateControl::Fixed { rate_bps },
        burst_bytes: 8192,
        ..options()
    }
}

/// Starts a message on each of `queue_pairs` queue pairs, which share a rate in bits per second.
fn sending(queue_pairs: usize, rate_bps: u64) -> SlowWorld {
    let mut world = SlowWorld::new(&vec![paced(rate_bps); queue_pairs]);
    let (a, b) = (&mut world.a, &mut world.b);
    // The test does not check the bytes, so one region serves all messages.
    let source = a.endpoint.register(vec![7; BYTES]).expect("room");
    let target = b.endpoint.register(vec![0; BYTES]).expect("room");
    for (&qa, &qb) in a.qps.iter().zip(&b.qps) {
        let send = SendOptions {
            scheme: tag("sr-nack"),
            ..SendOptions::default()
        };
        let recv = b.endpoint.post_recv(qb, target.whole());
        recv.expect("a free slot");
        let send = a.endpoint.post_send(qa, source.whole(), send);
        send.expect("a free slot");
    }
    world
}

/// Advances the time. In each millisecond, `junk` datagrams of a stranger arrive at `b`, and its
/// sockets drop `dropped` packets.
fn run(world: &mut SlowWorld, milliseconds: u64, junk: usize, dropped: u64) {
    let stranger = SocketAddr::from(([10, 0, 0, 9], 5000));
    for _ in 0..milliseconds {
        for _ in 0..junk {
            world.network.inject(Datagram {
                src: stranger,
                dst: addr(2),
                tos: 0,
                id: 0,
                payload: vec![0; 20],
            });
        }
        let drops = &world.b.controls.socket_drops;
        drops.set(drops.get() + dropped);
        world.run_for(MS);
    }
}

#[test]
fn a_flood_by_a_stranger_does_not_slow_a_sender_down() {
    let rate_bps = 200_000_000;
    let mut world = sending(1, rate_bps);
    run(&mut world, 100, 0, 0);
    // The stranger sends 900,000 packets per second, of which the receiver takes two thirds. The
    // sender sends 6,000.
    run(&mut world, 300, 600, 300);
    let stats = world.a.peer_stats(0);
    assert_eq!(stats.peer_socket_drops, 0, "{stats:?}");
    assert_eq!(stats.pace_bps, rate_bps, "{stats:?}");
}

#[test]
fn a_sender_that_is_too_fast_slows_down() {
    let rate_bps = 200_000_000;
    let mut world = sending(1, rate_bps);
    run(&mut world, 100, 0, 0);
    run(&mut world, 300, 0, 3);
    let stats = world.a.peer_stats(0);
    let drops = world.b.controls.socket_drops.get();
    // The sender does not know yet about the drops of the last half round trip and of the last
    // report interval.
    assert!(stats.peer_socket_drops > drops * 3 / 4, "{stats:?}");
    assert!(stats.pace_bps < rate_bps / 2, "{stats:?}");
}

#[test]
fn the_queue_pairs_to_a_peer_share_its_drops() {
    let mut world = sending(2, 160_000_000);
    run(&mut world, 100, 0, 0);
    // The drops are so few that the pace hardly changes.
    run(&mut world, 20, 0, 20);
    run(&mut world, 50, 0, 0);
    let drops = world.b.controls.socket_drops.get();
    let [first, second] = [0, 1].map(|index| world.a.peer_stats(index));
    assert_eq!(first, second);
    assert!(
        (drops - 4..=drops).contains(&first.peer_socket_drops),
        "{first:?}"
    );
}
