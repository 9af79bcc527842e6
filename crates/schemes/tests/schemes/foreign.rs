//! A scheme that uses only the public items of the crate: stop-and-wait, one run at a time.

use std::collections::{BTreeMap, VecDeque};

use farwrite_schemes::ack_clock::AckClock;
use farwrite_schemes::arrived::cumulative;
use farwrite_schemes::registry::from_tag;
use farwrite_schemes::scheme::{
    Arrivals, Chunks, Message, MessageId, PeerView, Receiver, Report, Scheme, Sender,
    SenderCounters,
};
use farwrite_schemes::silent_peer::SilentPeer;
use farwrite_schemes::timing::{Alpha, rto_ns};
use farwrite_wire::control::{Ack, Outcome, SchemeTag};

use crate::harness::{Channel, MS, World};

struct StopAndWait;

impl Scheme for StopAndWait {
    fn tag(&self) -> SchemeTag {
        SchemeTag {
            id: 200,
            params: [0; 6],
        }
    }
    fn sender(&self) -> Box<dyn Sender + Send> {
        Box::new(Waiting::default())
    }
    fn receiver(&self) -> Box<dyn Receiver + Send> {
        Box::new(Answering::default())
    }
}

/// Sends one run of the oldest message, and waits until the receiver has it.
#[derive(Default)]
struct Waiting {
    /// For each message, its number of chunks, and how many of them the receiver has.
    messages: BTreeMap<u64, (u32, u32)>,
    /// The run in flight, and when to send it again.
    under_way: Option<(Chunks, Option<u64>)>,
    silent_peer: SilentPeer,
    outcomes: VecDeque<(u64, Outcome)>,
    counters: SenderCounters,
}

impl Sender for Waiting {
    fn start(&mut self, _view: &PeerView, message: &Message) {
        self.messages.insert(message.number, (message.chunks, 0));
    }
    fn handle_report(&mut self, view: &PeerView, report: &Report) {
        self.silent_peer.heard();
        let Report::Ack(ack) = report else { return };
        let Some((chunks, acked)) = self.messages.get_mut(&ack.message) else {
            return;
        };
        *acked = ack.cumulative.clamp(*acked, *chunks);
        let acked = *acked;
        if acked == *chunks {
            self.handle_closed(view, ack.message, Outcome::Whole);
        }
        self.under_way
            .take_if(|(run, _)| run.message == ack.message && run.range.end <= acked);
    }
    fn handle_departed(&mut self, view: &PeerView, chunks: &Chunks) {
        if let Some((run, at_ns)) = &mut self.under_way
            && run == chunks
        {
            *at_ns = Some(view.now_ns + rto_ns(view, Alpha::DEFAULT));
        }
    }
    fn handle_closed(&mut self, _view: &PeerView, message: u64, outcome: Outcome) {
        if self.messages.remove(&message).is_some() {
            self.outcomes.push_back((message, outcome));
        }
        self.abandon(message);
    }
    fn abandon(&mut self, message: u64) {
        self.messages.remove(&message);
        self.under_way.take_if(|(run, _)| run.message == message);
    }
    fn handle_timeout(&mut self, view: &PeerView) {
        if self
            .under_way
            .take_if(|(_, at)| at.is_some_and(|at| at <= view.now_ns))
            .is_some()
        {
            self.counters.timeouts += 1;
            self.silent_peer.expired(view, rto_ns(view, Alpha::DEFAULT));
        }
        self.silent_peer.handle_timeout(view);
    }
    fn poll_transmit(&mut self, _view: &PeerView, max_chunks: u32) -> Option<Chunks> {
        let max_chunks = self.silent_peer.limit(max_chunks);
        if self.under_way.is_some() || max_chunks == 0 {
            return None;
        }
        let (&message, &(chunks, acked)) = self.messages.first_key_value()?;
        let range = acked..chunks.min(acked + max_chunks);
        self.silent_peer.sent(range.end - range.start);
        self.counters.sent_chunks += u64::from(range.end - range.start);
        let message = message.into();
        let run = Chunks { message, range };
        self.under_way = Some((run.clone(), None));
        Some(run)
    }
    fn poll_outcome(&mut self) -> Option<(u64, Outcome)> {
        self.outcomes.pop_front()
    }
    fn next_timeout(&self) -> Option<u64> {
        let run = self.under_way.as_ref().and_then(|(_, at_ns)| *at_ns);
        let probe = self.silent_peer.next_timeout();
        run.or(probe.filter(|_| !self.messages.is_empty()))
    }
    fn counters(&self) -> SenderCounters {
        self.counters
    }
}

/// Reports the progress of a message, one period after an arrival.
#[derive(Default)]
struct Answering {
    messages: BTreeMap<u64, u32>,
    acks: AckClock,
    outcomes: VecDeque<(u64, Outcome)>,
}

impl Receiver for Answering {
    fn start(&mut self, _view: &PeerView, message: &Message, _is_cleared: bool) {
        self.messages.insert(message.number, message.chunks);
        self.acks.touch_now(message.number);
    }
    fn handle_arrivals(&mut self, view: &PeerView, message: MessageId, _arrivals: &dyn Arrivals) {
        self.acks.touch(view, message.data());
    }
    fn abandon(&mut self, message: u64) {
        self.messages.remove(&message);
        self.acks.forget(message);
    }
    fn handle_timeout(&mut self, view: &PeerView, _arrivals: &dyn Arrivals) {
        self.acks.handle_timeout(view.now_ns);
    }
    fn poll_report(
        &mut self,
        _view: &PeerView,
        arrivals: &dyn Arrivals,
        _max: usize,
    ) -> Option<Report> {
        let message = self.acks.due()?;
        self.acks.done(message);
        let chunks = *self.messages.get(&message)?;
        let cumulative = cumulative(arrivals, message, 0, chunks);
        if cumulative == chunks {
            self.abandon(message);
            self.outcomes.push_back((message, Outcome::Whole));
        }
        Some(Report::Ack(Ack {
            message,
            cumulative,
            seen: arrivals.seen(message.into()).max(cumulative),
            window_start: 0,
            bits: Vec::new(),
        }))
    }
    fn poll_outcome(&mut self) -> Option<(u64, Outcome)> {
        self.outcomes.pop_front()
    }
    fn next_timeout(&self) -> Option<u64> {
        self.acks.next_timeout()
    }
}

#[test]
fn a_scheme_from_outside_works_and_keeps_its_own_id() {
    assert!(from_tag(StopAndWait.tag()).is_none());
    let dead_ns = 300 * MS..2_300 * MS;
    let (loss_chunk, loss_report) = (0.05, 0.05);
    let channel = Channel {
        loss_chunk,
        loss_report,
        dead_ns,
        ..Channel::default()
    };
    let mut world = World::new(&StopAndWait, channel);
    for number in 0..5 {
        world.start(0, number, 20);
    }
    let story = world.run(60_000 * MS);
    assert!(
        story
            .outcomes
            .values()
            .all(|(_, outcome)| *outcome == Outcome::Whole)
    );
}
