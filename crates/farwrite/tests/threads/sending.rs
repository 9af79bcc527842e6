//! The same messages arrive when threads send.

use std::net::UdpSocket;

use farwrite::{
    Endpoint, Error, Fabric, MemoryRegion, Outcome, QpOptions, QueuePair, RecvHandle, SchemeName,
    Sealing, SendHandle, SendOptions, UdpFabric,
};

use crate::ends::{endpoint, options, payload};

const BYTES: usize = 3_000_001;

/// Two endpoints that send on threads, and queue pairs that join them.
struct Joined {
    a: Endpoint<UdpFabric>,
    b: Endpoint<UdpFabric>,
    pairs: Vec<[QueuePair; 2]>,
}

impl Joined {
    fn new(ports: u8, count: usize, options: &QpOptions) -> Self {
        let [mut a, mut b] = [(); 2].map(|()| endpoint(ports.into()));
        let join = |a: &mut Endpoint<_>, b: &mut Endpoint<_>| {
            let ends =
                [&mut *a, &mut *b].map(|end| end.create_qp(options.clone()).expect("options"));
            let infos = [a.qp_info(ends[0]), b.qp_info(ends[1])].map(|info| info.expect("its own"));
            a.connect_qp(ends[0], &infos[1]).expect("equal options");
            b.connect_qp(ends[1], &infos[0]).expect("equal options");
            ends
        };
        // Some queue pairs exist before the threads.
        let mut pairs = vec![join(&mut a, &mut b)];
        for end in [&mut a, &mut b] {
            end.start_send_threads().expect("threads");
            end.start_send_threads().expect("they run already");
        }
        b.start_workers().expect("threads");
        pairs.extend((1..count).map(|_| join(&mut a, &mut b)));
        Self { a, b, pairs }
    }

    fn start(&mut self, pair: usize, seed: u8, scheme: SchemeName) -> Message {
        let [qa, qb] = self.pairs[pair];
        let target = self.b.register(vec![0; BYTES]).expect("room");
        let recv = self.b.post_recv(qb, target.whole()).expect("a free slot");
        let source = self.a.register(payload(seed, BYTES)).expect("room");
        let options = SendOptions {
            scheme: scheme.tag(),
            ..SendOptions::default()
        };
        let send = self.a.post_send(qa, source.whole(), options);
        Message {
            seed,
            send: send.expect("a free slot"),
            recv,
            source,
            target,
        }
    }

    /// Polls both ends until `done` returns true. `b` is polled on its own thread.
    fn run_until(&mut self, done: impl Fn() -> bool + Sync) {
        let (a, b) = (&mut self.a, &mut self.b);
        std::thread::scope(|scope| {
            scope.spawn(|| b.run_until(|_| done()).expect("sockets"));
            a.run_until(|_| done()).expect("sockets");
        });
    }

    fn check(&mut self, message: &Message) {
        assert_eq!(message.send.outcome(), Some(Outcome::Whole));
        assert_eq!(message.recv.outcome(), Some(Outcome::Whole));
        // Nothing is sent from the memory any more.
        self.a.deregister(message.source).expect("all has left");
        let memory = self.b.deregister(message.target).expect("nothing is open");
        assert!(
            *memory == payload(message.seed, BYTES),
            "message {}",
            message.seed
        );
    }
}

struct Message {
    seed: u8,
    send: SendHandle,
    recv: RecvHandle,
    source: MemoryRegion,
    target: MemoryRegion,
}

impl Message {
    fn has_ended(&self) -> bool {
        self.send.outcome().is_some() && self.recv.outcome().is_some()
    }
}

fn deliver(ports: u8, scheme: SchemeName, options: &QpOptions) {
    let mut joined = Joined::new(ports, 3, options);
    let messages: Vec<_> = (0..9)
        .map(|seed| joined.start(usize::from(seed) % 3, seed, scheme))
        .collect();
    joined.run_until(|| messages.iter().all(Message::has_ended));
    for message in &messages {
        joined.check(message);
    }
}

#[test]
fn one_thread_sends_the_messages_of_several_queue_pairs() {
    deliver(1, SchemeName::SrNack, &options(1));
}

#[test]
fn threads_send_through_several_ports() {
    deliver(3, SchemeName::SrNack, &options(3));
}

#[test]
fn threads_seal_what_they_send() {
    let options = QpOptions {
        sealing: Sealing::Required,
        ..options(2)
    };
    deliver(2, "ec-mds:32,8".parse().expect("a scheme"), &options);
}

/// The thread has packets of a queue pair, and uses neither it nor its memory afterwards.
#[test]
fn a_queue_pair_can_be_destroyed_while_its_packets_leave() {
    let mut joined = Joined::new(1, 21, &options(1));
    for pair in 1..21 {
        let message = joined.start(pair, 1, SchemeName::SrNack);
        let bitmap = message.recv.bitmap().clone();
        joined.run_until(|| bitmap.count() > 50);
        let [qa, qb] = joined.pairs[pair];
        joined.a.destroy_qp(qa).expect("it exists");
        let memory = joined.a.deregister(message.source);
        assert!(*memory.expect("nothing is sent from it") == payload(1, BYTES));
        joined.b.destroy_qp(qb).expect("it exists");
    }
    let message = joined.start(0, 2, SchemeName::SrNack);
    joined.run_until(|| message.has_ended());
    joined.check(&message);
}

#[test]
fn an_endpoint_with_send_threads_can_be_dropped_at_any_time() {
    for _ in 0..10 {
        let mut joined = Joined::new(2, 1, &options(2));
        let message = joined.start(0, 1, SchemeName::SrNack);
        let bitmap = message.recv.bitmap().clone();
        joined.run_until(|| bitmap.count() > 10);
        let addrs = [0, 1].map(|port| joined.a.fabric().local_addr(port));
        drop(joined.a);
        // The threads have ended: nobody holds their sockets.
        for addr in addrs {
            UdpSocket::bind(addr).expect("the port is free");
        }
    }
}

/// The route of one queue pair refuses its packets. The others go on.
#[test]
fn the_error_of_a_queue_pair_reaches_the_endpoint() {
    let mut joined = Joined::new(1, 2, &options(1));
    let [qa, _] = joined.pairs[0];
    let doomed = joined.start(0, 1, SchemeName::SrNack);
    let other = joined.start(1, 2, SchemeName::SrNack);
    // A socket of 127.0.0.1 cannot send there.
    let nowhere = "192.0.2.1:9".parse().expect("an address");
    let routes = [farwrite::fabric::contract::QpRoute::to(nowhere)];
    joined.a.set_routes(qa, &routes).expect("a route");
    joined.run_until(|| doomed.send.outcome().is_some() && other.has_ended());
    assert_eq!(doomed.send.outcome(), Some(Outcome::Failed));
    let asked = joined.a.qp_info(qa).expect_err("it is broken");
    assert!(matches!(asked, Error::BrokenQueuePair { .. }), "{asked}");
    joined.check(&other);
}
