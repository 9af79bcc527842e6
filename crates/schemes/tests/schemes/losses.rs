//! Compares the loss meter with the actual losses.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use farwrite_rng::SplitMix;
use farwrite_schemes::chunk_loss::ChunkLoss;
use farwrite_schemes::loss_meter::LossMeter;
use farwrite_schemes::order::{InSequence, WireOrder};
use farwrite_schemes::scheme::{Arrivals, CriticalChunks, Message, MessageId, PeerView, Timing};
use farwrite_wire::control::LossCounts;
use proptest::prelude::*;

use crate::harness::MS;

const CHUNK_NS: u64 = 10_000;
const RTT_NS: u64 = 25 * MS;
const WINDOW_NS: u64 = MS;
const REPAIR_NS: u64 = RTT_NS - RTT_NS / 8;

fn view(now_ns: u64) -> PeerView {
    PeerView {
        now_ns,
        rtt_ns: RTT_NS,
        reordering_window_ns: WINDOW_NS,
        timing: Timing::wide_area(),
    }
}

fn message(number: u64, chunks: u32) -> Message {
    Message {
        number,
        bytes: u64::from(chunks) * 4096,
        chunks,
        chunk_bytes: 4096,
        critical: CriticalChunks::NONE,
    }
}

/// An in-sequence order that does not declare itself as such, so that the meter has to search it.
struct Shy(InSequence);

impl WireOrder for Shy {
    fn len(&self) -> u32 {
        self.0.len()
    }
    fn at(&self, position: u32) -> Option<(MessageId, u32)> {
        self.0.at(position)
    }
}

/// Bitmaps of SDR messages.
#[derive(Default)]
struct Bitmaps(BTreeSet<(MessageId, u32)>);

impl Arrivals for Bitmaps {
    fn word(&self, message: MessageId, word: u32) -> u64 {
        let bits = self
            .0
            .range((message, word * 64)..(message, word * 64 + 64));
        bits.fold(0, |bits, (_, chunk)| bits | 1 << (chunk % 64))
    }
    fn count(&self, message: MessageId) -> u32 {
        let chunks = self.0.range((message, 0)..=(message, u32::MAX));
        u32::try_from(chunks.count()).unwrap()
    }
    fn seen(&self, message: MessageId) -> u32 {
        let chunks = self.0.range((message, 0)..=(message, u32::MAX));
        chunks.last().map_or(0, |(_, chunk)| chunk + 1)
    }
}

/// Returns the counts of a sequence of chunks in the order of the wire. `None` interrupts the
/// sequence.
fn counts(lost: impl Iterator<Item = Option<bool>>) -> LossCounts {
    let mut counts = LossCounts::default();
    let mut run = 0;
    for lost in lost {
        run = if lost == Some(true) { run + 1 } else { 0 };
        counts.judged_chunks += u64::from(lost.is_some());
        counts.lost_chunks += u64::from(run > 0);
        counts.bursts += u64::from(run == 1);
        counts.longest_burst_chunks = counts.longest_burst_chunks.max(run);
    }
    counts
}

/// Draws losses from a chain of two states, of which one loses everything and the other nothing.
/// The parameters are the share of lost chunks and the mean length of a burst.
fn losses(rng: &mut SplitMix, chunks: u32, loss_chunk: f64, burst_chunks: f64) -> Vec<bool> {
    let mut bad = false;
    let leave = 1.0 / burst_chunks;
    let enter = leave * loss_chunk / (1.0 - loss_chunk);
    let step = |_| {
        bad = rng.chance(if bad { 1.0 - leave } else { enter });
        bad
    };
    (0..chunks).map(step).collect()
}

/// A selective-repeat sender that knows which chunks are lost. It sends one message after the
/// other. Chunks are up to `late_ns` late. A lost chunk is repaired at the earliest one reordering
/// window and one round trip after its loss, and some repairs are lost again.
struct Transfer {
    seed: u64,
    messages: Vec<u32>,
    loss_chunk: f64,
    burst_chunks: f64,
    late_ns: u64,
    /// Arrivals within this time are processed together.
    batch_ns: u64,
    /// The last `tail` chunks are lost, and repaired one after the other.
    tail: usize,
    /// Whether the meter has to search the order (see [`Shy`]).
    shy: bool,
}

impl Transfer {
    /// Returns the result of the meter, and the actual losses.
    fn run(&self) -> (ChunkLoss, LossCounts) {
        let mut rng = SplitMix::new(self.seed);
        let total: u32 = self.messages.iter().sum();
        let mut lost = losses(&mut rng, total, self.loss_chunk, self.burst_chunks);
        let (rest, tail) = lost.split_at_mut(total as usize - self.tail);
        rest[rest.len() - 1] = false;
        tail.fill(true);
        let chunks = (0..).zip(&self.messages);
        let chunks = chunks.flat_map(|(number, &chunks)| (0..chunks).map(move |c| (number, c)));
        let mut events = BinaryHeap::new();
        for (i, (chunk, &lost)) in chunks.zip(&lost).enumerate() {
            let mut at_ns = RTT_NS + i as u64 * CHUNK_NS + rng.below(self.late_ns);
            let is_tail = i + self.tail >= total as usize;
            if lost && is_tail {
                at_ns += WINDOW_NS + RTT_NS;
            } else if lost {
                at_ns += WINDOW_NS + RTT_NS + rng.below(RTT_NS);
                while rng.chance(self.loss_chunk) {
                    at_ns += RTT_NS;
                }
            }
            events.push(Reverse((at_ns, chunk)));
            if rng.chance(0.05) {
                events.push(Reverse((at_ns + rng.below(3 * RTT_NS), chunk)));
            }
        }
        let loss = self.watch(events);
        // No chunk passed the last one that arrived without a repair, so chunks from there on are
        // not judged.
        let last = lost.len() - 1 - self.tail;
        (loss, counts(lost[..last].iter().copied().map(Some)))
    }

    fn watch(&self, mut events: BinaryHeap<Reverse<(u64, (u64, u32))>>) -> ChunkLoss {
        let mut meter = LossMeter::default();
        let mut bitmaps = Bitmaps::default();
        let chunks_of: BTreeMap<u64, u32> = (0..).zip(self.messages.iter().copied()).collect();
        let mut open = BTreeSet::new();
        for (&number, &chunks) in &chunks_of {
            let message = message(number, chunks);
            let order = InSequence::of(&message);
            if self.shy {
                meter.begin(&message, Box::new(Shy(order)));
            } else {
                meter.begin(&message, Box::new(order));
            }
            open.insert(number);
        }
        while let Some(Reverse((first_ns, _))) = events.peek() {
            let now_ns = first_ns + self.batch_ns;
            while let Some(due_ns) = meter.next_timeout().filter(|due| due <= first_ns) {
                meter.handle_timeout(due_ns, &bitmaps);
            }
            let mut touched = BTreeSet::new();
            while let Some(Reverse((at_ns, (number, chunk)))) = events.peek().copied()
                && at_ns <= now_ns
            {
                events.pop();
                if open.contains(&number) {
                    bitmaps.0.insert((number.into(), chunk));
                    touched.insert(number);
                }
            }
            // The endpoint processes slots in any order.
            for &number in touched.iter().rev() {
                meter.look(&view(now_ns), REPAIR_NS, number, &bitmaps);
            }
            for number in touched {
                if bitmaps.count(number.into()) == chunks_of[&number] {
                    meter.end(number, &bitmaps);
                    open.remove(&number);
                    bitmaps.0.retain(|(of, _)| *of != number);
                }
            }
        }
        assert_eq!(open.len(), 0);
        meter.loss()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn every_passed_chunk_is_judged_as_it_was(
        seed in any::<u64>(),
        messages in prop::collection::vec(200u32..2_000, 1..6),
        loss_exponent in 0.5f64..4.0,
        burst_chunks in prop_oneof![Just(1.0), 1.0f64..12.0],
        late_ns in prop_oneof![Just(0), 0..WINDOW_NS],
        batch_ns in prop_oneof![Just(0), 0..MS / 4],
        tail in prop_oneof![Just(0), 1usize..8],
        shy in any::<bool>(),
    ) {
        // The range of a search is limited for some time, so a searched order gets fewer losses.
        let (loss_exponent, burst_chunks) = if shy {
            (loss_exponent.max(1.5), 1.0)
        } else {
            (loss_exponent, burst_chunks)
        };
        let loss_chunk = 10f64.powf(-loss_exponent);
        let burst_chunks = burst_chunks.max(1.0 / (1.0 - loss_chunk));
        let transfer = Transfer {
            seed,
            messages,
            loss_chunk,
            burst_chunks,
            late_ns,
            batch_ns,
            tail,
            shy,
        };
        let (loss, truth) = transfer.run();
        let counts = loss.counts();
        // The repairs of the last chunks can pass one another.
        let judged_chunks = truth.judged_chunks + (tail as u64).saturating_sub(2);
        prop_assert!((truth.judged_chunks..=judged_chunks).contains(&counts.judged_chunks));
        prop_assert_eq!(counts, LossCounts { judged_chunks: counts.judged_chunks, ..truth });
    }
}

/// The estimates approach the parameters of the loss process.
#[test]
fn estimates_come_near_the_probabilities() {
    for (loss_chunk, burst_chunks) in [(0.01, 1.0 / 0.99), (0.05, 1.0 / 0.95), (0.02, 5.0)] {
        let transfer = Transfer {
            seed: 11,
            messages: vec![20_000; 5],
            loss_chunk,
            burst_chunks,
            late_ns: 0,
            batch_ns: 100_000,
            tail: 0,
            shy: false,
        };
        let (loss, _) = transfer.run();
        let near = |got: Option<f64>, want: f64| {
            assert!(
                (got.unwrap() / want - 1.0).abs() < 0.15,
                "{got:?} for {want}"
            );
        };
        near(loss.loss_chunk(), loss_chunk);
        near(loss.mean_burst_chunks(), burst_chunks);
        let markov = loss.markov().unwrap();
        near(Some(markov.p_bad_to_good), 1.0 / burst_chunks);
        near(
            Some(markov.p_good_to_bad),
            loss_chunk / (1.0 - loss_chunk) / burst_chunks,
        );
    }
}

/// Groups of data, each followed by its parity.
struct Grouped {
    number: u64,
    groups: u32,
}

const DATA: u32 = 8;
const PARITY: u32 = 2;

impl WireOrder for Grouped {
    fn len(&self) -> u32 {
        self.groups * (DATA + PARITY)
    }

    fn at(&self, position: u32) -> Option<(MessageId, u32)> {
        let (group, index) = (position / (DATA + PARITY), position % (DATA + PARITY));
        let data = MessageId::new(self.number);
        let chunk = match index.checked_sub(DATA) {
            None => (data, group * DATA + index),
            Some(parity) => (data.parity(), group * PARITY + parity),
        };
        (position < self.len()).then_some(chunk)
    }
}

/// A coded message that arrives in order, without anything else.
struct Coded {
    meter: LossMeter,
    bitmaps: Bitmaps,
    now_ns: u64,
}

impl Coded {
    fn new() -> Self {
        Self {
            meter: LossMeter::default(),
            bitmaps: Bitmaps::default(),
            now_ns: RTT_NS,
        }
    }

    fn arrive(&mut self, number: u64, chunk: Option<(MessageId, u32)>) {
        self.now_ns += CHUNK_NS;
        while let Some(due_ns) = self.meter.next_timeout().filter(|due| *due <= self.now_ns) {
            self.meter.handle_timeout(due_ns, &self.bitmaps);
        }
        if let Some(chunk) = chunk {
            self.bitmaps.0.insert(chunk);
            self.meter
                .look(&view(self.now_ns), REPAIR_NS, number, &self.bitmaps);
        }
    }

    /// Rebuilds all chunks that can be rebuilt. Returns whether the message is now whole.
    fn rebuild(&mut self, number: u64, groups: u32) -> bool {
        for group in 0..groups {
            let id = MessageId::new(number);
            let data = (group * DATA..group * DATA + DATA).map(|chunk| (id, chunk));
            let parity = group * PARITY..group * PARITY + PARITY;
            let parity = parity.filter(|chunk| self.bitmaps.0.contains(&(id.parity(), *chunk)));
            let missing: Vec<_> = data
                .filter(|chunk| !self.bitmaps.0.contains(chunk))
                .collect();
            if missing.len() <= parity.count() {
                for chunk in missing {
                    self.bitmaps.0.insert(chunk);
                    self.meter.handle_rebuilt(number, chunk.1);
                }
            }
        }
        self.bitmaps.count(number.into()) == groups * DATA
    }

    fn end(&mut self, number: u64) {
        self.meter.end(number, &self.bitmaps);
        self.bitmaps.0.clear();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn rebuilt_chunks_count_as_lost(
        seed in any::<u64>(),
        messages in prop::collection::vec(2u32..60, 1..8),
        loss_chunk in 0.0f64..0.05,
    ) {
        let mut rng = SplitMix::new(seed);
        let mut coded = Coded::new();
        let mut truth = Vec::new();
        let ends = messages.len() as u64;
        for (number, groups) in (0..).zip(messages) {
            let order = Grouped { number, groups };
            let message = message(number, groups * DATA);
            coded.meter.begin(&message, Box::new(Grouped { number, groups }));
            let mut lost = Vec::new();
            let mut ended = None;
            for position in 0..order.len() {
                lost.push(rng.chance(loss_chunk));
                let chunk = order.at(position).filter(|_| !lost[position as usize]);
                coded.arrive(number, chunk.filter(|_| ended.is_none()));
                if ended.is_none() && coded.rebuild(number, groups) {
                    coded.end(number);
                    ended = Some(position);
                }
            }
            if ended.is_none() {
                coded.end(number);
            }
            // The last chunk that was seen passed all chunks before it.
            let last = ended.unwrap_or(order.len() - 1);
            let last = (0..=last).rev().find(|p| !lost[*p as usize]).unwrap_or(0);
            // Only an arrived parity chunk shows that earlier parity was sent.
            let is_parity = |position: u32| position % (DATA + PARITY) >= DATA;
            let seen = |p: &u32| is_parity(*p) && !lost[*p as usize];
            let proven = (0..=last).rev().find(seen).unwrap_or(0);
            let judged = (0..last).filter(|p| !is_parity(*p) || *p <= proven);
            truth.extend(judged.map(|p| Some(lost[p as usize])));
            truth.push(None);
        }
        let (counts, truth) = (coded.meter.loss().counts(), counts(truth.into_iter()));
        // If the last position of a message ended it, the next message passes that position.
        let judged_chunks = truth.judged_chunks..=truth.judged_chunks + ends;
        prop_assert!(judged_chunks.contains(&counts.judged_chunks));
        prop_assert_eq!(counts, LossCounts { judged_chunks: counts.judged_chunks, ..truth });
    }
}

/// The first message of a queue pair may have its parity cleared after its data were sent.
#[test]
fn parity_that_comes_late_is_not_lost() {
    let (number, groups) = (0, 200);
    let order = Grouped { number, groups };
    let mut coded = Coded::new();
    let begun = message(number, groups * DATA);
    coded
        .meter
        .begin(&begun, Box::new(Grouped { number, groups }));
    let (data, parity): (Vec<_>, Vec<_>) = (0..order.len())
        .filter_map(|position| order.at(position))
        .filter(|chunk| *chunk != (MessageId::new(0), 77))
        .partition(|chunk| chunk.0 == number);
    for chunk in data.into_iter().chain(parity) {
        coded.arrive(number, Some(chunk));
    }
    coded.end(number);
    let counts = coded.meter.loss().counts();
    assert_eq!((counts.lost_chunks, counts.bursts), (1, 1), "{counts:?}");
    assert!(
        counts.judged_chunks >= u64::from(groups * DATA - 1),
        "{counts:?}"
    );
}

/// Chunks are up to half a reordering window late. Groups are rebuilt, and messages end, while
/// chunks of them are still in flight.
#[test]
fn chunks_that_are_late_are_not_lost() {
    for loss_chunk in [0.0, 0.02] {
        let (groups, messages) = (200, 5);
        let mut rng = SplitMix::new(3);
        let (mut arrivals, mut lost) = (BTreeSet::new(), 0);
        for number in 0..messages {
            let order = Grouped { number, groups };
            for position in 0..order.len() {
                let place = number * u64::from(order.len()) + u64::from(position);
                if rng.chance(loss_chunk) {
                    lost += 1;
                } else {
                    let at_ns = RTT_NS + place * CHUNK_NS + rng.below(WINDOW_NS / 2);
                    arrivals.insert((at_ns, number, position));
                }
            }
        }
        let mut coded = Coded::new();
        for number in 0..messages {
            let begun = message(number, groups * DATA);
            let order = Grouped { number, groups };
            coded.meter.begin(&begun, Box::new(order));
        }
        let mut ended = BTreeSet::new();
        for (at_ns, number, position) in arrivals {
            let chunk = Grouped { number, groups }.at(position).expect("a chunk");
            coded.now_ns = at_ns - CHUNK_NS;
            if ended.contains(&number) || coded.bitmaps.0.contains(&chunk) {
                coded.arrive(number, None);
                coded.meter.handle_late(coded.now_ns, chunk, true);
                continue;
            }
            coded.arrive(number, Some(chunk));
            if coded.rebuild(number, groups) {
                coded.meter.end(number, &coded.bitmaps);
                coded.bitmaps.0.retain(|(of, _)| of.data() != number);
                ended.insert(number);
            }
        }
        coded.now_ns += RTT_NS;
        coded.arrive(0, None);
        let counts = coded.meter.loss().counts();
        let total = messages * u64::from(groups * (DATA + PARITY));
        assert!(counts.judged_chunks > total * 9 / 10, "{counts:?}");
        let found = counts.lost_chunks;
        assert!(found <= lost, "{counts:?}, {lost} were lost");
        assert!(found >= lost * 8 / 10, "{counts:?}, {lost} were lost");
    }
}

/// A step of a random sequence of arrivals. The counts must stay consistent for any sequence.
#[derive(Clone, Debug)]
enum LossStep {
    Begin(u64, u32),
    Arrive(u64, u32),
    Rebuilt(u64, u32),
    Look(u64),
    End(u64),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = LossStep> {
    let chunk = (0..6u64, prop_oneof![0..8u32, any::<u32>()]);
    prop_oneof![
        (0..6u64, 0..200u32).prop_map(|(m, c)| LossStep::Begin(m, c)),
        chunk.clone().prop_map(|(m, c)| LossStep::Arrive(m, c)),
        chunk.prop_map(|(m, c)| LossStep::Rebuilt(m, c)),
        (0..7u64).prop_map(LossStep::Look),
        (0..6u64).prop_map(LossStep::End),
        prop_oneof![0..MS, 0..100 * MS].prop_map(LossStep::Wait),
    ]
}

proptest! {
    #[test]
    fn any_order_of_events_is_survived(steps in prop::collection::vec(steps(), 1..200)) {
        let mut meter = LossMeter::default();
        let mut bitmaps = Bitmaps::default();
        let mut begun = BTreeMap::new();
        let mut now_ns = 0;
        for step in steps {
            match step {
                LossStep::Begin(number, chunks) => {
                    let message = message(number, chunks);
                    meter.begin(&message, Box::new(InSequence::of(&message)));
                    *begun.entry(number).or_insert(0) += u64::from(chunks);
                }
                LossStep::Arrive(number, chunk) => {
                    bitmaps.0.insert((number.into(), chunk));
                    meter.look(&view(now_ns), REPAIR_NS, number, &bitmaps);
                }
                LossStep::Rebuilt(number, chunk) => meter.handle_rebuilt(number, chunk),
                LossStep::Look(number) => meter.look(&view(now_ns), REPAIR_NS, number, &bitmaps),
                LossStep::End(number) => meter.end(number, &bitmaps),
                LossStep::Wait(ns) => {
                    now_ns += ns;
                    meter.handle_timeout(now_ns, &bitmaps);
                    prop_assert!(meter.next_timeout().is_none_or(|due_ns| due_ns > now_ns));
                }
            }
        }
        let loss = meter.loss();
        prop_assert_eq!(ChunkLoss::from_counts(loss.counts()), loss);
        prop_assert!(loss.judged_chunks() <= begun.values().sum());
    }
}

/// A repair that comes as soon as one can is no late chunk.
#[test]
fn a_chunk_is_late_until_a_repair_can_come() {
    for (after_ns, is_late) in [(WINDOW_NS / 2, true), (5 * MS, true), (REPAIR_NS, false)] {
        let mut coded = Coded::new();
        let begun = message(0, 4_000);
        let order = Box::new(InSequence::of(&begun));
        coded.meter.begin(&begun, order);
        let mut passed_ns = None;
        for chunk in 0..4_000 {
            let late = (MessageId::new(0), 100);
            coded.arrive(0, Some((MessageId::new(0), chunk)).filter(|c| *c != late));
            if chunk == 101 {
                passed_ns = Some(coded.now_ns);
            }
            let is_due = passed_ns.is_some_and(|ns| coded.now_ns >= ns + after_ns);
            if is_due && !coded.bitmaps.0.contains(&late) {
                coded.bitmaps.0.insert(late);
                coded
                    .meter
                    .look(&view(coded.now_ns), REPAIR_NS, 0, &coded.bitmaps);
                let found = coded.meter.take_late();
                let found: Vec<_> = found.iter().map(|l| (l.chunk, l.late_ns)).collect();
                let want = is_late.then_some((late, after_ns.next_multiple_of(CHUNK_NS)));
                assert_eq!(found, Vec::from_iter(want), "{after_ns}");
            }
        }
        coded.end(0);
        let counts = coded.meter.loss().counts();
        // If it was judged before, its loss is taken back.
        let lost = u64::from(!is_late);
        assert_eq!((counts.lost_chunks, counts.bursts), (lost, lost));
        assert!(coded.meter.take_late().is_empty());
    }
}

/// The bit of a rebuilt chunk does not show when it arrives, and neither does a message that has
/// ended.
#[test]
fn chunks_that_come_after_they_were_rebuilt_are_late() {
    let groups = 400;
    let order = Grouped { number: 0, groups };
    let mut coded = Coded::new();
    coded
        .meter
        .begin(&message(0, groups * DATA), Box::new(order));
    let order = Grouped { number: 0, groups };
    let late = order.at(2).expect("a chunk");
    assert!(!late.0.is_parity());
    for position in 0..order.len() {
        let chunk = order.at(position).filter(|chunk| *chunk != late);
        coded.arrive(0, chunk);
        coded.rebuild(0, groups);
        assert!(coded.meter.take_late().is_empty());
        if coded.now_ns > RTT_NS + 5 * MS {
            break;
        }
    }
    assert_eq!(coded.meter.loss().lost_chunks(), 1);
    coded.end(0);
    // A copy of one of its packets does not show that all of them have arrived.
    coded.meter.handle_late(coded.now_ns, late, false);
    assert!(coded.meter.take_late().is_empty());
    assert_eq!(coded.meter.loss().lost_chunks(), 1);
    coded.meter.handle_late(coded.now_ns, late, true);
    let found = coded.meter.take_late();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].chunk, late);
    assert!((4 * MS..6 * MS).contains(&found[0].late_ns), "{found:?}");
    assert_eq!(coded.meter.loss().lost_chunks(), 0);
}
