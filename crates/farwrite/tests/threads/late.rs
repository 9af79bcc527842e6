//! A chunk is rebuilt from parity while a late packet of it is written.

use std::time::Duration;

use farwrite::{Outcome, SchemeName, SendOptions};
use farwrite_emulator::udp::{PortPair, Side, UdpEmulator, UdpEmulatorConfig};
use farwrite_link::{LinkConfig, Reorder};

use crate::ends::{endpoint, options, payload};

const BYTES: usize = 2_000_000;
const MESSAGES: u8 = 20;

/// A twentieth of the packets is late by a few milliseconds. Parity replaces them, sometimes before
/// they arrive and sometimes while they are written.
fn link() -> LinkConfig {
    LinkConfig {
        delay: Duration::from_millis(1),
        reorder: Reorder {
            probability: 0.05,
            extra_delay: Duration::from_millis(3),
        },
        ..LinkConfig::default()
    }
}

#[test]
fn chunks_are_rebuilt_while_workers_place_their_late_packets() {
    let (mut a, mut b) = (endpoint(1), endpoint(1));
    b.start_workers().expect("threads");
    let [qa, qb] = [&mut a, &mut b].map(|end| end.create_qp(options(1)).expect("good options"));
    let (mut info_a, mut info_b) = (a.qp_info(qa).expect("own"), b.qp_info(qb).expect("own"));
    let emulator = UdpEmulator::start(&UdpEmulatorConfig {
        forward: link(),
        backward: LinkConfig::default(),
        seed: 1,
        channels: vec![PortPair {
            a: Side::facing(info_a.control),
            b: Side::facing(info_b.control),
        }],
        ..UdpEmulatorConfig::default()
    });
    let emulator = emulator.expect("loopback");
    let [to_b, to_a] = emulator.addresses()[0];
    (info_a.control, info_b.control) = (to_a, to_b);
    info_a.channels.fill(to_a);
    info_b.channels.fill(to_b);
    a.connect_qp(qa, &info_b).expect("equal options");
    b.connect_qp(qb, &info_a).expect("equal options");

    let scheme: SchemeName = "ec-mds:8,4".parse().expect("a scheme");
    for seed in 0..MESSAGES {
        let target = b.register(vec![0; BYTES]).expect("room");
        let recv = b.post_recv(qb, target.whole()).expect("a free slot");
        let source = a.register(payload(seed, BYTES)).expect("room");
        let options = SendOptions {
            scheme: scheme.tag(),
            ..SendOptions::default()
        };
        let send = a.post_send(qa, source.whole(), options);
        let send = send.expect("a free slot");
        let over = || send.outcome().is_some() && recv.outcome().is_some();
        std::thread::scope(|scope| {
            scope.spawn(|| b.run_until(|_| over()).expect("sockets"));
            a.run_until(|_| over()).expect("sockets");
        });
        assert_eq!(recv.outcome(), Some(Outcome::Whole));
        let memory = b.deregister(target).expect("nothing is open");
        assert!(*memory == payload(seed, BYTES), "message {seed}");
    }
    let stats = b.qp_stats(qb).expect("own");
    let came_too_late = stats.duplicate_packets + stats.late_packets;
    assert!(stats.rebuilt_chunks > 10 && came_too_late > 10, "{stats:?}");
}
