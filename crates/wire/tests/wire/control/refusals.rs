//! What is refused of control packets, and what is passed over.

use super::{KEY, messages_in, packet_of, packet_with, peer_feedback};
use crate::common;
use farwrite_wire::control::{
    self, ACK_OVERHEAD_BYTES, Ack, Builder, Control, HEADER_BYTES, MESSAGE_OVERHEAD_BYTES,
    OpenError, Outcome, ParseError, PeerFeedback, StaleCounts,
};

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
