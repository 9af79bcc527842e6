//! Schemes whose messages end at a deadline.

use std::collections::BTreeSet;

use farwrite_schemes::registry::SchemeName;
use farwrite_schemes::scheme::{
    Arrivals, Chunks, CriticalChunks, Message, MessageId, Nack, Outcome, PeerView, Report, Sender,
    Timing,
};
use proptest::prelude::*;

use crate::harness::MS;

const RTT: u64 = 20 * MS;
const WINDOW: u64 = 2 * MS;

fn view(now_ns: u64) -> PeerView {
    PeerView {
        now_ns,
        rtt_ns: RTT,
        reordering_window_ns: WINDOW,
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

fn repairing() -> impl Iterator<Item = SchemeName> {
    let names = SchemeName::BOUNDED.into_iter();
    names.filter(|name| {
        let repairs_nothing = [SchemeName::BestEffort, SchemeName::BestEffortFirst];
        !repairs_nothing.contains(name) && *name != SchemeName::BestEffortExact
    })
}

/// Sends and departs all chunks that the sender hands out. Returns their number.
fn send_all(sender: &mut dyn Sender, now_ns: u64) -> u32 {
    let mut sent = 0;
    while let Some(chunks) = sender.poll_transmit(&view(now_ns), 1000) {
        sent += chunks.range.end - chunks.range.start;
        sender.handle_departed(&view(now_ns), &chunks);
    }
    sent
}

fn asks_for(message: u64, chunk: u32) -> Report {
    Report::Nack(Nack {
        message,
        lost: vec![chunk..chunk + 1],
    })
}

#[test]
fn a_repeat_that_waited_too_long_is_not_sent() {
    for name in repairing() {
        // A repeat must leave at least half a round trip before the deadline.
        for (leaves_ns, repeats) in [(90 * MS, 1), (90 * MS + 1, 0)] {
            let mut sender = name.scheme().sender();
            sender.handle_deadline(0, 100 * MS);
            sender.start(&view(0), &message(0, 10));
            assert_eq!(send_all(&mut *sender, 0), 10, "{name}");
            sender.handle_report(&view(40 * MS), &asks_for(0, 3));
            assert_eq!(send_all(&mut *sender, leaves_ns), repeats, "{name}");
            // A timeout does not cause a repeat either, although the message is open.
            sender.handle_timeout(&view(99 * MS));
            sender.handle_report(&view(99 * MS), &asks_for(0, 4));
            assert_eq!(send_all(&mut *sender, 99 * MS), 0, "{name}");
            assert_eq!(sender.next_timeout(), None, "{name}");
            assert_eq!(sender.poll_outcome(), None, "{name}");
        }
    }
}

#[test]
fn chunks_that_were_never_sent_go_until_the_end() {
    for name in repairing() {
        let mut sender = name.scheme().sender();
        sender.handle_deadline(0, 100 * MS);
        sender.start(&view(95 * MS), &message(0, 10));
        assert_eq!(send_all(&mut *sender, 95 * MS), 10, "{name}");
    }
}

#[test]
fn a_message_that_waits_for_another_can_be_closed_and_given_up() {
    for name in repairing() {
        let mut sender = name.scheme().sender();
        for number in 0..4 {
            sender.start(&view(0), &message(number, 10));
        }
        sender.handle_closed(&view(0), 1, Outcome::Failed);
        assert_eq!(sender.poll_outcome(), Some((1, Outcome::Failed)));
        sender.abandon(2);
        assert_eq!(send_all(&mut *sender, 0), 10, "{name}: the first");
        sender.abandon(0);
        let next = sender
            .poll_transmit(&view(0), 1000)
            .map(|c| c.message.data());
        assert_eq!(next, Some(3), "{name}");
        assert_eq!(sender.poll_outcome(), None, "{name}");
    }
}

/// The chunks that have arrived.
#[derive(Default)]
struct Memory(BTreeSet<(MessageId, u32)>);

impl Arrivals for Memory {
    fn word(&self, message: MessageId, word: u32) -> u64 {
        let bits = (0..64).filter(|bit| self.0.contains(&(message, word * 64 + bit)));
        bits.fold(0, |all, bit| all | 1 << bit)
    }

    fn count(&self, message: MessageId) -> u32 {
        let of = self.0.range((message, 0)..=(message, u32::MAX));
        u32::try_from(of.count()).unwrap()
    }

    fn seen(&self, message: MessageId) -> u32 {
        let last = self.0.range((message, 0)..=(message, u32::MAX)).next_back();
        last.map_or(0, |(_, chunk)| chunk + 1)
    }
}

#[test]
fn the_last_chunks_before_a_deadline_are_looked_at() {
    let name: SchemeName = "best-effort+ec-mds:2,1".parse().unwrap();
    for by_deadline in [true, false] {
        let mut receiver = name.scheme().receiver();
        let mut memory = Memory::default();
        if by_deadline {
            receiver.handle_deadline(0, 2 * MS);
        }
        receiver.start(&view(0), &message(0, 64), false);
        // These arrivals are too few to trigger a job, but enough to rebuild the first chunk.
        let data = MessageId::new(0);
        memory.0.extend([(data, 1), (data.parity(), 0)]);
        receiver.handle_arrivals(&view(MS), data, &memory);
        receiver.handle_arrivals(&view(MS), data.parity(), &memory);
        assert_eq!(receiver.poll_job(&memory), None);
        let ends_ns = match by_deadline {
            true => 2 * MS,
            false => {
                receiver.handle_sender_done(&view(MS), 0);
                MS + WINDOW
            }
        };
        assert_eq!(receiver.next_timeout(), Some(ends_ns));
        receiver.handle_timeout(&view(ends_ns), &memory);
        let group = receiver.poll_job(&memory).map(|job| job.group);
        assert_eq!(group, Some(0), "{by_deadline}");
        let over = (!by_deadline).then_some((0, Outcome::Partial));
        assert_eq!(receiver.poll_outcome(), over);
    }
}

/// A crowded control queue takes no reports.
#[test]
fn a_message_that_has_arrived_ends_as_whole_although_no_report_leaves() {
    for name in repairing() {
        for by_deadline in [true, false] {
            let mut receiver = name.scheme().receiver();
            let mut memory = Memory::default();
            if by_deadline {
                receiver.handle_deadline(0, 9 * MS);
            }
            receiver.start(&view(0), &message(0, 10), false);
            memory.0.extend((0..10).map(|chunk| (0.into(), chunk)));
            receiver.handle_arrivals(&view(MS), 0.into(), &memory);
            let ends_ns = match by_deadline {
                true => 9 * MS,
                false => {
                    receiver.handle_sender_done(&view(MS), 0);
                    MS + WINDOW
                }
            };
            receiver.handle_timeout(&view(ends_ns), &memory);
            let over = receiver.poll_outcome();
            assert_eq!(over, Some((0, Outcome::Whole)), "{name}, {by_deadline}");
            assert_eq!(receiver.poll_report(&view(ends_ns), &memory, 100), None);
            assert_eq!(receiver.poll_outcome(), None, "{name}, {by_deadline}");
        }
    }
}

/// The same, when the last group is rebuilt at the end.
#[test]
fn a_message_that_was_rebuilt_at_its_end_ends_as_whole_although_no_report_leaves() {
    let name: SchemeName = "best-effort+ec-mds:2,1".parse().unwrap();
    for by_deadline in [true, false] {
        let mut receiver = name.scheme().receiver();
        let mut memory = Memory::default();
        if by_deadline {
            receiver.handle_deadline(0, 9 * MS);
        }
        receiver.start(&view(0), &message(0, 2), false);
        let data = MessageId::new(0);
        memory.0.extend([(data, 1), (data.parity(), 0)]);
        if !by_deadline {
            receiver.handle_sender_done(&view(7 * MS), 0);
        }
        receiver.handle_timeout(&view(9 * MS), &memory);
        let job = receiver.poll_job(&memory).expect("enough for the group");
        memory.0.insert((data, 0));
        receiver.handle_job(&view(9 * MS), &job, &memory);
        let over = receiver.poll_outcome();
        assert_eq!(over, Some((0, Outcome::Whole)), "{by_deadline}");
    }
}

#[derive(Clone, Debug)]
enum Event {
    Start(u64),
    Arrive(u64, u32),
    Done(u64),
    Abandon(u64),
    Pass(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => (0u64..5).prop_map(Event::Start),
        8 => (0u64..5, 0u32..6).prop_map(|(number, chunk)| Event::Arrive(number, chunk)),
        1 => (0u64..5).prop_map(Event::Done),
        1 => (0u64..5).prop_map(Event::Abandon),
        4 => (0..4 * MS).prop_map(Event::Pass),
    ]
}

/// A separate implementation of the rules of P5.9: which message should end at its receiver, and
/// when.
#[derive(Default)]
struct Rules {
    open: BTreeSet<u64>,
    begun: BTreeSet<u64>,
    newest: u64,
    /// For each message, the first time at which nothing more of it was expected.
    no_more_ns: [Option<u64>; 5],
}

impl Rules {
    fn expect_no_more(&mut self, number: u64, now_ns: u64) {
        if self.open.contains(&number) {
            let slot = usize::try_from(number).unwrap();
            self.no_more_ns[slot].get_or_insert(now_ns);
        }
    }

    /// Message `number` has begun. Nothing more is expected of older messages.
    fn pass(&mut self, number: u64, now_ns: u64) {
        self.newest = self.newest.max(number);
        for older in 0..self.newest {
            self.expect_no_more(older, now_ns);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]
    #[test]
    fn messages_end_when_nothing_more_is_expected(events in prop::collection::vec(event(), 1..80)) {
        const CHUNKS: u32 = 6;
        let mut receiver = SchemeName::BestEffort.scheme().receiver();
        let mut memory = Memory::default();
        let mut rules = Rules::default();
        let mut now_ns = 0;
        for event in events {
            match event {
                Event::Start(number) if rules.begun.insert(number) => {
                    receiver.start(&view(now_ns), &message(number, CHUNKS), false);
                    rules.open.insert(number);
                    rules.pass(rules.newest, now_ns);
                }
                Event::Arrive(number, chunk) if rules.open.contains(&number) => {
                    memory.0.insert((number.into(), chunk));
                    receiver.handle_arrivals(&view(now_ns), number.into(), &memory);
                    rules.pass(number, now_ns);
                    if memory.0.contains(&(number.into(), CHUNKS - 1)) {
                        rules.expect_no_more(number, now_ns);
                    }
                }
                Event::Done(number) => {
                    receiver.handle_sender_done(&view(now_ns), number);
                    rules.expect_no_more(number, now_ns);
                }
                Event::Abandon(number) => {
                    receiver.abandon(number);
                    rules.open.remove(&number);
                }
                Event::Pass(time_ns) => now_ns += time_ns,
                Event::Start(_) | Event::Arrive(..) => {}
            }
            if receiver.next_timeout().is_some_and(|at_ns| at_ns <= now_ns) {
                receiver.handle_timeout(&view(now_ns), &memory);
                prop_assert!(receiver.next_timeout().is_none_or(|at_ns| at_ns > now_ns));
            }
            prop_assert_eq!(receiver.poll_report(&view(now_ns), &memory, 100), None);
            while let Some((number, outcome)) = receiver.poll_outcome() {
                prop_assert!(rules.open.remove(&number), "{} ended twice", number);
                let is_whole = memory.count(number.into()) == CHUNKS;
                prop_assert_eq!(outcome == Outcome::Whole, is_whole);
                let no_more_ns = rules.no_more_ns[usize::try_from(number).unwrap()];
                let due = no_more_ns.is_some_and(|at_ns| at_ns + WINDOW <= now_ns);
                prop_assert!(is_whole || due, "{} ended too early", number);
            }
            for &number in &rules.open {
                let no_more_ns = rules.no_more_ns[usize::try_from(number).unwrap()];
                let due = no_more_ns.is_some_and(|at_ns| at_ns + WINDOW <= now_ns);
                prop_assert!(!due && memory.count(number.into()) < CHUNKS, "{} is open", number);
            }
        }
    }

    #[test]
    fn a_sender_alone_sends_each_chunk_once_and_is_done_when_the_last_has_left(
        chunks in prop::collection::vec(1u32..50, 1..6),
        max_chunks in 1u32..20,
    ) {
        let mut sender = SchemeName::BestEffort.scheme().sender();
        for (number, chunks) in (0..).zip(&chunks) {
            sender.start(&view(0), &message(number, *chunks));
        }
        let mut expected: Vec<(u64, u32)> = Vec::new();
        for (number, &chunks) in (0..).zip(&chunks) {
            expected.extend((0..chunks).map(|chunk| (number, chunk)));
        }
        let mut sent: Vec<Chunks> = Vec::new();
        while let Some(chunks) = sender.poll_transmit(&view(0), max_chunks) {
            prop_assert_eq!(sender.poll_outcome(), None);
            sent.push(chunks);
        }
        let each = sent.iter().flat_map(|c| c.range.clone().map(|chunk| (c.message.data(), chunk)));
        prop_assert_eq!(each.collect::<Vec<_>>(), expected);
        for run in sent {
            sender.handle_departed(&view(MS), &run);
            let is_last = run.range.end == chunks[usize::try_from(run.message.data()).unwrap()];
            let over = is_last.then_some((run.message.data(), Outcome::Partial));
            prop_assert_eq!(sender.poll_outcome(), over);
        }
        prop_assert_eq!(sender.next_timeout(), None);
    }
}
