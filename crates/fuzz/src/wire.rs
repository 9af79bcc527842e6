//! Targets of the wire crate.

use farwrite_wire::control::{self, Builder, Control, HEADER_BYTES, Header, KEY_BYTES};
use farwrite_wire::header::{Bth, ICRC_BYTES};
use farwrite_wire::icrc::{self, Flow, Icrc, IdRange};
use farwrite_wire::packet::Packet;
use std::net::SocketAddr;

const KEY: [u8; KEY_BYTES] = [7; KEY_BYTES];

/// A whole UDP payload. The parts of a parsed packet cover every byte.
pub fn packet(data: &[u8]) {
    let Ok(packet) = Packet::parse(data) else {
        return;
    };
    let (bth, opcode) = (packet.bth(), packet.opcode());
    assert_eq!(bth.opcode, opcode.value);
    let padded_bytes = packet.payload().len() + usize::from(bth.pad_bytes);
    assert_eq!(
        opcode.header_bytes() + padded_bytes + ICRC_BYTES,
        data.len()
    );
    assert_eq!(packet.icrc().to_le_bytes(), data[data.len() - ICRC_BYTES..]);
    let extensions = [
        packet.reth().is_some(),
        packet.imm().is_some(),
        packet.aeth().is_some(),
        packet.deth().is_some(),
    ];
    let present = extensions.into_iter().filter(|&present| present).count();
    assert!(present <= opcode.extensions.len());
    let mut header = [0; Bth::BYTES];
    bth.emit(&mut header);
    assert_eq!(Bth::parse(&header), bth);
}

/// Two flows, an IPv4 identification, and a UDP payload. A sealed packet verifies, also after it was
/// sealed for the other flow. A packet that verifies for an identification was sealed with it.
pub fn icrc(data: &[u8]) {
    let Some((ends, rest)) = data.split_first_chunk::<16>() else {
        return;
    };
    let Some((id, payload)) = rest.split_first_chunk() else {
        return;
    };
    let id = u16::from_be_bytes(*id);
    let (old, new) = flows(ends);
    if let Ok(found) = icrc::verify(&old, payload, id, IdRange::ANY) {
        assert_eq!(icrc::verify(&old, payload, found, IdRange::ANY), Ok(found));
    }
    let udp_payload_bytes = payload.len() + ICRC_BYTES;
    if payload.len() < Bth::BYTES || udp_payload_bytes > 65_507 {
        return;
    }
    let seal = |flow: &Flow| {
        let (first, second) = payload.split_at(payload.len() / 2);
        let icrc = Icrc::new(flow, id, udp_payload_bytes);
        icrc.update(first).update(second).finish()
    };
    let sealed = [payload, &seal(&old).to_le_bytes()].concat();
    let accepted = icrc::verify(&old, &sealed, 0, IdRange::ANY);
    assert_eq!(accepted, Ok(if old.src().is_ipv4() { id } else { 0 }));
    let moved = icrc::reseal((&old, id), (&new, id), udp_payload_bytes, seal(&old));
    assert_eq!(moved, seal(&new));
}

/// Two flows of one address family. The first byte selects the family.
fn flows(ends: &[u8; 16]) -> (Flow, Flow) {
    let end = |bytes: &[u8]| -> SocketAddr {
        let mut ip = [0x20; 16];
        ip[..2].copy_from_slice(&bytes[..2]);
        let port = u16::from_be_bytes([bytes[2], bytes[3]]);
        if ends[0] & 1 == 0 {
            let [a, b, c, d, ..] = ip;
            ([a, b, c, d], port).into()
        } else {
            (ip, port).into()
        }
    };
    let flow = |at: usize| {
        let (src, dst) = (end(&ends[at..at + 4]), end(&ends[at + 4..at + 8]));
        Flow::new(src, dst).expect("both ends are of one family")
    };
    (flow(0), flow(8))
}

/// A control packet as it comes from the network. A forged packet does not open.
pub fn control_open(data: &[u8]) {
    if let Ok((_, messages)) = control::open(&KEY, data) {
        read_and_write(messages);
    }
}

/// Any bytes as the messages of a control packet that a peer has sealed.
pub fn control_messages(data: &[u8]) {
    let header = Header {
        counter: 1,
        timestamp_ns: 2,
        echo: None,
    };
    let mut packet = Builder::new(HEADER_BYTES).seal(&header, &KEY);
    packet.extend(data);
    let tag = HEADER_BYTES - 16..HEADER_BYTES;
    packet[tag.clone()].fill(0);
    let hash = blake3::keyed_hash(&KEY, &packet);
    packet[tag].copy_from_slice(&hash.as_bytes()[..16]);
    let (found, messages) = control::open(&KEY, &packet).expect("the tag is right");
    assert_eq!(found, header);
    read_and_write(messages);
}

/// A message that was read can be written, and reads the same again.
fn read_and_write(messages: control::Messages<'_>) {
    let read: Vec<Control> = messages.flatten().collect();
    let mut builder = Builder::new(usize::MAX);
    for message in &read {
        assert!(builder.push(message), "it came in a message of this length");
    }
    let header = Header {
        counter: 0,
        timestamp_ns: 0,
        echo: None,
    };
    let packet = builder.seal(&header, &KEY);
    let (_, again) = control::open(&KEY, &packet).expect("the tag is right");
    assert_eq!(again.collect::<Result<Vec<_>, _>>(), Ok(read));
}
