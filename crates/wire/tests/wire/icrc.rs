//! Compares the ICRC with captures and with a bitwise implementation, and checks its algebra.

use crate::common::{datagram, flow, flows, flows_v4, icrc_of_datagram};
use farwrite_wire::icrc::{self, BadIcrc, Flow, Icrc, IdRange};
use proptest::prelude::*;
use proptest::sample::Index;

/// Returns the ICRC of a UDP payload without its ICRC, by the bitwise implementation.
fn bitwise(flow: &Flow, id: u16, body: &[u8]) -> u32 {
    let mut with_room = body.to_vec();
    with_room.extend([0; 4]);
    let datagram = datagram(flow, id, &with_room);
    icrc_of_datagram(&datagram[..datagram.len() - 4])
}

/// Returns a UDP payload, sealed by the bitwise implementation.
fn sealed(flow: &Flow, id: u16, body: &[u8]) -> Vec<u8> {
    let mut packet = body.to_vec();
    packet.extend(bitwise(flow, id, body).to_le_bytes());
    packet
}

/// Generates any bytes from the BTH to the padding.
fn bodies() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 12..600)
}

/// A UC SEND Only between two queue pairs of one NIC, from the tests of scapy's RoCE layer.
#[test]
fn agrees_with_a_captured_uc_send() {
    let flow = flow("192.168.0.7:49152", "192.168.0.7:4791");
    let packet = b"\x24\x60\xff\xff\x00\x00\x00\xd3\x00\xcf\x17\x10\
        F0\x81\x8b\xe2\x895\xd9\x0e\x9a\x95PT\x01\xbe\x88^P\x00\x00\x78\xf3\x53\xf3";
    assert_eq!(
        icrc::verify(&flow, packet, 1144, IdRange::SOFTWARE),
        Ok(1144)
    );
    assert_eq!(icrc::verify(&flow, packet, 0, IdRange::ANY), Ok(1144));
    assert!(icrc::verify(&flow, packet, 0, IdRange::SOFTWARE).is_err());
}

/// A CNP captured on a ConnectX-4 Lx, from the same source.
#[test]
fn agrees_with_a_captured_cnp() {
    let flow = flow("10.0.17.1:0", "10.0.18.1:4791");
    let packet = b"\x81\x00\xff\xff\x40\x00\x01\x18\x00\x00\x00\x00\
        \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x82\xfd\x00\x2a";
    assert_eq!(icrc::verify(&flow, packet, 0, IdRange::ANY), Ok(0x718C));
}

#[test]
fn ipv4_in_ipv6_notation_is_ipv4() {
    let packet = sealed(&flow("10.0.0.1:5", "10.0.0.2:6"), 3, &[7; 20]);
    let mapped = flow("[::ffff:10.0.0.1]:5", "[::ffff:10.0.0.2]:6");
    assert_eq!(icrc::verify(&mapped, &packet, 0, IdRange::SOFTWARE), Ok(3));
}

#[test]
fn mixed_families_are_refused() {
    let addr = |text: &str| text.parse().unwrap();
    let error = Flow::new(addr("10.0.0.1:5"), addr("[2001:db8::1]:6")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "10.0.0.1:5 and [2001:db8::1]:6 are not of one IP version"
    );
}

#[test]
fn short_packets_are_refused() {
    let flow = flow("10.0.0.1:5", "10.0.0.2:6");
    for have_bytes in 0..16 {
        let answer = icrc::verify(&flow, &vec![0; have_bytes], 0, IdRange::ANY);
        assert_eq!(answer, Err(BadIcrc::TooShort { have_bytes }));
    }
}

proptest! {
    #[test]
    fn agrees_with_the_bitwise_one_however_cut(
        flow in flows(), id: u16, body in bodies(), cuts in prop::array::uniform3(0..600_usize),
    ) {
        let mut cuts = cuts.map(|cut| cut.min(body.len()));
        cuts.sort_unstable();
        let mut icrc = Icrc::new(&flow, id, body.len() + 4);
        for (from, to) in [(0, cuts[0]), (cuts[0], cuts[1]), (cuts[1], cuts[2]), (cuts[2], body.len())] {
            icrc = icrc.update(&body[from..to]);
        }
        prop_assert_eq!(icrc.finish(), bitwise(&flow, id, &body));
    }

    #[test]
    fn finds_the_identification(flow in flows_v4(), id: u16, expected: u16, body in bodies()) {
        let packet = sealed(&flow, id, &body);
        prop_assert_eq!(icrc::verify(&flow, &packet, id, IdRange::SOFTWARE), Ok(id));
        prop_assert_eq!(icrc::verify(&flow, &packet, expected, IdRange::ANY), Ok(id));
        let low = id % 64;
        let packet = sealed(&flow, low, &body);
        prop_assert_eq!(icrc::verify(&flow, &packet, expected, IdRange::SOFTWARE), Ok(low));
    }

    #[test]
    fn refuses_identifications_out_of_range(flow in flows_v4(), id in 64..=u16::MAX, body in bodies()) {
        let packet = sealed(&flow, id, &body);
        prop_assert!(icrc::verify(&flow, &packet, 0, IdRange::SOFTWARE).is_err());
    }

    /// Damage of up to 8 consecutive bits: every CRC-32 detects it, and it is very unlikely that
    /// another identification matches.
    #[test]
    fn refuses_a_damaged_byte(flow in flows(), body in bodies(), at: Index, flip in 1..=u8::MAX) {
        let mut packet = sealed(&flow, 0, &body);
        let at = at.index(packet.len());
        packet[at] ^= flip;
        let masked = at == 4;
        prop_assert_eq!(icrc::verify(&flow, &packet, 0, IdRange::SOFTWARE).is_ok(), masked);
    }

    #[test]
    fn reseals(
        old in flows(), old_id: u16, new in flows(), new_id: u16, body in bodies(), damage: u32,
    ) {
        let bytes = body.len() + 4;
        let good = bitwise(&old, old_id, &body);
        let moved = icrc::reseal((&old, old_id), (&new, new_id), bytes, good ^ damage);
        prop_assert_eq!(moved ^ damage, bitwise(&new, new_id, &body));
    }
}

/// The longest payload of an IPv4 datagram. No length arithmetic may overflow there.
#[test]
fn works_at_the_longest_datagram() {
    let flow = flow("10.0.0.1:5", "10.0.0.2:6");
    let packet = sealed(&flow, 9, &vec![0x5A; 65_507 - 4]);
    assert_eq!(icrc::verify(&flow, &packet, 0, IdRange::SOFTWARE), Ok(9));
    let beyond = vec![0; 70_000];
    assert!(icrc::verify(&flow, &beyond, 0, IdRange::SOFTWARE).is_err());
}
