//! One message at the receiver: which groups are whole, which can be rebuilt, which have failed.

use core::ops::Range;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use farwrite_wire::control::Nack;

use super::block::{Block, GroupState, is_whole};
use super::fallback::Fallback;
use super::shape::Shape;
use crate::arrived::{Missing, count, highest};
use crate::scheme::{Arrivals, PeerView};
use crate::selective_repeat::ack_state::AckState;
use crate::timing::{Alpha, fallback_margin_ns};

/// Number of chunks requested first when a fragment of the user immediate is missing, and the limit
/// of that number. There are at most 32 fragments (P3.1).
const IMMEDIATE_CHUNKS: Range<u32> = 8..32;

#[derive(Debug)]
pub(super) struct CodedRecv {
    shape: Shape,
    /// Number of chunks that were present at the last look.
    looked_at: u32,
    /// When a chunk last arrived that no look has processed yet.
    unseen_ns: Option<u64>,
    /// Superblocks that have begun and are not whole.
    blocks: BTreeMap<u32, Block>,
    /// Superblocks before this one have begun.
    begun: u32,
    whole_groups: u32,
    /// Data chunks that were found, and how many of them carry no bytes.
    counted: u32,
    counted_rest: u32,
    counted_parity: u32,
    /// Data and parity chunks of lower ranks have arrived or were passed.
    data_front: u32,
    parity_front: u32,
    /// All groups of superblocks before this one that could fail have failed.
    judged: u32,
    /// Groups to rebuild.
    jobs: VecDeque<u32>,
    /// Where to continue in the first group to request.
    resume: u32,
    ask_rest: bool,
    pub(super) acks: AckState,
    pub(super) fallback: Fallback,
}

impl CodedRecv {
    pub(super) fn new(shape: Shape, view: &PeerView, alpha: Alpha) -> Self {
        Self {
            shape,
            looked_at: 0,
            unseen_ns: None,
            blocks: BTreeMap::new(),
            begun: 0,
            whole_groups: 0,
            counted: 0,
            counted_rest: 0,
            counted_parity: 0,
            data_front: 0,
            parity_front: 0,
            judged: 0,
            jobs: VecDeque::new(),
            resume: 0,
            ask_rest: false,
            acks: AckState::new(shape.number, shape.chunks),
            fallback: Fallback::new(view, alpha),
        }
    }

    pub(super) fn chunks(&self) -> u32 {
        self.shape.chunks
    }

    /// Returns whether the last ACK may be sent: all bytes and the user immediate have arrived.
    pub(super) fn is_complete(&self, arrivals: &dyn Arrivals) -> bool {
        self.whole_groups == self.shape.groups
            && self.rest_is_there(arrivals)
            && arrivals.immediate_is_whole(self.shape.data_id())
    }

    /// Returns whether the chunks without bytes have arrived.
    fn rest_is_there(&self, arrivals: &dyn Arrivals) -> bool {
        let rest = self.rest();
        count(arrivals, self.shape.number, rest.clone()) == rest.end - rest.start
    }

    fn rest(&self) -> Range<u32> {
        self.shape.data.len()..self.shape.chunks
    }

    /// Handles the arrival of data or parity. A look scans a superblock. So it waits until there
    /// are enough new chunks, or enough chunks to decode all groups, or until repairs are expected.
    pub(super) fn arrived(&mut self, view: &PeerView, arrivals: &dyn Arrivals) {
        let there = self.there(arrivals);
        let news = there.abs_diff(self.looked_at);
        let block = self.shape.data.block(0);
        let is_enough = news >= (block.end / 2).max(1) || there >= self.shape.data.len();
        if is_enough || self.fallback.awaits_repairs() {
            self.look(view, arrivals);
        } else if news > 0 {
            self.unseen_ns = Some(view.now_ns);
        }
    }

    /// Processes everything that has arrived.
    pub(super) fn look(&mut self, view: &PeerView, arrivals: &dyn Arrivals) {
        self.looked_at = self.there(arrivals);
        self.unseen_ns = None;
        let data = self.look_at_data(arrivals);
        let parity = self.look_at_parity(arrivals);
        if data || parity {
            self.fallback.arrived(view);
            self.advance(view, arrivals);
        }
        self.watch_rest(view, arrivals);
    }

    /// Number of data and parity chunks that have arrived.
    fn there(&self, arrivals: &dyn Arrivals) -> u32 {
        arrivals.count(self.shape.data_id()) + arrivals.count(self.shape.parity_id())
    }

    /// Waits for the chunks that carry no bytes of the message.
    fn watch_rest(&mut self, view: &PeerView, arrivals: &dyn Arrivals) {
        if self.lacks_immediate(arrivals) {
            let late_ns = view.now_ns.saturating_add(view.reordering_window_ns);
            self.fallback.rest_due_ns.get_or_insert(late_ns);
        } else if self.rest_is_there(arrivals) {
            self.fallback.rest_due_ns = None;
        }
    }

    /// Returns whether every chunk is present but a fragment of the user immediate is missing.
    fn lacks_immediate(&self, arrivals: &dyn Arrivals) -> bool {
        self.whole_groups == self.shape.groups
            && self.rest_is_there(arrivals)
            && !arrivals.immediate_is_whole(self.shape.data_id())
    }

    /// Finds the new data chunks, starting with the newest superblocks. Stops when all are found.
    fn look_at_data(&mut self, arrivals: &dyn Arrivals) -> bool {
        let shape = self.shape;
        if let Some(last) = arrivals.seen(shape.data_id()).checked_sub(1) {
            self.begin(shape.block_of_data(last));
        }
        let rest = count(arrivals, shape.number, self.rest());
        let mut new = arrivals.count(shape.data_id()).saturating_sub(self.counted);
        let any = new > 0;
        let new_rest = rest.saturating_sub(self.counted_rest);
        new = new.saturating_sub(new_rest);
        self.counted += new_rest;
        self.counted_rest = rest;
        let mut whole = false;
        for block in self.blocks.values_mut().rev() {
            if new == 0 {
                break;
            }
            let found = block.count_data(&shape, arrivals);
            if found > 0 {
                new = new.saturating_sub(found);
                self.counted += found;
                self.whole_groups += block.examine(&shape, arrivals, |g| self.jobs.push_back(g));
                whole |= block.is_whole();
            }
        }
        if whole {
            self.drop_whole();
        }
        any
    }

    /// Checks the parity of every superblock that is not whole. Returns whether there is news.
    fn look_at_parity(&mut self, arrivals: &dyn Arrivals) -> bool {
        let shape = self.shape;
        let Some(last) = arrivals.seen(shape.parity_id()).checked_sub(1) else {
            return false;
        };
        let newest = shape.block_of_parity(last);
        self.begin(newest);
        // Also count the parity of whole superblocks, because it shows how far the sender is.
        let counted = arrivals.count(shape.parity_id());
        let any = core::mem::replace(&mut self.counted_parity, counted) != counted;
        let mut whole = false;
        for (_, block) in self.blocks.range_mut(..=newest) {
            if block.count_parity(&shape, arrivals) {
                self.whole_groups += block.examine(&shape, arrivals, |g| self.jobs.push_back(g));
                whole |= block.is_whole();
            }
        }
        if whole {
            self.drop_whole();
        }
        any
    }

    /// Begins all superblocks up to this one.
    fn begin(&mut self, block: u32) {
        let end = block.saturating_add(1).min(self.shape.blocks);
        for index in self.begun..end {
            self.blocks.insert(index, Block::new(&self.shape, index));
        }
        self.begun = self.begun.max(end);
    }

    fn drop_whole(&mut self) {
        self.blocks.retain(|_, block| !block.is_whole());
    }

    /// Records how far the sender has advanced.
    fn advance(&mut self, view: &PeerView, arrivals: &dyn Arrivals) {
        let shape = self.shape;
        if let Some(chunk) = highest(arrivals, shape.number, self.rest()) {
            self.data_front = self.data_front.max(chunk + 1);
        } else if let Some(last) = arrivals.seen(shape.data_id()).checked_sub(1) {
            let groups = shape
                .data
                .block(shape.block_of_data(last))
                .map(|g| shape.data.of_group(g));
            let tops = groups.filter_map(|range| highest(arrivals, shape.number, range));
            let front = tops.map(|chunk| shape.data.rank(chunk) + 1).max();
            self.data_front = self.data_front.max(front.unwrap_or(0));
        }
        let parity_id = shape.parity_id();
        if let Some(last) = arrivals.seen(parity_id).checked_sub(1) {
            let groups = shape.parity.block(shape.block_of_parity(last));
            let ranges = groups.map(|g| shape.parity.of_group(g));
            let tops = ranges.filter_map(|range| highest(arrivals, parity_id, range));
            let front = tops.map(|chunk| shape.parity.rank(chunk) + 1).max();
            self.parity_front = self.parity_front.max(front.unwrap_or(0));
            if let Some(last) = self.parity_front.checked_sub(1) {
                let data = shape.block_data(shape.block_of_parity(last));
                self.data_front = self.data_front.max(data.end);
                self.fallback.marks.note(view, self.parity_front);
            }
        }
        let passed = self.data_front.saturating_add(self.parity_front);
        self.fallback.advance(view, passed);
    }

    /// Number of chunks that the sender has yet to pass. If no parity has arrived, only one
    /// superblock's parity counts, because the parity may have no room here.
    fn remaining(&self) -> u32 {
        let parity = match self.parity_front {
            0 => self.shape.block_parity(0).end,
            front => self.shape.parity.len() - front,
        };
        parity.saturating_add(self.shape.chunks - self.data_front)
    }

    /// A newer message has begun, with data or with parity. Chunks of this message that are still
    /// missing were lost, or its parity is late.
    pub(super) fn pass(&mut self, view: &PeerView, alpha: Alpha, with_parity: bool) {
        let wait_ns = match with_parity || self.shape.parity.len() == 0 {
            true => view.reordering_window_ns,
            false => fallback_margin_ns(view, alpha),
        };
        self.fallback.limit(view.now_ns.saturating_add(wait_ns));
    }

    /// Returns whether there is something to request.
    pub(super) fn handle_timeout(
        &mut self,
        view: &PeerView,
        arrivals: &dyn Arrivals,
        others_ns: u64,
    ) -> bool {
        if let Some(now_ns) = self.unseen_ns {
            self.look(&PeerView { now_ns, ..*view }, arrivals);
        }
        while let Some(passed) = self.fallback.marks.pop_due(view.now_ns) {
            self.judge(passed);
        }
        let deadline_ns = self.fallback.deadline_ns(view, self.remaining(), others_ns);
        if !self.fallback.expired && deadline_ns <= view.now_ns {
            self.expire(view, arrivals);
        }
        self.ask_rest |= self.fallback.ask_again(view);
        self.ask_rest || !self.fallback.to_ask.is_empty()
    }

    /// The sender passed parity of lower ranks a reordering window ago. Groups without other parity
    /// fail.
    fn judge(&mut self, passed: u32) {
        let shape = self.shape;
        let last = shape
            .block_of_parity(passed.saturating_sub(1))
            .max(self.judged);
        for block in self
            .blocks
            .range_mut(self.judged..=last)
            .map(|(_, block)| block)
        {
            for (group, state) in block.groups_mut(&shape) {
                let parity = shape.parity.of_group(group);
                if *state == GroupState::Open && shape.parity.rank(parity.end - 1) < passed {
                    *state = GroupState::Failed;
                    self.fallback.to_ask.insert(group);
                }
            }
        }
        self.judged = last;
    }

    /// Handles the fallback timeout: every group that is not whole has failed.
    fn expire(&mut self, view: &PeerView, arrivals: &dyn Arrivals) {
        let shape = self.shape;
        self.fallback.expired = true;
        self.begin(shape.blocks);
        for block in self.blocks.values_mut() {
            for (group, state) in block.groups_mut(&shape) {
                if *state == GroupState::Open {
                    *state = GroupState::Failed;
                    self.fallback.to_ask.insert(group);
                }
            }
        }
        if !self.rest_is_there(arrivals) {
            self.fallback.rest_due_ns = Some(view.now_ns);
        }
    }

    pub(super) fn next_timeout(&self, view: &PeerView, others_ns: u64) -> Option<u64> {
        let waiting = !self.fallback.expired;
        let deadline_ns =
            waiting.then(|| self.fallback.deadline_ns(view, self.remaining(), others_ns));
        self.fallback
            .next_timeout(view)
            .into_iter()
            .chain(deadline_ns)
            .min()
    }

    pub(super) fn has_jobs(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// The next group to rebuild. A group whose missing chunks have arrived meanwhile is skipped.
    pub(super) fn next_job(&mut self, arrivals: &dyn Arrivals) -> Option<u32> {
        while let Some(group) = self.jobs.pop_front() {
            if self.state(group) != Some(GroupState::Rebuilding) {
                continue;
            }
            if !is_whole(&self.shape, arrivals, group) {
                return Some(group);
            }
            self.set_whole(group);
        }
        None
    }

    /// Handles a rebuilt group. If the rebuild failed, its chunks are requested. Returns whether
    /// they are.
    pub(super) fn rebuilt(&mut self, view: &PeerView, group: u32, arrivals: &dyn Arrivals) -> bool {
        if self.state(group) != Some(GroupState::Rebuilding) {
            return false;
        }
        let whole = is_whole(&self.shape, arrivals, group);
        if whole {
            self.set_whole(group);
            self.look_at_data(arrivals);
            self.drop_whole();
            self.watch_rest(view, arrivals);
        } else if let Some(state) = self.state_mut(group) {
            *state = GroupState::Failed;
            self.fallback.to_ask.insert(group);
        }
        !whole
    }

    fn state(&mut self, group: u32) -> Option<GroupState> {
        self.state_mut(group).copied()
    }

    fn state_mut(&mut self, group: u32) -> Option<&mut GroupState> {
        let index = self.shape.data.block_of(group);
        self.blocks.get_mut(&index)?.state_mut(&self.shape, group)
    }

    fn set_whole(&mut self, group: u32) {
        if let Some(state) = self.state_mut(group) {
            *state = GroupState::Whole;
            self.whole_groups += 1;
        }
    }

    /// The next chunks to request, at most `max_ranges` runs.
    pub(super) fn poll_nack(
        &mut self,
        view: &PeerView,
        arrivals: &dyn Arrivals,
        max_ranges: usize,
    ) -> Option<Nack> {
        let mut lost = self.poll_groups(view, arrivals, max_ranges);
        if lost.is_empty() && core::mem::take(&mut self.ask_rest) {
            let missing = Missing::new(arrivals, self.shape.number, self.rest());
            lost.extend(missing.take(max_ranges));
            if lost.is_empty() && self.lacks_immediate(arrivals) {
                // The message has all its bytes, but some chunks were rebuilt. A rebuilt chunk
                // brings no fragment of the immediate.
                let most = IMMEDIATE_CHUNKS.start << self.fallback.rounds.min(2);
                lost.push(0..most.min(IMMEDIATE_CHUNKS.end).min(self.shape.chunks));
            }
        }
        let message = self.shape.number;
        (!lost.is_empty()).then_some(Nack { message, lost })
    }

    fn poll_groups(
        &mut self,
        view: &PeerView,
        arrivals: &dyn Arrivals,
        max_ranges: usize,
    ) -> Vec<Range<u32>> {
        let mut lost: Vec<Range<u32>> = Vec::new();
        while let Some(&group) = self.fallback.to_ask.first() {
            let chunks = self.shape.data.of_group(group);
            let failed = self.state(group) == Some(GroupState::Failed);
            let resume = core::mem::take(&mut self.resume);
            let start = Some(resume)
                .filter(|c| chunks.contains(c))
                .unwrap_or(chunks.start);
            for run in Missing::new(arrivals, self.shape.number, start..chunks.end) {
                if !failed {
                    break;
                }
                let is_full = lost.len() == max_ranges;
                match lost.last_mut() {
                    Some(last) if last.end == run.start => last.end = run.end,
                    _ if is_full => {
                        self.resume = run.start;
                        return lost;
                    }
                    _ => lost.push(run),
                }
            }
            self.fallback.to_ask.pop_first();
            if failed {
                let there = count(arrivals, self.shape.number, chunks.clone());
                self.fallback
                    .asked(view, group, chunks.end - chunks.start - there);
            }
        }
        lost
    }
}
