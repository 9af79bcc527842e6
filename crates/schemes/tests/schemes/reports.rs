//! Tests of the content and the time of receivers' reports.

use farwrite_schemes::registry::SchemeName;
use farwrite_schemes::scheme::{
    Arrivals, CriticalChunks, Message, MessageId, PeerView, Receiver, Report, Timing,
};
use farwrite_wire::control::{Ack, Nack, Outcome};
use proptest::prelude::*;

use crate::harness::{MS, Memory};

const RTT: u64 = 24 * MS;
const PERIOD: u64 = 3 * MS;
const WINDOW: u64 = 2 * MS;

struct Bench {
    receiver: Box<dyn Receiver + Send>,
    memory: Memory,
    now_ns: u64,
    rtt_ns: u64,
}

impl Bench {
    fn new(name: SchemeName, chunks: &[u32]) -> Self {
        let mut bench = Self {
            receiver: name.scheme().receiver(),
            memory: Memory::default(),
            now_ns: 0,
            rtt_ns: RTT,
        };
        for (number, &chunks) in (0..).zip(chunks) {
            let bytes = u64::from(chunks) * 4096;
            let message = Message {
                number,
                bytes,
                chunks,
                chunk_bytes: 4096,
                critical: CriticalChunks::NONE,
            };
            bench.memory.post(&message);
            bench.receiver.start(&bench.view(), &message, false);
        }
        bench
    }

    fn view(&self) -> PeerView {
        PeerView {
            now_ns: self.now_ns,
            rtt_ns: self.rtt_ns,
            reordering_window_ns: self.rtt_ns / 12,
            timing: Timing::wide_area(),
        }
    }

    fn arrive(&mut self, message: u64, chunks: impl IntoIterator<Item = u32>) {
        for chunk in chunks {
            self.memory.arrive(message, chunk);
        }
        let view = self.view();
        self.receiver
            .handle_arrivals(&view, message.into(), &self.memory);
    }

    fn reports(&mut self, max_bytes: usize) -> Vec<Report> {
        let view = self.view();
        let poll = || self.receiver.poll_report(&view, &self.memory, max_bytes);
        std::iter::from_fn(poll).collect()
    }

    /// Advances the time. Returns the reports sent until then, with their times.
    fn until(&mut self, end_ns: u64) -> Vec<(u64, Report)> {
        let mut told = Vec::new();
        loop {
            told.extend(
                self.reports(1024)
                    .into_iter()
                    .map(|report| (self.now_ns, report)),
            );
            match self.receiver.next_timeout() {
                Some(at_ns) if at_ns <= end_ns => self.now_ns = self.now_ns.max(at_ns),
                _ => break,
            }
            let view = self.view();
            self.receiver.handle_timeout(&view, &self.memory);
        }
        self.now_ns = end_ns;
        told
    }

    fn nacks_until(&mut self, end_ns: u64) -> Vec<(u64, u64, Vec<std::ops::Range<u32>>)> {
        let told = self.until(end_ns).into_iter();
        told.filter_map(|(at_ns, report)| match report {
            Report::Nack(Nack { message, lost }) => Some((at_ns, message, lost)),
            Report::Ack(_) => None,
        })
        .collect()
    }
}

#[test]
fn acks_wait_for_the_period_and_the_last_does_not() {
    for name in SchemeName::EXACT {
        let mut bench = Bench::new(name, &[3]);
        assert_eq!(bench.until(0), [], "{name}: nothing has arrived");
        bench.arrive(0, [0]);
        bench.now_ns = MS;
        bench.arrive(0, [1]);
        let told = bench.until(5 * MS);
        let cumulative = |report: &Report| match report {
            Report::Ack(ack) => ack.cumulative,
            Report::Nack(_) => panic!("nothing is lost"),
        };
        assert_eq!(told.len(), 1, "{name}");
        assert_eq!((told[0].0, cumulative(&told[0].1)), (PERIOD, 2), "{name}");
        // A duplicate arrives, which shows that the sender lacks information.
        bench.now_ns = 5 * MS;
        bench.arrive(0, []);
        let told = bench.until(9 * MS);
        assert_eq!((told.len(), told[0].0), (1, 5 * MS + PERIOD), "{name}");
        assert_eq!(bench.receiver.poll_outcome(), None);
        bench.arrive(0, [2]);
        assert_eq!(bench.receiver.poll_outcome(), None, "{name}: not told yet");
        let told = bench.until(9 * MS);
        assert_eq!((told.len(), cumulative(&told[0].1)), (1, 3), "{name}");
        assert_eq!(bench.receiver.poll_outcome(), Some((0, Outcome::Whole)));
        assert_eq!(bench.receiver.next_timeout(), None, "{name}");
    }
}

#[test]
fn a_message_that_came_before_its_offer_is_acknowledged_at_once() {
    for name in SchemeName::EXACT {
        let mut bench = Bench::new(name, &[]);
        let message = Message {
            number: 5,
            bytes: 0,
            chunks: 1,
            chunk_bytes: 4096,
            critical: CriticalChunks::NONE,
        };
        bench.memory.post(&message);
        bench.memory.arrive(5, 0);
        bench.receiver.start(&bench.view(), &message, false);
        assert_eq!(bench.reports(64).len(), 1, "{name}");
        assert_eq!(bench.receiver.poll_outcome(), Some((5, Outcome::Whole)));
    }
}

#[test]
fn successive_acks_go_around_in_the_window() {
    // 64 bytes describe 512 chunks, so the 16 ACKs of a round describe 8,192. The window takes 13
    // rounds.
    let chunks = 100_000;
    let mut bench = Bench::new(SchemeName::SrRto, &[chunks]);
    bench.arrive(0, (0..chunks).filter(|chunk| chunk % 3 != 1));
    let mut described = vec![false; chunks as usize];
    for _ in 0..13 {
        bench.now_ns += PERIOD;
        let view = bench.view();
        bench.receiver.handle_timeout(&view, &bench.memory);
        let reports = bench.reports(64);
        assert!(reports.len() <= 16);
        for report in reports {
            let Report::Ack(Ack {
                window_start, bits, ..
            }) = report
            else {
                panic!("{report:?}");
            };
            assert!(bits.len() <= 64);
            for (i, byte) in (0..).zip(bits) {
                for bit in 0..8 {
                    let chunk = window_start + 8 * i + bit;
                    if byte >> bit & 1 == 1 {
                        assert!(bench.memory.has(0, chunk));
                        described[chunk as usize] = true;
                    }
                }
            }
        }
    }
    assert_eq!(bench.receiver.next_timeout(), None, "all is told");
    let told = described.iter().filter(|told| **told).count();
    assert_eq!(told, bench.memory.count(0.into()) as usize);
}

#[test]
fn a_hole_is_told_once_a_window_old_and_again_when_its_repair_should_have_come() {
    let mut bench = Bench::new(SchemeName::SrNack, &[100]);
    bench.arrive(0, [0, 1, 3, 4, 7]);
    bench.now_ns = MS;
    bench.arrive(0, [6, 8]);
    let again_ns = WINDOW + RTT + WINDOW + PERIOD;
    assert_eq!(bench.nacks_until(WINDOW - 1), []);
    assert_eq!(bench.nacks_until(WINDOW), [(WINDOW, 0, vec![2..3, 5..6])]);
    // Chunk 7 had already arrived when chunk 8 was seen.
    bench.arrive(0, [5]);
    let tail_ns = WINDOW + WINDOW + RTT / 4;
    let told = bench.nacks_until(again_ns);
    assert!(told.contains(&(again_ns, 0, vec![2..3])), "{told:?}");
    assert!(told.iter().all(|(at_ns, ..)| *at_ns >= tail_ns), "{told:?}");
}

#[test]
fn a_chunk_that_is_merely_late_is_not_told() {
    for name in [SchemeName::SrNack, SchemeName::Gbn] {
        let mut bench = Bench::new(name, &[100]);
        bench.arrive(0, [0, 2]);
        bench.now_ns = WINDOW - 1;
        bench.arrive(0, [1]);
        assert_eq!(bench.nacks_until(2 * WINDOW), [], "{name}");
    }
}

#[test]
fn the_highest_chunk_may_have_packets_under_way() {
    /// A memory in which chunk 3 has begun to arrive but is not whole.
    struct Begun(Memory);
    impl Arrivals for Begun {
        fn word(&self, message: MessageId, word: u32) -> u64 {
            self.0.word(message, word)
        }
        fn count(&self, message: MessageId) -> u32 {
            self.0.count(message)
        }
        fn seen(&self, _message: MessageId) -> u32 {
            4
        }
    }
    for name in [SchemeName::SrNack, SchemeName::Gbn] {
        let mut bench = Bench::new(name, &[10]);
        bench.arrive(0, [0, 1, 2]);
        let begun = Begun(std::mem::take(&mut bench.memory));
        let mut view = bench.view();
        bench.receiver.handle_arrivals(&view, 0.into(), &begun);
        view.now_ns = WINDOW + PERIOD;
        bench.receiver.handle_timeout(&view, &begun);
        while let Some(report) = bench.receiver.poll_report(&view, &begun, 64) {
            assert!(matches!(report, Report::Ack(_)), "{name}: {report:?}");
        }
    }
}

#[test]
fn going_back_is_asked_for_once_a_hole() {
    let mut bench = Bench::new(SchemeName::Gbn, &[100, 10]);
    bench.arrive(0, [0, 1, 3, 4, 7]);
    assert_eq!(bench.nacks_until(400 * MS), [(WINDOW, 0, vec![2..3])]);
    bench.arrive(0, [2]);
    assert_eq!(
        bench.nacks_until(500 * MS),
        [(400 * MS + WINDOW, 0, vec![5..7])]
    );
    // A later message has begun, so the rest of the older one has been passed.
    bench.arrive(0, [5, 6]);
    bench.arrive(1, [0, 1]);
    assert_eq!(
        bench.nacks_until(600 * MS),
        [(500 * MS + WINDOW, 0, vec![8..100])]
    );
    // When the older message is whole, the receiver reports the progress of the later one, up to
    // its first gap.
    bench.arrive(0, 8..100);
    let told = bench.until(600 * MS);
    let cumulative = told.iter().map(|(_, report)| match report {
        Report::Ack(ack) => (ack.message, ack.cumulative),
        Report::Nack(_) => panic!("nothing is lost"),
    });
    assert_eq!(cumulative.collect::<Vec<_>>(), [(0, 100), (1, 2)]);
}

proptest! {
    #[test]
    fn whatever_arrives_when_reports_fit_and_timers_settle(
        name in prop::sample::select(&SchemeName::EXACT[..]),
        arrivals in prop::collection::vec((0u64..3, 0u32..400, 0..10 * MS), 1..300),
        max_bytes in 64usize..200,
    ) {
        let mut bench = Bench::new(name, &[400, 400, 400]);
        for (message, chunk, pause_ns) in arrivals {
            bench.arrive(message, [chunk]);
            bench.now_ns += pause_ns;
            let view = bench.view();
            if bench.receiver.next_timeout().is_some_and(|at_ns| at_ns <= bench.now_ns) {
                bench.receiver.handle_timeout(&view, &bench.memory);
            }
            for report in bench.reports(max_bytes) {
                match report {
                    Report::Ack(ack) => prop_assert!(ack.bits.len() <= max_bytes),
                    Report::Nack(nack) => prop_assert!(nack.lost.len() * 8 <= max_bytes),
                }
            }
            let next_ns = bench.receiver.next_timeout();
            prop_assert!(next_ns.is_none_or(|at_ns| at_ns > bench.now_ns));
        }
    }
}

#[test]
fn a_round_trip_that_turns_out_shorter_brings_everything_forward() {
    let mut bench = Bench::new(SchemeName::SrNack, &[10]);
    bench.rtt_ns = 40 * RTT;
    // Under the first estimate, one gap is reported. The other gap is too recent.
    bench.arrive(0, [1]);
    bench.now_ns = 20 * WINDOW;
    bench.arrive(0, [3]);
    let told = bench.nacks_until(40 * WINDOW);
    assert_eq!(told, [(40 * WINDOW, 0, vec![0..1])]);
    bench.arrive(0, [5]);
    bench.rtt_ns = RTT;
    bench.arrive(0, [7]);
    let told = bench.nacks_until(41 * WINDOW);
    let told: Vec<_> = told.into_iter().flat_map(|told| told.2).collect();
    assert_eq!(told, [2..3, 4..5, 6..7]);
    // All four are reported again when the repairs for the current reports should have arrived.
    let told = bench.nacks_until(41 * WINDOW + RTT + WINDOW + PERIOD);
    let again: Vec<u32> = told.into_iter().flat_map(|t| t.2).flatten().collect();
    for chunk in [0, 2, 4, 6] {
        assert!(again.contains(&chunk), "{again:?}");
    }
}
