//! Packets as bytes, from the IP header on.

use farwrite_link::Rng;
use farwrite_rc::Packet;
use farwrite_wire::header::{Bth, Reth};

use crate::record::Beats;

const ROCE_PORT: u16 = 4791;
/// UDP header and ICRC.
const UDP_AND_ICRC: u16 = 8 + 4;

/// What is wrong with a packet before its queue pair sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Port,
    Protocol,
    Fragment,
    Length,
    Version,
    Padding,
    QueuePair,
}

pub(crate) const FAULTS: [Fault; 7] = [
    Fault::Port,
    Fault::Protocol,
    Fault::Fragment,
    Fault::Length,
    Fault::Version,
    Fault::Padding,
    Fault::QueuePair,
];

/// The headers of a packet from the BTH on. Message numbers begin at `base`; an absent header is zeros.
pub(crate) fn roce(packet: &Packet, dest_qp: u32, base: u32) -> [u8; 32] {
    let mut bytes = [0; 32];
    let header = packet.header;
    let payload_bytes = packet.payload.carried_bytes();
    let is_data = header.reth.is_some();
    let bth = Bth {
        dest_qp,
        psn: if is_data {
            crate::number(base, header.bth.psn.into())
        } else {
            header.bth.psn
        },
        pad_bytes: farwrite_wire::request::pad_bytes(payload_bytes),
        ..header.bth
    };
    let mut field = [0; Bth::BYTES];
    bth.emit(&mut field);
    bytes[..12].copy_from_slice(&field);
    if let Some(reth) = header.reth {
        let mut field = [0; Reth::BYTES];
        reth.emit(&mut field);
        bytes[12..28].copy_from_slice(&field);
    }
    bytes[28..].copy_from_slice(&header.imm.unwrap_or(0).to_be_bytes());
    bytes
}

/// A packet over IPv4, or IPv6, and its number of beats. A part of its payload, which is random, follows the headers.
pub(crate) fn beats(
    rng: &mut Rng,
    packet: &Packet,
    header: &[u8; 32],
    is_marked: bool,
    fault: Option<Fault>,
) -> (u32, Beats) {
    let is_v6 = rng.chance(0.2);
    let payload = packet.payload.carried_bytes();
    let padded = payload + u32::from(farwrite_wire::request::pad_bytes(payload));
    let around = u32::from(UDP_AND_ICRC) + packet.header.bytes();
    // Payloads have at most 9000 bytes.
    let udp_bytes = u16::try_from(around + padded).unwrap_or(u16::MAX);
    let mut bytes: Beats = core::array::from_fn(|_| rng.bits().to_le_bytes()[0]);
    let ip_bytes = if is_v6 { 40 } else { 20 };
    let ecn = if is_marked {
        3
    } else {
        [0, 1, 2][rng.below(3)]
    };
    if is_v6 {
        bytes[0] = 0x60;
        bytes[1] = ecn << 4;
        bytes[4..6].copy_from_slice(&udp_bytes.to_be_bytes());
        bytes[6] = 17;
    } else {
        bytes[0] = 0x45;
        bytes[1] = ecn | 0xA0;
        bytes[2..4].copy_from_slice(&(udp_bytes + 20).to_be_bytes());
        bytes[6..8].copy_from_slice(&[0x40, 0]);
        bytes[9] = 17;
    }
    let udp = &mut bytes[ip_bytes..];
    udp[2..4].copy_from_slice(&ROCE_PORT.to_be_bytes());
    udp[4..6].copy_from_slice(&udp_bytes.to_be_bytes());
    let header_bytes = packet.header.bytes() as usize;
    udp[8..8 + header_bytes].copy_from_slice(&header[..header_bytes]);
    match fault {
        None => {}
        Some(Fault::Port) => udp[3] ^= 1,
        Some(Fault::Protocol) => bytes[if is_v6 { 6 } else { 9 }] = 6,
        Some(Fault::Fragment) if is_v6 => bytes[6] = 44,
        Some(Fault::Fragment) => bytes[7 - rng.below(2)] |= 0x21,
        Some(Fault::Length) => udp[5] ^= 1 << rng.below(8),
        Some(Fault::Version) => udp[9] |= 1 << rng.below(4),
        // More padding than there are bytes; the UDP header counts only the headers then.
        Some(Fault::Padding) => {
            let least = udp_bytes - u16::try_from(padded).unwrap_or(0);
            udp[4..6].copy_from_slice(&least.to_be_bytes());
            udp[9] |= 0x10;
            let (at, bytes_there) = if is_v6 { (4, least) } else { (2, least + 20) };
            bytes[at..at + 2].copy_from_slice(&bytes_there.to_be_bytes());
        }
        Some(Fault::QueuePair) => udp[8 + 5 + rng.below(2)] |= 0x40,
    }
    let least = if is_v6 { 2 } else { 1 };
    (least.max(1 + crate::below(rng, 2)), bytes)
}
