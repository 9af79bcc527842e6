//! One message at the sender: which parts have been handed out, encoded, and requested again.

use core::ops::Range;

use alloc::collections::VecDeque;

use super::repairs::Repairs;
use super::shape::Shape;
use crate::chunk_set::ChunkSet;
use crate::scheme::{Chunks, MessageId};

/// Number of superblocks to encode ahead of the one that is being sent.
const BLOCKS_AHEAD: u32 = 1;

/// Departures within this fraction of the crossing time of reports count as one, with the later
/// time.
const MARKS_A_CROSSING: u64 = 64;

#[derive(Debug)]
pub(super) struct CodedSend {
    pub(super) shape: Shape,
    /// Data and parity chunks of lower ranks have been handed out.
    next_data: u32,
    next_parity: u32,
    /// Superblocks before this one do not wait for parity: their data have been handed out, and
    /// their parity exists and has room.
    ready_blocks: u32,
    cleared: bool,
    /// Groups before this one have been handed out as jobs.
    jobs: u32,
    encoded: ChunkSet,
    /// Number of data chunks that have left for the first time, in the order of ranks.
    departed: u32,
    /// Pairs of time and number of chunks that had left by then, oldest first. Then the number that
    /// had left long enough ago.
    marks: VecDeque<(u64, u32)>,
    settled: u32,
    repairs: Option<Repairs>,
}

impl CodedSend {
    pub(super) fn new(shape: Shape) -> Self {
        Self {
            shape,
            next_data: 0,
            next_parity: 0,
            ready_blocks: 0,
            cleared: false,
            jobs: 0,
            encoded: ChunkSet::new(shape.groups),
            departed: 0,
            marks: VecDeque::new(),
            settled: 0,
            repairs: None,
        }
    }

    pub(super) fn has_data(&self) -> bool {
        self.next_data < self.shape.chunks
    }

    pub(super) fn has_parity(&self) -> bool {
        self.next_parity < self.parity_limit()
    }

    pub(super) fn has_repairs(&self) -> bool {
        self.repairs.as_ref().is_some_and(|r| !r.is_empty())
    }

    /// Removes all chunks that are queued to be sent again.
    pub(super) fn drop_repairs(&mut self) {
        if let Some(repairs) = &mut self.repairs {
            repairs.drop_queued();
        }
    }

    pub(super) fn has_jobs(&self) -> bool {
        self.cleared && self.shape.parity.len() > 0 && self.jobs < self.shape.groups
    }

    pub(super) fn clear_parity(&mut self) {
        self.cleared = true;
    }

    pub(super) fn take_repairs(&mut self, max_chunks: u32) -> Option<Chunks> {
        let range = self.repairs.as_mut()?.take(max_chunks)?;
        Some(self.chunks(self.shape.data_id(), range))
    }

    pub(super) fn take_data(&mut self, max_chunks: u32) -> Option<Chunks> {
        let ranks = self.next_data..self.shape.chunks;
        let range = run(ranks, max_chunks, |rank| self.shape.data_at(rank))?;
        self.next_data += range.end - range.start;
        self.update_ready();
        Some(self.chunks(self.shape.data_id(), range))
    }

    pub(super) fn take_parity(&mut self, max_chunks: u32) -> Option<Chunks> {
        let ranks = self.next_parity..self.parity_limit();
        let range = run(ranks, max_chunks, |rank| self.shape.parity.at(rank))?;
        self.next_parity += range.end - range.start;
        debug_assert!(self.cleared, "parity without room at the receiver");
        Some(self.chunks(self.shape.parity_id(), range))
    }

    fn chunks(&self, message: MessageId, range: Range<u32>) -> Chunks {
        Chunks { message, range }
    }

    /// The next group to encode, if it should be encoded now: not before its parity has room, and
    /// not far ahead.
    pub(super) fn next_job(&mut self) -> Option<u32> {
        let sending = match self.has_data() {
            true => self.shape.block_of_data(self.next_data),
            false => self.shape.blocks,
        };
        let block = self.shape.data.block_of(self.jobs);
        let due = self.has_jobs() && block <= sending.saturating_add(BLOCKS_AHEAD);
        due.then(|| {
            self.jobs += 1;
            self.jobs - 1
        })
    }

    pub(super) fn encoded(&mut self, group: u32) {
        self.encoded.insert_word(group / 64, 1 << (group % 64));
        self.update_ready();
    }

    fn update_ready(&mut self) {
        while self.cleared
            && self.ready_blocks < self.shape.blocks
            && self.shape.block_data(self.ready_blocks).end <= self.next_data
            && self
                .encoded
                .contains_all(self.shape.data.block(self.ready_blocks))
        {
            self.ready_blocks += 1;
        }
    }

    /// Parity chunks of lower ranks may be handed out.
    fn parity_limit(&self) -> u32 {
        match self.ready_blocks.checked_sub(1) {
            Some(last) => self.shape.block_parity(last).end,
            None => 0,
        }
    }

    /// Data chunks have left this end. Reports that arrive within `crossing_ns` contain no
    /// information about them.
    pub(super) fn departed(&mut self, now_ns: u64, crossing_ns: u64, range: &Range<u32>) {
        if let Some(repairs) = &mut self.repairs
            && repairs.departed(now_ns, range)
        {
            return;
        }
        self.settle(now_ns, crossing_ns);
        self.departed += range.end - range.start;
        let mark = (now_ns, self.departed);
        let near_ns = now_ns.saturating_sub(crossing_ns / MARKS_A_CROSSING);
        let before = self.marks.iter().nth_back(1);
        let near = before.is_some_and(|(before_ns, _)| *before_ns > near_ns);
        match self.marks.back_mut() {
            Some(last) if near => *last = mark,
            _ => self.marks.push_back(mark),
        }
    }

    fn settle(&mut self, now_ns: u64, crossing_ns: u64) {
        while let Some(&(at_ns, departed)) = self.marks.front()
            && at_ns.saturating_add(crossing_ns) <= now_ns
        {
            self.settled = departed;
            self.marks.pop_front();
        }
    }

    /// The receiver requests a range of data chunks. Chunks that left within the last
    /// `crossing_ns`, or have not left, are not lost yet.
    pub(super) fn repair(&mut self, now_ns: u64, crossing_ns: u64, range: Range<u32>) {
        self.settle(now_ns, crossing_ns);
        let (shape, settled) = (self.shape, self.settled);
        // Superblocks leave one after the other, so most chunks need no rank computation.
        let leaving = match settled < shape.data.len() {
            true => shape.block_data(shape.block_of_data(settled)),
            false => settled..shape.chunks,
        };
        let range = range.start..range.end.min(leaving.end);
        let has_left = |chunk: &u32| *chunk < leaving.start || shape.data_rank(*chunk) < settled;
        for chunk in range.filter(has_left) {
            let repairs = self
                .repairs
                .get_or_insert_with(|| Repairs::new(shape.chunks));
            repairs.queue(chunk, now_ns, crossing_ns);
        }
    }

    /// Queues the last chunks again, if all have left. Returns how many.
    pub(super) fn probe(&mut self, now_ns: u64, max_chunks: u32) -> u32 {
        let shape = self.shape;
        if self.departed < shape.chunks {
            return 0;
        }
        let count = max_chunks.min(shape.chunks);
        let repairs = self
            .repairs
            .get_or_insert_with(|| Repairs::new(shape.chunks));
        for chunk in shape.chunks - count..shape.chunks {
            repairs.queue(chunk, now_ns, 0);
        }
        count
    }
}

/// The chunks of the first ranks, as long as they are consecutive.
fn run(ranks: Range<u32>, max_chunks: u32, at: impl Fn(u32) -> u32) -> Option<Range<u32>> {
    let mut ranks = ranks.take(max_chunks as usize);
    let start = at(ranks.next()?);
    let longer = ranks
        .zip(start + 1..)
        .take_while(|(rank, chunk)| at(*rank) == *chunk);
    Some(start..start + 1 + u32::try_from(longer.count()).unwrap_or(0))
}
