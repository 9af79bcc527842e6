//! Control packets: round trips, refusals, tags and replays.

use crate::common;
use crate::common::control_messages;
use farwrite_wire::control::{
    self, ACK_OVERHEAD_BYTES, Ack, Builder, CLEAR_TO_SEND_OVERHEAD_BYTES, CLEARANCE_BYTES,
    CLEARANCE_PARITY_BYTES, CLEARANCE_TERMS_BYTES, ClearToSend, Clearance, Control, Credit,
    CreditRequest, CriticalChunks, Echo, HEADER_BYTES, Header, LossCounts, MESSAGE_OVERHEAD_BYTES,
    MessageId, NACK_OVERHEAD_BYTES, NACK_RANGE_BYTES, Nack, Offer, OpenError, Outcome, ParseError,
    PeerFeedback, Place, ReadRefusal, ReadRequest, ReplayWindow, SchemeTag, StaleCounts, Terms,
    Withdrawal,
};
use proptest::prelude::*;
use proptest::sample::Index;
use std::collections::HashSet;

const KEY: [u8; 32] = [0x4B; 32];
const HEADER: Header = Header {
    counter: 7,
    timestamp_ns: 8,
    echo: None,
};

fn headers() -> impl Strategy<Value = Header> {
    let echo = any::<Option<(u64, u64)>>().prop_map(|echo| {
        echo.map(|(timestamp_ns, hold_ns)| Echo {
            timestamp_ns,
            hold_ns,
        })
    });
    (any::<u64>(), any::<u64>(), echo).prop_map(|(counter, timestamp_ns, echo)| Header {
        counter,
        timestamp_ns,
        echo,
    })
}

/// Returns a packet of these messages.
fn packet_of(messages: &[Control]) -> Vec<u8> {
    let mut builder = Builder::new(1 << 20);
    assert!(messages.iter().all(|message| builder.push(message)));
    builder.seal(&HEADER, &KEY)
}

/// Returns a packet with one message of this type and body.
fn packet_with(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = Builder::new(0).seal(&HEADER, &KEY);
    let body_bytes = u16::try_from(body.len()).unwrap();
    bytes.extend([kind, 0xEE]);
    bytes.extend(body_bytes.to_be_bytes());
    bytes.extend(body);
    common::reseal_control(&KEY, &mut bytes);
    bytes
}

fn messages_in(packet: &[u8]) -> Vec<Result<Control, ParseError>> {
    let (_, messages) = control::open(&KEY, packet).expect("the tag is right");
    messages.collect()
}

/// Checks the bytes of P4.1 and P4.2, with a tag computed outside the crate.
#[test]
fn a_draft_that_is_sealed_again_is_as_if_it_was_sealed_once() {
    let echo = Echo {
        timestamp_ns: 3,
        hold_ns: 4,
    };
    let first = Header {
        counter: 1,
        timestamp_ns: 2,
        echo: Some(echo),
    };
    let second = Header {
        counter: 5,
        timestamp_ns: 6,
        echo: None,
    };
    let mut draft = Builder::new(1000).finish();
    for header in [first, second] {
        let bytes = draft.seal(&header, &KEY);
        assert_eq!(bytes, Builder::new(1000).seal(&header, &KEY));
        assert_eq!(
            control::open(&KEY, bytes).map(|(header, _)| header),
            Ok(header)
        );
    }
}

#[test]
fn a_header_is_laid_out_as_specified() {
    let header = Header {
        counter: 0x0102_0304_0506_0708,
        timestamp_ns: 0x1112_1314_1516_1718,
        echo: Some(Echo {
            timestamp_ns: 0x2122_2324_2526_2728,
            hold_ns: 0x3132_3334_3536_3738,
        }),
    };
    let packet = Builder::new(1000).seal(&header, &KEY);
    let fields = b"\x01\x01\0\0\x01\x02\x03\x04\x05\x06\x07\x08\x11\x12\x13\x14\x15\x16\x17\x18\
        \x21\x22\x23\x24\x25\x26\x27\x28\x31\x32\x33\x34\x35\x36\x37\x38";
    assert_eq!(&packet[..36], fields);
    assert_eq!(packet.len(), HEADER_BYTES);
    let mut untagged = fields.to_vec();
    untagged.extend([0; 16]);
    assert_eq!(
        packet[36..],
        blake3::keyed_hash(&KEY, &untagged).as_bytes()[..16]
    );
}

/// Checks the bytes of P4.3 to P4.7.
#[test]
fn bodies_are_laid_out_as_specified() {
    let offer = Control::Offer(Offer {
        message: 5,
        length: Some(6),
        has_immediate: true,
        scheme: SchemeTag {
            id: 9,
            params: *b"params",
        },
        critical: CriticalChunks::new([1..2, 3..5]).unwrap(),
        cleared: 7,
        withdrawn: Some(Withdrawal::GivenUp),
        answers_read: false,
    });
    let clear_to_send = Control::ClearToSend(ClearToSend {
        posted: 5,
        offers: 2,
        first: 3,
        clearances: vec![
            Clearance {
                generation: 1,
                rkey: 2,
                base: 3,
                length: 4,
                parity: None,
                terms: Terms::default(),
            },
            Clearance {
                generation: 2,
                rkey: 5,
                base: 6,
                length: 7,
                parity: Some(Place {
                    rkey: 8,
                    base: 9,
                    length: 10,
                }),
                terms: Terms::default(),
            },
        ],
    });
    let ack = Control::Ack(Ack {
        message: 1,
        cumulative: 2,
        seen: 3,
        window_start: 8,
        bits: vec![0xAA, 0x55],
    });
    let nack = Control::Nack(Nack {
        message: 1,
        lost: vec![2..3, 3..5],
    });
    let complete = Control::ReceiveComplete {
        message: 1,
        outcome: Outcome::Partial,
    };
    let packet = packet_of(&[offer, clear_to_send, ack, nack, complete]);
    let expected =
        b"\x01\0\0\x30\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0\x07\x07\x09params\
        \0\0\0\x01\0\0\0\x02\0\0\0\x03\0\0\0\x05\
        \x02\0\0\x56\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\
        \x01\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x04\
        \x82\0\0\0\x05\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0\x07\
        \0\0\0\x08\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\x0a\
        \x03\0\0\x16\0\0\0\0\0\0\0\x01\0\0\0\x02\0\0\0\x03\0\0\0\x08\xAA\x55\
        \x04\0\0\x18\0\0\0\0\0\0\0\x01\0\0\0\x02\0\0\0\x03\0\0\0\x03\0\0\0\x05\
        \x05\0\0\x09\0\0\0\0\0\0\0\x01\x01";
    assert_eq!(packet[HEADER_BYTES..], expected[..]);
}

/// Checks the bytes of the terms of a clearance (P4.4), without parity and after it.
#[test]
fn terms_are_laid_out_as_specified() {
    let all = Terms {
        exact_length: true,
        immediate: true,
        scheme: Some(SchemeTag {
            id: 9,
            params: *b"params",
        }),
        accepts_partial: true,
        answers_read: true,
    };
    let exact = Terms {
        exact_length: true,
        ..Terms::default()
    };
    let place = Place {
        rkey: 8,
        base: 9,
        length: 10,
    };
    let clearance = |parity, terms| Clearance {
        generation: 2,
        rkey: 5,
        base: 6,
        length: 7,
        parity,
        terms,
    };
    let message = Control::ClearToSend(ClearToSend {
        posted: 5,
        offers: 2,
        first: 3,
        clearances: vec![clearance(None, exact), clearance(Some(place), all)],
    });
    let packet = packet_of(std::slice::from_ref(&message));
    let expected = b"\x02\0\0\x66\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\
        \x42\0\0\0\x05\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0\x07\
        \x01\0\0\0\0\0\0\0\
        \xc2\0\0\0\x05\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0\x07\
        \0\0\0\x08\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\x0a\
        \x1f\x09params";
    assert_eq!(packet[HEADER_BYTES..], expected[..]);
    assert_eq!(messages_in(&packet), [Ok(message)]);
}

/// Flags 0x08, 0x10 and 0x20 give the reason of a withdrawal. Without flag 0x04 they have no meaning
/// (P4.3).
#[test]
fn an_offer_says_why_it_was_withdrawn() {
    for (flags, withdrawn) in [
        (0, None),
        (4, Some(Withdrawal::GivenUp)),
        (12, Some(Withdrawal::Expired)),
        (8, None),
        (0x14, Some(Withdrawal::Refused(ReadRefusal::UnknownRegion))),
        (0x24, Some(Withdrawal::Refused(ReadRefusal::OutOfRange))),
        (0x3c, Some(Withdrawal::Refused(ReadRefusal::Scheme))),
        (0x30, None),
    ] {
        let mut body = [0; 32];
        body[24] = flags;
        let read = messages_in(&packet_with(1, &body));
        let [Ok(Control::Offer(offer))] = &read[..] else {
            panic!("{read:?}");
        };
        assert_eq!(offer.withdrawn, withdrawn);
    }
}

/// Critical ranges must ascend, hold a chunk each, and leave a chunk between two (P4.3).
#[test]
fn critical_ranges_that_no_sender_has_are_refused() {
    let offer = |ranges: &[(u32, u32)]| {
        let mut body = vec![0; 32];
        for (start, end) in ranges {
            body.extend(start.to_be_bytes());
            body.extend(end.to_be_bytes());
        }
        messages_in(&packet_with(1, &body)).remove(0)
    };
    let spaced: Vec<(u32, u32)> = (0..9).map(|i| (3 * i, 3 * i + 2)).collect();
    assert!(offer(&spaced[..8]).is_ok());
    for bad in [
        &spaced[..],
        &[(1, 1)],
        &[(2, 1)],
        &[(0, 1), (1, 2)],
        &[(5, 6), (0, 1)],
    ] {
        let (message, count) = (0, bad.len());
        assert_eq!(offer(bad), Err(ParseError::Critical { message, count }));
    }
    let (kind, bytes) = (1, 39);
    let cut = messages_in(&packet_with(1, &[0; 39]));
    assert_eq!(cut, [Err(ParseError::Length { kind, bytes })]);
}

/// Checks the bytes of P4.8.
#[test]
fn a_loss_message_is_laid_out_as_specified() {
    let loss = Control::Loss(LossCounts {
        judged_chunks: 8,
        lost_chunks: 7,
        bursts: 5,
        longest_burst_chunks: 3,
    });
    let expected =
        b"\x06\0\0\x20\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x03";
    assert_eq!(packet_of(&[loss])[HEADER_BYTES..], expected[..]);
}

/// Checks the bytes of P4.11, and the flag of the offer that answers it (P4.3).
#[test]
fn a_read_is_laid_out_as_specified() {
    let read = Control::Read(ReadRequest {
        message: 1,
        region: 2,
        offset: 3,
        length: 4,
        remaining_ns: 5,
        scheme: SchemeTag {
            id: 9,
            params: *b"params",
        },
    });
    let expected = [
        &b"\x08\0\0\x2f"[..],
        &1_u64.to_be_bytes(),
        &2_u64.to_be_bytes(),
        &3_u64.to_be_bytes(),
        &4_u64.to_be_bytes(),
        &5_u64.to_be_bytes(),
        b"\x09params",
    ];
    assert_eq!(packet_of(&[read])[HEADER_BYTES..], expected.concat());
    for (kind, bytes) in [(8, 46), (8, 48)] {
        let cut = messages_in(&packet_with(kind, &vec![0; bytes]));
        assert_eq!(cut, [Err(ParseError::Length { kind, bytes })]);
    }
    let mut answer = [0; 32];
    answer[24] = 0x41;
    let offers = messages_in(&packet_with(1, &answer));
    let [Ok(Control::Offer(offer))] = &offers[..] else {
        panic!("{offers:?}");
    };
    assert!(offer.answers_read && offer.length == Some(0) && !offer.has_immediate);
}

/// Checks the bytes of P4.12.
#[test]
fn a_credit_and_its_request_are_laid_out_as_specified() {
    let request = Control::CreditRequest(CreditRequest {
        epoch: 1,
        used_bytes: 2,
        wanted_bytes: 3,
    });
    let credit = Control::Credit(Credit {
        epoch: 4,
        granted_bytes: 5,
    });
    let expected = [
        &b"\x09\0\0\x18"[..],
        &1_u64.to_be_bytes(),
        &2_u64.to_be_bytes(),
        &3_u64.to_be_bytes(),
        b"\x0a\0\0\x10",
        &4_u64.to_be_bytes(),
        &5_u64.to_be_bytes(),
    ];
    assert_eq!(
        packet_of(&[request, credit])[HEADER_BYTES..],
        expected.concat()
    );
    for (kind, bytes) in [(9, 23), (9, 25), (10, 15), (10, 17)] {
        let cut = messages_in(&packet_with(kind, &vec![0; bytes]));
        assert_eq!(cut, [Err(ParseError::Length { kind, bytes })]);
    }
    let mut greedy = [0; 24];
    greedy[15] = 2;
    greedy[23] = 1;
    let (wanted, used) = (1, 2);
    let refused = messages_in(&packet_with(9, &greedy));
    assert_eq!(refused, [Err(ParseError::Wanted { wanted, used })]);
}

fn peer_feedback() -> PeerFeedback {
    PeerFeedback {
        epoch: 1,
        message: MessageId::new(2),
        is_late: false,
        packet: 3,
        hold_ns: 4,
        received_packets: 15,
        received_bytes: 6,
        ect_packets: 14,
        marked_packets: 13,
        dropped_packets: 9,
        drain_bps: 10,
        stale: StaleCounts::default(),
    }
}

/// Checks the bytes of P4.10.
#[test]
fn a_peer_feedback_is_laid_out_as_specified() {
    let expected = [
        &b"\x07\0\0\x4c"[..],
        &1_u64.to_be_bytes(),
        &2_u64.to_be_bytes(),
        &3_u32.to_be_bytes(),
        &4_u64.to_be_bytes(),
        &15_u64.to_be_bytes(),
        &6_u64.to_be_bytes(),
        &14_u64.to_be_bytes(),
        &13_u64.to_be_bytes(),
        &9_u64.to_be_bytes(),
        &10_u64.to_be_bytes(),
    ];
    let packet = packet_of(&[Control::PeerFeedback(peer_feedback())]);
    assert_eq!(packet[HEADER_BYTES..], expected.concat());
    let late = PeerFeedback {
        message: MessageId::new(2).parity(),
        is_late: true,
        ..peer_feedback()
    };
    let packet = packet_of(&[Control::PeerFeedback(late)]);
    let message = (3_u64 << 60) + 2;
    assert_eq!(packet[HEADER_BYTES + 12..][..8], message.to_be_bytes());
    let long = PeerFeedback {
        stale: StaleCounts {
            packets: 12,
            marked_packets: 11,
        },
        ..peer_feedback()
    };
    let packet = packet_of(&[Control::PeerFeedback(long)]);
    let expected = [
        &b"\x07\0\0\x5c"[..],
        &expected.concat()[4..],
        &12_u64.to_be_bytes(),
        &11_u64.to_be_bytes(),
    ];
    assert_eq!(packet[HEADER_BYTES..], expected.concat());
    for bytes in [75, 77, 84, 91, 93] {
        let cut = messages_in(&packet_with(7, &vec![0; bytes]));
        assert_eq!(cut, [Err(ParseError::Length { kind: 7, bytes })]);
    }
}

#[test]
fn a_peer_feedback_with_more_packets_of_one_kind_than_in_total_is_refused() {
    for [received, ect, marked, packets, marked_packets] in [
        [5, 6, 0, 0, 0],
        [5, 5, 6, 5, 5],
        [0, 0, 1, 0, 0],
        [5, 5, 5, 6, 0],
        [5, 5, 0, 4, 1],
        [5, 5, 3, 2, 3],
        [5, 5, 3, 3, 0],
    ] {
        let stale = StaleCounts {
            packets,
            marked_packets,
        };
        let feedback = PeerFeedback {
            stale: StaleCounts {
                packets: 1,
                marked_packets: 1,
            },
            ..peer_feedback()
        };
        let mut packet = packet_of(&[Control::PeerFeedback(feedback)]);
        let counts = [
            (32, received),
            (48, ect),
            (56, marked),
            (80, packets),
            (88, marked_packets),
        ];
        for (at, count) in counts {
            packet[HEADER_BYTES + at..][..8].copy_from_slice(&u64::to_be_bytes(count));
        }
        common::reseal_control(&KEY, &mut packet);
        let refused = ParseError::Counts {
            received,
            ect,
            marked,
            stale,
        };
        assert_eq!(messages_in(&packet), [Err(refused)]);
    }
}

#[test]
fn unknown_types_are_passed_over_and_unknown_versions_refused() {
    assert_eq!(messages_in(&packet_with(200, b"whatever")), []);
    let mut future = packet_with(200, b"");
    future[0] = 2;
    common::reseal_control(&KEY, &mut future);
    assert_eq!(
        control::open(&KEY, &future).unwrap_err(),
        OpenError::Version(2)
    );
}

#[test]
fn each_refusal_says_what_was_wrong() {
    let refusal = |kind: u8, body: &[u8]| {
        messages_in(&packet_with(kind, body))[0]
            .clone()
            .unwrap_err()
    };
    assert_eq!(
        refusal(1, &[0; 31]),
        ParseError::Length { kind: 1, bytes: 31 }
    );
    assert_eq!(
        refusal(1, &[0; 33]),
        ParseError::Length { kind: 1, bytes: 33 }
    );
    assert_eq!(
        refusal(2, &[0; 25]),
        ParseError::Length { kind: 2, bytes: 25 }
    );
    let unposted = ParseError::Clearances {
        first: 0,
        count: 1,
        posted: 0,
    };
    assert_eq!(refusal(2, &[0; 45]), unposted);
    let overflowing = [[0xFF; 24].as_slice(), &[0; 21]].concat();
    let (first, posted) = (u64::MAX, u64::MAX);
    assert_eq!(
        refusal(2, &overflowing),
        ParseError::Clearances {
            first,
            count: 1,
            posted
        }
    );
    let ack = |start: u32, bits: &[u8]| [&[0; 16], &start.to_be_bytes()[..], bits].concat();
    assert_eq!(refusal(3, &ack(12, b"")), ParseError::WindowStart(12));
    let start = u32::MAX - 7;
    assert_eq!(
        refusal(3, &ack(start, b"!")),
        ParseError::WindowEnd { start, bytes: 1 }
    );
    let nack = |ends: [u32; 4]| [&[0; 8], &ends.map(u32::to_be_bytes).concat()[..]].concat();
    let range = |start, end, after| ParseError::Range { start, end, after };
    assert_eq!(refusal(4, &nack([1, 1, 2, 3])), range(1, 1, 0));
    assert_eq!(refusal(4, &nack([1, 4, 3, 5])), range(3, 5, 4));
    assert_eq!(
        refusal(4, &[0; 12]),
        ParseError::Length { kind: 4, bytes: 12 }
    );
    assert_eq!(refusal(5, &[3; 9]), ParseError::Outcome(3));
    assert_eq!(
        refusal(6, &[0; 31]),
        ParseError::Length { kind: 6, bytes: 31 }
    );
}

/// After a refused message, the next one can still be read. A truncated message ends the packet.
#[test]
fn a_bad_message_is_refused_alone() {
    let complete = Control::ReceiveComplete {
        message: 1,
        outcome: Outcome::Whole,
    };
    let mut packet = packet_of(&[complete.clone(), complete.clone(), complete.clone()]);
    let second = HEADER_BYTES + 13;
    packet[second + 12] = 77;
    common::reseal_control(&KEY, &mut packet);
    let good = Ok(complete);
    assert_eq!(
        messages_in(&packet),
        [good.clone(), Err(ParseError::Outcome(77)), good.clone()]
    );
    packet[second + 3] = 23;
    common::reseal_control(&KEY, &mut packet);
    let truncated = ParseError::Truncated {
        need_bytes: 27,
        have_bytes: 26,
    };
    assert_eq!(messages_in(&packet), [good, Err(truncated)]);
}

#[test]
fn overheads_are_what_they_say() {
    let bytes = |message| packet_of(&[message]).len() - HEADER_BYTES;
    let ack = |bits| {
        Control::Ack(Ack {
            message: 0,
            cumulative: 0,
            seen: 0,
            window_start: 0,
            bits,
        })
    };
    assert_eq!(bytes(ack(vec![])), ACK_OVERHEAD_BYTES);
    assert_eq!(bytes(ack(vec![0; 5])), ACK_OVERHEAD_BYTES + 5);
    let nack = |lost| Control::Nack(Nack { message: 0, lost });
    assert_eq!(bytes(nack(vec![])), NACK_OVERHEAD_BYTES);
    assert_eq!(
        bytes(nack(vec![0..1, 1..2])),
        NACK_OVERHEAD_BYTES + 2 * NACK_RANGE_BYTES
    );
    let clear_to_send = |clearances| {
        Control::ClearToSend(ClearToSend {
            posted: 2,
            offers: 0,
            first: 0,
            clearances,
        })
    };
    let clearance = Clearance {
        generation: 0,
        rkey: 0,
        base: 0,
        length: 0,
        parity: None,
        terms: Terms::default(),
    };
    let place = Place {
        rkey: 0,
        base: 0,
        length: 0,
    };
    let with_parity = Clearance {
        parity: Some(place),
        ..clearance
    };
    assert_eq!(bytes(clear_to_send(vec![])), CLEAR_TO_SEND_OVERHEAD_BYTES);
    assert_eq!(
        bytes(clear_to_send(vec![clearance; 2])),
        CLEAR_TO_SEND_OVERHEAD_BYTES + 2 * CLEARANCE_BYTES
    );
    assert_eq!(
        bytes(clear_to_send(vec![with_parity])),
        CLEAR_TO_SEND_OVERHEAD_BYTES + CLEARANCE_BYTES + CLEARANCE_PARITY_BYTES
    );
    let with_terms = Clearance {
        terms: Terms {
            accepts_partial: true,
            ..Terms::default()
        },
        ..clearance
    };
    assert_eq!(
        bytes(clear_to_send(vec![with_terms])),
        CLEAR_TO_SEND_OVERHEAD_BYTES + CLEARANCE_BYTES + CLEARANCE_TERMS_BYTES
    );
}

#[test]
fn a_message_longer_than_its_length_field_does_not_fit() {
    let mut builder = Builder::new(1 << 20);
    let ack = |bytes: usize| {
        Control::Ack(Ack {
            message: 0,
            cumulative: 0,
            seen: 0,
            window_start: 0,
            bits: vec![0; bytes - (ACK_OVERHEAD_BYTES - MESSAGE_OVERHEAD_BYTES)],
        })
    };
    assert!(!builder.push(&ack(65_536)));
    assert!(builder.is_empty());
    assert!(builder.push(&ack(65_535)));
}

proptest! {
    #[test]
    fn packets_round_trip(
        header in headers(), key: [u8; 32],
        messages in prop::collection::vec(control_messages(), 0..8), max_bytes in 52..1500_usize,
    ) {
        let mut builder = Builder::new(max_bytes);
        let mut taken = Vec::new();
        for message in messages {
            let room = builder.remaining();
            let fits = builder.push(&message);
            prop_assert!(fits || builder.remaining() == room);
            if fits {
                taken.push(message);
            }
        }
        prop_assert_eq!(builder.is_empty(), taken.is_empty());
        let packet = builder.seal(&header, &key);
        prop_assert!(packet.len() <= max_bytes);
        prop_assert!(builder.is_empty());
        prop_assert_eq!(builder.remaining(), max_bytes - HEADER_BYTES);
        let (found, messages) = control::open(&key, &packet).unwrap();
        prop_assert_eq!(found, header);
        prop_assert_eq!(messages.collect::<Result<Vec<_>, _>>().unwrap(), taken);
    }

    #[test]
    fn any_change_is_refused(
        messages in prop::collection::vec(control_messages(), 0..4), at: Index, flip in 1..=u8::MAX,
    ) {
        let mut packet = packet_of(&messages);
        let at = at.index(packet.len());
        packet[at] ^= flip;
        prop_assert!(control::open(&KEY, &packet).is_err());
    }

    #[test]
    fn every_truncation_is_refused(messages in prop::collection::vec(control_messages(), 0..4)) {
        let packet = packet_of(&messages);
        for length in 0..packet.len() {
            prop_assert!(control::open(&KEY, &packet[..length]).is_err());
            let mut sealed = packet[..length].to_vec();
            if length >= HEADER_BYTES {
                common::reseal_control(&KEY, &mut sealed);
                let read = messages_in(&sealed);
                prop_assert!(read.len() <= messages.len());
                let whole = read.iter().zip(&messages).filter(|(r, m)| r.as_ref() == Ok(*m)).count();
                prop_assert!(read.len() - whole <= 1);
            }
        }
    }

    #[test]
    fn another_key_is_refused(key: [u8; 32], other: [u8; 32]) {
        prop_assume!(key != other);
        let packet = Builder::new(100).seal(&HEADER, &key);
        prop_assert_eq!(control::open(&other, &packet).unwrap_err(), OpenError::Tag);
    }

    /// If arbitrary bytes parse, the result can be written, and parses to the same value again.
    #[test]
    fn arbitrary_bodies_never_panic(kind in 0..12_u8, body in prop::collection::vec(any::<u8>(), 0..80)) {
        let read: Vec<_> = messages_in(&packet_with(kind, &body)).into_iter().flatten().collect();
        let again: Vec<_> = messages_in(&packet_of(&read)).into_iter().flatten().collect();
        prop_assert_eq!(read, again);
    }

    /// Compares the replay window with one that stores all counters.
    #[test]
    fn counters_are_accepted_once(
        start in prop_oneof![Just(0), Just(u64::MAX - 400), any::<u64>()],
        steps in prop::collection::vec(0..400_u64, 1..300),
    ) {
        let mut window = ReplayWindow::new();
        let (mut all, mut highest) = (HashSet::new(), 0);
        for counter in steps.into_iter().map(|step| start.saturating_add(step)) {
            let old = highest >= counter && highest - counter >= ReplayWindow::COUNTERS;
            let fresh = !old && !all.contains(&counter);
            prop_assert_eq!(window.accept(counter), fresh);
            all.insert(counter);
            highest = highest.max(counter);
        }
    }
}
