//! Tests every state of a chunk at the sender with every event.

use farwrite_schemes::registry::SchemeName;
use farwrite_schemes::scheme::{
    Chunks, CriticalChunks, Message, MessageId, PeerView, Report, Sender, Timing,
};
use farwrite_schemes::timing::Alpha;
use farwrite_wire::control::{Ack, Nack, Outcome};

use crate::harness::MS;

/// Schemes that retransmit a chunk that is not acknowledged.
const TIMED: [SchemeName; 3] = [SchemeName::SrRto, SchemeName::SrNack, SchemeName::Gbn];

const RTT: u64 = 24 * MS;
const RTO: u64 = 3 * RTT;

fn at(now_ns: u64) -> PeerView {
    PeerView {
        now_ns,
        rtt_ns: RTT,
        reordering_window_ns: MS,
        timing: Timing::wide_area(),
    }
}

fn ack(cumulative: u32) -> Report {
    Report::Ack(Ack {
        message: 0,
        cumulative,
        seen: cumulative,
        window_start: 0,
        bits: Vec::new(),
    })
}

fn nack() -> Report {
    Report::Nack(Nack {
        message: 0,
        lost: vec![0..1],
    })
}

fn chunk(chunk: u32) -> Chunks {
    Chunks {
        message: MessageId::new(0),
        range: chunk..chunk + 1,
    }
}

/// States of chunk 0 of a message of two chunks, in the order of its life.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
enum ChunkState {
    New,
    HandedOut,
    Departed,
    /// Departed a round trip ago.
    Aged,
    /// A NACK or a timeout has queued it for retransmission, and it is not handed out again yet.
    Queued,
    Acked,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Ack,
    Nack,
    Timeout,
}

/// Returns a sender with chunk 0 in this state, and the time.
fn sender_in(name: SchemeName, state: ChunkState) -> (Box<dyn Sender + Send>, u64) {
    let mut sender = name.with_alpha(Alpha::DEFAULT).sender();
    let message = Message {
        number: 0,
        bytes: 8192,
        chunks: 2,
        chunk_bytes: 4096,
        critical: CriticalChunks::NONE,
    };
    sender.start(&at(0), &message);
    let mut now_ns = 0;
    if state >= ChunkState::HandedOut {
        assert_eq!(sender.poll_transmit(&at(0), 1), Some(chunk(0)));
    }
    if state >= ChunkState::Departed {
        sender.handle_departed(&at(0), &chunk(0));
    }
    if state >= ChunkState::Aged {
        now_ns = RTT;
    }
    if state == ChunkState::Queued {
        now_ns = RTO;
        sender.handle_timeout(&at(now_ns));
    }
    if state == ChunkState::Acked {
        sender.handle_report(&at(now_ns), &ack(1));
    }
    (sender, now_ns)
}

#[test]
fn a_chunk_is_sent_again_exactly_when_it_should() {
    use ChunkState::{Acked, Aged, Departed, HandedOut, New, Queued};
    use Event::{Ack, Nack, Timeout};
    // The last column is whether the sender hands out chunk 0 next.
    let table = [
        (New, Ack, true),
        (New, Nack, true),
        (New, Timeout, true),
        (HandedOut, Ack, false),
        (HandedOut, Nack, false),
        (HandedOut, Timeout, false),
        (Departed, Ack, false),
        (Departed, Nack, false),
        (Departed, Timeout, true),
        (Aged, Ack, false),
        (Aged, Nack, true),
        (Aged, Timeout, true),
        (Queued, Ack, false),
        (Queued, Nack, true),
        (Queued, Timeout, true),
        (Acked, Ack, false),
        (Acked, Nack, false),
        (Acked, Timeout, false),
    ];
    for name in TIMED {
        for (state, event, again) in table {
            let (mut sender, mut now_ns) = sender_in(name, state);
            match event {
                Ack => sender.handle_report(&at(now_ns), &ack(1)),
                Nack => sender.handle_report(&at(now_ns), &nack()),
                Timeout => {
                    now_ns = now_ns.max(RTO);
                    sender.handle_timeout(&at(now_ns));
                }
            }
            // A scheme without NACKs ignores them.
            let deaf = name == SchemeName::SrRto && matches!((state, event), (Aged, Nack));
            let mut next = Vec::new();
            while let Some(chunks) = sender.poll_transmit(&at(now_ns), 1) {
                next.push(chunks.range.start);
            }
            let expected: &[u32] = if again && !deaf { &[0, 1] } else { &[1] };
            assert_eq!(next, expected, "{name}: {state:?} {event:?}");
            assert_eq!(sender.poll_outcome(), None);
        }
    }
}

#[test]
fn a_message_ends_once_and_then_nothing_of_it_is_sent() {
    for name in SchemeName::EXACT {
        for state in [
            ChunkState::HandedOut,
            ChunkState::Departed,
            ChunkState::Queued,
        ] {
            for outcome in [Outcome::Whole, Outcome::Partial, Outcome::Failed] {
                let (mut sender, now_ns) = sender_in(name, state);
                sender.handle_closed(&at(now_ns), 0, outcome);
                sender.handle_closed(&at(now_ns), 0, Outcome::Whole);
                sender.handle_report(&at(now_ns), &ack(2));
                sender.handle_departed(&at(now_ns), &chunk(0));
                assert_eq!(sender.poll_outcome(), Some((0, outcome)));
                assert_eq!(sender.poll_outcome(), None);
                assert_eq!(
                    sender.poll_transmit(&at(now_ns), 8),
                    None,
                    "{name} {state:?}"
                );
                assert_eq!(sender.next_timeout(), None, "{name} {state:?}");
            }
            let (mut sender, now_ns) = sender_in(name, state);
            sender.abandon(0);
            assert_eq!(sender.poll_outcome(), None);
            assert_eq!(sender.poll_transmit(&at(now_ns), 8), None);
            assert_eq!(sender.next_timeout(), None);
        }
    }
}

#[test]
fn timeouts_follow_the_round_trip_as_it_is_at_their_end() {
    for name in SchemeName::EXACT {
        let (mut sender, _) = sender_in(name, ChunkState::Departed);
        assert_eq!(sender.next_timeout(), Some(RTO), "{name}");
        let longer = PeerView {
            now_ns: RTO,
            rtt_ns: 2 * RTT,
            reordering_window_ns: MS,
            timing: Timing::wide_area(),
        };
        sender.handle_timeout(&longer);
        assert_eq!(sender.next_timeout(), Some(2 * RTO), "{name}");
        assert_eq!(sender.counters().timeouts, 0, "{name}");
    }
}

#[test]
fn retransmissions_of_the_oldest_come_first_and_then_its_new_chunks() {
    for name in [SchemeName::SrRto, SchemeName::SrNack] {
        let mut sender = name.scheme().sender();
        for number in 0..3 {
            let (bytes, chunks) = (40_960, 10);
            sender.start(
                &at(0),
                &Message {
                    number,
                    bytes,
                    chunks,
                    chunk_bytes: 4096,
                    critical: CriticalChunks::NONE,
                },
            );
        }
        let hand_out = |sender: &mut Box<dyn Sender + Send>, now_ns, max| {
            let chunks = sender.poll_transmit(&at(now_ns), max).unwrap();
            sender.handle_departed(&at(now_ns), &chunks);
            (chunks.message.data(), chunks.range)
        };
        assert_eq!(hand_out(&mut sender, 0, 8), (0, 0..8));
        assert_eq!(hand_out(&mut sender, 0, 8), (0, 8..10));
        assert_eq!(hand_out(&mut sender, 0, 4), (1, 0..4));
        sender.handle_report(&at(RTT), &ack(9));
        sender.handle_timeout(&at(RTO));
        assert_eq!(hand_out(&mut sender, RTO, 8), (0, 9..10), "{name}");
        assert_eq!(hand_out(&mut sender, RTO, 3), (1, 0..3), "{name}");
        assert_eq!(hand_out(&mut sender, RTO, 8), (1, 3..4), "{name}");
        assert_eq!(hand_out(&mut sender, RTO, 8), (1, 4..10), "{name}");
        assert_eq!(hand_out(&mut sender, RTO, 80), (2, 0..10), "{name}");
        assert_eq!(sender.counters().retransmitted_chunks, 5);
    }
}

#[test]
fn going_back_repeats_all_that_follows_of_every_message() {
    let mut sender = SchemeName::Gbn.scheme().sender();
    for number in 0..2 {
        let (bytes, chunks) = (16_384, 4);
        sender.start(
            &at(0),
            &Message {
                number,
                bytes,
                chunks,
                chunk_bytes: 4096,
                critical: CriticalChunks::NONE,
            },
        );
    }
    while let Some(chunks) = sender.poll_transmit(&at(0), 3) {
        sender.handle_departed(&at(0), &chunks);
    }
    sender.handle_report(&at(RTT), &ack(2));
    let lost = vec![2..3];
    sender.handle_report(&at(RTT), &Report::Nack(Nack { message: 0, lost }));
    let mut again = Vec::new();
    while let Some(chunks) = sender.poll_transmit(&at(RTT), 8) {
        sender.handle_departed(&at(RTT), &chunks);
        again.push((chunks.message.data(), chunks.range));
    }
    assert_eq!(again, [(0, 2..4), (1, 0..4)]);
    assert_eq!(sender.counters().retransmitted_chunks, 6);
    // The gap is closed, and the chunks that had arrived before count as arrived. None of them is
    // sent a third time.
    sender.handle_report(&at(2 * RTT), &ack(4));
    assert_eq!(sender.poll_outcome(), Some((0, Outcome::Whole)));
    assert_eq!(sender.poll_transmit(&at(2 * RTT), 8), None);
}

#[test]
fn a_newer_message_that_was_cleared_first_times_out_once() {
    for name in TIMED {
        let mut sender = name.scheme().sender();
        for number in [1, 0] {
            let message = Message {
                number,
                bytes: 8192,
                chunks: 2,
                chunk_bytes: 4096,
                critical: CriticalChunks::NONE,
            };
            sender.start(&at(0), &message);
            while let Some(chunks) = sender.poll_transmit(&at(0), 2) {
                sender.handle_departed(&at(0), &chunks);
            }
        }
        sender.handle_timeout(&at(RTO));
        assert!(
            sender.next_timeout().is_none_or(|at_ns| at_ns > RTO),
            "{name}: a timer that never rests"
        );
        let mut again = 0;
        while let Some(chunks) = sender.poll_transmit(&at(RTO), 2) {
            again += chunks.range.len();
            sender.handle_departed(&at(RTO), &chunks);
        }
        assert_eq!(again, 4, "{name}");
    }
}
