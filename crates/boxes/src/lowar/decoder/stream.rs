//! A stream of a reliable connection. A state machine ([`Phase`]) follows the sender's blocks.
//!
//! Within a block, packets are forwarded in order. Packets after a missing one wait for repair.
//!
//! The path keeps the order of the packets of a connection, so no timer is needed to detect the end
//! of a block: the repair packets of a block arrive before the packets of the next block. If
//! packets are still missing then, the block is given up at once. The hold time only matters when
//! the stream falls silent.

use alloc::vec::Vec;

use super::block::{IncomingBlock, Repaired};
use super::shared::{DecoderShared, HeldFrames};
use crate::frame::View;
use crate::lowar::coding::BlockShape;
use crate::lowar::format::{LossReport, RepairId};
use crate::packets::{DataPacket, Sequence};
use crate::psn;
use crate::shares::Source;
use crate::streams::StreamKey;

/// How long a stream with an unrepaired loss waits for the sender to go back. After that, tracking
/// resumes at the next message.
const MAX_LOST_NS: u64 = 1_000_000_000;

#[derive(Debug)]
pub(super) struct OrderedStream {
    key: StreamKey,
    source: Source,
    shape: BlockShape,
    sequence: Sequence,
    phase: Phase,
    held: HeldFrames,
    pub(super) report: LossReport,
}

#[derive(Debug)]
enum Phase {
    /// The start of the next block is unknown. All packets pass.
    Unknown,
    /// No block is open. The next one begins with the PSN that `sequence` predicts.
    Between {
        /// Whether the next packet continues a message.
        in_message: bool,
    },
    /// The first packet of a message is missing, so the start of the block is unknown. Packets wait
    /// for a repair packet, which names the start.
    Unplaced,
    /// A block is open.
    Within(IncomingBlock),
    /// The packet `psn` could not be recovered. All packets pass until the sender repeats it.
    Lost { psn: u32, since_ns: u64 },
}

impl OrderedStream {
    pub(super) fn new(key: StreamKey, source: Source, shape: BlockShape) -> Self {
        Self {
            key,
            source,
            shape,
            sequence: Sequence::new(),
            phase: Phase::Unknown,
            held: HeldFrames::new(source),
            report: LossReport::default(),
        }
    }

    /// Ends the stream. Returns the frames that it holds.
    pub(super) fn release(mut self, shared: &mut DecoderShared) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        self.flush(shared, &mut out);
        out
    }

    /// The other box announces that a block begins with this PSN, in this shape.
    pub(super) fn announce(
        &mut self,
        psn: u32,
        shape: BlockShape,
        shared: &mut DecoderShared,
        out: &mut Vec<Vec<u8>>,
    ) {
        self.flush(shared, out);
        self.shape = shape;
        self.expect_block(psn, true);
    }

    /// The other box says that the next packets belong to no block.
    pub(super) fn pause(&mut self, shared: &mut DecoderShared, out: &mut Vec<Vec<u8>>) {
        self.flush(shared, out);
        self.phase = Phase::Unknown;
    }

    /// Processes a data packet with a valid ICRC.
    pub(super) fn handle(
        &mut self,
        now_ns: u64,
        data: DataPacket,
        frame: Vec<u8>,
        shared: &mut DecoderShared,
        out: &mut Vec<Vec<u8>>,
    ) {
        self.leave_block(now_ns, &data, shared, out);
        match &self.phase {
            Phase::Unknown => {}
            Phase::Unplaced => return self.hold(now_ns, data, frame, shared, out),
            Phase::Within(_) => return self.add_to_block(now_ns, data, frame, shared, out),
            Phase::Lost { psn, since_ns } => {
                let late = now_ns.saturating_sub(*since_ns) > MAX_LOST_NS;
                if data.psn == *psn || (late && data.starts_message()) {
                    self.open_block(data.psn, shared);
                }
            }
            Phase::Between { in_message } => {
                let in_message = *in_message;
                self.enter_block(now_ns, &data, in_message, shared);
            }
        }
        match self.phase {
            Phase::Within(_) => self.add_to_block(now_ns, data, frame, shared, out),
            Phase::Unplaced => self.hold(now_ns, data, frame, shared, out),
            _ => out.push(frame),
        }
    }

    /// Holds an acknowledgement behind READ responses that wait.
    pub(super) fn handle_ack(
        &mut self,
        now_ns: u64,
        frame: Vec<u8>,
        shared: &mut DecoderShared,
        out: &mut Vec<Vec<u8>>,
    ) {
        if self.held.buffer.is_empty() {
            out.push(frame);
        } else if let Err(frame) = self.held.push_behind(now_ns, self.key, frame, shared) {
            self.give_up(now_ns, shared, out);
            out.push(frame);
        }
    }

    /// Releases the held frames, because their hold time is over.
    pub(super) fn hold_ended(
        &mut self,
        now_ns: u64,
        shared: &mut DecoderShared,
        out: &mut Vec<Vec<u8>>,
    ) {
        shared.counters.hold_ended += 1;
        self.give_up(now_ns, shared, out);
    }

    pub(super) fn repair(
        &mut self,
        now_ns: u64,
        shape: BlockShape,
        (repair, unit): (&RepairId, &[u8]),
        view: &View<'_>,
        shared: &mut DecoderShared,
        out: &mut Vec<Vec<u8>>,
    ) {
        self.find_block(now_ns, shape, repair, shared, out);
        let Phase::Within(block) = &mut self.phase else {
            return;
        };
        if block.follows(repair) {
            return;
        }
        if !block.matches(shape, repair) {
            self.flush(shared, out);
            self.shape = shape;
            let after = psn::add(repair.base, u32::from(repair.packets));
            return self.expect_block(after, repair.last_bytes.is_none());
        }
        match block.repair(&self.key, repair, unit, &view.envelope()) {
            Repaired::Nothing => {}
            Repaired::Packet(data, frame) => {
                shared.counters.recovered += 1;
                self.deliver(now_ns, data, frame, shared, out);
            }
            // The true repair packet may follow. Otherwise, the next block ends this one.
            Repaired::NotVerified => return shared.counters.not_verified += 1,
            Repaired::Unclear => return,
            Repaired::Hopeless => return self.give_up(now_ns, shared, out),
        }
        self.send_ready(shared, out);
        self.close_if_complete(shared, out);
        let last = usize::from(repair.unit) + 1 == shape.units_of(repair.packets);
        if last && matches!(self.phase, Phase::Within(_)) {
            self.give_up(now_ns, shared, out);
        }
    }

    /// Ends the open block if this packet comes after it.
    fn leave_block(
        &mut self,
        now_ns: u64,
        data: &DataPacket,
        shared: &mut DecoderShared,
        out: &mut Vec<Vec<u8>>,
    ) {
        match &mut self.phase {
            Phase::Within(block) => {
                let distance = psn::distance(block.base, data.psn);
                let next_message = data.starts_message() && distance > 0;
                if distance < i32::from(block.end()) && !next_message {
                    return;
                }
                if distance == i32::from(block.first_missing()) && self.held.buffer.is_empty() {
                    block.cut(block.first_missing());
                    self.close_if_complete(shared, out);
                } else if !block.position(data.psn).is_some_and(|at| block.has(at)) {
                    self.give_up(now_ns, shared, out);
                }
            }
            Phase::Unplaced => {
                let first = self.held.buffer.psns().next().unwrap_or(data.psn);
                let distance = psn::distance(first, data.psn).unsigned_abs();
                if data.starts_message() || distance >= u32::from(self.shape.packets()) {
                    self.give_up(now_ns, shared, out);
                }
            }
            _ => {}
        }
    }

    /// In [`Phase::Between`], opens the block that this packet belongs to.
    fn enter_block(
        &mut self,
        now_ns: u64,
        data: &DataPacket,
        in_message: bool,
        shared: &mut DecoderShared,
    ) {
        let gap = self.sequence.gap(data.psn).unwrap_or(0);
        let starts = data.starts_message();
        if gap < 0 {
            // A copy: if the sender had gone back, the other box would have announced it.
        } else if starts && gap == 0 {
            self.open_block(data.psn, shared);
        } else if starts || (in_message && gap >= i32::from(self.shape.packets())) {
            self.note_missing(now_ns);
        } else if in_message {
            let base = self.sequence.least().unwrap_or(data.psn);
            self.open_block(base, shared);
        } else {
            self.phase = Phase::Unplaced;
        }
    }

    /// Opens the block of a repair packet if it is not open yet and its start follows from the
    /// state.
    fn find_block(
        &mut self,
        now_ns: u64,
        shape: BlockShape,
        repair: &RepairId,
        shared: &mut DecoderShared,
        out: &mut Vec<Vec<u8>>,
    ) {
        let after = psn::add(repair.base, u32::from(repair.packets));
        let in_message = repair.last_bytes.is_none();
        let last = self.sequence.gap(psn::sub(after, 1));
        let is_old = last.is_some_and(|gap| gap < 0);
        match &mut self.phase {
            Phase::Lost { .. } => {}
            Phase::Unknown => {
                self.shape = shape;
                self.expect_block(after, in_message);
            }
            Phase::Between { .. } => {
                let gap = self.sequence.gap(repair.base).unwrap_or(0);
                if gap == 0 {
                    self.shape = shape;
                    self.open_block(repair.base, shared);
                } else if gap > 0 {
                    self.note_missing(now_ns);
                } else if last.is_some_and(|gap| gap >= 0) {
                    self.shape = shape;
                    self.expect_block(after, in_message);
                }
            }
            Phase::Unplaced => {
                let packets = i32::from(repair.packets);
                let within = |psn| (0..packets).contains(&psn::distance(repair.base, psn));
                if self.held.buffer.psns().all(within) {
                    self.shape = shape;
                    self.open_for_held(repair.base, shared);
                    self.send_ready(shared, out);
                } else if !is_old && !self.held.buffer.psns().any(within) {
                    self.give_up(now_ns, shared, out);
                }
            }
            Phase::Within(block) => {
                let behind = psn::distance(block.base, repair.base);
                if behind > 0
                    && behind == i32::from(block.first_missing())
                    && self.held.buffer.is_empty()
                {
                    // The sender has ended the block early.
                    block.cut(block.first_missing());
                    self.close_if_complete(shared, out);
                    self.shape = shape;
                    self.open_block(repair.base, shared);
                } else if behind >= i32::from(block.end()) {
                    self.give_up(now_ns, shared, out);
                }
            }
        }
    }

    /// Opens a block. Without free coding units, all packets pass until a repair packet names the
    /// start of the next block.
    fn open_block(&mut self, base: u32, shared: &mut DecoderShared) {
        let units = shared
            .pool
            .allocate(&self.source, usize::from(self.shape.units()));
        self.phase = match units {
            Some(units) => Phase::Within(IncomingBlock::new(base, self.shape, units)),
            None => {
                shared.counters.units_full += 1;
                Phase::Unknown
            }
        };
    }

    /// Opens a block, and adds the held packets to it.
    fn open_for_held(&mut self, base: u32, shared: &mut DecoderShared) {
        self.open_block(base, shared);
        let Phase::Within(block) = &mut self.phase else {
            return;
        };
        for (data, frame) in self.held.buffer.data() {
            let position = block.position(data.psn).filter(|at| !block.has(*at));
            if let (Some(position), Some(view)) = (position, View::parse(frame)) {
                let ends = data.ends_message();
                block.add(position, view.ipv4_id, view.payload(), ends);
            }
        }
    }

    fn add_to_block(
        &mut self,
        now_ns: u64,
        data: DataPacket,
        frame: Vec<u8>,
        shared: &mut DecoderShared,
        out: &mut Vec<Vec<u8>>,
    ) {
        let Phase::Within(block) = &mut self.phase else {
            return out.push(frame);
        };
        let Some(position) = block.position(data.psn) else {
            return out.push(frame);
        };
        if block.has(position) {
            if position < block.first_missing() {
                out.push(frame);
            } else {
                self.hold(now_ns, data, frame, shared, out);
            }
            return;
        }
        if let Some(view) = View::parse(&frame) {
            let ends = data.ends_message();
            block.add(position, view.ipv4_id, view.payload(), ends);
        }
        self.deliver(now_ns, data, frame, shared, out);
        self.close_if_complete(shared, out);
    }

    /// Forwards a packet of the block if none is missing before it. Otherwise, holds it.
    fn deliver(
        &mut self,
        now_ns: u64,
        data: DataPacket,
        frame: Vec<u8>,
        shared: &mut DecoderShared,
        out: &mut Vec<Vec<u8>>,
    ) {
        let Phase::Within(block) = &self.phase else {
            return out.push(frame);
        };
        let (base, ready) = (block.base, i32::from(block.first_missing()));
        if psn::distance(base, data.psn) < ready {
            // This was the first missing packet, so all held packets come after it.
            self.sequence.follow(&data);
            out.push(frame);
            self.send_ready(shared, out);
        } else {
            self.hold(now_ns, data, frame, shared, out);
        }
    }

    /// Forwards the held packets that have no missing packet before them.
    fn send_ready(&mut self, shared: &mut DecoderShared, out: &mut Vec<Vec<u8>>) {
        if let Phase::Within(block) = &self.phase
            && !self.held.buffer.is_empty()
        {
            let (base, ready) = (block.base, i32::from(block.first_missing()));
            self.send_before(base, ready, shared, out);
        }
    }

    /// Gives the block up if there is no room.
    fn hold(
        &mut self,
        now_ns: u64,
        data: DataPacket,
        frame: Vec<u8>,
        shared: &mut DecoderShared,
        out: &mut Vec<Vec<u8>>,
    ) {
        if let Err(frame) = self.held.push(now_ns, self.key, data, frame, shared) {
            self.give_up(now_ns, shared, out);
            out.push(frame);
        }
    }

    fn send_before(
        &mut self,
        base: u32,
        before: i32,
        shared: &mut DecoderShared,
        out: &mut Vec<Vec<u8>>,
    ) {
        while let Some(waiting) = self.held.pop_before(self.key, base, before, shared) {
            if let Some(data) = waiting.data {
                self.sequence.follow(&data);
            }
            out.push(waiting.frame);
        }
    }

    fn close_if_complete(&mut self, shared: &mut DecoderShared, out: &mut Vec<Vec<u8>>) {
        if let Phase::Within(block) = &self.phase
            && block.is_complete()
        {
            let in_message = !block.ends_message;
            self.flush(shared, out);
            self.phase = Phase::Between { in_message };
        }
    }

    /// Forwards all held frames, and waits for the sender to go back.
    fn give_up(&mut self, now_ns: u64, shared: &mut DecoderShared, out: &mut Vec<Vec<u8>>) {
        shared.counters.given_up += 1;
        let lost = match &self.phase {
            Phase::Within(block) => psn::add(block.base, u32::from(block.first_missing())),
            _ => self.sequence.least().unwrap_or(0),
        };
        self.flush(shared, out);
        self.phase = Phase::Lost {
            psn: lost,
            since_ns: now_ns,
        };
    }

    /// Records that the expected packet is lost and no block can recover it.
    fn note_missing(&mut self, now_ns: u64) {
        self.phase = Phase::Lost {
            psn: self.sequence.least().unwrap_or(0),
            since_ns: now_ns,
        };
    }

    fn expect_block(&mut self, psn: u32, in_message: bool) {
        self.sequence.set(psn);
        self.phase = Phase::Between { in_message };
    }

    /// Forwards all held frames in order, and drops the block.
    fn flush(&mut self, shared: &mut DecoderShared, out: &mut Vec<Vec<u8>>) {
        let first = self.held.buffer.psns().next();
        if let Some(first) = first {
            // All distances from the first frame are far below this limit.
            self.send_before(first, i32::MAX, shared, out);
        }
        self.drop_block(shared);
    }

    fn drop_block(&mut self, shared: &mut DecoderShared) {
        let phase = core::mem::replace(&mut self.phase, Phase::Unknown);
        if let Phase::Within(block) = phase {
            block.count_into(&mut self.report);
            shared.pool.release(&self.source, block.units);
        }
    }
}
