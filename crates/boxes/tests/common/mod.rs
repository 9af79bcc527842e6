//! RoCEv2 packets as Ethernet frames, and two boxes that exchange them.
#![allow(dead_code, reason = "each test file uses some of it")]
#![allow(clippy::cast_possible_truncation, reason = "small numbers of a test")]

use std::net::{IpAddr, SocketAddr};

use farwrite_boxes::lowar::{BlockShape, Coding, Config, Lowar};
use farwrite_boxes::{Middlebox, Side};
use farwrite_wire::header::Bth;
use farwrite_wire::icrc::{Flow, Icrc};
use farwrite_wire::opcode::lookup;
use farwrite_wire::request::pad_bytes;

pub(crate) const QPN: u32 = 0x1234;
pub(crate) const SRC_PORT: u16 = 50_001;

/// The headers below UDP of a test's frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) ipv6: bool,
    pub(crate) vlan_tags: usize,
}

pub(crate) const IPV4: Link = Link {
    ipv6: false,
    vlan_tags: 0,
};

/// A kind of message: the opcodes of its first, middle, last and only packet, and whether its
/// packets carry payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Write,
    Send,
    SendImm,
    ReadResponse,
    ReadRequest,
    FetchAdd,
    AtomicAck,
    Sdr,
}

impl Kind {
    fn opcode(self, first: bool, last: bool) -> u8 {
        let at = match (first, last) {
            (true, false) => 0,
            (false, false) => 1,
            (false, true) => 2,
            (true, true) => 3,
        };
        match self {
            Self::Write => [0x06, 0x07, 0x08, 0x0A][at],
            Self::Send => [0x00, 0x01, 0x02, 0x04][at],
            Self::SendImm => [0x00, 0x01, 0x03, 0x05][at],
            Self::ReadResponse => [0x0D, 0x0E, 0x0F, 0x10][at],
            Self::ReadRequest => 0x0C,
            Self::FetchAdd => 0x14,
            Self::AtomicAck => 0x12,
            Self::Sdr => 0x2B,
        }
    }
}

/// Returns the UDP payload of a packet. A read request asks for `payload_bytes`.
pub(crate) fn payload(opcode: u8, psn: u32, payload_bytes: u32, seed: u32) -> Vec<u8> {
    let row = lookup(opcode).unwrap();
    let carried = if row.payload { payload_bytes } else { 0 };
    let mut bytes = vec![0; row.header_bytes()];
    Bth {
        pad_bytes: pad_bytes(carried),
        ack_request: psn.is_multiple_of(2),
        ..Bth::new(opcode, QPN, psn)
    }
    .emit(bytes.first_chunk_mut().unwrap());
    let extra = &mut bytes[Bth::BYTES..];
    for (at, byte) in (0u32..).zip(extra.iter_mut()) {
        *byte = (at * 37 + psn * 11) as u8;
    }
    if let Some(at) = row.offset_of(farwrite_wire::opcode::Extension::Reth) {
        bytes[at + 12..at + 16].copy_from_slice(&payload_bytes.to_be_bytes());
    }
    bytes.extend((0..carried).map(|at| (at * 7 + psn * 13 + seed * 31) as u8));
    bytes.resize(bytes.len() + usize::from(pad_bytes(carried)), 0);
    bytes
}

/// Returns an Ethernet frame around a UDP payload. Appends the ICRC.
pub(crate) fn frame(link: Link, ipv4_id: u16, mut payload: Vec<u8>) -> Vec<u8> {
    let (src, dst) = addresses(link);
    let flow = Flow::new(src, dst).unwrap();
    let icrc = Icrc::new(&flow, ipv4_id, payload.len() + 4);
    let icrc = icrc.update(&payload).finish();
    payload.extend_from_slice(&icrc.to_le_bytes());
    ethernet(link, ipv4_id, src, dst, &payload)
}

/// Returns a frame of another source than that of [`frame`]: with the last byte of its Ethernet address, its
/// IP address, and another queue pair in the payload.
pub(crate) fn packet_of(station: u8, src: IpAddr, qpn: u32, mut payload: Vec<u8>) -> Vec<u8> {
    let link = Link {
        ipv6: src.is_ipv6(),
        vlan_tags: 0,
    };
    let (src, dst) = (SocketAddr::new(src, SRC_PORT), addresses(link).1);
    payload[5..8].copy_from_slice(&qpn.to_be_bytes()[1..]);
    let icrc = Icrc::new(&Flow::new(src, dst).unwrap(), 0, payload.len() + 4);
    let icrc = icrc.update(&payload).finish();
    payload.extend_from_slice(&icrc.to_le_bytes());
    let mut frame = ethernet(link, 0, src, dst, &payload);
    frame[11] = station;
    frame
}

pub(crate) fn addresses(link: Link) -> (SocketAddr, SocketAddr) {
    let ip = |last: u8| -> IpAddr {
        if link.ipv6 {
            [0x20, 1, 0xD, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last].into()
        } else {
            [192, 0, 2, last].into()
        }
    };
    (
        SocketAddr::new(ip(1), SRC_PORT),
        SocketAddr::new(ip(2), 4791),
    )
}

pub(crate) fn ethernet(
    link: Link,
    ipv4_id: u16,
    src: SocketAddr,
    dst: SocketAddr,
    payload: &[u8],
) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8];
    for tag in 0..link.vlan_tags {
        frame.extend_from_slice(
            &[[0x88, 0xA8], [0x81, 0x00]][usize::from(tag + 1 == link.vlan_tags)],
        );
        frame.extend_from_slice(&[0x60, 7 + tag as u8]);
    }
    let udp_bytes = (8 + payload.len()) as u16;
    match (src.ip(), dst.ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            frame.extend_from_slice(&[0x08, 0x00]);
            let mut ip = vec![0x45, 0x02];
            ip.extend_from_slice(&(20 + udp_bytes).to_be_bytes());
            ip.extend_from_slice(&ipv4_id.to_be_bytes());
            ip.extend_from_slice(&[0x40, 0, 63, 17, 0, 0]);
            ip.extend_from_slice(&src.octets());
            ip.extend_from_slice(&dst.octets());
            let sum = !fold(sum(&ip));
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            frame.extend_from_slice(&ip);
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            frame.extend_from_slice(&[0x86, 0xDD, 0x60, 0x20, 0, 0]);
            frame.extend_from_slice(&udp_bytes.to_be_bytes());
            frame.extend_from_slice(&[17, 63]);
            frame.extend_from_slice(&src.octets());
            frame.extend_from_slice(&dst.octets());
        }
        _ => panic!("two families"),
    }
    let udp = frame.len();
    for number in [src.port(), dst.port(), udp_bytes, 0] {
        frame.extend_from_slice(&number.to_be_bytes());
    }
    frame.extend_from_slice(payload);
    if link.ipv6 {
        let pseudo = u32::from(udp_bytes) + 17;
        let checksum = !fold(pseudo + sum(&frame[udp - 32..]));
        frame[udp + 6..udp + 8].copy_from_slice(&checksum.to_be_bytes());
    }
    frame
}

fn sum(bytes: &[u8]) -> u32 {
    let pair = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    bytes.chunks(2).map(pair).sum()
}

fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xFFFF) + (sum >> 16);
    ((sum & 0xFFFF) + (sum >> 16)) as u16
}

/// Returns the packets of a message. The last one is short.
pub(crate) fn message(link: Link, kind: Kind, psn: u32, packets: u32) -> Vec<Vec<u8>> {
    let packet = |at: u32| {
        let (first, last) = (at == 0, at + 1 == packets);
        let bytes = if last { 100 + at } else { 256 };
        let psn = (psn + at) & 0xFF_FFFF;
        let id = psn as u16 ^ 0x5A5A;
        frame(link, id, payload(kind.opcode(first, last), psn, bytes, 0))
    };
    (0..packets).map(packet).collect()
}

/// Returns an acknowledgement.
pub(crate) fn ack(link: Link, psn: u32) -> Vec<u8> {
    frame(link, 9, payload(0x11, psn, 0, 0))
}

/// Returns the offset of the UDP payload in a frame.
pub(crate) fn offset(link: Link) -> usize {
    14 + 4 * link.vlan_tags + if link.ipv6 { 40 } else { 20 } + 8
}

pub(crate) fn psn_of(link: Link, frame: &[u8]) -> u32 {
    let bth = &frame[offset(link)..];
    u32::from_be_bytes([0, bth[9], bth[10], bth[11]])
}

pub(crate) fn is_box_message(link: Link, frame: &[u8]) -> bool {
    frame.get(offset(link)) == Some(&0x1F)
}

pub(crate) fn is_repair(link: Link, frame: &[u8]) -> bool {
    is_box_message(link, frame) && frame[offset(link) + 4] == 1
}

pub(crate) fn config(packets: u16, units: u8) -> Config {
    Config {
        key: Some([7; 32].into()),
        coding: Coding::Fixed(BlockShape::new(packets, units).unwrap()),
        ..Config::default()
    }
}

/// Boxes beside a sender and a receiver.
pub(crate) struct Pair {
    pub(crate) a: Lowar,
    pub(crate) b: Lowar,
    pub(crate) now_ns: u64,
}

impl Pair {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            a: Lowar::new(config, 1),
            b: Lowar::new(config, 1),
            now_ns: 0,
        }
    }

    /// Returns the frames that the sender's box puts on the path for a frame.
    pub(crate) fn encode(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        self.a.handle(self.now_ns, Side::Near, frame.to_vec());
        drain(&mut self.a, Side::Far)
    }

    /// Returns the frames that the receiver gets for a frame from the path. Answers go to the
    /// sender's box.
    pub(crate) fn decode(&mut self, frame: Vec<u8>) -> Vec<Vec<u8>> {
        self.b.handle(self.now_ns, Side::Far, frame);
        self.deliver()
    }

    /// Frames for the receiver after a time without packets.
    pub(crate) fn wait(&mut self, ns: u64) -> Vec<Vec<u8>> {
        self.now_ns += ns;
        self.b.handle_timeout(self.now_ns);
        self.deliver()
    }

    fn deliver(&mut self) -> Vec<Vec<u8>> {
        let mut near = Vec::new();
        while let Some(frame) = self.b.poll() {
            match frame.to {
                Side::Near => near.push(frame.bytes),
                Side::Far => self.a.handle(self.now_ns, Side::Far, frame.bytes),
            }
        }
        assert_eq!(self.a.poll(), None);
        near
    }

    /// Sends frames over a path that loses nothing.
    pub(crate) fn send(&mut self, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        for frame in frames {
            for frame in self.encode(frame) {
                out.extend(self.decode(frame));
            }
        }
        out
    }
}

pub(crate) fn drain(lowar: &mut Lowar, want: Side) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    while let Some(frame) = lowar.poll() {
        assert_eq!(frame.to, want);
        out.push(frame.bytes);
    }
    out
}
