//! A bounded run of the fuzz targets: the same functions, with random and nearly valid inputs.

#[allow(unreachable_pub)]
#[path = "../../../../fuzz/src/wire.rs"]
mod targets;

use crate::common::{control_messages, flow};
use farwrite_wire::control::{Builder, HEADER_BYTES, Header};
use farwrite_wire::icrc::Icrc;
use farwrite_wire::request::{WriteImm, pad_bytes};
use proptest::prelude::*;
use proptest::sample::Index;

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..200)
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

/// Sealed packets with any opcode.
fn packets() -> impl Strategy<Value = Vec<u8>> {
    let payload = prop::collection::vec(any::<u8>(), 0..64);
    (prop::option::of(any::<u8>()), payload).prop_map(|(opcode, payload)| {
        let payload_bytes = u32::try_from(payload.len()).unwrap();
        let write = WriteImm {
            dest_qp: 1,
            psn: 2,
            remote_addr: 3,
            rkey: 4,
            imm: 5,
            payload_bytes,
        };
        let mut packet = [&write.header()[..], &payload].concat();
        packet.resize(packet.len() + usize::from(pad_bytes(payload_bytes)), 0);
        packet[0] = opcode.unwrap_or(packet[0]);
        let icrc = Icrc::new(&flow("10.0.0.1:1", "10.0.0.2:2"), 0, packet.len() + 4);
        packet.extend(icrc.update(&packet).finish().to_le_bytes());
        packet
    })
}

fn control_packets() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(control_messages(), 0..6).prop_map(|messages| {
        let mut builder = Builder::new(1 << 16);
        assert!(messages.iter().all(|message| builder.push(message)));
        let header = Header {
            counter: 0,
            timestamp_ns: 0,
            echo: None,
        };
        builder.seal(&header, &[7; 32])
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn packet(data in prop_oneof![bytes(), nearly(packets())]) {
        targets::packet(&data);
    }

    #[test]
    fn icrc(ends: [u8; 18], packet in prop_oneof![bytes(), nearly(packets())]) {
        targets::icrc(&[&ends[..], &packet].concat());
    }

    #[test]
    fn control_open(data in prop_oneof![bytes(), nearly(control_packets())]) {
        targets::control_open(&data);
    }

    #[test]
    fn control_messages_of_a_peer(data in prop_oneof![bytes(), nearly(control_packets())]) {
        targets::control_messages(data.get(HEADER_BYTES..).unwrap_or(&data));
    }
}
