//! The same messages arrive when worker threads receive.

use std::time::Duration;

use farwrite::{
    Endpoint, MemoryRegion, Outcome, QueuePair, RecvHandle, SchemeName, SendHandle, SendOptions,
    UdpFabric,
};

use crate::ends::{endpoint, options, payload};

const BYTES: usize = 3_000_001;
const MESSAGES: u8 = 12;

/// Two endpoints, and the queue pair that joins them.
struct Joined {
    a: Endpoint<UdpFabric>,
    b: Endpoint<UdpFabric>,
    qa: QueuePair,
    qb: QueuePair,
}

fn joined(workers: u16) -> Joined {
    let (mut a, mut b) = (endpoint(workers), endpoint(workers));
    let channels = u8::try_from(workers).expect("few");
    let qa = a.create_qp(options(channels)).expect("good options");
    // One queue pair exists before the workers start. The others are made while they run.
    let early = b.create_qp(options(channels)).expect("good options");
    b.start_workers().expect("threads");
    b.start_workers().expect("they run already");
    let qb = b.create_qp(options(channels)).expect("good options");
    b.destroy_qp(early).expect("it exists");
    let (info_a, info_b) = (
        a.qp_info(qa).expect("its own"),
        b.qp_info(qb).expect("its own"),
    );
    a.connect_qp(qa, &info_b).expect("equal options");
    b.connect_qp(qb, &info_a).expect("equal options");
    Joined { a, b, qa, qb }
}

impl Joined {
    fn start(&mut self, seed: u8, scheme: SchemeName) -> (SendHandle, RecvHandle, MemoryRegion) {
        let target = self.b.register(vec![0; BYTES]).expect("room");
        let recv = self.b.post_recv(self.qb, target.whole());
        let source = self.a.register(payload(seed, BYTES)).expect("room");
        let options = SendOptions {
            scheme: scheme.tag(),
            immediate: Some(u32::from(seed) << 24 | 0x1234),
            ..SendOptions::default()
        };
        let send = self.a.post_send(self.qa, source.whole(), options);
        (
            send.expect("a free slot"),
            recv.expect("a free slot"),
            target,
        )
    }

    /// Polls both ends until `done` returns true. `b` is polled on its own thread.
    fn run_until(&mut self, done: impl Fn() -> bool + Sync) {
        let (a, b) = (&mut self.a, &mut self.b);
        std::thread::scope(|scope| {
            scope.spawn(|| b.run_until(|_| done()).expect("sockets"));
            a.run_until(|_| done()).expect("sockets");
        });
    }
}

fn deliver(workers: u16, scheme: SchemeName) {
    let mut joined = joined(workers);
    let messages: Vec<_> = (0..MESSAGES)
        .map(|seed| joined.start(seed, scheme))
        .collect();
    let ended = |(send, recv, _): &(SendHandle, RecvHandle, _)| {
        send.outcome().is_some() && recv.outcome().is_some()
    };
    joined.run_until(|| messages.iter().all(ended));
    for (seed, (send, recv, target)) in (0..MESSAGES).zip(messages) {
        assert_eq!(send.outcome(), Some(Outcome::Whole));
        assert_eq!(recv.outcome(), Some(Outcome::Whole));
        assert_eq!(recv.immediate(), Some(u32::from(seed) << 24 | 0x1234));
        assert_eq!(recv.bitmap().bytes(), BYTES as u64);
        // The windows are closed, so the memory can be given back.
        let memory = joined.b.deregister(target).expect("nothing is open");
        assert!(*memory == payload(seed, BYTES), "message {seed}");
    }
    let stats = joined.b.qp_stats(joined.qb).expect("it exists");
    assert!(stats.received_bytes >= u64::from(MESSAGES) * BYTES as u64);
    assert_eq!((stats.invalid_packets, stats.refused_controls), (0, 0));
}

#[test]
fn one_worker_receives_all_messages() {
    deliver(1, SchemeName::SrNack);
}

#[test]
fn two_workers_receive_all_messages() {
    deliver(2, SchemeName::SrNack);
}

#[test]
fn four_workers_receive_all_messages() {
    deliver(4, SchemeName::SrNack);
}

#[test]
fn parity_rebuilds_what_workers_did_not_get() {
    deliver(2, "ec-mds:32,8".parse().expect("a scheme"));
}

#[test]
fn a_receive_can_be_completed_while_workers_write() {
    let mut joined = joined(2);
    for seed in 0..20 {
        let (send, recv, target) = joined.start(seed, SchemeName::SrNack);
        let bitmap = recv.bitmap().clone();
        joined.run_until(|| bitmap.count() > 50);
        let ended = joined.b.complete_recv(&recv, Outcome::Failed);
        assert!(ended.is_ok() || recv.outcome() == Some(Outcome::Whole));
        // From here on no worker writes, so two reads return the same bytes.
        let mut bytes = [vec![0; BYTES], vec![0; BYTES]];
        joined
            .b
            .read_memory(target, 0, &mut bytes[0])
            .expect("it is registered");
        std::thread::sleep(Duration::from_millis(2));
        joined
            .b
            .read_memory(target, 0, &mut bytes[1])
            .expect("it is registered");
        assert!(
            bytes[0] == bytes[1],
            "a packet was placed in memory that was given back"
        );
        joined.run_until(|| send.outcome().is_some());
        joined.b.deregister(target).expect("nothing is open");
    }
}

#[test]
fn an_endpoint_with_workers_can_be_dropped_at_any_time() {
    for _ in 0..10 {
        let mut joined = joined(2);
        let (_, recv, _) = joined.start(1, SchemeName::SrNack);
        let bitmap = recv.bitmap().clone();
        joined.run_until(|| bitmap.count() > 10);
        drop(joined.b);
        // The bitmap stays readable.
        assert!(recv.bitmap().count() > 10);
    }
}
