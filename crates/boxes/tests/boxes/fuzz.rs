//! A bounded run of the fuzz target: the same function, over random and nearly valid inputs.
#![allow(clippy::cast_possible_truncation, reason = "small numbers of a test")]

#[allow(unreachable_pub)]
#[path = "../../../../fuzz/src/boxes.rs"]
mod targets;

use crate::common::payload;
use farwrite_boxes::lowar::{Config, Lowar};
use farwrite_boxes::netrt::{self, NetRt};
use farwrite_boxes::{BoxFrame, PathBox, Side};
use proptest::prelude::*;
use targets::Layers;

/// Generates a data packet with a valid ICRC, from either side, with or without the code point of
/// repeats.
fn data() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let opcodes =
        prop::sample::select(&[0x06u8, 0x07, 0x08, 0x0A, 0x0C, 0x0D, 0x0F, 0x11, 0x2B][..]);
    let wrap = (any::<bool>(), any::<bool>(), 0u8..3);
    (opcodes, 0u32..24, 0u32..20, wrap).prop_map(|(opcode, psn, bytes, (far, repeats, time))| {
        let wrap = 4 | u8::from(far) | u8::from(repeats) << 3 | time << 4;
        (wrap, payload(opcode, psn, bytes, 0))
    })
}

fn any_frame() -> impl Strategy<Value = (u8, Vec<u8>)> {
    (any::<u8>(), prop::collection::vec(any::<u8>(), 0..120))
}

/// Of the first start of a box.
fn stamp(serial: u8) -> Vec<u8> {
    [[0, 0, 0, 0, 0, 0, 0, 1], [0, 0, 0, 0, 0, 0, 0, serial]].concat()
}

/// The body of a report: two stamps and ten counts (P10.3).
fn report(serial: u8, counts: Vec<u8>) -> Vec<u8> {
    let counts = counts.into_iter().chain(std::iter::repeat(0)).take(40);
    [stamp(serial), stamp(serial), counts.collect()].concat()
}

/// Generates a frame for [`targets::lowar`]: how it is wrapped, and its bytes.
fn lowar_frame() -> impl Strategy<Value = (u8, Vec<u8>)> {
    // Sealed box messages for the queue pair and the shape of the data packets.
    let message = (
        1u8..5,
        0u8..3,
        0u8..24,
        0u8..3,
        1u8..5,
        0u8..4,
        prop::collection::vec(any::<u8>(), 0..70),
    );
    let message = message.prop_map(|(kind, space, psn, unit, packets, flags, rest)| {
        let mut bytes = vec![0x1F, 0, 0x12, 0x34, kind, 0, 0, 0, space | flags << 6];
        bytes.extend([0, 0, psn, 0, 4, 2]);
        match kind {
            1 => bytes.extend([unit % 2, 0, packets, 0, 20]),
            _ => bytes.extend([0; 5]),
        }
        match kind {
            1 => bytes.extend(rest),
            4 => bytes.extend(report(unit, rest)),
            _ => bytes.extend(stamp(unit)),
        }
        (7, bytes)
    });
    prop_oneof![5 => data(), 3 => message, 1 => any_frame()]
}

/// Generates a frame for [`targets::netrt`].
fn netrt_frame() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let near = (5u8..9, 0u8..2, 0u8..24, 0u8..24, 0u8..4);
    let message = (near, any::<u128>(), 1u8..130);
    let message = message.prop_map(|((kind, space, psn, last, serial), bitmap, span)| {
        let mut bytes = vec![0x1F, 0, 0x12, 0x34, kind, 0, 0, 0, space, 0, 0, psn];
        match kind {
            5 | 6 => {
                bytes.extend([0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, serial]);
                bytes.extend([24, 0, 0, if kind == 6 { last } else { 0 }]);
            }
            7 => {
                bytes.extend(bitmap.to_be_bytes());
                bytes.push(span);
            }
            _ => {}
        }
        (7, bytes)
    });
    prop_oneof![5 => data(), 3 => message, 1 => any_frame()]
}

/// The first byte of an input: IPv4 or IPv6, VLAN tags, and whether a LoWAR box adapts.
fn first() -> impl Strategy<Value = u8> {
    (0u8..8, any::<bool>()).prop_map(|(layers, adapts)| layers | u8::from(adapts) << 7)
}

fn input(first: u8, frames: Vec<(u8, Vec<u8>)>) -> Vec<u8> {
    let mut input = vec![first];
    for (wrap, bytes) in frames {
        input.extend([wrap, bytes.len() as u8]);
        input.extend(bytes);
    }
    input
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn lowar_takes_any_frames(
        first in first(),
        frames in prop::collection::vec(lowar_frame(), 0..60),
    ) {
        targets::lowar(&input(first, frames));
    }

    #[test]
    fn netrt_takes_any_frames(
        layers in 0u8..8,
        frames in prop::collection::vec(netrt_frame(), 0..60),
    ) {
        targets::netrt(&input(layers, frames));
    }

    #[test]
    fn boxes_take_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        targets::lowar(&bytes);
        targets::netrt(&bytes);
    }
}

/// Checks that the target seals messages correctly, so that they reach the code behind the seal: a
/// probe and a request are answered, a report is taken.
#[test]
fn the_target_seals_as_boxes_do() {
    // IPv4 and IPv6, with up to two tags.
    for layers in (0..6).map(Layers::of) {
        check_seals(layers);
    }
}

fn check_seals(layers: Layers) {
    let message = |kind: u8, body: Vec<u8>| {
        let mut message = vec![0x1F, 0, 0x12, 0x34, kind, 0, 0, 0, 0, 0, 0, 0];
        message.extend([0, 4, 2, 0, 0, 0, 0, 0]);
        message.extend(body);
        targets::wrapped(layers, 0, 3, Side::Far, &message)
    };
    let config = Config {
        key: Some(targets::KEY),
        ..Config::default()
    };
    let mut lowar = Lowar::new(&config, 1);
    lowar.handle(0, Side::Far, message(2, stamp(1)));
    assert_eq!(lowar.counters().reports_sent, 1);
    assert!(matches!(lowar.poll(), Some(BoxFrame { to: Side::Far, .. })));
    // A packet makes the box ask, and the report answers.
    let packet = targets::wrapped(layers, 0, 2, Side::Near, &payload(0x0A, 1, 8, 0));
    lowar.handle(0, Side::Near, packet);
    lowar.handle(0, Side::Far, message(4, report(1, Vec::new())));
    assert_eq!(lowar.counters().reports_received, 1);
    // A request about a flow that is not known is answered by a notice.
    let mut request = vec![0x1F, 0, 0x12, 0x34, 7, 0, 0, 0, 0, 0, 0, 5];
    request.extend([0; 16]);
    request.push(1);
    let config = netrt::Config {
        key: Some(targets::KEY),
        ..netrt::Config::new(1_000_000_000, 50_000)
    };
    let request = targets::wrapped(layers, 0, 3, Side::Far, &request);
    let mut netrt = NetRt::new(&config, 1);
    netrt.handle(0, Side::Far, request);
    assert_eq!(netrt.counters().notices_sent, 1);
    assert!(matches!(netrt.poll(), Some(BoxFrame { to: Side::Far, .. })));
}
