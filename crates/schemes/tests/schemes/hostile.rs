//! Tests with reports of arbitrary content.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use farwrite_schemes::registry::SchemeName;
use farwrite_schemes::scheme::{Chunks, CriticalChunks, Message, PeerView, Report, Sender, Timing};
use farwrite_wire::control::{Ack, Nack, Outcome};
use proptest::prelude::*;

use crate::harness::MS;

#[derive(Clone, Debug)]
enum Event {
    Start(u64, u32),
    Report(Report),
    Transmit(u32),
    Depart,
    Abandon(u64),
    Pass(u64),
}

/// Returns small numbers, and the largest one.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![8 => 0u32..200, 1 => any::<u32>(), 1 => Just(u32::MAX)]
}

fn message() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0u64..4, 1 => any::<u64>()]
}

fn report() -> impl Strategy<Value = Report> {
    let bits = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        Just(vec![0xFF; 40])
    ];
    let ack = (message(), number(), number(), number(), bits);
    let ack = ack.prop_map(|(message, cumulative, seen, window_start, bits)| Ack {
        message,
        cumulative,
        seen,
        window_start,
        bits,
    });
    let range = (number(), number()).prop_map(|(a, b)| a..b);
    let nack = (message(), prop::collection::vec(range, 0..10));
    let nack = nack.prop_map(|(message, lost)| Nack { message, lost });
    prop_oneof![ack.prop_map(Report::Ack), nack.prop_map(Report::Nack)]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        1 => (0u64..4, 1u32..150).prop_map(|(number, chunks)| Event::Start(number, chunks)),
        4 => report().prop_map(Event::Report),
        4 => (1u32..60).prop_map(Event::Transmit),
        3 => Just(Event::Depart),
        1 => message().prop_map(Event::Abandon),
        2 => (0..200 * MS).prop_map(Event::Pass),
    ]
}

/// The claims of the reports about chunks that had been handed out.
#[derive(Default)]
struct Claims {
    chunks: BTreeMap<u64, u32>,
    handed_out: BTreeMap<u64, u32>,
    claimed: BTreeMap<u64, BTreeSet<u32>>,
}

impl Claims {
    fn note(&mut self, ack: &Ack) {
        let handed_out = *self.handed_out.get(&ack.message).unwrap_or(&0);
        let claimed = self.claimed.entry(ack.message).or_default();
        claimed.extend(0..ack.cumulative.min(handed_out));
        for (i, byte) in (0..).zip(&ack.bits) {
            for bit in (0..8).filter(|bit| byte >> bit & 1 == 1) {
                let chunk = u64::from(ack.window_start) + 8 * i + bit;
                if chunk < u64::from(handed_out) {
                    claimed.insert(u32::try_from(chunk).unwrap());
                }
            }
        }
    }

    fn cover(&self, message: u64) -> bool {
        let claimed = self.claimed.get(&message).map_or(0, BTreeSet::len);
        claimed == self.chunks[&message] as usize
    }
}

struct Bench {
    sender: Box<dyn Sender + Send>,
    view: PeerView,
    claims: Claims,
    in_hand: Vec<Chunks>,
    over: BTreeSet<u64>,
}

impl Bench {
    fn apply(&mut self, event: Event) {
        match event {
            Event::Start(number, chunks) => {
                if self.over.contains(&number) || self.claims.chunks.contains_key(&number) {
                    return;
                }
                self.claims.chunks.insert(number, chunks);
                let bytes = u64::from(chunks) * 4096;
                self.sender.start(
                    &self.view,
                    &Message {
                        number,
                        bytes,
                        chunks,
                        chunk_bytes: 4096,
                        critical: CriticalChunks::NONE,
                    },
                );
            }
            Event::Report(report) => {
                if let Report::Ack(ack) = &report {
                    self.claims.note(ack);
                }
                self.sender.handle_report(&self.view, &report);
            }
            Event::Transmit(max_chunks) => {
                if let Some(chunks) = self.sender.poll_transmit(&self.view, max_chunks) {
                    self.check(&chunks, max_chunks);
                    self.in_hand.push(chunks);
                }
            }
            Event::Depart => {
                for chunks in self.in_hand.drain(..) {
                    self.sender.handle_departed(&self.view, &chunks);
                }
            }
            Event::Abandon(message) => {
                self.sender.abandon(message);
                self.over.insert(message);
            }
            Event::Pass(time_ns) => {
                self.view.now_ns += time_ns;
                if self
                    .sender
                    .next_timeout()
                    .is_some_and(|at_ns| at_ns <= self.view.now_ns)
                {
                    self.sender.handle_timeout(&self.view);
                }
            }
        }
        while let Some((message, outcome)) = self.sender.poll_outcome() {
            assert_eq!(outcome, Outcome::Whole);
            assert!(
                self.claims.cover(message),
                "{message} was not claimed whole"
            );
            assert!(self.over.insert(message), "{message} ended twice");
        }
    }

    fn check(&mut self, chunks: &Chunks, max_chunks: u32) {
        let Range { start, end } = chunks.range;
        assert!(start < end && end - start <= max_chunks);
        assert!(end <= self.claims.chunks[&chunks.message.data()]);
        assert!(!self.over.contains(&chunks.message.data()));
        let handed_out = self
            .claims
            .handed_out
            .entry(chunks.message.data())
            .or_default();
        *handed_out = end.max(*handed_out);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn no_report_panics_or_completes_what_it_does_not_claim(
        name in prop::sample::select(&SchemeName::EXACT[..]),
        events in prop::collection::vec(event(), 1..150),
    ) {
        let view = PeerView {
            now_ns: 0,
            rtt_ns: 20 * MS,
            reordering_window_ns: MS,
            timing: Timing::wide_area(),
        };
        let mut bench = Bench {
            sender: name.scheme().sender(),
            view,
            claims: Claims::default(),
            in_hand: Vec::new(),
            over: BTreeSet::new(),
        };
        for event in events {
            bench.apply(event);
        }
    }
}
