//! A stream of a reliable connection: its packets leave in order, or as they come.
//!
//! A path keeps the order of the packets of one connection, so the stream itself is the clock: the
//! repair packets of a block come before the packets of the next one. A block whose packets are
//! missing then is given up at once. The hold time is for streams that fall silent.

use alloc::vec::Vec;

use super::block::{Block, Repaired};
use super::shared::{Held, Shared};
use crate::frame::View;
use crate::lowar::coding::Shape;
use crate::lowar::format::{Repair, Report};
use crate::packets::{Data, Sequence};
use crate::psn;
use crate::streams::Key;

/// How long a stream with an unrepaired loss waits for the sender to go back. Then it is followed
/// again from the next message on.
const MAX_LOST_NS: u64 = 1_000_000_000;

#[derive(Debug)]
pub(super) struct Stream {
    key: Key,
    shape: Shape,
    sequence: Sequence,
    phase: Phase,
    held: Held,
    pub(super) report: Report,
}

#[derive(Debug)]
enum Phase {
    /// It is not known where blocks begin. All passes.
    Unknown,
    /// A block begins with the packet that `sequence` says.
    Between {
        /// Whether the message of the packet before goes on.
        in_message: bool,
    },
    /// Packets came of a message whose first is missing. They wait for a repair packet, which says
    /// where their block begins.
    Unplaced,
    /// Packets are checked off in a block.
    Within(Block),
    /// A packet could not be recovered. All passes until the sender goes back to it.
    Lost { psn: u32, since_ns: u64 },
}

impl Stream {
    pub(super) fn new(key: Key, shape: Shape) -> Self {
        Self {
            key,
            shape,
            sequence: Sequence::new(),
            phase: Phase::Unknown,
            held: Held::default(),
            report: Report::default(),
        }
    }

    /// Gives back all that the stream holds.
    pub(super) fn release(mut self, shared: &mut Shared) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        self.flush(shared, &mut out);
        out
    }

    /// The sender begins a block with this packet, and uses this shape.
    pub(super) fn announce(
        &mut self,
        psn: u32,
        shape: Shape,
        shared: &mut Shared,
        out: &mut Vec<Vec<u8>>,
    ) {
        self.flush(shared, out);
        self.shape = shape;
        self.resume(psn, true);
    }

    /// Takes in a data packet with a right ICRC.
    pub(super) fn handle(
        &mut self,
        now_ns: u64,
        data: Data,
        frame: Vec<u8>,
        shared: &mut Shared,
        out: &mut Vec<Vec<u8>>,
    ) {
        self.leave_block(now_ns, &data, shared, out);
        match &self.phase {
            Phase::Unknown => {}
            Phase::Unplaced => return self.hold(now_ns, data, frame, shared, out),
            Phase::Within(_) => return self.take(now_ns, data, frame, shared, out),
            Phase::Lost { psn, since_ns } => {
                let late = now_ns.saturating_sub(*since_ns) > MAX_LOST_NS;
                if data.psn == *psn || (late && data.starts_message()) {
                    self.open(data.psn, shared);
                }
            }
            Phase::Between { in_message } => {
                let in_message = *in_message;
                self.enter_block(now_ns, &data, in_message, shared);
            }
        }
        match self.phase {
            Phase::Within(_) => self.take(now_ns, data, frame, shared, out),
            Phase::Unplaced => self.hold(now_ns, data, frame, shared, out),
            _ => out.push(frame),
        }
    }

    /// Keeps an acknowledgement behind READ responses that wait.
    pub(super) fn handle_ack(
        &mut self,
        now_ns: u64,
        frame: Vec<u8>,
        shared: &mut Shared,
        out: &mut Vec<Vec<u8>>,
    ) {
        if self.held.buffer.is_empty() {
            out.push(frame);
        } else if let Err(frame) = self.held.push_behind(now_ns, self.key, frame, shared) {
            self.give_up(now_ns, shared, out);
            out.push(frame);
        }
    }

    /// Ends the wait of the frames that are held.
    pub(super) fn hold_ended(&mut self, now_ns: u64, shared: &mut Shared, out: &mut Vec<Vec<u8>>) {
        shared.counters.hold_ended += 1;
        self.give_up(now_ns, shared, out);
    }

    /// Takes in a repair packet.
    pub(super) fn repair(
        &mut self,
        now_ns: u64,
        shape: Shape,
        (repair, unit): (&Repair, &[u8]),
        view: &View<'_>,
        shared: &mut Shared,
        out: &mut Vec<Vec<u8>>,
    ) {
        self.find_block(now_ns, shape, repair, shared, out);
        let Phase::Within(block) = &mut self.phase else {
            return;
        };
        if !block.matches(shape, repair) {
            self.flush(shared, out);
            self.shape = shape;
            let after = psn::add(repair.base, u32::from(repair.packets));
            return self.resume(after, repair.last_bytes.is_none());
        }
        match block.repair(&self.key, repair, unit, &view.envelope()) {
            Repaired::Nothing => {}
            Repaired::Packet(data, frame) => {
                shared.counters.recovered += 1;
                self.deliver(now_ns, data, frame, shared, out);
            }
            Repaired::NotVerified => shared.counters.not_verified += 1,
            Repaired::Hopeless => return self.give_up(now_ns, shared, out),
        }
        self.send_ready(shared, out);
        self.close_if_complete(shared, out);
        let last = usize::from(repair.unit) + 1 == shape.units_of(repair.packets);
        if last && matches!(self.phase, Phase::Within(_)) {
            self.give_up(now_ns, shared, out);
        }
    }

    /// Ends the block under way if a packet belongs behind it.
    fn leave_block(
        &mut self,
        now_ns: u64,
        data: &Data,
        shared: &mut Shared,
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

    /// Opens the block that a packet belongs to, between two blocks.
    fn enter_block(&mut self, now_ns: u64, data: &Data, in_message: bool, shared: &mut Shared) {
        let gap = self.sequence.gap(data.psn).unwrap_or(0);
        let starts = data.starts_message();
        if gap < 0 {
            // A copy: a sender that goes back is announced.
        } else if starts && gap == 0 {
            self.open(data.psn, shared);
        } else if starts || (in_message && gap >= i32::from(self.shape.packets())) {
            self.lose(now_ns);
        } else if in_message {
            let base = self.sequence.least().unwrap_or(data.psn);
            self.open(base, shared);
        } else {
            self.phase = Phase::Unplaced;
        }
    }

    /// Opens or places the block that a repair packet is of, if that is possible.
    fn find_block(
        &mut self,
        now_ns: u64,
        shape: Shape,
        repair: &Repair,
        shared: &mut Shared,
        out: &mut Vec<Vec<u8>>,
    ) {
        let after = psn::add(repair.base, u32::from(repair.packets));
        let in_message = repair.last_bytes.is_none();
        match &mut self.phase {
            Phase::Lost { .. } => {}
            Phase::Unknown => {
                self.shape = shape;
                self.resume(after, in_message);
            }
            Phase::Between { .. } => {
                let gap = self.sequence.gap(repair.base).unwrap_or(0);
                if gap == 0 {
                    self.shape = shape;
                    self.open(repair.base, shared);
                } else if gap > 0 {
                    self.lose(now_ns);
                } else if self
                    .sequence
                    .gap(psn::sub(after, 1))
                    .is_some_and(|gap| gap >= 0)
                {
                    self.shape = shape;
                    self.resume(after, in_message);
                }
            }
            Phase::Unplaced => {
                let packets = i32::from(repair.packets);
                let within = |psn| (0..packets).contains(&psn::distance(repair.base, psn));
                if self.held.buffer.psns().all(within) {
                    self.shape = shape;
                    self.place(repair.base, shared);
                    self.send_ready(shared, out);
                } else {
                    self.give_up(now_ns, shared, out);
                }
            }
            Phase::Within(block) => {
                let behind = psn::distance(block.base, repair.base);
                if behind < 0 && psn::distance(block.base, after) <= 0 {
                    // A late repair packet of an earlier block.
                    return;
                }
                if behind > 0
                    && behind == i32::from(block.first_missing())
                    && self.held.buffer.is_empty()
                {
                    // The sender has cut the block short.
                    block.cut(block.first_missing());
                    self.close_if_complete(shared, out);
                    self.shape = shape;
                    self.open(repair.base, shared);
                } else if behind >= i32::from(block.end()) {
                    self.give_up(now_ns, shared, out);
                }
            }
        }
    }

    /// Begins a block. Without units, all passes until a repair packet says where the next begins.
    fn open(&mut self, base: u32, shared: &mut Shared) {
        let units = shared.pool.allocate(usize::from(self.shape.units()));
        self.phase = match units {
            Some(units) => Phase::Within(Block::new(base, self.shape, units)),
            None => {
                shared.counters.units_full += 1;
                Phase::Unknown
            }
        };
    }

    /// Begins the block of the packets that wait.
    fn place(&mut self, base: u32, shared: &mut Shared) {
        self.open(base, shared);
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

    /// Adds a packet to the block under way.
    fn take(
        &mut self,
        now_ns: u64,
        data: Data,
        frame: Vec<u8>,
        shared: &mut Shared,
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

    /// Sends a packet of the block on if nothing is missing before it.
    fn deliver(
        &mut self,
        now_ns: u64,
        data: Data,
        frame: Vec<u8>,
        shared: &mut Shared,
        out: &mut Vec<Vec<u8>>,
    ) {
        let Phase::Within(block) = &self.phase else {
            return out.push(frame);
        };
        let (base, ready) = (block.base, i32::from(block.first_missing()));
        if psn::distance(base, data.psn) < ready {
            // It was the first one missing, so all that waits comes after it.
            self.sequence.follow(&data);
            out.push(frame);
            self.send_ready(shared, out);
        } else {
            self.hold(now_ns, data, frame, shared, out);
        }
    }

    /// Sends the packets that wait for none before them.
    fn send_ready(&mut self, shared: &mut Shared, out: &mut Vec<Vec<u8>>) {
        if let Phase::Within(block) = &self.phase
            && !self.held.buffer.is_empty()
        {
            let (base, ready) = (block.base, i32::from(block.first_missing()));
            self.send_before(base, ready, shared, out);
        }
    }

    /// Keeps a packet. If there is no room, nothing waits any longer.
    fn hold(
        &mut self,
        now_ns: u64,
        data: Data,
        frame: Vec<u8>,
        shared: &mut Shared,
        out: &mut Vec<Vec<u8>>,
    ) {
        if let Err(frame) = self.held.push(now_ns, self.key, data, frame, shared) {
            self.give_up(now_ns, shared, out);
            out.push(frame);
        }
    }

    fn send_before(&mut self, base: u32, before: i32, shared: &mut Shared, out: &mut Vec<Vec<u8>>) {
        while let Some(waiting) = self.held.pop_before(self.key, base, before, shared) {
            if let Some(data) = waiting.data {
                self.sequence.follow(&data);
            }
            out.push(waiting.frame);
        }
    }

    fn close_if_complete(&mut self, shared: &mut Shared, out: &mut Vec<Vec<u8>>) {
        if let Phase::Within(block) = &self.phase
            && block.is_complete()
        {
            let in_message = !block.ends_message;
            self.flush(shared, out);
            self.phase = Phase::Between { in_message };
        }
    }

    /// Lets all go on, and waits for the sender to go back.
    fn give_up(&mut self, now_ns: u64, shared: &mut Shared, out: &mut Vec<Vec<u8>>) {
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

    /// Notes that a packet is missing which no block can recover.
    fn lose(&mut self, now_ns: u64) {
        self.phase = Phase::Lost {
            psn: self.sequence.least().unwrap_or(0),
            since_ns: now_ns,
        };
    }

    /// Says that a block begins with this packet.
    fn resume(&mut self, psn: u32, in_message: bool) {
        self.sequence.set(psn);
        self.phase = Phase::Between { in_message };
    }

    /// Sends all that waits, in order, and drops the block.
    fn flush(&mut self, shared: &mut Shared, out: &mut Vec<Vec<u8>>) {
        let first = self.held.buffer.psns().next();
        if let Some(first) = first {
            // Every distance from the first is far below this.
            self.send_before(first, i32::MAX, shared, out);
        }
        self.drop_block(shared);
    }

    fn drop_block(&mut self, shared: &mut Shared) {
        let phase = core::mem::replace(&mut self.phase, Phase::Unknown);
        if let Phase::Within(block) = phase {
            block.tally(&mut self.report);
            shared.pool.release(block.units);
        }
    }
}
