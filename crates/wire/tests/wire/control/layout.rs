//! The bytes of control packets, as P4 specifies them.

use super::{KEY, messages_in, packet_of, packet_with, peer_feedback};
use farwrite_wire::control::{
    ACK_OVERHEAD_BYTES, Ack, Builder, CLEAR_TO_SEND_OVERHEAD_BYTES, CLEARANCE_BYTES,
    CLEARANCE_PARITY_BYTES, CLEARANCE_TERMS_BYTES, ClearToSend, Clearance, Control, Credit,
    CreditRequest, CriticalChunks, Echo, HEADER_BYTES, Header, LossCounts, MessageId,
    NACK_OVERHEAD_BYTES, NACK_RANGE_BYTES, Nack, Offer, Outcome, ParseError, PeerFeedback, Place,
    ReadRefusal, ReadRequest, SchemeTag, StaleCounts, Terms, Withdrawal,
};

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
