//! A block of which packets arrive: its coding units and the set of packets that are present.
//!
//! The units hold the XOR of the packets that arrived. When a class lacks exactly one packet, the
//! box XORs the repair packet into the unit of the class, and the result is the missing packet. It
//! is used only if its ICRC, queue pair, PSN and length are right. Without a key, anybody can forge
//! repair packets, so one that does not fit the data packets leaves the block as it was.

use alloc::vec::Vec;

use crate::frame::{Envelope, View};
use crate::lowar::coding::{BlockShape, CodingUnit};
use crate::lowar::format::{LossReport, RepairId, SPANS};
use crate::packets::{DataPacket, PacketKind, Space};
use crate::psn;
use crate::streams::StreamKey;
use farwrite_wire::packet::Packet;

/// Losses with at most this number of received packets between them belong to one burst.
const MAX_BURST_GAP: u16 = 7;

/// Packets of a block by position, one bit each.
#[derive(Clone, Copy, Debug, Default)]
struct Bits([u64; 4]);

impl Bits {
    fn get(&self, at: u16) -> bool {
        self.0[usize::from(at / 64)] >> (at % 64) & 1 == 1
    }

    fn set(&mut self, at: u16) {
        self.0[usize::from(at / 64)] |= 1 << (at % 64);
    }
}

#[derive(Debug)]
pub(crate) struct IncomingBlock {
    pub(crate) base: u32,
    pub(crate) shape: BlockShape,
    pub(crate) units: Vec<CodingUnit>,
    /// Number of data packets, once known.
    packets: Option<u16>,
    /// Whether the last packet ends a message, once `packets` is known.
    pub(crate) ends_message: bool,
    /// Packets that arrived or were recovered.
    present: Bits,
    recovered: Bits,
    /// All packets before this position are present.
    first_missing: u16,
    /// One after the highest position that is present.
    seen: u16,
}

#[derive(Debug)]
pub(crate) enum Repaired {
    /// No packet of its class is missing.
    Nothing,
    /// A packet was recovered. This is its frame.
    Packet(DataPacket, Vec<u8>),
    /// The repair packet does not fit the packets of its class.
    NotVerified,
    /// More than one packet of the class is missing.
    Hopeless,
    /// More than one packet of the class is missing if the block is as long as the repair packet
    /// says. No data packet shows that it is.
    Unclear,
}

impl IncomingBlock {
    pub(crate) fn new(base: u32, shape: BlockShape, units: Vec<CodingUnit>) -> Self {
        Self {
            base,
            shape,
            units,
            packets: None,
            ends_message: false,
            present: Bits::default(),
            recovered: Bits::default(),
            first_missing: 0,
            seen: 0,
        }
    }

    /// The position of a PSN in the block, if the block can contain it.
    pub(crate) fn position(&self, psn: u32) -> Option<u16> {
        let position = u16::try_from(psn::distance(self.base, psn)).ok()?;
        (position < self.end()).then_some(position)
    }

    /// One after the last possible position.
    pub(crate) fn end(&self) -> u16 {
        self.packets.unwrap_or(self.shape.packets())
    }

    /// The PSN after the block.
    pub(crate) fn after(&self) -> u32 {
        psn::add(self.base, u32::from(self.end()))
    }

    pub(crate) fn has(&self, position: u16) -> bool {
        self.present.get(position)
    }

    pub(crate) fn first_missing(&self) -> u16 {
        self.first_missing
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.first_missing >= self.end()
    }

    /// All packets before `packets` must be present.
    pub(crate) fn cut(&mut self, packets: u16) {
        self.packets = Some(packets);
    }

    /// Adds a packet. The caller must have checked its ICRC, and with [`Self::has`] that it is not
    /// present: adding a packet twice would remove it.
    pub(crate) fn add(&mut self, position: u16, ipv4_id: u16, payload: &[u8], ends_block: bool) {
        let class = self.shape.class_of(position);
        self.units[class].add(ipv4_id, payload);
        self.mark(position);
        if ends_block {
            self.packets = Some(position + 1);
            self.ends_message = true;
        }
    }

    fn mark(&mut self, position: u16) {
        self.present.set(position);
        self.seen = self.seen.max(position + 1);
        while self.first_missing < self.shape.packets() && self.present.get(self.first_missing) {
            self.first_missing += 1;
        }
    }

    pub(crate) fn matches(&self, shape: BlockShape, repair: &RepairId) -> bool {
        shape == self.shape && repair.base == self.base
    }

    /// Whether a repair packet claims to belong to an earlier block. It is late, or was replayed.
    pub(crate) fn follows(&self, repair: &RepairId) -> bool {
        let after = psn::add(repair.base, u32::from(repair.packets));
        psn::distance(self.base, repair.base) < 0 && psn::distance(self.base, after) <= 0
    }

    /// Applies a repair packet that [`matches`](Self::matches). A recovered packet gets the headers
    /// of `envelope`. The length of the block follows from a repair packet only if its unit is
    /// right.
    pub(crate) fn repair(
        &mut self,
        key: &StreamKey,
        repair: &RepairId,
        unit: &[u8],
        envelope: &Envelope,
    ) -> Repaired {
        let known = self.packets.unwrap_or(self.seen);
        if known > repair.packets || self.packets.is_some_and(|known| known != repair.packets) {
            return Repaired::NotVerified;
        }
        let class = usize::from(repair.unit);
        let mut missing = (0..repair.packets)
            .filter(|&at| self.shape.class_of(at) == class && !self.present.get(at));
        match (missing.next(), missing.next()) {
            (None, _) if self.units[class].bytes() != unit => Repaired::NotVerified,
            (None, _) => {
                self.set_end(repair);
                Repaired::Nothing
            }
            (Some(_), Some(second)) if second < known => Repaired::Hopeless,
            (Some(_), Some(_)) => Repaired::Unclear,
            (Some(position), None) => self.recover(key, repair, (position, unit), envelope),
        }
    }

    fn set_end(&mut self, repair: &RepairId) {
        self.packets = Some(repair.packets);
        self.ends_message = repair.last_bytes.is_some();
    }

    /// Recovers the packet at a position, the only one of its class that is missing.
    fn recover(
        &mut self,
        key: &StreamKey,
        repair: &RepairId,
        (position, unit): (u16, &[u8]),
        envelope: &Envelope,
    ) -> Repaired {
        let class = self.shape.class_of(position);
        let len = self.units[class].bytes().len();
        self.units[class].add_unit(unit);
        let Some((data, frame)) = self.verify(key, repair, position, envelope) else {
            self.units[class].remove_unit(unit, len);
            return Repaired::NotVerified;
        };
        self.set_end(repair);
        self.recovered.set(position);
        self.mark(position);
        Repaired::Packet(data, frame)
    }

    /// Returns the packet in the unit if it is a valid packet and the one missing at `position`.
    fn verify(
        &self,
        key: &StreamKey,
        repair: &RepairId,
        position: u16,
        envelope: &Envelope,
    ) -> Option<(DataPacket, Vec<u8>)> {
        let class = self.shape.class_of(position);
        let (ipv4_id, payload) = self.units[class].packet()?;
        let last = position + 1 == repair.packets;
        let bytes = repair.last_bytes.filter(|_| last);
        if bytes.is_some_and(|bytes| usize::from(bytes) != payload.len()) {
            return None;
        }
        let frame = envelope.wrap(ipv4_id, &payload);
        let view = View::parse(&frame).filter(View::icrc_holds)?;
        let PacketKind::Data(data) = PacketKind::of(&Packet::parse(view.payload()).ok()?) else {
            return None;
        };
        let psn = psn::add(self.base, u32::from(position));
        let same = StreamKey::new(&view, data.qpn, data.space) == *key && data.psn == psn;
        // A message is the end of a block, unless all messages are one packet.
        let ends = data.space == Space::Singles || data.ends_message() == bytes.is_some();
        (same && ends).then_some((data, frame))
    }

    /// Adds the block's packets, losses and bursts to a report, when the block has ended.
    pub(crate) fn count_into(&self, report: &mut LossReport) {
        let end = self.packets.unwrap_or(self.seen);
        let lost = |at: &u16| !self.present.get(*at) || self.recovered.get(*at);
        add(&mut report.packets, u32::from(end));
        let mut burst: Option<(u16, u16)> = None;
        for at in (0..end).filter(lost) {
            add(&mut report.lost, 1);
            burst = match burst {
                Some((from, to)) if at - to <= MAX_BURST_GAP + 1 => Some((from, at)),
                over => {
                    count(over, report);
                    Some((at, at))
                }
            };
        }
        count(burst, report);
    }
}

fn count(burst: Option<(u16, u16)>, report: &mut LossReport) {
    let Some((from, to)) = burst else { return };
    let span = u32::from(to - from) + 1;
    add(&mut report.bursts, 1);
    for (longer, limit) in report.longer.iter_mut().zip(SPANS) {
        add(longer, u32::from(span > limit));
    }
}

fn add(count: &mut u32, more: u32) {
    *count = count.wrapping_add(more);
}
