//! Messages of LoWAR boxes as bytes (P10.3).

use alloc::vec::Vec;

use farwrite_wire::header::ICRC_BYTES;

use super::coding::BlockShape;
use crate::message::{Head, Stamp, TAG_BYTES, u32_of};
use crate::packets::Space;
use crate::streams::StreamKey;

/// The public default key, used where no key is configured.
pub(crate) const NO_KEY: [u8; 32] = *b"farwrite lowar box without a key";

/// Length of the fields between the header and the body.
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
const UNCODED: u8 = 0x20;

/// Length of a repair packet without its coding unit, from the header to the ICRC.
pub(crate) const REPAIR_EXTRA_BYTES: usize = HEADER_BYTES + TAG_BYTES + ICRC_BYTES;
/// Burst lengths for a report: it counts the bursts longer than each of these. They go up to
/// [`MAX_UNITS`](super::coding::MAX_UNITS): no shape repairs longer ones.
pub(crate) const SPANS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LowarMessage<'a> {
    pub(crate) space: Space,
    /// The destination queue pair of the stream's packets.
    pub(crate) qpn: u32,
    pub(crate) shape: BlockShape,
    pub(crate) body: LowarBody<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LowarBody<'a> {
    /// A coding unit of a block.
    Repair(RepairId, &'a [u8]),
    /// Asks for a report, and says whether the next packet of the stream belongs to a block.
    Probe(Stamp, bool),
    /// Says that a block begins with this PSN, independent of earlier packets. Asks for a report.
    Announce(Stamp, u32),
    /// What the receiving box has counted.
    Report(Stamp, LossReport),
}

/// Identifies a block, and one of its coding units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RepairId {
    /// bPSN: the PSN of the block's first packet.
    pub(crate) base: u32,
    /// ISN: the index of the unit.
    pub(crate) unit: u8,
    /// Number of data packets in the block.
    pub(crate) packets: u16,
    /// Whether the first packet of the block begins a message.
    pub(crate) has_first: bool,
    /// UDP payload length of the last packet of the block, if that packet ends a message.
    pub(crate) last_bytes: Option<u16>,
}

/// Counters of a stream, modulo 2^32, since the receiving box began to track it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LossReport {
    /// Stamp of the question that the report answers.
    pub(crate) answers: Stamp,
    /// Data packets of blocks that have ended.
    pub(crate) packets: u32,
    /// Of these, packets that the path lost, whether recovered or not.
    pub(crate) lost: u32,
    pub(crate) bursts: u32,
    /// Of these, the bursts longer than each of [`SPANS`].
    pub(crate) longer: [u32; SPANS.len()],
}

impl<'a> LowarMessage<'a> {
    pub(crate) fn about(key: &StreamKey, shape: BlockShape, body: LowarBody<'a>) -> Self {
        Self {
            space: key.space,
            qpn: key.qpn,
            shape,
            body,
        }
    }

    /// Parses the bytes before the tag.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (head, fields) = Head::parse(bytes)?;
        let (fields, rest) = fields.split_first_chunk::<FIELDS_BYTES>()?;
        let shape = BlockShape::new(u16_of(&fields[..2]), fields[2]).ok()?;
        let stamp = || {
            (fields[3..] == [0; 5]).then_some(())?;
            Stamp::parse(rest.first_chunk()?)
        };
        let body = match head.kind {
            TYPE_REPAIR => {
                let packets = u16_of(&fields[4..6]);
                let last_bytes = u16_of(&fields[6..]);
                let repair = RepairId {
                    base: head.psn,
                    unit: fields[3],
                    packets,
                    has_first: head.flags & HAS_FIRST != 0,
                    last_bytes: (head.flags & HAS_LAST != 0).then_some(last_bytes),
                };
                let holds = (1..=shape.packets()).contains(&packets)
                    && usize::from(repair.unit) < shape.units_of(packets);
                holds.then_some(LowarBody::Repair(repair, rest))?
            }
            TYPE_PROBE => LowarBody::Probe(stamp()?, head.flags & UNCODED == 0),
            TYPE_ANNOUNCE => LowarBody::Announce(stamp()?, head.psn),
            TYPE_REPORT => {
                LowarBody::Report(stamp()?, LossReport::parse(rest.get(Stamp::BYTES..)?)?)
            }
            _ => return None,
        };
        let exact = match body {
            LowarBody::Repair(..) => rest.len() >= 4,
            LowarBody::Probe(..) | LowarBody::Announce(..) => bytes.len() == NEGOTIATION_BYTES,
            LowarBody::Report(..) => bytes.len() == REPORT_BYTES,
        };
        exact.then_some(Self {
            space: head.space,
            qpn: head.qpn,
            shape,
            body,
        })
    }

    /// Encodes the bytes before the tag.
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
            LowarBody::Repair(repair, unit) => {
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
            LowarBody::Probe(stamp, coded) => {
                head.kind = TYPE_PROBE;
                if !coded {
                    head.flags |= UNCODED;
                }
                stamp.emit(&mut rest);
            }
            LowarBody::Announce(stamp, base) => {
                head.kind = TYPE_ANNOUNCE;
                head.psn = *base;
                stamp.emit(&mut rest);
            }
            LowarBody::Report(stamp, report) => {
                head.kind = TYPE_REPORT;
                stamp.emit(&mut rest);
                report.emit(&mut rest);
            }
        }
        [&head.emit()[..], &fields, &rest].concat()
    }
}

impl LossReport {
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
