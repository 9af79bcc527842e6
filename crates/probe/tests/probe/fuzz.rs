//! A bounded run of the fuzz targets, with random and nearly valid inputs.

#[allow(unreachable_pub)]
#[path = "../../../../fuzz/src/probe.rs"]
mod targets;

use farwrite_probe::datagram::{Answer, Datagram, DatagramKind, KEY_BYTES};
use farwrite_probe::message::{ProbeKey, ProbeMessage, Trial, TrialCounts};
use proptest::prelude::*;
use proptest::sample::Index;

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..200)
}

/// Generates valid inputs with up to three changed bytes, sometimes truncated.
fn nearly(valid: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let changes = prop::collection::vec((any::<Index>(), any::<u8>()), 0..3);
    (valid, changes, prop::option::weighted(0.2, any::<Index>())).prop_map(
        |(mut bytes, changes, cut)| {
            for (at, value) in changes {
                if !bytes.is_empty() {
                    let at = at.index(bytes.len());
                    bytes[at] = value;
                }
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len() + 1));
            }
            bytes
        },
    )
}

fn datagram() -> impl Strategy<Value = Datagram> {
    let answer = (
        any::<u32>(),
        0u8..4,
        any::<u64>(),
        any::<u16>(),
        any::<bool>(),
    )
        .prop_map(|(question_bytes, ecn_bits, hold_ns, port, v6)| {
            DatagramKind::Answer(Answer {
                question_bytes,
                ecn_bits,
                hold_ns,
                seen: match v6 {
                    true => ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 7], port).into(),
                    false => ([192, 0, 2, 7], port).into(),
                },
            })
        });
    let kind = prop_oneof![
        Just(DatagramKind::Data),
        Just(DatagramKind::Question),
        answer
    ];
    (kind, any::<u8>(), any::<[u32; 2]>(), any::<u64>()).prop_map(
        |(kind, flow, [trial, sequence], timestamp_ns)| Datagram {
            kind,
            flow,
            trial,
            sequence,
            timestamp_ns,
        },
    )
}

fn messages() -> impl Strategy<Value = Vec<u8>> {
    let trial =
        || any::<(u32, u32, u16)>().prop_map(|(id, packets, flows)| Trial { id, packets, flows });
    let counts = any::<[u32; 4]>().prop_map(|[id, received, bursts, reordered]| TrialCounts {
        id,
        received,
        bursts,
        reordered,
        flows: vec![received; 3],
        ..TrialCounts::default()
    });
    let message = prop_oneof![
        any::<[u8; KEY_BYTES]>().prop_map(|key| ProbeMessage::Start(ProbeKey(key))),
        prop::collection::vec(trial(), 0..4).prop_map(ProbeMessage::Trials),
        prop::collection::vec(any::<u32>(), 0..4).prop_map(ProbeMessage::Close),
        prop::collection::vec(counts, 0..3).prop_map(ProbeMessage::Counts),
        Just(ProbeMessage::Open),
        Just(ProbeMessage::Done),
    ];
    message.prop_map(|message| postcard::to_stdvec(&message).expect("serialised"))
}

proptest! {
    #[test]
    fn any_datagram(bytes in bytes()) {
        targets::datagram(&bytes);
    }

    #[test]
    fn nearly_a_datagram(
        bytes in nearly(datagram().prop_map(|datagram| targets::sealed(&datagram, 90)))
    ) {
        targets::datagram(&bytes);
    }

    #[test]
    fn a_datagram_is_read_as_it_was_written(datagram in datagram(), bytes in 72usize..400) {
        let sealed = targets::sealed(&datagram, bytes);
        prop_assert_eq!(targets::open(&sealed), Some(datagram));
        // The tag also covers the length.
        prop_assert_eq!(targets::open(&[&sealed[..], &[0]].concat()), None);
    }

    #[test]
    fn nearly_a_message(bytes in nearly(messages())) {
        targets::messages(&bytes);
    }

    #[test]
    fn any_message(bytes in bytes()) {
        targets::messages(&bytes);
    }
}
