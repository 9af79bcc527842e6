//! The wire format of route packets.

use std::net::SocketAddr;

use farwrite_route::{
    MIN_BYTES, PacketError, PacketType, RoutePacket, TRAILER_BYTES, stated_index,
};
use proptest::prelude::*;

fn packet() -> impl Strategy<Value = RoutePacket> {
    let kind = prop_oneof![
        Just(PacketType::Probe),
        (any::<u64>(), any::<[bool; 2]>()).prop_map(|(echo, [is_accepted, is_resealed])| {
            PacketType::Reply {
                echo,
                is_accepted,
                is_resealed,
            }
        }),
    ];
    let address = (any::<[u8; 16]>(), any::<bool>(), any::<u16>()).prop_map(|(ip, v4, port)| {
        let ip = match v4 {
            true => std::net::IpAddr::from([ip[0], ip[1], ip[2], ip[3]]),
            false => std::net::IpAddr::from(ip).to_canonical(),
        };
        SocketAddr::new(ip, port)
    });
    let place = (any::<u8>(), any::<u16>(), any::<bool>());
    (kind, place, any::<u64>(), address.clone(), address).prop_map(
        |(kind, (channel, index, hears_nothing), counter, from, to)| RoutePacket {
            kind,
            channel,
            index,
            counter,
            hears_nothing,
            from,
            to,
        },
    )
}

#[test]
fn a_probe_is_these_bytes() {
    let packet = RoutePacket {
        kind: PacketType::Reply {
            echo: 0x0102,
            is_accepted: true,
            is_resealed: false,
        },
        channel: 3,
        index: 0x0607,
        counter: 0x0405,
        hears_nothing: true,
        from: "192.0.2.1:4096".parse().expect("an address"),
        to: "[2001:db8::1]:1".parse().expect("an address"),
    };
    let bytes = packet.seal(&[7; 32], 0);
    assert_eq!(bytes.len(), 80);
    assert_eq!(bytes[..4], [0x1E, 1, 5, 3]);
    assert_eq!(
        bytes[4..20],
        [0, 0, 0, 0, 0, 0, 4, 5, 0, 0, 0, 0, 0, 0, 1, 2]
    );
    assert_eq!(bytes[30..38], [0xFF, 0xFF, 192, 0, 2, 1, 0x10, 0]);
    assert_eq!(bytes[38..42], [0x20, 0x01, 0x0d, 0xb8]);
    assert_eq!(bytes[56..60], [6, 7, 0, 80]);
    assert_eq!(stated_index(&bytes), Some(0x0607));
    assert_eq!(stated_index(&bytes[..57]), None);
    assert_eq!(
        bytes[60..76],
        blake3::keyed_hash(&[7; 32], &bytes[..60]).as_bytes()[..16]
    );
    assert_eq!(bytes[76..], [0; TRAILER_BYTES]);
}

proptest! {
    #[test]
    fn packets_survive_the_wire_and_relays(
        packet in packet(),
        bytes in 0..9000_usize,
        trailer in any::<[u8; 4]>(),
    ) {
        let mut sealed = packet.seal(&[1; 32], bytes);
        prop_assert_eq!(sealed.len(), bytes.max(MIN_BYTES));
        let end = sealed.len() - TRAILER_BYTES;
        sealed[end..].copy_from_slice(&trailer);
        prop_assert_eq!(RoutePacket::open(&[1; 32], &sealed), Ok(packet));
        prop_assert_eq!(RoutePacket::open(&[2; 32], &sealed), Err(PacketError::Tag));
    }

    #[test]
    fn a_packet_that_was_changed_or_cut_is_refused(
        packet in packet(),
        bytes in 0..2000_usize,
        at in 1..76_usize,
        bit in 0..8_u8,
        cut in 1..2000_usize,
    ) {
        let sealed = packet.seal(&[1; 32], bytes);
        let mut changed = sealed.clone();
        changed[at] ^= 1 << bit;
        RoutePacket::open(&[1; 32], &changed).expect_err("changed");
        let left = sealed.len().saturating_sub(cut);
        RoutePacket::open(&[1; 32], &sealed[..left]).expect_err("cut");
    }

    #[test]
    fn any_bytes_are_read_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        RoutePacket::open(&[1; 32], &bytes).expect_err("no tag");
    }
}
