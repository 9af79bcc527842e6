//! A stream of one-packet messages of an unreliable connection, such as those of SDR: each packet
//! passes at once, and recovered ones are added.
//!
//! Each message is one packet, so messages do not make blocks. Blocks are runs of PSNs instead: the
//! next block begins where the one before ends, also when packets of both were lost.

use alloc::vec::Vec;

use super::block::{Block, Repaired};
use super::shared::Shared;
use crate::frame::View;
use crate::lowar::coding::Shape;
use crate::lowar::format::{Repair, Report};
use crate::packets::Data;
use crate::psn;
use crate::streams::Key;

#[derive(Debug)]
pub(super) struct Singles {
    key: Key,
    shape: Shape,
    block: Option<Block>,
    /// Where the next block begins, if that is known.
    next: Option<u32>,
    pub(super) report: Report,
}

impl Singles {
    pub(super) fn new(key: Key, shape: Shape) -> Self {
        Self {
            key,
            shape,
            block: None,
            next: None,
            report: Report::default(),
        }
    }

    pub(super) fn announce(&mut self, psn: u32, shape: Shape, shared: &mut Shared) {
        self.close(shared);
        self.shape = shape;
        self.next = Some(psn);
    }

    /// Notes a data packet with a right ICRC. The packet itself passes.
    pub(super) fn note(&mut self, data: &Data, view: &View<'_>, shared: &mut Shared) {
        let past = |block: &Block| psn::distance(block.base, data.psn) >= i32::from(block.end());
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

    /// Takes in a repair packet, and returns the packet that it recovers.
    pub(super) fn repair(
        &mut self,
        shape: Shape,
        (repair, unit): (&Repair, &[u8]),
        view: &View<'_>,
        shared: &mut Shared,
    ) -> Option<Vec<u8>> {
        let after = psn::add(repair.base, u32::from(repair.packets));
        let under_way = self.block.as_ref().map(|block| block.base).or(self.next);
        let distance = under_way.map(|base| psn::distance(base, repair.base));
        if under_way.is_some_and(|base| psn::distance(base, after) <= 0) {
            // Of a block that is over.
            return None;
        }
        let matches = |block: &Block| block.matches(shape, repair);
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
        let repaired = block.repair(&self.key, repair, unit, &view.envelope());
        let last = usize::from(repair.unit) + 1 == shape.units_of(repair.packets);
        if last || block.is_complete() {
            self.close(shared);
        }
        match repaired {
            Repaired::Packet(_, frame) => {
                shared.counters.recovered += 1;
                return Some(frame);
            }
            Repaired::NotVerified => shared.counters.not_verified += 1,
            Repaired::Nothing | Repaired::Hopeless => {}
        }
        None
    }

    fn open(&mut self, base: u32, shared: &mut Shared) {
        let units = shared.pool.allocate(usize::from(self.shape.units()));
        if units.is_none() {
            shared.counters.units_full += 1;
        }
        self.block = units.map(|units| Block::new(base, self.shape, units));
    }

    /// Ends the block under way.
    pub(super) fn close(&mut self, shared: &mut Shared) {
        let Some(block) = self.block.take() else {
            return;
        };
        self.next = Some(block.after());
        if !block.is_complete() {
            shared.counters.given_up += 1;
        }
        block.tally(&mut self.report);
        shared.pool.release(block.units);
    }
}
