//! A bounded run of the fuzz target: bytes from the network never cause a panic, and change memory
//! only where a valid write may.

#[allow(unreachable_pub)]
#[path = "../../../../fuzz/src/fabric.rs"]
mod targets;

use std::ops::Range;

use farwrite_wire::request::{SendOnly, WriteImm, pad_bytes};
use proptest::prelude::*;

/// Lengths around the limits of a queue pair with MTU 64.
const LENGTHS: Range<u32> = 0..70;

/// Generates a valid packet in the form of the fuzz target's input, which replaces the numbers with
/// right ones.
fn right() -> impl Strategy<Value = Vec<u8>> {
    let addrs = prop_oneof![8 => 0..200_u64, 1 => any::<u64>()];
    (any::<bool>(), 1..4_u8, addrs, LENGTHS).prop_map(|(send, key, remote_addr, payload_bytes)| {
        let (dest_qp, psn) = (0, 0);
        let mut packet = if send {
            let packet = SendOnly {
                dest_qp,
                psn,
                payload_bytes,
            };
            packet.header().to_vec()
        } else {
            let packet = WriteImm {
                dest_qp,
                psn,
                remote_addr,
                rkey: 0,
                imm: 0,
                payload_bytes,
            };
            packet.header().to_vec()
        };
        let padded = payload_bytes as usize + usize::from(pad_bytes(payload_bytes));
        packet.resize(packet.len() + padded, 0xAB);
        let key = if send { 0 } else { key };
        let wrap = [0b11 | key << 3, u8::try_from(packet.len()).unwrap()];
        [&wrap[..], &packet].concat()
    })
}

/// Generates valid packets with up to three changed bytes, including headers and length.
fn nearly_right() -> impl Strategy<Value = Vec<u8>> {
    let changes = prop::collection::vec((0..50_usize, any::<u8>()), 0..4);
    (right(), changes).prop_map(|(mut packet, changes)| {
        for (at, byte) in changes {
            if let Some(place) = packet.get_mut(at) {
                *place = byte;
            }
        }
        packet
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn any_bytes(data in prop::collection::vec(any::<u8>(), 0..600)) {
        targets::nic_receive(&data);
    }

    #[test]
    fn nearly_right_packets(packets in prop::collection::vec(nearly_right(), 1..12)) {
        targets::nic_receive(&packets.concat());
    }
}
