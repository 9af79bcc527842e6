//! Control packets: round trips, tags and replays.

mod layout;
mod refusals;

use crate::common;
use crate::common::control_messages;
use farwrite_wire::control::{
    self, Builder, Control, Echo, HEADER_BYTES, Header, MessageId, OpenError, ParseError,
    PeerFeedback, ReplayWindow, StaleCounts,
};
use proptest::prelude::*;
use proptest::sample::Index;
use std::collections::HashSet;

pub(super) const KEY: [u8; 32] = [0x4B; 32];
pub(super) const HEADER: Header = Header {
    counter: 7,
    timestamp_ns: 8,
    echo: None,
};

pub(super) fn headers() -> impl Strategy<Value = Header> {
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
pub(super) fn packet_of(messages: &[Control]) -> Vec<u8> {
    let mut builder = Builder::new(1 << 20);
    assert!(messages.iter().all(|message| builder.push(message)));
    builder.seal(&HEADER, &KEY)
}

/// Returns a packet with one message of this type and body.
pub(super) fn packet_with(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = Builder::new(0).seal(&HEADER, &KEY);
    let body_bytes = u16::try_from(body.len()).unwrap();
    bytes.extend([kind, 0xEE]);
    bytes.extend(body_bytes.to_be_bytes());
    bytes.extend(body);
    common::reseal_control(&KEY, &mut bytes);
    bytes
}

pub(super) fn messages_in(packet: &[u8]) -> Vec<Result<Control, ParseError>> {
    let (_, messages) = control::open(&KEY, packet).expect("the tag is right");
    messages.collect()
}

pub(super) fn peer_feedback() -> PeerFeedback {
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
