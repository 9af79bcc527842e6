//! What an endpoint makes of a fabric that takes packets now and sends them later.

use std::cell::RefCell;

use farwrite::schemes::registry::SchemeName;
use farwrite::schemes::scheme::{
    Chunks, Message, Path, Receiver, Report, Scheme, Sender, SenderCounters,
};
use farwrite::{MemoryRegion, Outcome, QpConfig, QpOptions, RecvHandle, SchemeTag, SendHandle};
use farwrite::{QueuePair, SendOptions};

use crate::slow_world::SlowWorld;
use crate::world::{MS, SECOND, options, tag};

/// A message from `a` to `b` on one of their queue pairs.
struct Transfer {
    send: SendHandle,
    recv: RecvHandle,
    source: MemoryRegion,
}

fn start(world: &mut SlowWorld, index: usize, bytes: usize, scheme: SchemeTag) -> Transfer {
    let (a, b) = (&mut world.a, &mut world.b);
    let (qa, qb): (QueuePair, QueuePair) = (a.qps[index], b.qps[index]);
    let target = b.endpoint.register(vec![0; bytes]).expect("room");
    let recv = b.endpoint.post_recv(qb, target.whole());
    let source = a.endpoint.register(vec![7; bytes]).expect("room");
    let options = SendOptions {
        scheme,
        immediate: None,
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

/// Selective repeat under a private number, which keeps what is handed out and what has left.
struct Recorded;

/// A sending half of [`Recorded`].
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
    fn start(&mut self, path: &Path, message: &Message) {
        self.0.start(path, message);
    }
    fn handle_report(&mut self, path: &Path, report: &Report) {
        self.0.handle_report(path, report);
    }
    fn handle_departed(&mut self, path: &Path, chunks: &Chunks) {
        DEPARTED.with_borrow_mut(|departed| departed.push(chunks.clone()));
        self.0.handle_departed(path, chunks);
    }
    fn handle_closed(&mut self, path: &Path, message: u64, outcome: Outcome) {
        self.0.handle_closed(path, message, outcome);
    }
    fn abandon(&mut self, message: u64) {
        self.0.abandon(message);
    }
    fn handle_timeout(&mut self, path: &Path) {
        self.0.handle_timeout(path);
    }
    fn poll_transmit(&mut self, path: &Path, _max_chunks: u32) -> Option<Chunks> {
        // Shorter than the packets that go through one channel.
        let chunks = self.0.poll_transmit(path, 3)?;
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
