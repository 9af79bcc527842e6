//! A block whose packets are coming in.

use alloc::vec::Vec;

use crate::frame::{Envelope, View};
use crate::lowar::coding::{Shape, Unit};
use crate::lowar::format::{Repair, Report, SPANS};
use crate::packets::{Data, Kind};
use crate::psn;
use crate::streams::Key;
use farwrite_wire::packet::Packet;

/// Losses with at most this number of good packets between them are one burst.
const MAX_BURST_GAP: u16 = 3;

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
pub(crate) struct Block {
    pub(crate) base: u32,
    pub(crate) shape: Shape,
    pub(crate) units: Vec<Unit>,
    /// Data packets, once known.
    packets: Option<u16>,
    /// Whether the last packet ends a message, once `packets` is known.
    pub(crate) ends_message: bool,
    /// Packets that came or were recovered.
    got: Bits,
    /// Packets that were recovered.
    recovered: Bits,
    /// All packets before this one have arrived.
    first_missing: u16,
    /// One after the last packet that is there.
    seen: u16,
}

/// What a repair packet does for a block.
#[derive(Debug)]
pub(crate) enum Repaired {
    /// Its class lacks nothing.
    Nothing,
    /// A packet was recovered: its frame.
    Packet(Data, Vec<u8>),
    /// A packet was put together, and does not verify.
    NotVerified,
    /// The class lacks more than one packet.
    Hopeless,
}

impl Block {
    pub(crate) fn new(base: u32, shape: Shape, units: Vec<Unit>) -> Self {
        Self {
            base,
            shape,
            units,
            packets: None,
            ends_message: false,
            got: Bits::default(),
            recovered: Bits::default(),
            first_missing: 0,
            seen: 0,
        }
    }

    /// The place of a PSN, if it is within the longest block that this one can be.
    pub(crate) fn position(&self, psn: u32) -> Option<u16> {
        let position = u16::try_from(psn::distance(self.base, psn)).ok()?;
        (position < self.end()).then_some(position)
    }

    /// One after the last position that is possible.
    pub(crate) fn end(&self) -> u16 {
        self.packets.unwrap_or(self.shape.packets())
    }

    /// The PSN after the block.
    pub(crate) fn after(&self) -> u32 {
        psn::add(self.base, u32::from(self.end()))
    }

    pub(crate) fn has(&self, position: u16) -> bool {
        self.got.get(position)
    }

    pub(crate) fn first_missing(&self) -> u16 {
        self.first_missing
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.first_missing >= self.end()
    }

    /// Ends the block before a position up to which it is complete.
    pub(crate) fn cut(&mut self, packets: u16) {
        self.packets = Some(packets);
    }

    /// Adds a packet that was not there. The caller has checked its ICRC and [`Self::has`]: adding
    /// a packet twice takes it away.
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
        self.got.set(position);
        self.seen = self.seen.max(position + 1);
        while self.first_missing < self.shape.packets() && self.got.get(self.first_missing) {
            self.first_missing += 1;
        }
    }

    /// Whether a repair packet is of a block like this one.
    pub(crate) fn matches(&self, shape: Shape, repair: &Repair) -> bool {
        let length = repair.packets;
        shape == self.shape
            && repair.base == self.base
            && self.packets.is_none_or(|packets| packets == length)
            && self.seen <= length
    }

    /// Takes in a repair packet that [`matches`](Self::matches), in the envelope of its frame.
    pub(crate) fn repair(
        &mut self,
        key: &Key,
        repair: &Repair,
        unit: &[u8],
        envelope: &Envelope,
    ) -> Repaired {
        self.packets = Some(repair.packets);
        self.ends_message = repair.last_bytes.is_some();
        let class = usize::from(repair.unit);
        let mut missing =
            (0..repair.packets).filter(|&at| self.shape.class_of(at) == class && !self.got.get(at));
        let Some(position) = missing.next() else {
            return Repaired::Nothing;
        };
        if missing.next().is_some() {
            return Repaired::Hopeless;
        }
        self.units[class].add_unit(unit);
        let frame = self.verify(key, repair, position, envelope);
        match frame {
            Some((data, frame)) => {
                self.recovered.set(position);
                self.mark(position);
                Repaired::Packet(data, frame)
            }
            None => Repaired::NotVerified,
        }
    }

    /// The packet that is left in a unit, if it is the one that is missing.
    fn verify(
        &self,
        key: &Key,
        repair: &Repair,
        position: u16,
        envelope: &Envelope,
    ) -> Option<(Data, Vec<u8>)> {
        let class = self.shape.class_of(position);
        let (ipv4_id, payload) = self.units[class].packet()?;
        let last = position + 1 == repair.packets;
        let bytes = repair.last_bytes.filter(|_| last);
        if bytes.is_some_and(|bytes| usize::from(bytes) != payload.len()) {
            return None;
        }
        let frame = envelope.wrap(ipv4_id, payload);
        let view = View::parse(&frame).filter(View::icrc_holds)?;
        let Kind::Data(data) = Kind::of(&Packet::parse(view.payload()).ok()?) else {
            return None;
        };
        let psn = psn::add(self.base, u32::from(position));
        let same = Key::new(&view, data.qpn, data.space) == *key && data.psn == psn;
        same.then_some((data, frame))
    }

    /// Counts packets, losses and bursts when the block is over.
    pub(crate) fn tally(&self, report: &mut Report) {
        let end = self.packets.unwrap_or(self.seen);
        let lost = |at: &u16| !self.got.get(*at) || self.recovered.get(*at);
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

fn count(burst: Option<(u16, u16)>, report: &mut Report) {
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
