//! A bounded run of the fuzz targets: the same functions, with random and nearly valid inputs.

#[allow(unreachable_pub)]
#[path = "../../../../fuzz/src/session.rs"]
mod targets;

use farwrite_session::{
    Cause, FileCause, Hello, Message, PathAddress, PathKey, PathOffer, Progress, Psk, QpBlob,
    Resume, Resumed, Text, TransferPlan,
};
use proptest::prelude::*;
use proptest::sample::{Index, select};

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..200)
}

/// Returns bytes with small values, which parse more often as numbers, counts and variants.
fn small_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![4 => 0u8..4, 1 => any::<u8>()], 0..60)
}

/// Returns valid inputs with up to three changed bytes, sometimes truncated.
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

/// Returns serialised messages of all types except manifest entries.
fn messages() -> impl Strategy<Value = Vec<u8>> {
    let text = || ".{0,20}".prop_map(Text::new);
    let message = prop_oneof![
        (text(), any::<u64>()).prop_map(|(software, capabilities)| Message::Hello(Hello {
            software,
            capabilities
        })),
        (text(), any::<[u64; 2]>(), any::<u32>()).prop_map(|(scheme, numbers, entries)| {
            let [segment_bytes, stream_bytes] = numbers;
            Message::Plan(TransferPlan {
                scheme,
                segment_bytes,
                entries,
                stream_bytes,
            })
        }),
        bytes().prop_map(|blob| Message::QpInfo(QpBlob(blob))),
        (any::<Option<[u8; 32]>>(), any::<[u8; 16]>(), any::<u16>()).prop_map(|(key, ip, port)| {
            Message::Path(PathOffer {
                key: key.map(PathKey),
                addresses: vec![PathAddress { ip, port }; usize::from(port % 3)],
            })
        }),
        (any::<u32>(), any::<[u8; 32]>())
            .prop_map(|(index, hash)| Message::FileHash { index, hash }),
        (any::<u32>(), text()).prop_map(|(index, reason)| Message::FileFailed {
            index,
            cause: FileCause::Unwritable,
            reason,
        }),
        any::<[u64; 3]>().prop_map(|[stream_bytes, moved, disk_ms]| {
            Message::Progress(Progress {
                stream_bytes,
                moved,
                disk_ms,
            })
        }),
        text().prop_map(|reason| {
            let cause = Cause::Network;
            Message::Abort { cause, reason }
        }),
        Just(Message::Done),
        (any::<u64>(), bytes()).prop_map(|(first_segment, blob)| {
            let info = QpBlob(blob);
            Message::Resume(Resume {
                first_segment,
                info,
            })
        }),
        (prop::collection::vec(any::<u64>(), 0..20), bytes()).prop_map(|(finished, blob)| {
            let info = QpBlob(blob);
            Message::Resumed(Resumed { finished, info })
        }),
    ];
    message.prop_map(|message| postcard::to_stdvec(&message).expect("serialised"))
}

/// Returns lists of manifest entries, or nearly valid ones: a few entries with short names and
/// small numbers.
fn entries() -> impl Strategy<Value = Vec<u8>> {
    let parent = prop_oneof![Just(vec![0]), (0u8..3).prop_map(|index| vec![1, index])];
    let name = prop::collection::vec(select(&b"abc./\0"[..]), 0..4);
    let rest = prop_oneof![
        Just(vec![0, 0, 0, 0]),
        (0u8..100, 0u8..2).prop_map(|(bytes, sparse)| vec![1, bytes, sparse, 0, 0, 0])
    ];
    let entry = (parent, name, rest).prop_map(|(parent, name, rest)| {
        let count = u8::try_from(name.len()).expect("a short name");
        [parent, vec![count], name, rest].concat()
    });
    prop::collection::vec(entry, 0..6).prop_map(|entries| {
        let count = u8::try_from(entries.len()).expect("few entries");
        [vec![3, count], entries.concat()].concat()
    })
}

/// Returns records: serialised messages after their lengths, cut into pieces.
fn records() -> impl Strategy<Value = Vec<u8>> {
    let message = (messages(), 1usize..80).prop_map(|(body, piece_bytes)| {
        let length = u32::try_from(body.len()).expect("a short message");
        let whole = [&length.to_be_bytes()[..], &body].concat();
        let records = whole.chunks(piece_bytes + 3).map(|piece| {
            let length = u8::try_from(piece.len()).expect("a short piece");
            [&[length][..], piece].concat()
        });
        records.collect::<Vec<_>>().concat()
    });
    prop::collection::vec(message, 0..4).prop_map(|records| records.concat())
}

fn keys() -> impl Strategy<Value = Vec<u8>> {
    any::<bool>().prop_map(|upper| {
        let text = Psk::generate().expect("randomness").to_text();
        let (prefix, digits) = text.split_at(text.find(':').expect("a prefix") + 1);
        let digits = if upper {
            digits.to_uppercase()
        } else {
            digits.to_owned()
        };
        format!("{prefix}{digits}\n").into_bytes()
    })
}

fn addresses() -> impl Strategy<Value = Vec<u8>> {
    let host = prop_oneof![
        "[a-z0-9.-]{1,12}",
        any::<std::net::Ipv4Addr>().prop_map(|ip| ip.to_string()),
        any::<std::net::Ipv6Addr>().prop_map(|ip| format!("[{ip}]")),
        "[a-z0-9 %]{0,16}".prop_map(|interface| format!("[fe80::1%{interface}]")),
        Just("[fe80::1%lo]".to_owned()),
    ];
    (host, any::<u16>()).prop_map(|(host, port)| format!("{host}:{port}").into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn handshake(data in prop_oneof![
        bytes(),
        nearly(Just([&[7][..], b"FARWRITE\0\x02", &[1; 48]].concat())),
        nearly(Just(vec![0; 60])),
    ]) {
        targets::handshake(&data);
    }

    #[test]
    fn answer(data in prop_oneof![
        bytes(),
        nearly(Just([&b"FARWRITE\0\x02\0"[..], &[1; 48]].concat())),
    ]) {
        targets::answer(&data);
    }

    #[test]
    fn channel_records(data in prop_oneof![bytes(), small_bytes()]) {
        targets::channel_records(&data);
    }

    #[test]
    fn channel_messages(data in prop_oneof![bytes(), small_bytes(), nearly(records())]) {
        targets::channel_messages(&data);
    }

    #[test]
    fn message(data in prop_oneof![bytes(), small_bytes(), nearly(messages())]) {
        targets::message(&data);
    }

    #[test]
    fn manifest(data in prop_oneof![bytes(), small_bytes(), nearly(entries())]) {
        targets::manifest(&data);
    }

    #[test]
    fn psk(data in prop_oneof![bytes(), nearly(keys())]) {
        targets::psk(&data);
    }

    #[test]
    fn address(data in prop_oneof![bytes(), nearly(addresses())]) {
        targets::address(&data);
    }
}
