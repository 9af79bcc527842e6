//! Receives whose windows close late, and memory that does not exist.

use farwrite::{Outcome, Region, SendOptions};
use farwrite_link::{LinkConfig, Loss};

use crate::slow_world::SlowWorld;
use crate::world::{MS, SECOND, World, long_haul, options, tag};

const BYTES: usize = 1 << 20;
const CODED: &str = "ec-mds:32,8";

#[test]
fn a_receive_is_over_when_no_worker_can_write_into_its_memory() {
    for scheme in ["sr-nack", CODED] {
        let mut world = SlowWorld::new(&[options()]);
        let (a, b) = (&mut world.a, &mut world.b);
        b.controls.holds_windows.set(true);
        let target = b.endpoint.register(vec![0; BYTES]).expect("room");
        let recv = b.endpoint.post_recv(b.qps[0], target.whole());
        let recv = recv.expect("a free slot");
        let source = a.endpoint.register(vec![7; BYTES]).expect("room");
        let options = SendOptions {
            scheme: tag(scheme),
            ..SendOptions::default()
        };
        let send = a.endpoint.post_send(a.qps[0], source.whole(), options);
        let send = send.expect("a free slot");
        let over = |_: &mut SlowWorld| send.outcome().is_some();
        assert!(world.run_until(SECOND, over), "{scheme}");
        world.run_for(10 * MS);
        assert_eq!(recv.outcome(), None, "{scheme}: a worker may still write");
        assert!(world.b.endpoint.memory(target).is_err(), "{scheme}");
        assert!(world.b.endpoint.deregister(target).is_err(), "{scheme}");
        world.b.controls.holds_windows.set(false);
        world.run_for(MS);
        assert_eq!(recv.outcome(), Some(Outcome::Whole), "{scheme}");
        let memory = world.b.endpoint.deregister(target).expect("closed");
        assert!(memory.iter().all(|&byte| byte == 7), "{scheme}");
    }
}

/// Runs a transfer over a lossy path. Returns when the sender knew the outcome, the number of sent
/// packets, and the number of rebuilt chunks.
fn transfer(scheme: &str, memory: fn() -> Region) -> (u64, u64, u64) {
    let lossy = LinkConfig {
        loss: Loss::Iid { loss_packet: 0.02 },
        ..long_haul()
    };
    let mut world = World::with_links(3, lossy, long_haul(), &options());
    let (a, b) = (&mut world.a, &mut world.b);
    let target = b.endpoint.register_region(memory()).expect("room");
    let recv = b.endpoint.post_recv(b.qp, target.whole());
    let recv = recv.expect("a free slot");
    let source = a.endpoint.register_region(memory()).expect("room");
    let options = SendOptions {
        scheme: tag(scheme),
        immediate: Some(9),
        ..SendOptions::default()
    };
    let send = a.endpoint.post_send(a.qp, source.whole(), options);
    let send = send.expect("a free slot");
    assert!(world.run_until(SECOND, |_| send.outcome().is_some()));
    assert_eq!(send.outcome(), Some(Outcome::Whole));
    assert_eq!(recv.outcome(), Some(Outcome::Whole));
    assert_eq!(recv.immediate(), Some(9));
    let ended_ns = world.now_ns();
    let sent = world.a.endpoint.counters().sent_packets;
    let rebuilt = world.b.stats().rebuilt_chunks;
    world.a.endpoint.deregister(source).expect("over");
    world.b.endpoint.deregister(target).expect("over");
    (ended_ns, sent, rebuilt)
}

#[test]
fn ghosts_take_as_long_as_bytes() {
    for scheme in ["sr-nack", CODED, "ec-xor:32,8", "gbn"] {
        let bytes = transfer(scheme, || Region::owned(vec![7; BYTES]));
        let ghosts = transfer(scheme, || Region::ghost(BYTES as u64));
        assert_eq!(ghosts, bytes, "{scheme}");
        assert_eq!(bytes.2 > 0, scheme.starts_with("ec"), "{scheme}: {bytes:?}");
    }
}

#[test]
fn memory_is_read_while_a_receive_is_open_and_seen_when_it_is_over() {
    let mut world = World::new(1, long_haul(), &options());
    let (a, b) = (&mut world.a, &mut world.b);
    let target = b.endpoint.register(vec![0; BYTES]).expect("room");
    let recv = b.endpoint.post_recv(b.qp, target.whole());
    let recv = recv.expect("a free slot");
    assert!(b.endpoint.memory(target).is_err());
    let source = a.endpoint.register(vec![0; BYTES]).expect("room");
    a.endpoint.write_memory(source, 3, &[5; 4]).expect("within");
    assert!(
        a.endpoint
            .write_memory(source, BYTES as u64 - 3, &[5; 4])
            .is_err()
    );
    let send = a
        .endpoint
        .post_send(a.qp, source.whole(), SendOptions::default());
    let send = send.expect("a free slot");
    let first_chunk = |_: &mut World| recv.bitmap().get(0);
    assert!(world.run_until(SECOND, first_chunk));
    let mut out = [0; 8];
    let read = world.b.endpoint.read_memory(target, 0, &mut out);
    read.expect("within");
    assert_eq!(out, [0, 0, 0, 5, 5, 5, 5, 0]);
    assert!(world.run_until(SECOND, |_| send.outcome().is_some()));
    assert_eq!(world.b.endpoint.memory(target).expect("closed")[..8], out);
}
