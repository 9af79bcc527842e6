//! Packets: every opcode, every truncation and arbitrary bytes. What is serialised parses to the
//! same packet.

use farwrite_wire::header::{Aeth, Bth, Deth, Reth};
use farwrite_wire::opcode::{self, Class, Extension, Opcode, Position};
use farwrite_wire::packet::{Packet, ParseError};
use farwrite_wire::request::{SendOnly, WriteImm, pad_bytes};
use proptest::prelude::*;

fn opcodes() -> impl Iterator<Item = &'static Opcode> {
    (0..=u8::MAX).filter_map(opcode::lookup)
}

/// Returns a packet of `opcode` whose extension headers are filled with `fill`.
fn packet_of(opcode: &Opcode, fill: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![fill; opcode.header_bytes()];
    let payload_bytes = u32::try_from(payload.len()).unwrap();
    let pad = pad_bytes(payload_bytes);
    let mut bth = Bth::parse(&[fill; Bth::BYTES]);
    (bth.opcode, bth.version, bth.pad_bytes) = (opcode.value, 0, pad);
    bth.emit(bytes.first_chunk_mut().unwrap());
    if let Some(offset) = opcode.offset_of(Extension::Reth) {
        bytes[offset + 12..offset + 16].copy_from_slice(&payload_bytes.to_be_bytes());
    }
    bytes.extend(payload);
    bytes.resize(bytes.len() + usize::from(pad), 0);
    bytes.extend([0x11, 0x22, 0x33, 0x44]);
    bytes
}

#[test]
fn the_table_knows_what_the_specification_lists() {
    let count = |class| opcodes().filter(|o| o.class == class).count();
    assert_eq!(count(Class::Rc), 25);
    assert_eq!(count(Class::Uc), 12);
    assert_eq!(count(Class::Ud), 2);
    assert_eq!(count(Class::Cnp), 1);
    assert!((0x40..=0x5F).all(|rd| opcode::lookup(rd).is_none()));
    assert!(opcode::lookup(opcode::BOX_MESSAGE).is_none());
    let ours = opcode::lookup(opcode::UC_WRITE_ONLY_WITH_IMM).unwrap();
    assert_eq!(ours.name, "UC RDMA WRITE Only with Immediate");
    assert_eq!(ours.header_bytes(), WriteImm::HEADER_BYTES);
    assert_eq!(ours.position, Position::Only);
    let send = opcode::lookup(opcode::UC_SEND_ONLY).unwrap();
    assert_eq!(send.header_bytes(), SendOnly::HEADER_BYTES);
}

/// For each UC operation, RC has the same operation under the same low bits.
#[test]
fn uc_rows_are_the_rc_rows() {
    for uc in opcodes().filter(|o| o.class == Class::Uc) {
        let rc = opcode::lookup(uc.value & 0x1F).unwrap();
        assert_eq!(uc.name[2..], rc.name[2..]);
        assert_eq!(
            (uc.position, uc.extensions, uc.payload),
            (rc.position, rc.extensions, rc.payload)
        );
    }
}

#[test]
fn every_opcode_parses_and_every_truncation_is_refused() {
    for opcode in opcodes() {
        let payload: &[u8] = if opcode.payload { b"seven b" } else { b"" };
        let bytes = packet_of(opcode, 0xA5, payload);
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!(packet.opcode(), opcode);
        assert_eq!(packet.payload(), payload);
        assert_eq!(packet.icrc(), 0x4433_2211);
        assert_eq!(packet.bth().dest_qp, 0x00A5_A5A5);
        let has = |extension| opcode.extensions.contains(&extension);
        let reth = has(Extension::Reth).then_some(Reth {
            remote_addr: 0xA5A5_A5A5_A5A5_A5A5,
            rkey: 0xA5A5_A5A5,
            dma_bytes: u32::try_from(payload.len()).unwrap(),
        });
        assert_eq!(packet.reth(), reth);
        assert_eq!(packet.imm(), has(Extension::ImmDt).then_some(0xA5A5_A5A5));
        let aeth = Aeth {
            syndrome: 0xA5,
            msn: 0x00A5_A5A5,
        };
        assert_eq!(packet.aeth(), has(Extension::Aeth).then_some(aeth));
        let deth = Deth {
            qkey: 0xA5A5_A5A5,
            src_qp: 0x00A5_A5A5,
        };
        assert_eq!(packet.deth(), has(Extension::Deth).then_some(deth));
        for length in 0..opcode.header_bytes() + 4 {
            assert!(
                Packet::parse(&bytes[..length]).is_err(),
                "{} at {length}",
                opcode.name
            );
        }
    }
}

#[test]
fn each_refusal_says_what_was_wrong() {
    let write = opcode::lookup(opcode::UC_WRITE_ONLY_WITH_IMM).unwrap();
    let good = packet_of(write, 0, b"abcd");
    let refusal = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        Packet::parse(&bytes).unwrap_err()
    };
    assert_eq!(refusal(0, 0x1F), ParseError::BoxMessage);
    assert_eq!(refusal(0, 0x4B), ParseError::UnknownOpcode(0x4B));
    assert_eq!(refusal(1, 0x01), ParseError::Version(1));
    let lengths = ParseError::DmaLength {
        dma_bytes: 4,
        payload_bytes: 3,
    };
    assert_eq!(refusal(1, 0x10), lengths);
    let unaligned = Packet::parse(&good[..good.len() - 1]).unwrap_err();
    assert_eq!(unaligned, ParseError::Unaligned { bytes: 39 });
    let too_short = ParseError::TooShort {
        need_bytes: 36,
        have_bytes: 32,
    };
    assert_eq!(Packet::parse(&good[..32]).unwrap_err(), too_short);
    let mut no_payload = packet_of(write, 0, b"");
    no_payload[1] = 0x20;
    let padding = ParseError::Padding {
        pad_bytes: 2,
        payload_bytes: 0,
    };
    assert_eq!(Packet::parse(&no_payload).unwrap_err(), padding);
    let acknowledge = opcode::lookup(0x11).unwrap();
    let ack = packet_of(acknowledge, 0, b"abcd");
    let unexpected = ParseError::UnexpectedPayload {
        opcode: acknowledge,
        payload_bytes: 4,
    };
    assert_eq!(Packet::parse(&ack).unwrap_err(), unexpected);
    // The parser recognises a box message before it checks the length.
    assert_eq!(Packet::parse(&[0x1F]).unwrap_err(), ParseError::BoxMessage);
}

#[test]
fn a_write_is_laid_out_as_specified() {
    let header = WriteImm {
        dest_qp: 0x0012_3456,
        psn: 0x00AB_CDEF,
        remote_addr: 0x0102_0304_0506_0708,
        rkey: 0x1122_3344,
        imm: 0x5566_7788,
        payload_bytes: 0x1001,
    }
    .header();
    let expected = b"\x2b\x70\xff\xff\x00\x12\x34\x56\x00\xab\xcd\xef\
        \x01\x02\x03\x04\x05\x06\x07\x08\x11\x22\x33\x44\x00\x00\x10\x01\x55\x66\x77\x88";
    assert_eq!(&header, expected);
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..128)) {
        let _ = Packet::parse(&bytes);
    }

    #[test]
    fn arbitrary_bytes_behind_a_known_opcode_never_panic(
        index in 0..40_usize, mut bytes in prop::collection::vec(any::<u8>(), 1..128),
    ) {
        bytes[0] = opcodes().nth(index).unwrap().value;
        if let Ok(packet) = Packet::parse(&bytes) {
            let bth = packet.bth();
            let covered = packet.opcode().header_bytes() + packet.payload().len()
                + usize::from(bth.pad_bytes) + 4;
            prop_assert_eq!(covered, bytes.len());
        }
    }

    #[test]
    fn headers_round_trip(bth: [u8; 12], reth: [u8; 16], aeth: [u8; 4], deth: [u8; 8]) {
        let (mut bth, mut deth) = (bth, deth);
        // Reserved bits are written as zero.
        bth[4] &= 0xC0;
        bth[8] &= 0x80;
        deth[4] = 0;
        let mut out = ([0; 12], [0; 16], [0; 4], [0; 8]);
        Bth::parse(&bth).emit(&mut out.0);
        Reth::parse(&reth).emit(&mut out.1);
        Aeth::parse(&aeth).emit(&mut out.2);
        Deth::parse(&deth).emit(&mut out.3);
        prop_assert_eq!(out, (bth, reth, aeth, deth));
    }

    #[test]
    fn what_is_built_is_what_is_parsed(
        dest_qp in 0..1_u32 << 24, psn in 0..1_u32 << 24, remote_addr: u64, rkey: u32, imm: u32,
        payload in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let payload_bytes = u32::try_from(payload.len()).unwrap();
        let write = WriteImm { dest_qp, psn, remote_addr, rkey, imm, payload_bytes };
        let send = SendOnly { dest_qp, psn, payload_bytes };
        for header in [&write.header()[..], &send.header()[..]] {
            let mut bytes = [header, &payload].concat();
            bytes.resize(bytes.len() + usize::from(pad_bytes(payload_bytes)) + 4, 0);
            let packet = Packet::parse(&bytes).unwrap();
            prop_assert_eq!(packet.payload(), &payload[..]);
            prop_assert_eq!((packet.bth().dest_qp, packet.bth().psn), (dest_qp, psn));
            prop_assert_eq!(packet.bth().pkey, 0xFFFF);
            if header.len() == WriteImm::HEADER_BYTES {
                prop_assert_eq!(packet.reth(), Some(Reth { remote_addr, rkey, dma_bytes: payload_bytes }));
                prop_assert_eq!(packet.imm(), Some(imm));
            } else {
                prop_assert_eq!((packet.reth(), packet.imm()), (None, None));
            }
        }
    }
}
