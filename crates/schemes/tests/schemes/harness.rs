//! Both halves of a scheme, joined by a channel of fixed rate and delay that loses chunks and
//! reports, in virtual time. Every fault is an option, and one seed decides all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use farwrite_schemes::scheme::{
    Arrivals, Chunks, Message, Path, Receiver, Report, Scheme, Sender, SenderCounters,
};
use farwrite_wire::control::Outcome;

pub(crate) const MS: u64 = 1_000_000;

/// The channel, and what goes wrong on it.
#[derive(Clone, Debug)]
pub(crate) struct Channel {
    pub(crate) seed: u64,
    pub(crate) rtt_ns: u64,
    /// Time that one chunk takes on the wire.
    pub(crate) chunk_ns: u64,
    pub(crate) loss_chunk: f64,
    /// Chunks lost in a row, on average.
    pub(crate) burst_chunks: f64,
    pub(crate) loss_report: f64,
    pub(crate) duplicate: f64,
    /// A chunk comes up to this much later than it would.
    pub(crate) late_ns: u64,
    /// And a report up to this much.
    pub(crate) late_report_ns: u64,
    /// Nothing gets through in this time, in either direction.
    pub(crate) dead_ns: Range<u64>,
    /// First copies of these chunks are lost.
    pub(crate) lose_first: BTreeSet<(u64, u32)>,
    pub(crate) reordering_window_ns: u64,
    pub(crate) max_run: u32,
    pub(crate) max_report_bytes: usize,
}

impl Default for Channel {
    /// 25 ms, and 10 us a chunk: 2,500 chunks are under way at a time.
    fn default() -> Self {
        Self {
            seed: 1,
            rtt_ns: 25 * MS,
            chunk_ns: 10_000,
            loss_chunk: 0.0,
            burst_chunks: 1.0,
            loss_report: 0.0,
            duplicate: 0.0,
            late_ns: 0,
            late_report_ns: 0,
            dead_ns: 0..0,
            lose_first: BTreeSet::new(),
            reordering_window_ns: MS,
            max_run: 8,
            max_report_bytes: 1024,
        }
    }
}

/// What happened.
#[derive(Debug, Default)]
pub(crate) struct Story {
    /// When each message was over at the sender, and how.
    pub(crate) outcomes: BTreeMap<u64, (u64, Outcome)>,
    pub(crate) counters: SenderCounters,
    pub(crate) lost_chunks: u64,
    pub(crate) reports: u64,
    /// When each chunk was handed out, in order.
    pub(crate) handed_out: BTreeMap<(u64, u32), Vec<u64>>,
    /// When each run was handed out.
    pub(crate) runs: Vec<(u64, Chunks)>,
    pub(crate) ended_ns: u64,
}

enum Event {
    Departed(Chunks),
    Arrived(u64, Vec<u32>),
    Reported(Report),
    Closed(u64),
    Start(Message),
}

/// What the receiving endpoint keeps: the bitmaps.
#[derive(Default)]
pub(crate) struct Memory(BTreeMap<u64, Vec<bool>>);

impl Memory {
    pub(crate) fn post(&mut self, message: &Message) {
        let empty = vec![false; message.chunks as usize];
        self.0.insert(message.number, empty);
    }

    pub(crate) fn arrive(&mut self, message: u64, chunk: u32) {
        self.0.get_mut(&message).unwrap()[chunk as usize] = true;
    }

    pub(crate) fn has(&self, message: u64, chunk: u32) -> bool {
        self.0[&message][chunk as usize]
    }

    pub(crate) fn is_whole(&self, message: u64) -> bool {
        self.0[&message].iter().all(|arrived| *arrived)
    }
}

impl Arrivals for Memory {
    fn word(&self, message: u64, word: u32) -> u64 {
        let Some(bits) = self.0.get(&message) else {
            return 0;
        };
        let bits = bits.iter().skip(word as usize * 64).take(64);
        bits.enumerate()
            .fold(0, |word, (i, &bit)| word | u64::from(bit) << i)
    }

    fn count(&self, message: u64) -> u32 {
        let bits = self.0.get(&message).into_iter().flatten();
        u32::try_from(bits.filter(|bit| **bit).count()).unwrap()
    }

    fn seen(&self, message: u64) -> u32 {
        let highest = |bits: &Vec<bool>| bits.iter().rposition(|bit| *bit);
        let highest = self.0.get(&message).and_then(highest);
        u32::try_from(highest.map_or(0, |chunk| chunk + 1)).unwrap()
    }
}

/// `SplitMix64`: enough to throw dice with.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    pub(crate) fn hits(&mut self, probability: f64) -> bool {
        ((self.next() >> 11) as f64) < probability * (1u64 << 53) as f64
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next() % bound }
    }
}

pub(crate) struct World {
    channel: Channel,
    pub(crate) now_ns: u64,
    dice: Dice,
    in_burst: bool,
    sender: Box<dyn Sender + Send>,
    receiver: Box<dyn Receiver + Send>,
    pub(crate) memory: Memory,
    closed: BTreeSet<u64>,
    chunks: BTreeMap<u64, u32>,
    events: BTreeMap<(u64, u64), Event>,
    next_event: u64,
    wire_free_ns: u64,
    pub(crate) story: Story,
}

impl World {
    pub(crate) fn new(scheme: &dyn Scheme, channel: Channel) -> Self {
        Self {
            dice: Dice(channel.seed),
            channel,
            now_ns: 0,
            in_burst: false,
            sender: scheme.sender(),
            receiver: scheme.receiver(),
            memory: Memory::default(),
            closed: BTreeSet::new(),
            chunks: BTreeMap::new(),
            events: BTreeMap::new(),
            next_event: 0,
            wire_free_ns: 0,
            story: Story::default(),
        }
    }

    pub(crate) fn path(&self) -> Path {
        Path {
            now_ns: self.now_ns,
            rtt_ns: self.channel.rtt_ns,
            reordering_window_ns: self.channel.reordering_window_ns,
        }
    }

    /// Both ends know of the message from `at_ns` on; the sender's end a moment later.
    pub(crate) fn start(&mut self, at_ns: u64, number: u64, chunks: u32) {
        let message = Message {
            number,
            bytes: u64::from(chunks) * 4096,
            chunks,
            chunk_bytes: 4096,
        };
        self.chunks.insert(number, chunks);
        self.push(at_ns, Event::Start(message));
    }

    fn push(&mut self, at_ns: u64, event: Event) {
        self.next_event += 1;
        self.events.insert((at_ns, self.next_event), event);
    }

    /// Runs until all messages are over at the sender, and panics if that takes too long.
    pub(crate) fn run(mut self, limit_ns: u64) -> Story {
        while self.story.outcomes.len() < self.chunks.len() {
            assert!(self.step(), "nothing happens any more: {:?}", self.channel);
            assert!(self.now_ns < limit_ns, "still busy: {:?}", self.channel);
        }
        self.story.counters = self.sender.counters();
        self.story.ended_ns = self.now_ns;
        self.story
    }

    /// Goes to the next thing that happens; answers whether there was one.
    pub(crate) fn step(&mut self) -> bool {
        self.transmit();
        let event = self.events.keys().next().map(|(at_ns, _)| *at_ns);
        let wire = (self.wire_free_ns > self.now_ns).then_some(self.wire_free_ns);
        let timers = [self.sender.next_timeout(), self.receiver.next_timeout()];
        let next = timers.into_iter().flatten().chain(event).chain(wire).min();
        let Some(next_ns) = next else {
            return false;
        };
        self.now_ns = self.now_ns.max(next_ns);
        while let Some(entry) = self.events.first_entry()
            && entry.key().0 <= self.now_ns
        {
            let event = entry.remove();
            self.handle(event);
        }
        let path = self.path();
        let due = |timeout: Option<u64>| timeout.is_some_and(|at_ns| at_ns <= path.now_ns);
        if due(self.receiver.next_timeout()) {
            self.receiver.handle_timeout(&path, &self.memory);
            assert!(!due(self.receiver.next_timeout()), "receiver spins");
        }
        self.report();
        if due(self.sender.next_timeout()) {
            self.sender.handle_timeout(&path);
            assert!(!due(self.sender.next_timeout()), "sender spins");
        }
        self.conclude();
        true
    }

    fn handle(&mut self, event: Event) {
        let path = self.path();
        match event {
            Event::Start(message) => {
                self.memory.post(&message);
                self.receiver.start(&path, &message);
                self.sender.start(&path, &message);
            }
            Event::Departed(chunks) => self.sender.handle_departed(&path, &chunks),
            Event::Reported(report) => self.sender.handle_report(&path, &report),
            Event::Closed(message) => self.sender.handle_closed(&path, message, Outcome::Whole),
            Event::Arrived(message, chunks) => {
                for chunk in chunks {
                    self.memory.arrive(message, chunk);
                }
                if self.closed.contains(&message) {
                    self.send_back(|| Event::Closed(message));
                } else {
                    self.receiver.handle_arrivals(&path, message, &self.memory);
                }
            }
        }
    }

    fn transmit(&mut self) {
        let path = self.path();
        if self.now_ns < self.wire_free_ns {
            return;
        }
        let max_run = self.channel.max_run;
        let Some(chunks) = self.sender.poll_transmit(&path, max_run) else {
            return;
        };
        assert!(!chunks.range.is_empty());
        assert!(chunks.range.len() <= max_run as usize);
        assert!(chunks.range.end <= self.chunks[&chunks.message]);
        let mut arriving = Vec::new();
        for chunk in chunks.range.clone() {
            let copies = self.story.handed_out.entry((chunks.message, chunk));
            let copies = copies.or_default();
            copies.push(self.now_ns);
            let wanted =
                copies.len() == 1 && self.channel.lose_first.contains(&(chunks.message, chunk));
            if self.loses() || wanted {
                self.story.lost_chunks += 1;
            } else {
                arriving.push(chunk);
            }
        }
        self.wire_free_ns = self.now_ns + chunks.range.len() as u64 * self.channel.chunk_ns;
        let flight_ns = self.wire_free_ns + self.channel.rtt_ns / 2;
        let copies = 1 + u64::from(self.dice.hits(self.channel.duplicate));
        for _ in 0..copies {
            let late_ns = self.dice.below(self.channel.late_ns + 1);
            if !arriving.is_empty() {
                let event = Event::Arrived(chunks.message, arriving.clone());
                self.push(flight_ns + late_ns, event);
            }
        }
        self.story.runs.push((self.now_ns, chunks.clone()));
        self.push(self.wire_free_ns, Event::Departed(chunks));
    }

    /// Two states, so that losses come in runs of `burst_chunks` on average.
    fn loses(&mut self) -> bool {
        if self.channel.dead_ns.contains(&self.now_ns) {
            return true;
        }
        let (loss, burst) = (self.channel.loss_chunk, self.channel.burst_chunks);
        let enter = loss / burst / (1.0 - loss).max(0.01);
        let flips = if self.in_burst { 1.0 / burst } else { enter };
        if burst <= 1.0 {
            return self.dice.hits(loss);
        }
        self.in_burst ^= self.dice.hits(flips);
        self.in_burst
    }

    fn send_back(&mut self, event: impl Fn() -> Event) {
        let lost = self.dice.hits(self.channel.loss_report);
        if lost || self.channel.dead_ns.contains(&self.now_ns) {
            return;
        }
        let copies = 1 + u64::from(self.dice.hits(self.channel.duplicate));
        for _ in 0..copies {
            let late_ns = self.dice.below(self.channel.late_report_ns + 1);
            let at_ns = self.now_ns + self.channel.rtt_ns / 2 + late_ns;
            self.push(at_ns, event());
        }
    }

    fn report(&mut self) {
        let path = self.path();
        let max_bytes = self.channel.max_report_bytes;
        while let Some(report) = self.receiver.poll_report(&path, &self.memory, max_bytes) {
            self.check(&report);
            self.story.reports += 1;
            self.send_back(|| Event::Reported(report.clone()));
        }
        while let Some((message, outcome)) = self.receiver.poll_outcome() {
            assert_eq!(outcome, Outcome::Whole);
            assert!(self.memory.is_whole(message));
            assert!(self.closed.insert(message), "{message} ended twice");
            self.send_back(|| Event::Closed(message));
        }
    }

    /// A report says nothing but the truth, and no more than fits.
    fn check(&self, report: &Report) {
        match report {
            Report::Ack(ack) => {
                assert!(ack.bits.len() <= self.channel.max_report_bytes);
                assert!(ack.window_start.is_multiple_of(8));
                assert!(ack.cumulative <= ack.seen && ack.seen <= self.chunks[&ack.message]);
                assert!((0..ack.cumulative).all(|chunk| self.memory.has(ack.message, chunk)));
                for (i, byte) in ack.bits.iter().enumerate() {
                    for bit in (0..8).filter(|bit| byte >> bit & 1 == 1) {
                        let chunk = ack.window_start + 8 * u32::try_from(i).unwrap() + bit;
                        assert!(self.memory.has(ack.message, chunk));
                    }
                }
            }
            Report::Nack(nack) => {
                assert!(nack.lost.len() * 8 <= self.channel.max_report_bytes);
                assert!(!nack.lost.is_empty());
                assert!(nack.lost.windows(2).all(|two| two[0].end < two[1].start));
                for range in &nack.lost {
                    assert!(!range.is_empty());
                    assert!(
                        range
                            .clone()
                            .all(|chunk| !self.memory.has(nack.message, chunk))
                    );
                }
            }
        }
    }

    fn conclude(&mut self) {
        while let Some((message, outcome)) = self.sender.poll_outcome() {
            assert!(self.memory.is_whole(message), "{message} is not whole");
            let first = self.story.outcomes.insert(message, (self.now_ns, outcome));
            assert_eq!(first, None, "{message} ended twice");
        }
    }
}

/// One message of `chunks` chunks through a channel.
pub(crate) fn send_one(scheme: &dyn Scheme, channel: Channel, chunks: u32) -> Story {
    let mut world = World::new(scheme, channel);
    world.start(0, 0, chunks);
    world.run(600_000 * MS)
}
