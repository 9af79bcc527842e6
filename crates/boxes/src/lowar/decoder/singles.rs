//! A stream of one-packet messages of an unreliable connection, for instance those of SDR. Each
//! packet passes at once. Recovered packets follow when their repair packet arrives.
//!
//! On reliable connections, the end of a message ends a block. Here each message is one packet, so
//! a block is a run of consecutive PSNs: each block begins where the previous one ends, even if
//! packets of both were lost.

use alloc::vec::Vec;

use super::block::{IncomingBlock, Repaired};
use super::shared::DecoderShared;
use crate::frame::View;
use crate::lowar::coding::BlockShape;
use crate::lowar::format::{LossReport, RepairId};
use crate::packets::DataPacket;
use crate::psn;
use crate::shares::Source;
use crate::streams::StreamKey;

#[derive(Debug)]
pub(super) struct SinglesStream {
    key: StreamKey,
    source: Source,
    shape: BlockShape,
    block: Option<IncomingBlock>,
    /// The first PSN of the next block, if known.
    next: Option<u32>,
    pub(super) report: LossReport,
}

impl SinglesStream {
    pub(super) fn new(key: StreamKey, source: Source, shape: BlockShape) -> Self {
        Self {
            key,
            source,
            shape,
            block: None,
            next: None,
            report: LossReport::default(),
        }
    }

    pub(super) fn announce(&mut self, psn: u32, shape: BlockShape, shared: &mut DecoderShared) {
        self.close(shared);
        self.shape = shape;
        self.next = Some(psn);
    }

    /// The other box says that the next packets belong to no block.
    pub(super) fn pause(&mut self, shared: &mut DecoderShared) {
        self.close(shared);
        self.next = None;
    }

    /// Adds a data packet with a valid ICRC to its block. The caller forwards the packet.
    pub(super) fn note(&mut self, data: &DataPacket, view: &View<'_>, shared: &mut DecoderShared) {
        let past =
            |block: &IncomingBlock| psn::distance(block.base, data.psn) >= i32::from(block.end());
        if self.block.as_ref().is_some_and(past) {
            self.close(shared);
        }
        if self.block.is_none() {
            let distance = self.next.map(|next| psn::distance(next, data.psn));
            let Some(distance) = distance.and_then(|distance| u32::try_from(distance).ok()) else {
                return;
            };
            let packets = u32::from(self.shape.packets());
            let base = psn::sub(data.psn, distance % packets);
            self.open(base, shared);
        }
        let Some(block) = &mut self.block else { return };
        if let Some(position) = block.position(data.psn)
            && !block.has(position)
        {
            block.add(position, view.ipv4_id, view.payload(), false);
            if block.is_complete() {
                self.close(shared);
            }
        }
    }

    /// Returns the packet that it recovers.
    pub(super) fn repair(
        &mut self,
        shape: BlockShape,
        (repair, unit): (&RepairId, &[u8]),
        view: &View<'_>,
        shared: &mut DecoderShared,
    ) -> Option<Vec<u8>> {
        let after = psn::add(repair.base, u32::from(repair.packets));
        let under_way = self.block.as_ref().map(|block| block.base).or(self.next);
        let distance = under_way.map(|base| psn::distance(base, repair.base));
        if under_way.is_some_and(|base| psn::distance(base, after) <= 0) {
            // The repair packet belongs to a block that has ended.
            return None;
        }
        let matches = |block: &IncomingBlock| block.matches(shape, repair);
        if !self.block.as_ref().is_some_and(matches) {
            self.close(shared);
            self.shape = shape;
            self.next = Some(after);
            if distance.is_some_and(|distance| distance < 0) {
                return None;
            }
            self.open(repair.base, shared);
        }
        let block = self.block.as_mut()?;
        let recovered = match block.repair(&self.key, repair, unit, &view.envelope()) {
            Repaired::Packet(_, frame) => {
                shared.counters.recovered += 1;
                Some(frame)
            }
            Repaired::NotVerified => {
                // The true repair packet may follow.
                shared.counters.not_verified += 1;
                return None;
            }
            Repaired::Nothing | Repaired::Hopeless | Repaired::Unclear => None,
        };
        let last = usize::from(repair.unit) + 1 == shape.units_of(repair.packets);
        if last || block.is_complete() {
            self.close(shared);
        }
        recovered
    }

    fn open(&mut self, base: u32, shared: &mut DecoderShared) {
        let units = shared
            .pool
            .allocate(&self.source, usize::from(self.shape.units()));
        if units.is_none() {
            shared.counters.units_full += 1;
        }
        self.block = units.map(|units| IncomingBlock::new(base, self.shape, units));
    }

    pub(super) fn close(&mut self, shared: &mut DecoderShared) {
        let Some(block) = self.block.take() else {
            return;
        };
        self.next = Some(block.after());
        if !block.is_complete() {
            shared.counters.given_up += 1;
        }
        block.count_into(&mut self.report);
        shared.pool.release(&self.source, block.units);
    }
}
