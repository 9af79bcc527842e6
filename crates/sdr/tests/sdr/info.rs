//! Queue-pair information (P6): bytes from anybody.

use std::net::SocketAddr;

use farwrite_sdr::{InfoError, QpConfig, QpInfo};
use proptest::prelude::*;

use crate::{info, small, targets};

fn any_info() -> impl Strategy<Value = QpInfo> {
    let address = || (any::<std::net::IpAddr>(), 1_u16..).prop_map(SocketAddr::from);
    let usable = move || {
        address().prop_filter("one to send to", |address| {
            // Mapped addresses come back as IPv4.
            !address.ip().is_unspecified() && address.ip() == address.ip().to_canonical()
        })
    };
    let qpn = || 2_u32..1 << 24;
    (1_u8..5, 1_u8..5).prop_flat_map(move |(generations, channels)| {
        let config = QpConfig {
            generations,
            channels,
            ..small()
        };
        let count = usize::from(channels);
        let qpns = prop::collection::vec(qpn(), count);
        (
            usable(),
            prop::collection::vec(usable(), count),
            qpn(),
            prop::collection::vec(qpns, usize::from(generations)),
            any::<[u8; 32]>(),
        )
            .prop_map(
                move |(control, channels, control_qpn, data_qpns, control_key)| QpInfo {
                    config,
                    control,
                    channels,
                    control_qpn,
                    data_qpns,
                    control_key,
                },
            )
    })
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
    let mut want = b"FWQP\x00\x02\x02\x01".to_vec();
    want.extend([0, 0, 0, 64, 0, 0, 0, 4, 0, 0, 0, 4, 10, 18, 4, 1]);
    want.extend([0, 0, 0, 0, 0, 0, 16, 0]);
    want.extend([7; 32]);
    want.extend([0, 0, 0, 0x11, 0, 0, 0, 0]);
    for _ in 0..2 {
        want.extend([
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1, 0x12, 0xb7,
        ]);
    }
    want.extend([0, 0, 0, 0x12, 0, 0, 0, 0x12]);
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
    assert_eq!(decode(&|b| b[5] = 3), InfoError::Version { theirs: 3 });
    assert!(matches!(decode(&|b| b[11] = 63), InfoError::Config(_)));
    assert!(matches!(decode(&|b| b[7] = 3), InfoError::Length { .. }));
    assert!(matches!(decode(&|b| b.push(0)), InfoError::Length { .. }));
    assert!(matches!(
        decode(&|b| b.truncate(71)),
        InfoError::Length { want: 72, .. }
    ));
    assert_eq!(decode(&|b| b[67] = 1), InfoError::Qpn(1));
    assert_eq!(decode(&|b| b[64] = 1), InfoError::Qpn(0x100_0011));
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
        let short = &bytes[..at.index(bytes.len())];
        let refused = matches!(QpInfo::decode(short), Err(InfoError::Length { .. }));
        prop_assert!(refused);
    }

    #[test]
    fn damaged_bytes_are_refused_or_read_as_what_they_say(
        info in any_info(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = info.encode().unwrap();
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        targets::qp_info(&bytes);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        targets::qp_info(&bytes);
    }
}
