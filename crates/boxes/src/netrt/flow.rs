//! The ternary state machine of a flow (section III.C.2). P11.4 has it as a table.
//!
//! Where Algorithms 1 and 2 of the paper do not work as printed:
//!
//! - Algorithm 2 clears the bitmap with AND where it must set a bit, and Algorithm 1 leaves it one
//!   off when a second hole follows. Here, the bitmap is no state: each request makes it from the
//!   reordering buffer.
//! - They do not say what happens to a packet beyond the bitmap: it waits too, and is reported when
//!   the bitmap reaches it.
//! - They do not say what happens to a packet before the expected one. If the source box has
//!   repeated it, it is a copy and is dropped. Otherwise, a NIC has repeated it, or it comes late:
//!   it passes, since the NIC may wait for the acknowledgement.
//! - `buffer.clear()` would drop packets. Here, they go on: Go-Back-N needs one to notice the loss,
//!   and a NIC with selective repeat can use all.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::config::Config;
use super::counters::Counters;
use super::format::{BITMAP_BITS, MAX_SPAN, Request};
use crate::packets::{Data, Sequence};
use crate::psn;
use crate::reorder::{ReorderBuffer, Room};

/// A packet this far ahead does not belong to what came before.
const MAX_AHEAD: i32 = 1 << 20;
/// Least time between two requests for the same packets. Without one, a `request_ns` of 0 would
/// request them without end.
const MIN_REQUEST_NS: u64 = 1_000;
/// Requests of which a flow remembers when they were sent.
const MAX_ASKS: usize = 32;

/// What a flow does with packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// All came in order.
    Ordered,
    /// The expected packet is missing. The packets after it wait, and the source box is asked.
    ReTx,
    /// The expected packet is missing and the network cannot repair it. All passes until its sender
    /// repeats it.
    Waiting,
}

#[derive(Debug)]
pub(crate) struct Flow {
    state: State,
    sequence: Sequence,
    buffer: ReorderBuffer,
    /// A packet that was sent, as a mark says.
    marked_psn: Option<u32>,
    /// Since when the expected packet is the same one, if it is missing.
    since_ns: u64,
    /// What was requested: all that is missing before this PSN.
    asked_psn: u32,
    /// When that is requested again.
    again_ns: u64,
    /// The next request about packets that were not requested yet: its time, and the PSN before
    /// which it covers what is missing.
    next_ask: Option<(u64, u32)>,
    /// First requests: the PSN before which each covers what is missing, and its time.
    asks: VecDeque<(u32, u64)>,
}

/// What flows share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) room: Room,
    /// How long it takes from a request to the repeated packet: the recent maximum. It grows when
    /// many are repeated, and with it the time until a request is repeated.
    pub(crate) repair_ns: u64,
    pub(crate) counters: Counters,
}

impl Flow {
    /// A flow whose next packet has this PSN.
    pub(crate) fn new(psn: u32) -> Self {
        let mut sequence = Sequence::new();
        sequence.set(psn);
        Self {
            state: State::Ordered,
            sequence,
            buffer: ReorderBuffer::default(),
            marked_psn: None,
            since_ns: 0,
            asked_psn: psn,
            again_ns: 0,
            next_ask: None,
            asks: VecDeque::new(),
        }
    }

    /// The PSN that is expected, or the least that can come next.
    pub(crate) fn expected(&self) -> u32 {
        self.sequence.least().unwrap_or(0)
    }

    /// When [`due`](Self::due) has something to do.
    pub(crate) fn next_ns(&self, config: &Config) -> Option<u64> {
        if self.state != State::ReTx {
            return None;
        }
        let hold_ns = self.since_ns.saturating_add(config.hold_ns);
        let next_ns = self.next_ask.map_or(u64::MAX, |(at_ns, _)| at_ns);
        Some(hold_ns.min(self.again_ns).min(next_ns))
    }

    /// Takes in a data packet. `repeated`: by the source box.
    pub(crate) fn packet(
        &mut self,
        now_ns: u64,
        data: Data,
        frame: Vec<u8>,
        repeated: bool,
        shared: &mut Shared,
        out: &mut Vec<Vec<u8>>,
    ) {
        let gap = self.sequence.gap(data.psn).unwrap_or(0);
        if gap == 0 {
            if repeated {
                self.recover(now_ns, data.psn, shared);
            }
            self.sequence.follow(&data);
            out.push(frame);
            return self.advance(now_ns, shared, out);
        }
        if gap >= MAX_AHEAD {
            if self.state == State::ReTx {
                self.give_up(now_ns, shared, out);
            }
            return out.push(frame);
        }
        let copy = gap < 0 || self.state == State::Waiting || self.holds(data.psn);
        if repeated && copy {
            shared.counters.copies_dropped += 1;
        } else if gap < 0 || self.state == State::Waiting {
            out.push(frame);
        } else if copy {
            shared.counters.copies_dropped += 1;
        } else {
            if repeated {
                self.recover(now_ns, data.psn, shared);
            }
            self.lose(now_ns);
            if let Err(frame) = self.buffer.push(data, frame, &mut shared.room) {
                self.give_up(now_ns, shared, out);
                out.push(frame);
            }
        }
    }

    /// Keeps an acknowledgement behind READ responses that wait.
    pub(crate) fn ack(
        &mut self,
        now_ns: u64,
        frame: Vec<u8>,
        shared: &mut Shared,
        out: &mut Vec<Vec<u8>>,
    ) {
        if self.buffer.is_empty() {
            out.push(frame);
        } else if let Err(frame) = self.buffer.push_behind(frame, &mut shared.room) {
            self.give_up(now_ns, shared, out);
            out.push(frame);
        }
    }

    /// The sender sends the packet with this PSN next, whatever came before.
    pub(crate) fn start(&mut self, psn: u32, shared: &mut Shared, out: &mut Vec<Vec<u8>>) {
        let goes_back = psn::distance(self.expected(), psn) <= 0;
        if self.state == State::ReTx && goes_back {
            // The sender is about to repeat what is missing.
            return;
        }
        self.flush(shared, out);
        self.restart(psn);
    }

    /// The sender has sent the packet `last`, and will send `next`.
    pub(crate) fn mark(&mut self, now_ns: u64, next: u32, last: u32, config: &Config) {
        let sent = self.sequence.gap(last).is_some_and(|gap| gap >= 0);
        match self.state {
            State::Waiting => {
                // The sender does not go back: another NIC than Go-Back-N's, or nothing was lost.
                if now_ns.saturating_sub(self.since_ns) >= config.hold_ns {
                    self.restart(next);
                }
            }
            State::Ordered | State::ReTx if sent => {
                self.lose(now_ns);
                let later = |psn| psn::distance(psn, last) > 0;
                if self.marked_psn.is_none_or(later) {
                    self.marked_psn = Some(last);
                }
            }
            State::Ordered | State::ReTx => {}
        }
    }

    /// The source box has no copy of this packet.
    pub(crate) fn notice(
        &mut self,
        now_ns: u64,
        psn: u32,
        shared: &mut Shared,
        out: &mut Vec<Vec<u8>>,
    ) {
        if self.state == State::ReTx && psn == self.expected() {
            shared.counters.notices_received += 1;
            self.give_up(now_ns, shared, out);
        }
    }

    /// The hold time ends here if it is over. Returns the request to send now.
    pub(crate) fn due(
        &mut self,
        now_ns: u64,
        config: &Config,
        shared: &mut Shared,
        out: &mut Vec<Vec<u8>>,
    ) -> Option<(u32, Request)> {
        if self.state != State::ReTx {
            return None;
        }
        if now_ns.saturating_sub(self.since_ns) >= config.hold_ns {
            shared.counters.hold_ended += 1;
            self.give_up(now_ns, shared, out);
            return None;
        }
        self.look(now_ns, config);
        if let Some((_, end)) = self.next_ask.take_if(|(at_ns, _)| *at_ns <= now_ns) {
            self.asked_psn = end;
            if self.asks.len() < MAX_ASKS {
                self.asks.push_back((end, now_ns));
            }
            self.look(now_ns, config);
        } else if self.again_ns > now_ns {
            return None;
        }
        let again_ns = config.request_ns.max(shared.repair_ns.saturating_mul(2));
        self.again_ns = now_ns.saturating_add(again_ns.max(MIN_REQUEST_NS));
        Some((self.expected(), self.request()))
    }

    /// Gives back all that the flow holds.
    pub(crate) fn flush(&mut self, shared: &mut Shared, out: &mut Vec<Vec<u8>>) {
        while let Some(waiting) = self.buffer.pop(&mut shared.room) {
            out.push(waiting.frame);
        }
    }

    /// Notes that a repeated packet has come which was missing.
    fn recover(&mut self, now_ns: u64, psn: u32, shared: &mut Shared) {
        shared.counters.recovered += 1;
        let mut asks = self.asks.iter();
        if let Some((_, at_ns)) = asks.find(|(end, _)| psn::distance(psn, *end) > 0) {
            let took_ns = now_ns.saturating_sub(*at_ns);
            let faded_ns = shared.repair_ns - shared.repair_ns / 8;
            shared.repair_ns = faded_ns.max(took_ns);
        }
    }

    /// Goes on after the expected packet has come.
    fn advance(&mut self, now_ns: u64, shared: &mut Shared, out: &mut Vec<Vec<u8>>) {
        match self.state {
            State::Ordered => return,
            State::Waiting => return self.state = State::Ordered,
            State::ReTx => self.since_ns = now_ns,
        }
        while let Some(first) = self.buffer.first() {
            let gap = self.sequence.gap(first.psn).unwrap_or(0);
            if first.data.is_some() && gap > 0 {
                return;
            }
            let Some(waiting) = self.buffer.pop(&mut shared.room) else {
                return;
            };
            if let Some(data) = waiting.data.filter(|_| gap == 0) {
                self.sequence.follow(&data);
            }
            out.push(waiting.frame);
        }
        let to_come = |last| self.sequence.gap(last).is_some_and(|gap| gap >= 0);
        if !self.marked_psn.is_some_and(to_come) {
            self.order();
        }
    }

    /// Notes that the expected packet is missing.
    fn lose(&mut self, now_ns: u64) {
        if self.state == State::Ordered {
            self.state = State::ReTx;
            self.since_ns = now_ns;
            self.asked_psn = self.expected();
            // Until something was requested, nothing is requested again.
            self.again_ns = u64::MAX;
        }
    }

    /// Lets all go on, and waits for the sender to go back.
    fn give_up(&mut self, now_ns: u64, shared: &mut Shared, out: &mut Vec<Vec<u8>>) {
        shared.counters.given_up += 1;
        self.flush(shared, out);
        self.order();
        self.state = State::Waiting;
        self.since_ns = now_ns;
    }

    fn restart(&mut self, psn: u32) {
        self.sequence.set(psn);
        self.order();
    }

    fn order(&mut self) {
        self.state = State::Ordered;
        self.marked_psn = None;
        self.next_ask = None;
        self.asks.clear();
    }

    /// Plans a request if something is missing that was not requested yet.
    fn look(&mut self, now_ns: u64, config: &Config) {
        let expected = self.expected();
        // The holes that a request was planned for may have closed since.
        let open = |(_, end): &(u64, u32)| psn::distance(expected, *end) > 0;
        self.next_ask = self.next_ask.filter(open);
        if self.next_ask.is_some() {
            return;
        }
        if psn::distance(self.asked_psn, expected) > 0 {
            self.asked_psn = expected;
        }
        while let Some((end, _)) = self.asks.front()
            && psn::distance(*end, expected) >= 0
        {
            self.asks.pop_front();
        }
        let end = psn::add(expected, self.span());
        let mut from = self.asked_psn;
        while psn::distance(from, end) > 0 && self.holds(from) {
            from = psn::add(from, 1);
        }
        self.asked_psn = from;
        if psn::distance(from, end) > 0 {
            let at_ns = now_ns.saturating_add(config.request_delay_ns);
            self.next_ask = Some((at_ns, end));
        }
    }

    /// Packets from the expected one to the last one that is known to be sent, or that a request
    /// can be about.
    fn span(&self) -> u32 {
        let expected = self.expected();
        let lasts = [self.buffer.psns().next_back(), self.marked_psn];
        let after = |last| psn::distance(expected, last).max(0).unsigned_abs() + 1;
        let spans = lasts.into_iter().flatten().map(after);
        spans.max().unwrap_or(1).min(MAX_SPAN)
    }

    /// The request for all that is missing up to where it was asked for.
    fn request(&self) -> Request {
        let expected = self.expected();
        let asked = psn::distance(expected, self.asked_psn)
            .max(1)
            .unsigned_abs();
        let span = asked.min(MAX_SPAN);
        let mut bitmap = 0;
        for psn in self.buffer.psns() {
            let bit = psn::distance(expected, psn).unsigned_abs().wrapping_sub(1);
            if bit < BITMAP_BITS && bit + 1 < span {
                bitmap |= 1 << bit;
            }
        }
        Request {
            // At most MAX_SPAN.
            span: u8::try_from(span).unwrap_or(u8::MAX),
            bitmap,
        }
    }

    fn holds(&self, psn: u32) -> bool {
        self.buffer.holds(psn)
    }
}

#[cfg(test)]
mod tests;
