//! Probe datagrams as bytes.

use farwrite_probe::datagram::{Answer, Datagram, DatagramKind, KEY_BYTES};
use proptest::prelude::*;

const KEY: [u8; KEY_BYTES] = [0x5a; KEY_BYTES];

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

proptest! {
    #[test]
    fn a_datagram_is_read_as_it_was_written(datagram in datagram(), bytes in 72usize..400) {
        let mut sealed = datagram.seal(&KEY, bytes).to_vec();
        sealed.resize(bytes, 0xee);
        prop_assert_eq!(Datagram::open(&KEY, &sealed), Some(datagram));
        // The tag also covers the length.
        sealed.push(0);
        prop_assert_eq!(Datagram::open(&KEY, &sealed), None);
    }
}
