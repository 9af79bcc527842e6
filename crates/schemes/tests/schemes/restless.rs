//! Receivers whose chunks arrive during processing: workers set bits between any two readings.

use std::cell::{Cell, RefCell};

use farwrite_schemes::registry::SchemeName;
use farwrite_schemes::scheme::{
    Arrivals, CriticalChunks, Message, MessageId, PeerView, Report, Timing,
};
use farwrite_wire::control::{Builder, Control, Outcome};
use proptest::prelude::*;

use crate::harness::MS;

const NUMBER: u64 = 3;

/// A bitmap in which chunks arrive after every reading.
struct Restless {
    chunks: u32,
    arrived: RefCell<Vec<bool>>,
    /// Chunks that have not arrived, in the order of their arrival.
    order: RefCell<Vec<u32>>,
    /// Chunks that arrive after each reading.
    each: Cell<usize>,
}

impl Restless {
    fn new(order: Vec<u32>) -> Self {
        Self {
            chunks: u32::try_from(order.len()).unwrap(),
            arrived: RefCell::new(vec![false; order.len()]),
            order: RefCell::new(order),
            each: Cell::new(0),
        }
    }

    fn arrive(&self, count: usize) {
        for _ in 0..count {
            if let Some(chunk) = self.order.borrow_mut().pop() {
                self.arrived.borrow_mut()[chunk as usize] = true;
            }
        }
    }

    fn read<T>(&self, message: MessageId, none: T, read: impl FnOnce(&[bool]) -> T) -> T {
        if message != NUMBER {
            return none;
        }
        let value = read(&self.arrived.borrow());
        self.arrive(self.each.get());
        value
    }
}

impl Arrivals for Restless {
    fn word(&self, message: MessageId, word: u32) -> u64 {
        self.read(message, 0, |arrived| {
            let bits = arrived.iter().skip(word as usize * 64).take(64);
            bits.enumerate().fold(0, |w, (i, &b)| w | u64::from(b) << i)
        })
    }

    fn count(&self, message: MessageId) -> u32 {
        self.read(message, 0, |arrived| {
            u32::try_from(arrived.iter().filter(|there| **there).count()).unwrap()
        })
    }

    fn seen(&self, message: MessageId) -> u32 {
        self.read(message, 0, |arrived| {
            let highest = arrived.iter().rposition(|there| *there);
            highest.map_or(0, |highest| u32::try_from(highest).unwrap() + 1)
        })
    }
}

fn view(now_ns: u64) -> PeerView {
    PeerView {
        now_ns,
        rtt_ns: 24 * MS,
        reordering_window_ns: 2 * MS,
        timing: Timing::wide_area(),
    }
}

/// Receives a message whose chunks arrive in `order`: `burst` at a time, and `each` after every
/// reading. Checks that the peer would accept every report.
fn receive(name: SchemeName, order: Vec<u32>, burst: usize, each: usize) {
    let arrivals = Restless::new(order);
    let message = Message {
        number: NUMBER,
        bytes: u64::from(arrivals.chunks) * 4096,
        chunks: arrivals.chunks,
        chunk_bytes: 4096,
        critical: CriticalChunks::NONE,
    };
    let mut receiver = name.scheme().receiver();
    receiver.start(&view(0), &message, false);
    let mut now_ns = MS;
    for _ in 0..10_000 {
        arrivals.each.set(0);
        arrivals.arrive(burst);
        arrivals.each.set(each);
        receiver.handle_arrivals(&view(now_ns), NUMBER.into(), &arrivals);
        while let Some(report) = receiver.poll_report(&view(now_ns), &arrivals, 256) {
            let report = match report {
                Report::Ack(ack) => Control::Ack(ack),
                Report::Nack(nack) => {
                    assert!(!nack.lost.is_empty(), "{name}: a NACK of nothing");
                    assert!(nack.lost.iter().all(|lost| lost.end <= message.chunks));
                    Control::Nack(nack)
                }
            };
            // `push` checks the report.
            assert!(Builder::new(4096).push(&report), "{name}: {report:?}");
        }
        if let Some(over) = receiver.poll_outcome() {
            assert_eq!(over, (NUMBER, Outcome::Whole));
            return;
        }
        now_ns = match receiver.next_timeout() {
            Some(at_ns) => at_ns.max(now_ns + MS / 10),
            None => now_ns + MS,
        };
        receiver.handle_timeout(&view(now_ns), &arrivals);
    }
    panic!("{name}: all chunks have arrived, and the message is still open");
}

fn shuffled() -> impl Strategy<Value = Vec<u32>> {
    (1_u32..400).prop_flat_map(|chunks| Just((0..chunks).collect::<Vec<_>>()).prop_shuffle())
}

proptest! {
    #[test]
    fn reports_are_sound_while_chunks_arrive(
        order in shuffled(),
        burst in 0_usize..8,
        each in 1_usize..4,
    ) {
        for name in ["sr-rto", "sr-nack", "gbn", "ec-xor:8,2", "ec-mds:8,4"] {
            receive(name.parse().unwrap(), order.clone(), burst, each);
        }
    }
}
