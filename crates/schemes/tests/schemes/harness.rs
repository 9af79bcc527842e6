//! Both halves of a scheme in virtual time, joined by a channel of fixed rate and delay that loses
//! chunks and reports. Every fault is an option, and one seed decides all faults.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use farwrite_codes::Present;
use farwrite_rng::SplitMix;
use farwrite_schemes::registry::from_tag;
use farwrite_schemes::scheme::{
    Arrivals, Chunks, CriticalChunks, Job, Layout, Message, MessageId, PeerView, Receiver, Report,
    Scheme, SchemeTag, Sender, SenderCounters, Timing, Work,
};
use farwrite_wire::control::Outcome;

pub(crate) const MS: u64 = 1_000_000;

/// The first message, and its parity.
pub(crate) const DATA: MessageId = MessageId::new(0);
pub(crate) const PARITY: MessageId = DATA.parity();

/// The channel and its faults.
#[derive(Clone, Debug)]
pub(crate) struct Channel {
    pub(crate) seed: u64,
    pub(crate) rtt_ns: u64,
    /// Time that one chunk takes on the wire.
    pub(crate) chunk_ns: u64,
    pub(crate) loss_chunk: f64,
    /// Mean length of a burst of losses, in chunks.
    pub(crate) burst_chunks: f64,
    pub(crate) loss_report: f64,
    pub(crate) duplicate: f64,
    /// Maximum extra delay of a chunk.
    pub(crate) late_ns: u64,
    /// Maximum extra delay of a report.
    pub(crate) late_report_ns: u64,
    /// In this time, both directions lose everything.
    pub(crate) dead_ns: Range<u64>,
    /// The first copies of these chunks are lost.
    pub(crate) lose_first: BTreeSet<(MessageId, u32)>,
    /// Time from the start of a message until the receiver has memory for its parity. `None` means
    /// never.
    pub(crate) clear_parity_ns: Option<u64>,
    /// Time to encode a group.
    pub(crate) encode_ns: u64,
    /// Number of last chunks of a message that carry an immediate but no bytes.
    pub(crate) empty_chunks: u32,
    /// Whether messages have a user immediate. Each chunk carries a fragment of it.
    pub(crate) immediate: bool,
    pub(crate) reordering_window_ns: u64,
    pub(crate) max_run: u32,
    pub(crate) max_report_bytes: usize,
}

impl Default for Channel {
    /// The round trip is 25 ms and a chunk takes 10 us, so 2,500 chunks are in flight at a time.
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
            clear_parity_ns: Some(0),
            encode_ns: 0,
            empty_chunks: 0,
            immediate: false,
            reordering_window_ns: MS,
            max_run: 8,
            max_report_bytes: 1024,
        }
    }
}

/// The record of a run.
#[derive(Debug, Default)]
pub(crate) struct Story {
    /// For each message, when it ended at the sender, and its outcome.
    pub(crate) outcomes: BTreeMap<u64, (u64, Outcome)>,
    pub(crate) counters: SenderCounters,
    /// Data chunks that the channel lost.
    pub(crate) lost_chunks: u64,
    pub(crate) rebuilt_chunks: u64,
    pub(crate) nacked: BTreeSet<(u64, u32)>,
    pub(crate) reports: u64,
    /// For each chunk, the times at which it was handed out, in order.
    pub(crate) handed_out: BTreeMap<(MessageId, u32), Vec<u64>>,
    /// Each run and the time at which it was handed out.
    pub(crate) runs: Vec<(u64, Chunks)>,
    pub(crate) ended_ns: u64,
}

enum Event {
    Departed(Chunks),
    Arrived(MessageId, Vec<u32>),
    Reported(Report),
    Closed(u64),
    Start(Message),
    ParityClear(u64),
    Encoded(Job),
}

/// Number of fragments of a user immediate. Chunk `i` carries fragment `i % FRAGMENTS`.
const FRAGMENTS: u32 = 8;

/// The chunks of a message that have arrived.
struct Bitmap {
    bits: Vec<bool>,
    count: u32,
    seen: u32,
}

/// The state of the receiving endpoint: the bitmaps.
#[derive(Default)]
pub(crate) struct Memory {
    bitmaps: BTreeMap<MessageId, Bitmap>,
    /// For each message with an immediate, the missing fragments.
    fragments: BTreeMap<MessageId, BTreeSet<u32>>,
}

impl Memory {
    pub(crate) fn post(&mut self, message: &Message) {
        self.post_chunks(message.number, message.chunks);
    }

    pub(crate) fn post_chunks(&mut self, message: impl Into<MessageId>, chunks: u32) {
        let bits = vec![false; chunks as usize];
        let (count, seen) = (0, 0);
        self.bitmaps
            .insert(message.into(), Bitmap { bits, count, seen });
    }

    pub(crate) fn expect_immediate(&mut self, message: u64) {
        self.fragments
            .insert(message.into(), (0..FRAGMENTS).collect());
    }

    pub(crate) fn arrive(&mut self, message: impl Into<MessageId>, chunk: u32) {
        let message = message.into();
        self.rebuild(message, chunk);
        if let Some(missing) = self.fragments.get_mut(&message) {
            missing.remove(&(chunk % FRAGMENTS));
        }
    }

    /// Marks a chunk as rebuilt. Unlike a packet, this adds no fragment of the immediate.
    pub(crate) fn rebuild(&mut self, message: impl Into<MessageId>, chunk: u32) {
        let bitmap = self.bitmaps.get_mut(&message.into()).unwrap();
        bitmap.count += u32::from(!bitmap.bits[chunk as usize]);
        bitmap.seen = bitmap.seen.max(chunk + 1);
        bitmap.bits[chunk as usize] = true;
    }

    pub(crate) fn has(&self, message: impl Into<MessageId>, chunk: u32) -> bool {
        self.bitmaps[&message.into()].bits[chunk as usize]
    }

    pub(crate) fn is_whole(&self, message: impl Into<MessageId>) -> bool {
        let message = message.into();
        let bitmap = &self.bitmaps[&message];
        bitmap.count as usize == bitmap.bits.len() && self.immediate_is_whole(message)
    }
}

impl Arrivals for Memory {
    fn word(&self, message: MessageId, word: u32) -> u64 {
        let Some(bits) = self.bitmaps.get(&message) else {
            return 0;
        };
        let bits = bits.bits.iter().skip(word as usize * 64).take(64);
        bits.enumerate()
            .fold(0, |word, (i, &bit)| word | u64::from(bit) << i)
    }

    fn count(&self, message: MessageId) -> u32 {
        self.bitmaps.get(&message).map_or(0, |bitmap| bitmap.count)
    }

    fn seen(&self, message: MessageId) -> u32 {
        self.bitmaps.get(&message).map_or(0, |bitmap| bitmap.seen)
    }

    fn immediate_is_whole(&self, message: MessageId) -> bool {
        self.fragments.get(&message).is_none_or(BTreeSet::is_empty)
    }
}

pub(crate) struct World {
    scheme: SchemeTag,
    channel: Channel,
    pub(crate) now_ns: u64,
    rng: SplitMix,
    in_burst: bool,
    sender: Box<dyn Sender + Send>,
    receiver: Box<dyn Receiver + Send>,
    pub(crate) memory: Memory,
    closed: BTreeSet<u64>,
    chunks: BTreeMap<MessageId, u32>,
    layouts: BTreeMap<u64, Layout>,
    /// Groups whose parity has been computed.
    encoded: BTreeSet<(u64, u32)>,
    /// Messages whose parity has been cleared.
    cleared: BTreeSet<u64>,
    encoder_free_ns: u64,
    events: BTreeMap<(u64, u64), Event>,
    next_event: u64,
    wire_free_ns: u64,
    pub(crate) story: Story,
}

impl World {
    pub(crate) fn new(scheme: &dyn Scheme, channel: Channel) -> Self {
        Self {
            scheme: scheme.tag(),
            rng: SplitMix::new(channel.seed),
            channel,
            now_ns: 0,
            in_burst: false,
            sender: scheme.sender(),
            receiver: scheme.receiver(),
            memory: Memory::default(),
            closed: BTreeSet::new(),
            chunks: BTreeMap::new(),
            layouts: BTreeMap::new(),
            encoded: BTreeSet::new(),
            cleared: BTreeSet::new(),
            encoder_free_ns: 0,
            events: BTreeMap::new(),
            next_event: 0,
            wire_free_ns: 0,
            story: Story::default(),
        }
    }

    pub(crate) fn view(&self) -> PeerView {
        PeerView {
            now_ns: self.now_ns,
            rtt_ns: self.channel.rtt_ns,
            reordering_window_ns: self.channel.reordering_window_ns,
            timing: Timing::wide_area(),
        }
    }

    /// Starts a message at `at_ns` at the receiver, and a moment later at the sender.
    pub(crate) fn start(&mut self, at_ns: u64, number: u64, chunks: u32) {
        let message = Message {
            number,
            bytes: u64::from(chunks.saturating_sub(self.channel.empty_chunks)) * 4096,
            chunks,
            chunk_bytes: 4096,
            critical: CriticalChunks::NONE,
        };
        let data = MessageId::new(number);
        self.chunks.insert(data, chunks);
        self.push(at_ns, Event::Start(message));
        let scheme = from_tag(self.scheme);
        if let Some(layout) = scheme.and_then(|scheme| scheme.layout(&message)) {
            let parity_chunks = u32::try_from(layout.parity_chunks()).unwrap();
            self.chunks.insert(data.parity(), parity_chunks);
            self.memory.post_chunks(data.parity(), parity_chunks);
            self.layouts.insert(number, layout);
            if let Some(late_ns) = self.channel.clear_parity_ns {
                self.push(at_ns + late_ns, Event::ParityClear(number));
            }
        }
    }

    fn push(&mut self, at_ns: u64, event: Event) {
        self.next_event += 1;
        self.events.insert((at_ns, self.next_event), event);
    }

    /// Runs until all messages have ended at the sender. Panics if that takes too long.
    pub(crate) fn run(mut self, limit_ns: u64) -> Story {
        while self
            .chunks
            .keys()
            .filter(|message| !message.is_parity())
            .any(|message| !self.story.outcomes.contains_key(&message.data()))
        {
            assert!(self.step(), "nothing happens any more: {:?}", self.channel);
            assert!(self.now_ns < limit_ns, "still busy: {:?}", self.channel);
        }
        self.story.counters = self.sender.counters();
        self.story.ended_ns = self.now_ns;
        self.story
    }

    /// Advances to the next event. Returns whether there was one.
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
        let view = self.view();
        let due = |timeout: Option<u64>| timeout.is_some_and(|at_ns| at_ns <= view.now_ns);
        if due(self.receiver.next_timeout()) {
            self.receiver.handle_timeout(&view, &self.memory);
            assert!(!due(self.receiver.next_timeout()), "receiver spins");
        }
        self.rebuild();
        self.report();
        if due(self.sender.next_timeout()) {
            self.sender.handle_timeout(&view);
            assert!(!due(self.sender.next_timeout()), "sender spins");
        }
        self.conclude();
        self.encode();
        true
    }

    fn handle(&mut self, event: Event) {
        let view = self.view();
        match event {
            Event::Start(message) => {
                self.memory.post(&message);
                if self.channel.immediate {
                    self.memory.expect_immediate(message.number);
                }
                self.receiver.start(&view, &message, false);
                self.sender.start(&view, &message);
            }
            Event::ParityClear(message) => {
                self.cleared.insert(message);
                self.sender.handle_parity_clear(&view, message);
            }
            Event::Encoded(job) => {
                self.encoded.insert((job.message, job.group));
                self.sender.handle_job(&view, &job);
            }
            Event::Departed(chunks) => self.sender.handle_departed(&view, &chunks),
            Event::Reported(report) => self.sender.handle_report(&view, &report),
            Event::Closed(message) => self.sender.handle_closed(&view, message, Outcome::Whole),
            Event::Arrived(message, chunks) => {
                for chunk in chunks {
                    self.memory.arrive(message, chunk);
                }
                let number = message.data();
                if self.closed.contains(&number) {
                    self.send_back(|| Event::Closed(number));
                } else {
                    self.receiver.handle_arrivals(&view, message, &self.memory);
                }
            }
        }
    }

    fn transmit(&mut self) {
        let view = self.view();
        if self.now_ns < self.wire_free_ns {
            return;
        }
        let max_run = self.channel.max_run;
        let Some(chunks) = self.sender.poll_transmit(&view, max_run) else {
            return;
        };
        assert!(!chunks.range.is_empty());
        assert!(chunks.range.len() <= max_run as usize);
        assert!(chunks.range.end <= self.chunks[&chunks.message]);
        self.check_parity(&chunks);
        let mut arriving = Vec::new();
        for chunk in chunks.range.clone() {
            let copies = self.story.handed_out.entry((chunks.message, chunk));
            let copies = copies.or_default();
            copies.push(self.now_ns);
            let wanted =
                copies.len() == 1 && self.channel.lose_first.contains(&(chunks.message, chunk));
            if self.loses() || wanted {
                self.story.lost_chunks += u64::from(!chunks.message.is_parity());
            } else {
                arriving.push(chunk);
            }
        }
        self.wire_free_ns = self.now_ns + chunks.range.len() as u64 * self.channel.chunk_ns;
        let flight_ns = self.wire_free_ns + self.channel.rtt_ns / 2;
        let copies = 1 + u64::from(self.rng.chance(self.channel.duplicate));
        for _ in 0..copies {
            let late_ns = self.rng.below(self.channel.late_ns + 1);
            if !arriving.is_empty() {
                let event = Event::Arrived(chunks.message, arriving.clone());
                self.push(flight_ns + late_ns, event);
            }
        }
        self.story.runs.push((self.now_ns, chunks.clone()));
        self.push(self.wire_free_ns, Event::Departed(chunks));
    }

    /// Checks that parity is sent only after it has been computed and cleared.
    fn check_parity(&self, chunks: &Chunks) {
        if chunks.message.is_parity() {
            let number = chunks.message.data();
            assert!(self.cleared.contains(&number));
            let m = u32::try_from(self.layouts[&number].code().m()).unwrap();
            let mut groups = chunks.range.clone().map(|chunk| chunk / m);
            assert!(groups.all(|group| self.encoded.contains(&(number, group))));
        }
    }

    /// Executes the jobs of the sender, one group after the other.
    fn encode(&mut self) {
        while let Some(job) = self.sender.poll_job() {
            assert_eq!(job.work, Work::Encode);
            assert!((job.group as usize) < self.layouts[&job.message].groups());
            assert!(self.cleared.contains(&job.message), "encoded in vain");
            self.encoder_free_ns = self.encoder_free_ns.max(self.now_ns) + self.channel.encode_ns;
            self.push(self.encoder_free_ns, Event::Encoded(job));
        }
    }

    /// Executes the jobs of the receiver, which take no time.
    fn rebuild(&mut self) {
        while let Some(job) = self.receiver.poll_job(&self.memory) {
            assert_eq!(job.work, Work::Rebuild);
            let layout = self.layouts[&job.message];
            let group = layout.group(job.group as usize).unwrap();
            let (code, data) = (layout.code(), MessageId::new(job.message));
            let first = |per_group: usize| u32::try_from(job.group as usize * per_group).unwrap();
            let arrived = |message: MessageId, first: u32, count: usize| {
                let there = |chunk: &usize| {
                    self.memory
                        .has(message, first + u32::try_from(*chunk).unwrap())
                };
                (0..count).filter(there).collect()
            };
            let present = Present {
                data: arrived(data, first(code.k()), group.data_chunks),
                parity: arrived(data.parity(), first(code.m()), group.parity_chunks),
            };
            assert!(code.recoverable(group.data_chunks, &present));
            let missing = present.data.missing(group.data_chunks);
            assert!(!missing.is_empty(), "rebuilt in vain");
            self.story.rebuilt_chunks += missing.len() as u64;
            for chunk in missing.iter() {
                let chunk = first(code.k()) + u32::try_from(chunk).unwrap();
                self.memory.rebuild(job.message, chunk);
            }
            let view = self.view();
            self.receiver.handle_job(&view, &job, &self.memory);
        }
    }

    /// Draws whether a chunk is lost, with a chain of two states, so that losses come in bursts of
    /// `burst_chunks` on average.
    fn loses(&mut self) -> bool {
        if self.channel.dead_ns.contains(&self.now_ns) {
            return true;
        }
        let (loss, burst) = (self.channel.loss_chunk, self.channel.burst_chunks);
        let enter = loss / burst / (1.0 - loss).max(0.01);
        let flips = if self.in_burst { 1.0 / burst } else { enter };
        if burst <= 1.0 {
            return self.rng.chance(loss);
        }
        self.in_burst ^= self.rng.chance(flips);
        self.in_burst
    }

    fn send_back(&mut self, event: impl Fn() -> Event) {
        let lost = self.rng.chance(self.channel.loss_report);
        if lost || self.channel.dead_ns.contains(&self.now_ns) {
            return;
        }
        let copies = 1 + u64::from(self.rng.chance(self.channel.duplicate));
        for _ in 0..copies {
            let late_ns = self.rng.below(self.channel.late_report_ns + 1);
            let at_ns = self.now_ns + self.channel.rtt_ns / 2 + late_ns;
            self.push(at_ns, event());
        }
    }

    fn report(&mut self) {
        let view = self.view();
        let max_bytes = self.channel.max_report_bytes;
        while let Some(report) = self.receiver.poll_report(&view, &self.memory, max_bytes) {
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

    /// Checks that a report is true and not too long.
    fn check(&mut self, report: &Report) {
        match report {
            Report::Ack(ack) => {
                assert!(ack.bits.len() <= self.channel.max_report_bytes);
                assert!(ack.window_start.is_multiple_of(8));
                assert!(ack.cumulative <= ack.seen && ack.seen <= self.chunks[&ack.message.into()]);
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
                    assert!(!range.is_empty() && range.end <= self.chunks[&nack.message.into()]);
                    // A chunk may be reported although its bytes are present, if its fragment of
                    // the immediate is missing.
                    let lacks_immediate = !self.memory.immediate_is_whole(nack.message.into());
                    let mut missing = range
                        .clone()
                        .map(|chunk| !self.memory.has(nack.message, chunk));
                    assert!(lacks_immediate || missing.all(|missing| missing));
                    let chunks = range.clone().map(|chunk| (nack.message, chunk));
                    self.story.nacked.extend(chunks);
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

/// Returns the number of parity chunks of a message whose chunks are all full.
pub(crate) fn parity_chunks(scheme: &dyn Scheme, chunks: u32) -> u32 {
    let layout = scheme.layout(&Message {
        number: 0,
        bytes: u64::from(chunks) * 4096,
        chunks,
        chunk_bytes: 4096,
        critical: CriticalChunks::NONE,
    });
    let parity_chunks = layout.map_or(0, |layout| layout.parity_chunks());
    u32::try_from(parity_chunks).unwrap()
}

/// Sends one message of `chunks` chunks through a channel.
pub(crate) fn send_one(scheme: &dyn Scheme, channel: Channel, chunks: u32) -> Story {
    let mut world = World::new(scheme, channel);
    world.start(0, 0, chunks);
    world.run(600_000 * MS)
}
