//! Tests of the assignment of coefficients to packets.

use farwrite_codes::hadamard::Interleave;
use proptest::prelude::*;

use crate::common::{MOST, blocks, shapes};

proptest! {
    #[test]
    fn positions_are_a_permutation(shape in shapes(7, 6), elements in 0..MOST) {
        let mut taken = vec![false; elements];
        for index in 0..elements {
            let at = shape.position(elements, index);
            prop_assert!(!std::mem::replace(&mut taken[at], true), "{at} twice");
        }
    }

    /// A packet of a whole group has the same number of coefficients of each of its blocks. The
    /// number of blocks is the stride, except where a packet holds whole blocks.
    #[test]
    fn packets_share_blocks_evenly(
        shape in shapes(if cfg!(miri) { 3 } else { 7 }, if cfg!(miri) { 3 } else { 6 }),
        groups in 1_usize..4,
        rest in 0_usize..100,
    ) {
        let elements = groups * shape.group() + rest % shape.group();
        let mut owner = vec![usize::MAX; elements];
        for (number, block) in blocks(shape, elements).into_iter().enumerate() {
            for index in block {
                owner[shape.position(elements, index)] = number;
            }
        }
        for packet in owner[..groups * shape.group()].chunks(shape.packet()) {
            let mut counts = std::collections::BTreeMap::new();
            packet.iter().for_each(|&block| *counts.entry(block).or_insert(0) += 1);
            let each = shape.block().min(shape.packet() / shape.stride());
            prop_assert!(counts.values().all(|&count| count == each));
            prop_assert_eq!(counts.len() * each, shape.packet());
        }
    }

    /// The coefficients of a group, and those of the remainder, stay within their own elements.
    #[test]
    fn groups_stay_apart(shape in shapes(7, 6), elements in 1..MOST) {
        for index in 0..elements {
            let at = shape.position(elements, index);
            prop_assert_eq!(at / shape.group(), index / shape.group());
        }
    }
}

/// The example of the documentation: blocks of 8 in packets of 4 with stride 2.
#[test]
fn the_picture_is_right() {
    let shape = Interleave::new(8, 4, 2).unwrap();
    assert_eq!(shape.group(), 16);
    let mut names = vec![String::new(); 16];
    for index in 0..16 {
        let name = format!("{}{}", ["a", "b"][index / 8], index % 8);
        names[shape.position(16, index)] = name;
    }
    let packets: Vec<_> = names.chunks(4).map(|packet| packet.join(" ")).collect();
    assert_eq!(
        packets,
        ["a0 a1 b0 b1", "a2 a3 b2 b3", "a4 a5 b4 b5", "a6 a7 b6 b7"]
    );
}

#[test]
fn the_packet_is_the_largest_power_of_two_that_fits() {
    for (payload, bytes, elements) in [
        (4096, 4, Some(1024)),
        (4096, 2, Some(2048)),
        (4095, 4, Some(512)),
        (1408, 2, Some(512)),
        (3, 4, None),
        (4, 4, Some(1)),
        (100, 0, None),
        (usize::MAX, 1, Some(1 << 15)),
    ] {
        assert_eq!(
            Interleave::packet_elements(payload, bytes),
            elements,
            "{payload}"
        );
    }
}
