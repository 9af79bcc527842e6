//! Queue pairs that share one endpoint and a fabric with too little room for all of them.

use farwrite::{QpConfig, QpOptions, RateControl, SendOptions};

use crate::slow_world::SlowWorld;
use crate::world::{MS, options, tag};

const BYTES: usize = 16 << 20;
/// Wire bytes of a turn. The last packet of a turn may exceed it, by at most [`PACKET_BYTES`].
const TURN_BYTES: u64 = 256 * 1024;
const PACKET_BYTES: u64 = 4096 + 64;
/// Maximum number of packets that a queue pair has counted as sent but the fabric has not taken
/// yet.
const HANDED_OUT: u64 = 128;

fn config(mtu: u32) -> QpConfig {
    QpConfig {
        mtu,
        max_message_bytes: BYTES as u64,
        ..QpConfig::default()
    }
}

/// Returns queue pairs that each have a cleared message. Their pace is so high that it does not
/// limit them.
fn busy(configs: &[QpConfig]) -> SlowWorld {
    let options = configs.iter().map(|&sdr| QpOptions {
        sdr,
        rate_control: RateControl::Fixed {
            rate_bps: 1_000_000_000_000,
        },
        burst_bytes: 64 << 20,
        ..options()
    });
    let mut world = SlowWorld::new(&options.collect::<Vec<_>>());
    let (a, b) = (&mut world.a, &mut world.b);
    a.controls.room.set(Some(0));
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
    world.run_for(50 * MS);
    world
}

/// Returns the wire bytes that each queue pair has sent.
fn sent_bytes(world: &SlowWorld, mtus: &[u32]) -> Vec<u64> {
    let stats = (0..mtus.len()).map(|index| world.a.stats(index).sender);
    let packets = stats.map(|sender| sender.sent_chunks);
    let bytes = packets.zip(mtus);
    bytes
        .map(|(packets, &mtu)| packets * u64::from(mtu + 64))
        .collect()
}

#[test]
fn queue_pairs_that_share_a_full_fabric_send_equally_much() {
    let small = [4096; 8];
    let mixed = [4096, 1024, 4096, 4096, 2048, 1024, 4096, 4096];
    for mtus in [small, mixed] {
        // The room is less than a turn, about two and a half turns, and as much as many polls send.
        for room in [7, 40, 160] {
            let mut world = busy(&mtus.map(config));
            world.a.controls.room.set(Some(room));
            let is_enough = |world: &mut SlowWorld| {
                let sent: u64 = sent_bytes(world, &mtus).iter().sum();
                sent >= 6 * 8 * TURN_BYTES
            };
            let limit_ns = world.now_ns() + 1_000 * MS;
            assert!(world.run_until(limit_ns, is_enough), "room {room}: stuck");
            let sent = sent_bytes(&world, &mtus);
            let (least, most) = (sent.iter().min(), sent.iter().max());
            let (least, most) = (least.expect("eight"), most.expect("eight"));
            let bound = TURN_BYTES + (HANDED_OUT + 1) * PACKET_BYTES;
            assert!(most - least <= bound, "room {room}: {sent:?}");
        }
    }
}

#[test]
fn a_poll_sends_a_bounded_amount() {
    let mtus = [4096; 16];
    let mut world = busy(&mtus.map(config));
    world.a.controls.room.set(None);
    let (mut before, mut most) = (world.a.controls.writes.get(), 0);
    let limit_ns = world.now_ns() + MS / 10;
    world.run_until(limit_ns, |world| {
        let writes = world.a.controls.writes.get();
        most = most.max(writes - before);
        before = writes;
        false
    });
    let most_bytes = most as u64 * PACKET_BYTES;
    assert!(most_bytes > TURN_BYTES, "{most_bytes} bytes");
    assert!(
        most_bytes <= (1 << 20) + TURN_BYTES + PACKET_BYTES,
        "{most_bytes} bytes in one poll"
    );
}

#[test]
fn a_queue_pair_of_which_the_fabric_takes_nothing_does_not_hold_up_the_others() {
    let mtus = [4096; 8];
    let mut configs = mtus.map(config);
    configs[0].channels = 2;
    let mut world = busy(&configs);
    world.a.controls.full_ports.borrow_mut().insert(1);
    world.a.controls.room.set(Some(40));
    let is_enough = |world: &mut SlowWorld| {
        let sent: u64 = sent_bytes(world, &mtus).iter().sum();
        sent >= 6 * 8 * TURN_BYTES
    };
    let limit_ns = world.now_ns() + 1_000 * MS;
    assert!(world.run_until(limit_ns, is_enough), "stuck");
    let sent = sent_bytes(&world, &mtus);
    let (least, most) = (sent[1..].iter().min(), sent[1..].iter().max());
    let (least, most) = (least.expect("seven"), most.expect("seven"));
    let bound = TURN_BYTES + (HANDED_OUT + 1) * PACKET_BYTES;
    assert!(most - least <= bound, "{sent:?}");
}
