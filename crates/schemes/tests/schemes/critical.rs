//! Best effort with exact ranges over a path that loses packets and reports.

use std::collections::{BTreeMap, BTreeSet};

use farwrite_rng::SplitMix;
use farwrite_schemes::registry::SchemeName;
use farwrite_schemes::scheme::{
    Arrivals, Chunks, CriticalChunks, Message, MessageId, Outcome, PeerView, Receiver, Report,
    Sender, Timing,
};
use proptest::prelude::*;

use crate::harness::MS;

const RTT_NS: u64 = 20 * MS;
const WINDOW_NS: u64 = 2 * MS;
const MESSAGES: u64 = 3;

fn view(now_ns: u64) -> PeerView {
    PeerView {
        now_ns,
        rtt_ns: RTT_NS,
        reordering_window_ns: WINDOW_NS,
        timing: Timing::wide_area(),
    }
}

#[derive(Default)]
struct Memory(BTreeSet<(MessageId, u32)>);

impl Memory {
    fn has_all(&self, message: u64, mut chunks: impl Iterator<Item = u32>) -> bool {
        chunks.all(|chunk| self.0.contains(&(message.into(), chunk)))
    }
}

impl Arrivals for Memory {
    fn word(&self, message: MessageId, word: u32) -> u64 {
        let bits = (0..64).filter(|bit| self.0.contains(&(message, word * 64 + bit)));
        bits.fold(0, |all, bit| all | 1 << bit)
    }

    fn count(&self, message: MessageId) -> u32 {
        u32::try_from(self.0.range((message, 0)..=(message, u32::MAX)).count()).unwrap()
    }

    fn seen(&self, message: MessageId) -> u32 {
        let last = self.0.range((message, 0)..=(message, u32::MAX)).next_back();
        last.map_or(0, |(_, chunk)| chunk + 1)
    }
}

#[test]
fn chunks_that_are_not_critical_wait_for_a_silent_peer_too() {
    let mut sender = SchemeName::BestEffortExact.scheme().sender();
    let message = Message {
        number: 0,
        bytes: 100_000 * 4096,
        chunks: 100_000,
        chunk_bytes: 4096,
        critical: CriticalChunks::new([2..3]).unwrap(),
    };
    sender.start(&view(0), &message);
    let mut sent = 0;
    for now_ns in (0..5_000).map(|ms| ms * MS) {
        if sender.next_timeout().is_some_and(|at_ns| at_ns <= now_ns) {
            sender.handle_timeout(&view(now_ns));
        }
        if let Some(chunks) = sender.poll_transmit(&view(now_ns), 10) {
            sent += chunks.range.end - chunks.range.start;
            sender.handle_departed(&view(now_ns), &chunks);
        }
    }
    // Two timeouts of 80 ms at 10 chunks a millisecond, then at most 4 chunks a timeout.
    assert!(sent < 1_600 + 5_000 / 80 * 4, "{sent}");
    let report = Report::Ack(farwrite_schemes::scheme::Ack {
        message: 0,
        cumulative: 1,
        seen: 1,
        window_start: 0,
        bits: Vec::new(),
    });
    sender.handle_report(&view(5_000 * MS), &report);
    let next = sender.poll_transmit(&view(5_000 * MS), 10);
    assert_eq!(next.map(|chunks| chunks.range.len()), Some(10));
}

#[test]
fn a_message_without_critical_chunks_probes_a_silent_peer() {
    let mut sender = SchemeName::BestEffortExact.scheme().sender();
    let message = |number, critical| Message {
        number,
        bytes: 100 * 4096,
        chunks: 100,
        chunk_bytes: 4096,
        critical,
    };
    let critical = CriticalChunks::new([2..3]).unwrap();
    sender.start(&view(0), &message(0, critical));
    sender.start(&view(0), &message(1, CriticalChunks::NONE));
    let run = |sender: &mut dyn Sender, span: std::ops::Range<u64>, max_chunks| {
        let mut sent = Vec::new();
        for now_ns in span.map(|ms| ms * MS) {
            if sender.next_timeout().is_some_and(|at_ns| at_ns <= now_ns) {
                sender.handle_timeout(&view(now_ns));
            }
            if let Some(chunks) = sender.poll_transmit(&view(now_ns), max_chunks) {
                sender.handle_departed(&view(now_ns), &chunks);
                sent.push(chunks);
            }
        }
        sent
    };
    // The critical chunk leaves, and its timeouts make the peer count as silent.
    let first = run(&mut *sender, 0..1, 1);
    assert_eq!(first[0].range, 2..3);
    run(&mut *sender, 1..400, 1);
    sender.abandon(0);
    let later = run(&mut *sender, 400..1_000, 10);
    assert!(!later.is_empty(), "no chunk probes the peer");
    assert!(later.iter().all(|chunks| chunks.range.len() <= 4));
}

enum Event {
    Arrive(u64, u32),
    Report(Report),
    /// The sender is done with a message.
    Done(u64),
    /// The receiver has ended a message.
    Closed(u64, Outcome),
}

struct World {
    sender: Box<dyn Sender + Send>,
    receiver: Box<dyn Receiver + Send>,
    message: Message,
    memory: Memory,
    rng: SplitMix,
    loss: f64,
    now_ns: u64,
    events: BTreeMap<(u64, usize), Event>,
    count: usize,
    /// Chunks in the order in which they were first sent, of each message.
    order: BTreeMap<u64, Vec<u32>>,
    sent: BTreeMap<u64, Outcome>,
    received: BTreeMap<u64, Outcome>,
}

impl World {
    fn new(message: Message, seed: u64, loss: f64) -> Self {
        let scheme = SchemeName::BestEffortExact.scheme();
        let mut world = Self {
            sender: scheme.sender(),
            receiver: scheme.receiver(),
            message,
            memory: Memory::default(),
            rng: SplitMix::new(seed),
            loss,
            now_ns: 0,
            events: BTreeMap::new(),
            count: 0,
            order: BTreeMap::new(),
            sent: BTreeMap::new(),
            received: BTreeMap::new(),
        };
        for number in 0..MESSAGES {
            world.sender.start(&view(0), &Message { number, ..message });
            world
                .receiver
                .start(&view(0), &Message { number, ..message }, false);
        }
        world
    }

    fn push(&mut self, event: Event) {
        self.count += 1;
        let late_ns = self.rng.within(0..WINDOW_NS / 2);
        let at_ns = self.now_ns + RTT_NS / 2 + late_ns;
        self.events.insert((at_ns, self.count), event);
    }

    fn is_critical(&self, chunk: u32) -> bool {
        self.message
            .critical
            .ranges()
            .any(|range| range.contains(&chunk))
    }

    fn critical_arrived(&self, message: u64) -> bool {
        self.memory
            .has_all(message, self.message.critical.ranges().flatten())
    }

    fn transmit(&mut self) {
        // The pace is about four chunks each millisecond.
        let mut allowance = 4;
        while allowance > 0
            && let Some(Chunks { message, range }) =
                self.sender.poll_transmit(&view(self.now_ns), allowance)
        {
            assert!(range.end - range.start <= allowance && !range.is_empty());
            allowance -= range.end - range.start;
            let number = message.data();
            for chunk in range.clone() {
                let order = self.order.entry(number).or_default();
                let is_repeat = order.contains(&chunk);
                assert!(!is_repeat || self.message.critical.ranges().any(|r| r.contains(&chunk)));
                if !is_repeat {
                    order.push(chunk);
                }
                if !self.rng.chance(self.loss) {
                    self.push(Event::Arrive(number, chunk));
                }
            }
            self.sender
                .handle_departed(&view(self.now_ns), &Chunks { message, range });
        }
    }

    fn handle(&mut self, event: Event) {
        let now = view(self.now_ns);
        match event {
            Event::Arrive(number, chunk) => {
                if !self.received.contains_key(&number) {
                    self.memory.0.insert((number.into(), chunk));
                }
                self.receiver
                    .handle_arrivals(&now, number.into(), &self.memory);
            }
            Event::Report(report) => self.sender.handle_report(&now, &report),
            Event::Done(number) => self.receiver.handle_sender_done(&now, number),
            Event::Closed(number, outcome) => self.sender.handle_closed(&now, number, outcome),
        }
    }

    fn step(&mut self) {
        while let Some(entry) = self.events.first_entry()
            && entry.key().0 <= self.now_ns
        {
            let event = entry.remove();
            self.handle(event);
        }
        let now = view(self.now_ns);
        if self
            .sender
            .next_timeout()
            .is_some_and(|at_ns| at_ns <= self.now_ns)
        {
            self.sender.handle_timeout(&now);
        }
        if self
            .receiver
            .next_timeout()
            .is_some_and(|at_ns| at_ns <= self.now_ns)
        {
            self.receiver.handle_timeout(&now, &self.memory);
        }
        while let Some(report) = self.receiver.poll_report(&now, &self.memory, 100) {
            if !self.rng.chance(self.loss) {
                self.push(Event::Report(report));
            }
        }
        while let Some((number, outcome)) = self.receiver.poll_outcome() {
            let is_whole = self.memory.has_all(number, 0..self.message.chunks);
            assert_eq!(outcome == Outcome::Whole, is_whole, "message {number}");
            assert!(self.critical_arrived(number), "message {number}");
            assert!(self.received.insert(number, outcome).is_none());
            self.push(Event::Closed(number, outcome));
        }
        self.transmit();
        for number in 0..MESSAGES {
            let may_end = self.sender.may_end_partial(number);
            assert!(
                !may_end || self.critical_arrived(number),
                "message {number}"
            );
        }
        while let Some((number, outcome)) = self.sender.poll_outcome() {
            assert!(self.critical_arrived(number), "message {number}");
            assert!(self.sent.insert(number, outcome).is_none());
            self.push(Event::Done(number));
        }
        assert!(
            self.receiver
                .next_timeout()
                .is_none_or(|at_ns| at_ns > self.now_ns)
        );
        self.now_ns += MS;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn critical_chunks_leave_first_and_arrive_in_any_case(
        steps in prop::collection::vec((1..20_u32, 1..20_u32), 0..5),
        tail in 0..40_u32,
        starts_at_zero in any::<bool>(),
        seed in any::<u64>(),
        loss in prop::sample::select(vec![0.0, 0.02, 0.3, 0.6]),
    ) {
        let mut after = 0;
        let ranges = steps.into_iter().map(|(gap, length)| {
            let start = after + if after == 0 && starts_at_zero { 0 } else { gap };
            after = start + length;
            start..after
        });
        let critical = CriticalChunks::new(ranges.collect::<Vec<_>>()).unwrap();
        let chunks = (critical.end() + tail).max(1);
        let message = Message { number: 0, bytes: 1, chunks, chunk_bytes: 1, critical };
        let mut world = World::new(message, seed, loss);
        while world.received.len() < 3 || world.sent.len() < 3 {
            world.step();
            prop_assert!(world.now_ns < 600_000 * MS, "no end: {:?} {:?}", world.sent, world.received);
        }
        for (number, order) in &world.order {
            let first_other = order.iter().position(|chunk| !world.is_critical(*chunk));
            let first_other = first_other.unwrap_or(order.len());
            let mut rest = order[first_other..].iter();
            prop_assert!(rest.all(|chunk| !world.is_critical(*chunk)), "message {}", number);
            prop_assert!(order[first_other..].is_sorted());
        }
        if loss == 0.0 {
            prop_assert!(world.received.values().all(|outcome| *outcome == Outcome::Whole));
        }
    }
}

#[test]
fn a_sender_that_is_done_too_early_fails_the_message() {
    let mut receiver = SchemeName::BestEffortExact.scheme().receiver();
    let critical = CriticalChunks::new([2..3]).unwrap();
    let message = Message {
        number: 0,
        bytes: 1,
        chunks: 4,
        chunk_bytes: 1,
        critical,
    };
    receiver.start(&view(0), &message, false);
    let memory = Memory([(MessageId::new(0), 3)].into());
    receiver.handle_arrivals(&view(0), 0.into(), &memory);
    receiver.handle_timeout(&view(WINDOW_NS), &memory);
    assert_eq!(receiver.poll_outcome(), None);
    assert!(!receiver.may_end_partial(0, &memory));
    receiver.handle_sender_done(&view(WINDOW_NS), 0);
    receiver.handle_timeout(&view(2 * WINDOW_NS), &memory);
    assert_eq!(receiver.poll_outcome(), Some((0, Outcome::Failed)));
    assert_eq!(receiver.next_timeout(), None);
}
