//! Messages of LoWAR boxes as bytes (P10.3).

use alloc::vec::Vec;

use farwrite_wire::header::ICRC_BYTES;

use super::coding::Shape;
use crate::KEY_BYTES;
use crate::message::{Head, Stamp, TAG_BYTES, u32_of};
use crate::packets::Space;
use crate::streams::Key;

/// What stands for the key where none is configured. Everybody knows it.
pub(crate) const NO_KEY: [u8; KEY_BYTES] = *b"farwrite lowar box without a key";

/// Bytes between the head and the body.
const FIELDS_BYTES: usize = 8;
const HEADER_BYTES: usize = Head::BYTES + FIELDS_BYTES;
const NEGOTIATION_BYTES: usize = HEADER_BYTES + Stamp::BYTES;
const REPORT_BYTES: usize = NEGOTIATION_BYTES + Stamp::BYTES + 4 * (3 + SPANS.len());

const TYPE_REPAIR: u8 = 1;
const TYPE_PROBE: u8 = 2;
const TYPE_ANNOUNCE: u8 = 3;
const TYPE_REPORT: u8 = 4;

const HAS_FIRST: u8 = 0x80;
const HAS_LAST: u8 = 0x40;

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

impl<'a> Message<'a> {
    pub(crate) fn about(key: &Key, shape: Shape, body: Body<'a>) -> Self {
        Self {
            space: key.space,
            qpn: key.qpn,
            shape,
            body,
        }
    }

    /// Reads the bytes before the tag.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (head, fields) = Head::parse(bytes)?;
        let (fields, rest) = fields.split_first_chunk::<FIELDS_BYTES>()?;
        let shape = Shape::new(u16_of(&fields[..2]), fields[2]).ok()?;
        let stamp = || {
            (fields[3..] == [0; 5]).then_some(())?;
            Stamp::parse(rest.first_chunk()?)
        };
        let body = match head.kind {
            TYPE_REPAIR => {
                let packets = u16_of(&fields[4..6]);
                let last_bytes = u16_of(&fields[6..]);
                let repair = Repair {
                    base: head.psn,
                    unit: fields[3],
                    packets,
                    has_first: head.flags & HAS_FIRST != 0,
                    last_bytes: (head.flags & HAS_LAST != 0).then_some(last_bytes),
                };
                let holds = (1..=shape.packets()).contains(&packets)
                    && usize::from(repair.unit) < shape.units_of(packets);
                holds.then_some(Body::Repair(repair, rest))?
            }
            TYPE_PROBE => Body::Probe(stamp()?),
            TYPE_ANNOUNCE => Body::Announce(stamp()?, head.psn),
            TYPE_REPORT => Body::Report(stamp()?, Report::parse(rest.get(Stamp::BYTES..)?)?),
            _ => return None,
        };
        let exact = match body {
            Body::Repair(..) => rest.len() >= 4,
            Body::Probe(_) | Body::Announce(..) => bytes.len() == NEGOTIATION_BYTES,
            Body::Report(..) => bytes.len() == REPORT_BYTES,
        };
        exact.then_some(Self {
            space: head.space,
            qpn: head.qpn,
            shape,
            body,
        })
    }

    /// The bytes before the tag.
    pub(crate) fn emit(&self) -> Vec<u8> {
        let mut head = Head {
            qpn: self.qpn,
            kind: 0,
            flags: 0,
            space: self.space,
            psn: 0,
        };
        let mut fields = [0; FIELDS_BYTES];
        fields[..2].copy_from_slice(&self.shape.packets().to_be_bytes());
        fields[2] = self.shape.units();
        let mut rest = Vec::new();
        match &self.body {
            Body::Repair(repair, unit) => {
                head.kind = TYPE_REPAIR;
                head.psn = repair.base;
                if repair.has_first {
                    head.flags |= HAS_FIRST;
                }
                if let Some(last_bytes) = repair.last_bytes {
                    head.flags |= HAS_LAST;
                    fields[6..].copy_from_slice(&last_bytes.to_be_bytes());
                }
                fields[3] = repair.unit;
                fields[4..6].copy_from_slice(&repair.packets.to_be_bytes());
                rest.extend_from_slice(unit);
            }
            Body::Probe(stamp) => {
                head.kind = TYPE_PROBE;
                stamp.emit(&mut rest);
            }
            Body::Announce(stamp, base) => {
                head.kind = TYPE_ANNOUNCE;
                head.psn = *base;
                stamp.emit(&mut rest);
            }
            Body::Report(stamp, report) => {
                head.kind = TYPE_REPORT;
                stamp.emit(&mut rest);
                report.emit(&mut rest);
            }
        }
        [&head.emit()[..], &fields, &rest].concat()
    }
}

impl Report {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let answers = Stamp::parse(bytes.first_chunk()?)?;
        let mut counts = bytes.get(Stamp::BYTES..)?.chunks_exact(4).map(u32_of);
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

fn u16_of(bytes: &[u8]) -> u16 {
    let add = |sum, byte: &u8| sum << 8 | u16::from(*byte);
    bytes.iter().fold(0, add)
}
