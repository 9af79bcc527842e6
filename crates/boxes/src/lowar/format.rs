//! Box messages as bytes (P10).

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use constant_time_eq::constant_time_eq_n;
use farwrite_wire::header::ICRC_BYTES;
use farwrite_wire::icrc::Icrc;
use farwrite_wire::opcode::LOWAR_REPAIR;

use super::coding::Shape;
use super::messages::Space;
use crate::frame::{Envelope, View};

/// Bytes of a shared key.
pub const KEY_BYTES: usize = 32;
/// What stands for the key where none is configured. Everybody knows it.
const NO_KEY: [u8; KEY_BYTES] = *b"farwrite lowar box without a key";

/// Bytes that all box messages begin with.
const HEADER_BYTES: usize = 20;
const NEGOTIATION_BYTES: usize = HEADER_BYTES + 16;
const REPORT_BYTES: usize = NEGOTIATION_BYTES + 16 + 4 * (3 + SPANS.len());
const TAG_BYTES: usize = 16;

const TYPE_REPAIR: u8 = 1;
const TYPE_PROBE: u8 = 2;
const TYPE_ANNOUNCE: u8 = 3;
const TYPE_REPORT: u8 = 4;

const HAS_FIRST: u8 = 0x80;
const HAS_LAST: u8 = 0x40;
const SPACE: u8 = 0x03;

/// Bytes that a repair packet has beside its unit, from its header to its ICRC.
pub(crate) const REPAIR_EXTRA_BYTES: usize = HEADER_BYTES + TAG_BYTES + ICRC_BYTES;
/// Lengths of losses that a report counts: those longer than each of these.
pub(crate) const SPANS: [u32; 5] = [1, 2, 4, 8, 16];

/// A message from one box to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub(crate) space: Space,
    /// The queue pair to which the packets of the stream go.
    pub(crate) qpn: u32,
    /// The coding in force.
    pub(crate) shape: Shape,
    pub(crate) body: Body<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body<'a> {
    /// A coding unit of a block.
    Repair(Repair, &'a [u8]),
    /// Asks for a report.
    Probe(Stamp),
    /// A block begins with the packet of this PSN, whatever came before. Asks for a report.
    Announce(Stamp, u32),
    /// What the receiving box has seen.
    Report(Stamp, Report),
}

/// Which block and which of its units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Repair {
    /// bPSN: the PSN of the block's first packet.
    pub(crate) base: u32,
    /// ISN: which of the units.
    pub(crate) unit: u8,
    /// Data packets of the block.
    pub(crate) packets: u16,
    /// Whether the first packet of the block begins a message.
    pub(crate) has_first: bool,
    /// UDP payload bytes of the last packet of the block, if that ends a message.
    pub(crate) last_bytes: Option<u16>,
}

/// When a message was made: later messages have a higher stamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stamp {
    /// Higher at each start of the box.
    pub(crate) boot: u64,
    /// Counts the messages since the start.
    pub(crate) serial: u64,
}

/// Counts of a stream since the receiving box learned of it, modulo 2^32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// The message that the report answers.
    pub(crate) answers: Stamp,
    /// Data packets of blocks that are over.
    pub(crate) packets: u32,
    /// Of these, packets that the path lost, repaired or not.
    pub(crate) lost: u32,
    /// Bursts of losses.
    pub(crate) bursts: u32,
    /// Of these, the ones longer than each of [`SPANS`].
    pub(crate) longer: [u32; SPANS.len()],
}

/// Seals and opens box messages.
#[derive(Clone, Debug)]
pub(crate) struct Seal {
    key: [u8; KEY_BYTES],
}

impl Seal {
    pub(crate) fn new(key: Option<[u8; KEY_BYTES]>) -> Self {
        Self {
            key: key.unwrap_or(NO_KEY),
        }
    }

    /// The frame of a message from `src` to `dst`, in an envelope of these addresses.
    pub(crate) fn wrap(&self, envelope: &Envelope, message: &Message<'_>) -> Option<Vec<u8>> {
        let mut bytes = message.emit();
        let bare = envelope.wrap(0, &bytes);
        let ends = View::parse(&bare)?;
        bytes.extend_from_slice(&self.tag(ends.src, ends.dst, &bytes));
        let icrc = Icrc::new(&ends.flow()?, 0, bytes.len() + ICRC_BYTES);
        let icrc = icrc.update(&bytes).finish();
        bytes.extend_from_slice(&icrc.to_le_bytes());
        Some(envelope.wrap(0, &bytes))
    }

    /// The message of a frame that a box with the same key sealed.
    pub(crate) fn open<'a>(&self, view: &View<'a>) -> Option<Message<'a>> {
        let (sealed, _icrc) = view.payload().split_last_chunk::<ICRC_BYTES>()?;
        let (bytes, tag) = sealed.split_last_chunk::<TAG_BYTES>()?;
        let message = Message::parse(bytes)?;
        constant_time_eq_n(tag, &self.tag(view.src, view.dst, bytes)).then_some(message)
    }

    fn tag(&self, src: SocketAddr, dst: SocketAddr, bytes: &[u8]) -> [u8; TAG_BYTES] {
        let mut hash = blake3::Hasher::new_keyed(&self.key);
        for address in [src.ip(), dst.ip()] {
            match address {
                IpAddr::V4(address) => hash.update(&address.to_ipv6_mapped().octets()),
                IpAddr::V6(address) => hash.update(&address.octets()),
            };
        }
        hash.update(bytes);
        let mut tag = [0; TAG_BYTES];
        hash.finalize_xof().fill(&mut tag);
        tag
    }
}

impl<'a> Message<'a> {
    /// Reads the bytes before the tag.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let header: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
        let rest = &bytes[HEADER_BYTES..];
        if header[0] != LOWAR_REPAIR || header[5..8] != [0; 3] {
            return None;
        }
        let flags = header[8];
        let space = match flags & SPACE {
            0 => Space::Request,
            1 => Space::Response,
            2 => Space::Singles,
            _ => return None,
        };
        let shape = Shape::new(u16_of(&header[12..14]), header[14]).ok()?;
        let psn = u24_of(&header[9..12]);
        let stamp = || {
            (header[15..20] == [0; 5]).then_some(())?;
            stamp_of(rest.first_chunk()?)
        };
        let body = match header[4] {
            TYPE_REPAIR => {
                let packets = u16_of(&header[16..18]);
                let last_bytes = u16_of(&header[18..20]);
                let repair = Repair {
                    base: psn,
                    unit: header[15],
                    packets,
                    has_first: flags & HAS_FIRST != 0,
                    last_bytes: (flags & HAS_LAST != 0).then_some(last_bytes),
                };
                let holds = (1..=shape.packets()).contains(&packets)
                    && usize::from(repair.unit) < shape.units_of(packets);
                holds.then_some(Body::Repair(repair, rest))?
            }
            TYPE_PROBE => Body::Probe(stamp()?),
            TYPE_ANNOUNCE => Body::Announce(stamp()?, psn),
            TYPE_REPORT => Body::Report(stamp()?, Report::parse(rest.get(16..)?)?),
            _ => return None,
        };
        let exact = match body {
            Body::Repair(..) => rest.len() >= 4,
            Body::Probe(_) | Body::Announce(..) => bytes.len() == NEGOTIATION_BYTES,
            Body::Report(..) => bytes.len() == REPORT_BYTES,
        };
        exact.then_some(Self {
            space,
            qpn: u24_of(&header[1..4]),
            shape,
            body,
        })
    }

    /// The bytes before the tag.
    pub(crate) fn emit(&self) -> Vec<u8> {
        let mut header = [0; HEADER_BYTES];
        header[0] = LOWAR_REPAIR;
        header[1..4].copy_from_slice(&self.qpn.to_be_bytes()[1..]);
        header[8] = match self.space {
            Space::Request => 0,
            Space::Response => 1,
            Space::Singles => 2,
        };
        header[12..14].copy_from_slice(&self.shape.packets().to_be_bytes());
        header[14] = self.shape.units();
        let mut rest = Vec::new();
        let mut psn = 0;
        match &self.body {
            Body::Repair(repair, unit) => {
                header[4] = TYPE_REPAIR;
                psn = repair.base;
                if repair.has_first {
                    header[8] |= HAS_FIRST;
                }
                if let Some(last_bytes) = repair.last_bytes {
                    header[8] |= HAS_LAST;
                    header[18..20].copy_from_slice(&last_bytes.to_be_bytes());
                }
                header[15] = repair.unit;
                header[16..18].copy_from_slice(&repair.packets.to_be_bytes());
                rest.extend_from_slice(unit);
            }
            Body::Probe(stamp) => {
                header[4] = TYPE_PROBE;
                stamp.emit(&mut rest);
            }
            Body::Announce(stamp, base) => {
                header[4] = TYPE_ANNOUNCE;
                psn = *base;
                stamp.emit(&mut rest);
            }
            Body::Report(stamp, report) => {
                header[4] = TYPE_REPORT;
                stamp.emit(&mut rest);
                report.emit(&mut rest);
            }
        }
        header[9..12].copy_from_slice(&psn.to_be_bytes()[1..]);
        [&header[..], &rest].concat()
    }
}

impl Stamp {
    fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.boot.to_be_bytes());
        out.extend_from_slice(&self.serial.to_be_bytes());
    }
}

impl Report {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let answers = stamp_of(bytes.first_chunk()?)?;
        let mut counts = bytes.get(16..)?.chunks_exact(4).map(u32_of);
        let mut next = || counts.next();
        let (packets, lost, bursts) = (next()?, next()?, next()?);
        let mut longer = [0; SPANS.len()];
        for count in &mut longer {
            *count = next()?;
        }
        Some(Self {
            answers,
            packets,
            lost,
            bursts,
            longer,
        })
    }

    fn emit(&self, out: &mut Vec<u8>) {
        self.answers.emit(out);
        for count in [self.packets, self.lost, self.bursts]
            .iter()
            .chain(&self.longer)
        {
            out.extend_from_slice(&count.to_be_bytes());
        }
    }
}

fn stamp_of(bytes: &[u8; 16]) -> Option<Stamp> {
    let (boot, serial) = bytes.split_first_chunk()?;
    Some(Stamp {
        boot: u64::from_be_bytes(*boot),
        serial: u64::from_be_bytes(*serial.first_chunk()?),
    })
}

fn u16_of(bytes: &[u8]) -> u16 {
    bytes
        .iter()
        .fold(0, |sum, byte| sum << 8 | u16::from(*byte))
}

fn u24_of(bytes: &[u8]) -> u32 {
    u32_of(bytes)
}

fn u32_of(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}
