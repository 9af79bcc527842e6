//! Queue-pair information (P6), parsed from arbitrary bytes.

use std::net::SocketAddr;

use farwrite_sdr::{EndpointId, FieldError, InfoError, QpConfig, QpInfo, Timing, VERSION};
use proptest::prelude::*;

use crate::{info, small};

fn any_info() -> impl Strategy<Value = QpInfo> {
    let address = || (any::<std::net::IpAddr>(), 1_u16..).prop_map(SocketAddr::from);
    let usable = move || {
        address().prop_filter("one to send to", |address| {
            // Parsing converts IPv4-mapped addresses to IPv4.
            !address.ip().is_unspecified() && address.ip() == address.ip().to_canonical()
        })
    };
    (2_u8..5, 1_u8..5).prop_flat_map(move |(generations, channels)| {
        let config = QpConfig {
            generations,
            channels,
            ..small()
        };
        let count = usize::from(channels);
        let all = 1 + count * usize::from(generations);
        // All numbers of one piece of information differ.
        let qpns = prop::collection::hash_set(2_u32..1 << 24, all);
        (
            usable(),
            prop::collection::vec(usable(), count),
            qpns.prop_map(Vec::from_iter),
            any::<[u8; 32]>(),
            any_timing(),
            (any::<[u8; 16]>().prop_map(EndpointId), any::<[bool; 7]>()),
        )
            .prop_map(
                move |(control, channels, qpns, control_key, timing, (endpoint, features))| {
                    QpInfo {
                        config,
                        control,
                        channels,
                        control_qpn: qpns[0],
                        data_qpns: qpns[1..].chunks(count).map(<[u32]>::to_vec).collect(),
                        control_key,
                        timing,
                        endpoint,
                        grants_credit: features[0],
                        answers_reads: features[1],
                        reads_stale: features[2],
                        seals: features[3],
                        requires_sealing: features[4],
                        has_aes: features[5],
                        omits_icrc: features[6],
                    }
                },
            )
    })
}

fn any_timing() -> impl Strategy<Value = Timing> {
    let durations = prop::array::uniform7(Timing::RANGE_NS);
    durations.prop_map(|mut durations| {
        // The two minimum durations must not exceed the maximum, which is the third value.
        durations[2] = durations[1].max(durations[2]).max(durations[3]);
        Timing::from_values(durations)
    })
}

/// Returns the information of a small queue pair, without fields.
fn without_fields() -> Vec<u8> {
    let mut bytes = info(small()).encode().unwrap();
    let fields = 6 + 7 * 8 + 6 + 16 + 6 + 8;
    bytes.truncate(bytes.len() - fields);
    bytes
}

/// Returns information that ends with fields of these types, flags and values.
fn with_fields(fields: &[(u16, u16, &[u8])]) -> Vec<u8> {
    let mut bytes = without_fields();
    for &(kind, flags, value) in fields {
        push_field(&mut bytes, kind, flags, value);
    }
    bytes
}

fn push_field(bytes: &mut Vec<u8>, kind: u16, flags: u16, value: &[u8]) {
    for number in [kind, flags, value.len().try_into().unwrap()] {
        bytes.extend(number.to_be_bytes());
    }
    bytes.extend(value);
}

fn timing_value(timing: Timing) -> Vec<u8> {
    let durations = timing.fields().map(|(_, ns)| ns.to_be_bytes());
    durations.concat()
}

#[test]
fn the_bytes_are_those_of_the_specification() {
    let bytes = info(QpConfig {
        channels: 1,
        generations: 2,
        parity: true,
        ..small()
    })
    .encode()
    .unwrap();
    let mut want = b"FWQP\x00\x03\x02\x01".to_vec();
    want.extend([0, 0, 0, 64, 0, 0, 0, 4, 0, 0, 0, 4, 10, 18, 4, 1]);
    want.extend([0, 0, 0, 0, 0, 0, 16, 0]);
    want.extend([7; 32]);
    want.extend([0, 0, 0, 0x11, 0, 0, 0, 0]);
    for _ in 0..2 {
        want.extend([
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1, 0x12, 0xb7,
        ]);
    }
    want.extend([0, 0, 0, 0x12, 0, 0, 0, 0x13]);
    want.extend([0, 1, 0x80, 0, 0, 56]);
    for ns in [
        10_000_000_u64,
        1_000_000,
        250_000_000,
        5_000_000,
        1_000_000_000,
        10_000_000_000,
        50_000,
    ] {
        want.extend(ns.to_be_bytes());
    }
    want.extend([0, 2, 0, 0, 0, 16]);
    want.extend([9; 16]);
    want.extend([0, 3, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 5]);
    assert_eq!(bytes, want);
}

#[test]
fn what_is_wrong_is_named() {
    let good = info(small()).encode().unwrap();
    let decode = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        QpInfo::decode(&bytes).unwrap_err()
    };
    assert_eq!(decode(&|b| b[0] = b'X'), InfoError::Magic(*b"XWQP"));
    for theirs in [VERSION - 1, VERSION + 1] {
        let error = decode(&|b| b[4..6].copy_from_slice(&theirs.to_be_bytes()));
        assert_eq!(error, InfoError::Version { theirs });
    }
    assert!(matches!(decode(&|b| b[11] = 63), InfoError::Config(_)));
    assert!(matches!(decode(&|b| b[7] = 64), InfoError::Length { .. }));
    assert_eq!(
        decode(&|b| b.push(0)),
        InfoError::Field(FieldError::Truncated(1))
    );
    assert!(matches!(
        decode(&|b| b.truncate(71)),
        InfoError::Length { want: 72, .. }
    ));
    assert_eq!(decode(&|b| b[67] = 1), InfoError::Qpn(1));
    assert_eq!(decode(&|b| b[67] = 0x13), InfoError::TwoQueuePairs(0x13));
    assert_eq!(decode(&|b| b[64] = 1), InfoError::Qpn(0x100_0011));
}

#[test]
fn unknown_fields_are_ignored_unless_they_are_required() {
    let timing = timing_value(Timing::datacenter());
    let known: [(u16, u16, &[u8]); 2] = [(1, 0x8000, &timing), (2, 0, &[5; 16])];
    let ignored = with_fields(&[known[0], known[1], (4, 0x7fff, &[1, 2]), (0xffff, 0, &[])]);
    let info = QpInfo::decode(&ignored).unwrap();
    assert_eq!(info.timing, Timing::datacenter());
    assert_eq!(info.endpoint, EndpointId([5; 16]));
    assert_eq!(info.endpoint.to_string(), "05".repeat(16));
    assert_eq!(features_of(&info), [false; 7], "older versions have none");
    let reserved = with_fields(&[known[0], known[1], (3, 0, &[0xff; 8])]);
    let reserved = QpInfo::decode(&reserved).unwrap();
    assert_eq!(features_of(&reserved), [true; 7]);

    let required = with_fields(&[known[0], known[1], (4, 0, &[]), (0x1234, 0x8000, &[7])]);
    let error = QpInfo::decode(&required).unwrap_err();
    assert_eq!(error, InfoError::Field(FieldError::Unknown(0x1234)));
    assert!(error.to_string().contains("type 4660"), "{error}");
}

/// The features of P6.1, from the least significant bit on.
fn features_of(info: &QpInfo) -> [bool; 7] {
    [
        info.answers_reads,
        info.grants_credit,
        info.reads_stale,
        info.seals,
        info.requires_sealing,
        info.has_aes,
        info.omits_icrc,
    ]
}

/// Checks the bytes of type 3 of P6.1.
#[test]
fn an_end_says_which_features_it_has() {
    let timing = timing_value(Timing::wide_area());
    for bits in 0..128_u8 {
        let features = [1, 2, 4, 8, 16, 32, 64].map(|bit| bits & bit != 0);
        let [answers_reads, grants_credit, reads_stale, ..] = features;
        let [.., seals, requires_sealing, has_aes, omits_icrc] = features;
        let value = [0, 0, 0, 0, 0, 0, 0, bits];
        let fields: [(u16, u16, &[u8]); 3] =
            [(1, 0x8000, &timing), (2, 0, &[9; 16]), (3, 0, &value)];
        let bytes = with_fields(&fields);
        let decoded = QpInfo::decode(&bytes).unwrap();
        assert_eq!(features_of(&decoded), features);
        let info = QpInfo {
            answers_reads,
            grants_credit,
            reads_stale,
            seals,
            requires_sealing,
            has_aes,
            omits_icrc,
            ..info(small())
        };
        assert_eq!(info.encode().unwrap(), bytes);
    }
}

#[test]
fn bad_fields_are_refused_with_what_is_wrong() {
    let timing = timing_value(Timing::wide_area());
    let timing: (u16, u16, &[u8]) = (1, 0x8000, &timing);
    let endpoint: (u16, u16, &[u8]) = (2, 0, &[5; 16]);
    let decode = |bytes: &[u8]| match QpInfo::decode(bytes) {
        Err(InfoError::Field(error)) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(decode(&without_fields()), FieldError::Missing(1));
    assert_eq!(decode(&with_fields(&[timing])), FieldError::Missing(2));
    assert_eq!(decode(&with_fields(&[endpoint])), FieldError::Missing(1));
    let length = |kind, got, want| FieldError::Length { kind, got, want };
    assert_eq!(decode(&with_fields(&[(1, 0, &[0; 48])])), length(1, 48, 56));
    assert_eq!(
        decode(&with_fields(&[timing, (2, 0, &[5; 17])])),
        length(2, 17, 16)
    );
    let features = (3, 0, &[0; 7][..]);
    assert_eq!(
        decode(&with_fields(&[timing, endpoint, features])),
        length(3, 7, 8)
    );
    for fields in [[endpoint, timing], [endpoint, endpoint]] {
        let (kind, before) = (fields[1].0, 2);
        assert_eq!(
            decode(&with_fields(&fields)),
            FieldError::Order { kind, before }
        );
    }
    let cut = with_fields(&[timing, endpoint]);
    assert_eq!(decode(&cut[..cut.len() - 1]), FieldError::Truncated(21));

    let many: Vec<_> = (4..71).map(|kind| (kind, 0, &[][..])).collect();
    let fields = [&[timing, endpoint][..], &many].concat();
    assert!(QpInfo::decode(&with_fields(&fields[..64])).is_ok());
    assert_eq!(decode(&with_fields(&fields[..65])), FieldError::Count);
    let used = 6 + 56 + 6 + 16 + 6;
    let fits = vec![0; 4096 - used];
    assert!(QpInfo::decode(&with_fields(&[timing, endpoint, (4, 0, &fits)])).is_ok());
    let long = vec![0; 4097 - used];
    assert_eq!(
        decode(&with_fields(&[timing, endpoint, (4, 0, &long)])),
        FieldError::Bytes(4097)
    );
}

#[test]
fn an_impossible_timing_is_refused() {
    let timing = Timing {
        lateness_ns: 0,
        ..Timing::wide_area()
    };
    let mut wild = info(small());
    wild.timing = timing;
    assert!(matches!(wild.encode(), Err(InfoError::Config(_))));
    let timing = timing_value(timing);
    let bytes = with_fields(&[(1, 0x8000, &timing), (2, 0, &[5; 16])]);
    let error = QpInfo::decode(&bytes).unwrap_err().to_string();
    assert!(error.contains("timing.lateness_ns = 0"), "{error}");
}

#[test]
fn fields_that_do_not_fit_together_are_not_encoded() {
    let mut few = info(small());
    few.channels.pop();
    assert!(matches!(
        few.encode(),
        Err(InfoError::Count {
            got: 1,
            want: 2,
            ..
        })
    ));
    let mut few = info(small());
    few.data_qpns[3].pop();
    assert!(matches!(
        few.encode(),
        Err(InfoError::Count {
            got: 1,
            want: 2,
            ..
        })
    ));
    let mut wild = info(small());
    wild.control = "0.0.0.0:4791".parse().unwrap();
    assert_eq!(wild.encode(), Err(InfoError::Address(wild.control)));
    let mut special = info(small());
    special.data_qpns[0][0] = 1;
    assert_eq!(special.encode(), Err(InfoError::Qpn(1)));
    let mut twice = info(small());
    twice.data_qpns[3][1] = twice.data_qpns[0][0];
    assert_eq!(twice.encode(), Err(InfoError::TwoQueuePairs(0x12)));
}

#[test]
fn debug_output_does_not_show_the_key() {
    let mut secret = info(small());
    secret.control_key = [0xab; 32];
    let text = format!("{secret:?}");
    assert!(text.contains("data_qpns") && !text.contains("171") && !text.contains("key"));
}

proptest! {
    #[test]
    fn information_survives_the_bytes(info in any_info()) {
        let bytes = info.encode().unwrap();
        prop_assert_eq!(QpInfo::decode(&bytes), Ok(info));
    }

    #[test]
    fn any_prefix_is_too_short(info in any_info(), at: prop::sample::Index) {
        let bytes = info.encode().unwrap();
        let end = at.index(bytes.len());
        // Information without its last field, the only one that may be missing, is valid.
        prop_assume!(end != bytes.len() - 14);
        let short = &bytes[..end];
        let refused = matches!(
            QpInfo::decode(short),
            Err(InfoError::Length { .. } | InfoError::Field(_))
        );
        prop_assert!(refused);
    }
}
