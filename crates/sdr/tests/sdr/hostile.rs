//! A peer may send arbitrary messages: nothing panics, memory stays bounded, and each violation is
//! named.

use farwrite_sdr::{Event, Offered, ReadSpec, SdrQp, SendSpec, Violation};
use farwrite_wire::control::{
    Ack, ClearToSend, Clearance, Control, CriticalChunks, LossCounts, Nack, Offer, Outcome, Place,
    ReadRefusal, ReadRequest, SchemeTag, Terms, Withdrawal,
};
use proptest::prelude::*;

use crate::release::release;
use crate::{connected, offer, post, small};

fn clearance(message: u64) -> Clearance {
    Clearance {
        generation: (message / 4 % 4).to_le_bytes()[0],
        rkey: 9,
        base: 0,
        length: 100,
        parity: None,
        terms: Terms::default(),
    }
}

fn cts(posted: u64, first: u64, clearances: Vec<Clearance>) -> Control {
    Control::ClearToSend(ClearToSend {
        posted,
        offers: 0,
        first,
        clearances,
    })
}

#[test]
fn what_a_receiver_cannot_say_is_named() {
    let mut qp = connected(small());
    qp.start_send(SendSpec::default()).unwrap();
    let out_of_range = |message, limit| Err(Violation::MessageOutOfRange { message, limit });
    assert_eq!(qp.handle_control(0, &cts(6, 0, vec![])), out_of_range(6, 5));
    let entries = vec![clearance(0), clearance(1)];
    assert_eq!(
        qp.handle_control(0, &cts(1, 0, entries)),
        out_of_range(2, 1)
    );
    let far = cts(5, u64::MAX, vec![clearance(0)]);
    assert_eq!(qp.handle_control(0, &far), out_of_range(u64::MAX, 5));
    let offers = Control::ClearToSend(ClearToSend {
        posted: 0,
        offers: 2,
        first: 0,
        clearances: vec![],
    });
    assert_eq!(qp.handle_control(0, &offers), out_of_range(2, 1));
    let end = Control::ReceiveComplete {
        message: 5,
        outcome: Outcome::Whole,
    };
    assert_eq!(qp.handle_control(0, &end), out_of_range(5, 5));
    for bad in [
        Clearance {
            generation: 1,
            ..clearance(0)
        },
        Clearance {
            length: 4097,
            ..clearance(0)
        },
        Clearance {
            base: u64::MAX,
            ..clearance(0)
        },
    ] {
        let answer = qp.handle_control(0, &cts(1, 0, vec![bad]));
        assert!(
            matches!(answer, Err(Violation::BadClearance { message: 0, .. })),
            "{answer:?}"
        );
    }
    assert!(!qp.is_clear(0));
    assert_eq!(qp.poll_event(), None);
}

#[test]
fn what_a_sender_cannot_say_is_named() {
    let mut qp = connected(crate::QpConfig {
        split: crate::without_user_bits(),
        ..small()
    });
    post(&mut qp, 100);
    let mut say = |offer: Offer| qp.handle_control(0, &Control::Offer(offer));
    let out_of_range = Violation::MessageOutOfRange {
        message: 5,
        limit: 5,
    };
    assert_eq!(say(offer(5, 1)), Err(out_of_range));
    let too_long = Violation::OfferTooLong {
        message: 1,
        length: 4097,
        max: 4096,
    };
    assert_eq!(say(offer(1, 4097)), Err(too_long));
    let immediate = Offer {
        has_immediate: true,
        ..offer(1, 1)
    };
    assert_eq!(say(immediate), Err(Violation::ImmediatesOff(1)));
    let critical = |length, end| Offer {
        critical: CriticalChunks::new([0..1, 3..end]).unwrap(),
        length,
        ..offer(1, 0)
    };
    let out_of_range = |end, chunks| {
        let message = 1;
        Err(Violation::CriticalOutOfRange {
            message,
            end,
            chunks,
        })
    };
    assert_eq!(say(critical(Some(4096), 17)), out_of_range(17, 16));
    assert_eq!(say(critical(None, 4)), out_of_range(4, 0));
    for message in [0, 1] {
        assert_eq!(say(offer(message, 10)), Ok(()));
        assert_eq!(say(offer(message, 10)), Ok(()));
        assert_eq!(
            say(offer(message, 11)),
            Err(Violation::OfferChanged(message))
        );
        let scheme = SchemeTag {
            id: 1,
            params: [0; 6],
        };
        let other = Offer {
            scheme,
            ..offer(message, 10)
        };
        assert_eq!(say(other), Err(Violation::OfferChanged(message)));
        // An old offer from before the length was known is not a violation.
        assert_eq!(
            say(Offer {
                length: None,
                ..offer(message, 0)
            }),
            Ok(())
        );
    }
    assert!(matches!(
        qp.poll_event(),
        Some(Event::Offered(Offered {
            length: Some(10),
            ..
        }))
    ));
    assert_eq!(qp.poll_event(), None);
}

#[test]
fn late_copies_of_clearances_change_nothing() {
    let mut qp = connected(small());
    for _ in 0..4 {
        qp.start_send(SendSpec {
            length: Some(1),
            ..SendSpec::default()
        })
        .unwrap();
    }
    let first = cts(1, 0, vec![clearance(0)]);
    qp.handle_control(0, &first).unwrap();
    let newer = cts(5, 4, vec![clearance(4)]);
    qp.handle_control(0, &newer).unwrap();
    qp.handle_control(0, &first).unwrap();
    let end = Control::ReceiveComplete {
        message: 0,
        outcome: Outcome::Whole,
    };
    qp.handle_control(0, &end).unwrap();
    qp.handle_control(0, &end).unwrap();
    let message = qp
        .start_send(SendSpec {
            length: Some(1),
            ..SendSpec::default()
        })
        .unwrap();
    assert!(qp.is_clear(message));
    assert_eq!(qp.writes(message, 0..1).next().unwrap().generation, 1);
}

/// Returns mostly message numbers in the range in use, and some far outside.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0_u64..12, 1 => any::<u64>(), 1 => Just(u64::MAX), 1 => Just(4096)]
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        Just(Outcome::Whole),
        Just(Outcome::Partial),
        Just(Outcome::Failed)
    ]
}

fn withdrawn() -> impl Strategy<Value = Option<Withdrawal>> {
    prop_oneof![
        2 => Just(None),
        1 => Just(Some(Withdrawal::GivenUp)),
        1 => Just(Some(Withdrawal::Expired)),
        1 => Just(Some(Withdrawal::Refused(ReadRefusal::OutOfRange))),
    ]
}

fn terms() -> impl Strategy<Value = Terms> {
    (any::<[bool; 4]>(), prop::option::of(0_u8..2)).prop_map(
        |([exact_length, immediate, accepts_partial, answers_read], id)| Terms {
            exact_length,
            immediate,
            scheme: id.map(|id| SchemeTag { id, params: [0; 6] }),
            accepts_partial,
            answers_read,
        },
    )
}

fn any_clearance() -> impl Strategy<Value = Clearance> {
    let place = || {
        (any::<u32>(), number(), number()).prop_map(|(rkey, base, length)| Place {
            rkey,
            base,
            length,
        })
    };
    let parity = prop::option::of(place());
    (0_u8..5, place(), parity, terms()).prop_map(|(generation, place, parity, terms)| Clearance {
        generation,
        rkey: place.rkey,
        base: place.base,
        length: place.length,
        parity,
        terms,
    })
}

fn control() -> impl Strategy<Value = Control> {
    let offer = (
        number(),
        prop::option::of(number()),
        any::<bool>(),
        0_u8..2,
        number(),
        withdrawn(),
        (0_u32..3, 1_u32..20, any::<bool>()),
    );
    let offer = offer.prop_map(|fields| {
        let (message, length, has_immediate, id, cleared, withdrawn, rest) = fields;
        let (start, count, answers_read) = rest;
        let range = start..start + count;
        let ranges = Some(range).filter(|_| count < 4);
        Control::Offer(Offer {
            message,
            length,
            has_immediate,
            scheme: SchemeTag { id, params: [0; 6] },
            critical: CriticalChunks::new(ranges).expect("one range"),
            cleared,
            withdrawn,
            answers_read,
        })
    });
    let entries = prop_oneof![
        prop::collection::vec(any_clearance(), 0..6),
        (0_u64..8, 0_u64..6).prop_map(|(first, n)| (first..first + n).map(clearance).collect()),
    ];
    let cts =
        (number(), number(), number(), entries).prop_map(|(posted, offers, first, clearances)| {
            Control::ClearToSend(ClearToSend {
                posted,
                offers,
                first,
                clearances,
            })
        });
    let end = (number(), outcome())
        .prop_map(|(message, outcome)| Control::ReceiveComplete { message, outcome });
    let ack = number().prop_map(|message| {
        Control::Ack(Ack {
            message,
            cumulative: u32::MAX,
            seen: 0,
            window_start: u32::MAX,
            bits: vec![0xff; 3],
        })
    });
    let nack = number().prop_map(|message| {
        Control::Nack(Nack {
            message,
            lost: vec![],
        })
    });
    let read = (number(), number(), number(), 0_u64..5000, any::<u64>());
    let read = read.prop_map(|(message, region, offset, length, remaining_ns)| {
        Control::Read(ReadRequest {
            message,
            region,
            offset,
            length,
            remaining_ns,
            scheme: SchemeTag::NONE,
        })
    });
    prop_oneof![4 => offer, 4 => cts, 2 => end, 1 => ack, 1 => nack, 2 => read,
        1 => Just(Control::Loss(LossCounts::default()))]
}

#[derive(Clone, Debug)]
enum HostileStep {
    Hear(Control),
    Packet(u8, u32, u32),
    Post(u64, Terms),
    Complete(u64, Outcome),
    Release(u64),
    Start(SendSpec),
    Request(u64, ReadSpec),
    Refuse,
    End(u64, u64),
    Close(u64, Outcome),
    Late(u64),
    Poll(u64),
}

fn step() -> impl Strategy<Value = HostileStep> {
    // Slots are in the ten highest bits of an immediate, packets in the next 18.
    let near = (0_u32..5, 0_u32..20, 0_u32..16).prop_map(|(s, p, u)| s << 22 | p << 4 | u);
    let imm = prop_oneof![4 => near, 1 => any::<u32>()];
    let bytes = prop_oneof![Just(64_u32), 0_u32..66, any::<u32>()];
    prop_oneof![
        6 => control().prop_map(HostileStep::Hear),
        4 => (0_u8..5, imm, bytes).prop_map(|(g, i, b)| HostileStep::Packet(g, i, b)),
        2 => (0_u64..5000, terms()).prop_map(|(l, t)| HostileStep::Post(l, t)),
        2 => (number(), outcome()).prop_map(|(m, o)| HostileStep::Complete(m, o)),
        2 => number().prop_map(HostileStep::Release),
        2 => (prop::option::of(0_u64..5000), prop::option::of(any::<u32>())).prop_map(
            |(length, immediate)| HostileStep::Start(SendSpec { length, immediate, ..SendSpec::default() })
        ),
        1 => (number(), number(), prop::option::of(any::<u64>())).prop_map(
            |(message, length, deadline_ns)| HostileStep::Request(message, ReadSpec {
                region: 0,
                offset: 0,
                length,
                scheme: SchemeTag::NONE,
                deadline_ns,
            })
        ),
        1 => Just(HostileStep::Refuse),
        1 => (number(), number()).prop_map(|(m, l)| HostileStep::End(m, l)),
        1 => (number(), outcome()).prop_map(|(m, o)| HostileStep::Close(m, o)),
        1 => number().prop_map(HostileStep::Late),
        1 => prop_oneof![0_u64..1 << 40, any::<u64>()].prop_map(HostileStep::Poll),
    ]
}

/// Executes one step. Returns whether it started a send or posted a receive at this end.
fn run(qp: &mut SdrQp, step: HostileStep, now_ns: &mut u64) -> bool {
    match step {
        HostileStep::Hear(control) => drop(qp.handle_control(*now_ns, &control)),
        HostileStep::Packet(generation, imm, bytes) => {
            qp.table().handle_packet(generation, imm, bytes);
        }
        HostileStep::Post(length, terms) => {
            let Ok(place) = qp.next_recv() else {
                return false;
            };
            let base = qp.geometry().slot_base(place.slot);
            let target = Place {
                rkey: 1,
                base,
                length,
            };
            return qp.post_recv(place, target, terms).is_ok();
        }
        HostileStep::Complete(message, outcome) => drop(qp.complete_recv(message, outcome)),
        HostileStep::Release(message) => release(qp, message),
        HostileStep::Start(spec) => return qp.start_send(spec).is_ok(),
        HostileStep::Request(message, spec) => drop(qp.request_read(message, spec)),
        HostileStep::Refuse => {
            return matches!(qp.refuse_read(ReadRefusal::OutOfRange), Ok(Some(_)));
        }
        HostileStep::End(message, length) => drop(qp.end_send(message, length)),
        HostileStep::Close(message, outcome) => qp.close_send(message, outcome),
        HostileStep::Late(message) => qp.handle_late(message),
        HostileStep::Poll(at_ns) => *now_ns = (*now_ns).max(at_ns),
    }
    false
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn anything_may_come_in_any_order(steps in prop::collection::vec(step(), 1..150)) {
        let mut qp = connected(small());
        let (mut now_ns, mut own) = (0, 0);
        for step in steps {
            own += usize::from(run(&mut qp, step, &mut now_ns));
            // The number of control messages is bounded by the slots: their offers, their ends
            // twice, one clearance and one request for each, an answer, and an offer for each
            // request of the peer.
            let said = std::iter::from_fn(|| qp.poll_control(now_ns, 0)).count();
            prop_assert!(said <= 4 + 8 + 4 + 4 + 1 + 4, "{} messages at once", said);
            for message in 0..12 {
                for write in qp.writes(message, 0..u32::MAX) {
                    prop_assert!(write.bytes <= 64 && write.offset + u64::from(write.bytes) <= 4096);
                }
                let received = qp.received();
                let chunks = received.chunks(message);
                let bits: u32 = (0..2).map(|w| received.word(message, w).count_ones()).sum();
                prop_assert_eq!(bits, received.count(message));
                prop_assert!(bits <= chunks && received.seen(message) <= chunks);
            }
        }
        // There are at most three events for every receive posted, and two for every send started.
        let events = std::iter::from_fn(|| qp.poll_event()).count();
        prop_assert!(events <= 3 * own, "{} events, {} own operations", events, own);
    }
}
