//! Endpoints over a fabric that takes packets at once and sends them later.

use std::cell::RefCell;

use farwrite::fabric::contract::FabricError;
use farwrite::schemes::registry::SchemeName;
use farwrite::schemes::scheme::{
    Chunks, Message, PeerView, Receiver, Report, Scheme, Sender, SenderCounters,
};
use farwrite::{
    Error, MemoryRegion, Outcome, QpConfig, QpOptions, QueuePair, RecvHandle, RecvOptions,
    SchemeTag, SendHandle, SendOptions,
};

use crate::slow_fabric::HOLD;
use crate::slow_world::SlowWorld;
use crate::world::{MS, RTT, SECOND, options, tag};

/// A message from `a` to `b` on one of their queue pairs.
struct Transfer {
    send: SendHandle,
    recv: RecvHandle,
    source: MemoryRegion,
}

fn start(world: &mut SlowWorld, index: usize, bytes: usize, scheme: SchemeTag) -> Transfer {
    start_until(world, index, bytes, scheme, None)
}

/// Like `start`, with a deadline of the sender. The receiver accepts a partial message.
fn start_until(
    world: &mut SlowWorld,
    index: usize,
    bytes: usize,
    scheme: SchemeTag,
    deadline_ns: Option<u64>,
) -> Transfer {
    let (a, b) = (&mut world.a, &mut world.b);
    let (qa, qb): (QueuePair, QueuePair) = (a.qps[index], b.qps[index]);
    let target = b.endpoint.register(vec![0; bytes]).expect("room");
    let accepting = RecvOptions {
        accept_partial: true,
        ..RecvOptions::default()
    };
    let recv = b.endpoint.post_recv_with(qb, target.whole(), accepting);
    let source = a.endpoint.register(vec![7; bytes]).expect("room");
    let options = SendOptions {
        scheme,
        deadline_ns,
        ..SendOptions::default()
    };
    let send = a.endpoint.post_send(qa, source.whole(), options);
    Transfer {
        send: send.expect("a free slot"),
        recv: recv.expect("a free slot"),
        source,
    }
}

fn two_channels() -> QpOptions {
    let sdr = QpConfig {
        channels: 2,
        ..QpConfig::default()
    };
    QpOptions { sdr, ..options() }
}

#[test]
fn interleaved_parity_costs_a_completion_a_batch() {
    let expecting = QpOptions {
        expected_scheme: tag("ec-mds:32,8"),
        ..options()
    };
    let mut world = SlowWorld::new(&[expecting]);
    let transfer = start(&mut world, 0, 8 << 20, tag("ec-mds:32,8"));
    let sent = |_: &mut SlowWorld| transfer.send.outcome().is_some();
    assert!(world.run_until(SECOND, sent), "not over in time");
    assert_eq!(transfer.send.outcome(), Some(Outcome::Whole));
    let writes = world.a.controls.writes.get();
    let signalled = world.a.controls.signalled.get();
    assert!(writes >= 2048, "{writes}");
    assert!(
        signalled * 8 < writes,
        "{signalled} of {writes} packets were signalled"
    );
}

/// Selective repeat under a private number. It records the chunks that are handed out and the
/// chunks that have departed.
struct Recorded;

/// The sending half of [`Recorded`].
struct Recorder(Box<dyn Sender + Send>);

thread_local! {
    static HANDED_OUT: RefCell<Vec<Chunks>> = const { RefCell::new(Vec::new()) };
    static DEPARTED: RefCell<Vec<Chunks>> = const { RefCell::new(Vec::new()) };
}

impl Scheme for Recorded {
    fn tag(&self) -> SchemeTag {
        SchemeTag {
            id: 201,
            params: [0; 6],
        }
    }
    fn sender(&self) -> Box<dyn Sender + Send> {
        Box::new(Recorder(SchemeName::SrNack.scheme().sender()))
    }
    fn receiver(&self) -> Box<dyn Receiver + Send> {
        SchemeName::SrNack.scheme().receiver()
    }
}

impl Sender for Recorder {
    fn start(&mut self, view: &PeerView, message: &Message) {
        self.0.start(view, message);
    }
    fn handle_report(&mut self, view: &PeerView, report: &Report) {
        self.0.handle_report(view, report);
    }
    fn handle_departed(&mut self, view: &PeerView, chunks: &Chunks) {
        DEPARTED.with_borrow_mut(|departed| departed.push(chunks.clone()));
        self.0.handle_departed(view, chunks);
    }
    fn handle_closed(&mut self, view: &PeerView, message: u64, outcome: Outcome) {
        self.0.handle_closed(view, message, outcome);
    }
    fn abandon(&mut self, message: u64) {
        self.0.abandon(message);
    }
    fn handle_timeout(&mut self, view: &PeerView) {
        self.0.handle_timeout(view);
    }
    fn poll_transmit(&mut self, view: &PeerView, _max_chunks: u32) -> Option<Chunks> {
        // These runs have fewer packets than one channel sends in a row.
        let chunks = self.0.poll_transmit(view, 3)?;
        HANDED_OUT.with_borrow_mut(|handed_out| handed_out.push(chunks.clone()));
        Some(chunks)
    }
    fn poll_outcome(&mut self) -> Option<(u64, Outcome)> {
        self.0.poll_outcome()
    }
    fn next_timeout(&self) -> Option<u64> {
        self.0.next_timeout()
    }
    fn counters(&self) -> SenderCounters {
        self.0.counters()
    }
}

#[test]
fn runs_on_a_slow_channel_do_not_depart_out_of_turn() {
    let mut world = SlowWorld::new(&[two_channels()]);
    for end in [&mut world.a, &mut world.b] {
        let resolver = |tag| (tag == Recorded.tag()).then(|| Box::new(Recorded) as Box<dyn Scheme>);
        end.endpoint.add_scheme(resolver);
    }
    // The message starts on the slow channel.
    world.a.controls.delays_ns.borrow_mut().insert(0, 2 * MS);
    let transfer = start(&mut world, 0, 1 << 20, Recorded.tag());
    let over = |_: &mut SlowWorld| transfer.send.outcome().is_some();
    assert!(world.run_until(10 * SECOND, over), "not over in time");
    assert_eq!(transfer.send.outcome(), Some(Outcome::Whole));
    assert_eq!(transfer.recv.outcome(), Some(Outcome::Whole));
    let (handed_out, departed) = (HANDED_OUT.take(), DEPARTED.take());
    assert!(departed.len() > 80, "{}", departed.len());
    for (index, (departed, handed_out)) in departed.iter().zip(&handed_out).enumerate() {
        assert_eq!(departed, handed_out, "run {index}");
    }
    world.a.endpoint.deregister(transfer.source).expect("over");
}

/// Starts a message. The fabric takes its packets but sends none of them.
fn held(options: QpOptions, scheme: &str) -> (SlowWorld, Transfer) {
    held_until(options, scheme, None)
}

fn held_until(options: QpOptions, scheme: &str, deadline_ns: Option<u64>) -> (SlowWorld, Transfer) {
    let mut world = SlowWorld::new(&[options]);
    world.a.controls.delays_ns.borrow_mut().insert(0, HOLD);
    let transfer = start_until(&mut world, 0, 1 << 20, tag(scheme), deadline_ns);
    let is_taken = |world: &mut SlowWorld| world.a.controls.writes.get() > 0;
    assert!(world.run_until(SECOND, is_taken), "nothing was taken");
    (world, transfer)
}

/// Checks that the memory stays in use and the outcome unknown until the fabric sends the packets.
fn expect_held(world: &mut SlowWorld, transfer: &Transfer, outcome: Outcome) {
    assert_eq!(transfer.send.outcome(), None, "packets have not left");
    let early = world.a.endpoint.deregister(transfer.source).map(drop);
    assert!(
        matches!(early, Err(Error::Fabric(FabricError::InUse(_)))),
        "{early:?}"
    );
    world.a.controls.delays_ns.borrow_mut().clear();
    world.run_for(MS);
    assert_eq!(transfer.send.outcome(), Some(outcome));
    let back = world.a.endpoint.deregister(transfer.source);
    assert!(back.is_ok(), "all packets have left");
}

#[test]
fn a_message_that_the_peer_ends_waits_for_its_packets_to_leave() {
    for scheme in ["sr-nack", "gbn", "ec-mds:32,8"] {
        let expecting = QpOptions {
            expected_scheme: tag(scheme),
            ..options()
        };
        let (mut world, transfer) = held(expecting, scheme);
        let endpoint = &mut world.b.endpoint;
        let ended = endpoint.complete_recv(&transfer.recv, Outcome::Partial);
        ended.expect("open");
        world.run_for(RTT);
        expect_held(&mut world, &transfer, Outcome::Partial);
    }
}

#[test]
fn a_message_that_is_cancelled_waits_for_its_packets_to_leave() {
    for scheme in ["sr-nack", "ec-mds:32,8"] {
        let (mut world, transfer) = held(options(), scheme);
        let endpoint = &mut world.a.endpoint;
        endpoint.cancel_send(&transfer.send).expect("its own");
        expect_held(&mut world, &transfer, Outcome::Failed);
    }
}

#[test]
fn a_message_whose_deadline_comes_waits_for_its_packets_to_leave() {
    for scheme in ["sr-nack", "gbn", "ec-mds:32,8"] {
        let (mut world, transfer) = held_until(options(), scheme, Some(40 * MS));
        assert!(world.now_ns() < 40 * MS);
        world.run_until(40 * MS + RTT, |_| false);
        let taken = world.a.controls.writes.get();
        expect_held(&mut world, &transfer, Outcome::Partial);
        world.run_for(RTT);
        assert_eq!(world.a.controls.writes.get(), taken, "{scheme} has stopped");
        // The fabric had already taken all packets, and they arrived before the end of the send was
        // known.
        assert_eq!(transfer.recv.outcome(), Some(Outcome::Whole), "{scheme}");
    }
}

#[test]
fn a_queue_pair_that_ends_drops_the_packets_that_have_not_left() {
    for scheme in ["sr-nack", "ec-mds:32,8"] {
        let (mut world, transfer) = held(options(), scheme);
        let (endpoint, qp) = (&mut world.a.endpoint, world.a.qps[0]);
        endpoint.cancel_send(&transfer.send).expect("its own");
        endpoint.destroy_qp(qp).expect("its own");
        assert_eq!(transfer.send.outcome(), Some(Outcome::Failed));
        let back = endpoint.deregister(transfer.source);
        assert!(back.is_ok(), "no packet of it can leave");
    }
}

#[test]
fn a_slot_is_free_when_the_packets_of_its_message_have_left() {
    let sdr = QpConfig {
        slots: 1,
        ..QpConfig::default()
    };
    let (mut world, transfer) = held(QpOptions { sdr, ..options() }, "sr-nack");
    let endpoint = &mut world.b.endpoint;
    let ended = endpoint.complete_recv(&transfer.recv, Outcome::Partial);
    ended.expect("open");
    world.run_for(RTT);
    let (endpoint, qp) = (&mut world.a.endpoint, world.a.qps[0]);
    let next = endpoint.register(vec![7; 1000]).expect("room");
    let post = |world: &mut SlowWorld| {
        let posted = world
            .a
            .endpoint
            .post_send(qp, next.whole(), SendOptions::default());
        posted.map(drop)
    };
    let early = post(&mut world);
    assert!(
        matches!(early, Err(Error::Retry { slots: 1, .. })),
        "{early:?}"
    );
    world.a.controls.delays_ns.borrow_mut().clear();
    world.run_for(MS);
    post(&mut world).expect("a free slot");
}

#[test]
fn a_fabric_that_holds_packets_is_not_polled_without_pause() {
    let (mut world, _transfer) = held(options(), "sr-nack");
    let (mut polls, limit_ns) = (0, world.now_ns() + SECOND / 10);
    world.run_until(limit_ns, |_| {
        polls += 1;
        false
    });
    assert!(polls < 5_000, "{polls} polls in 100 ms");
}
