//! The state machine of a flow at its destination (section III.C.2). P11.4 lists all transitions.
//!
//! The flow knows the PSN that it expects. In [`FlowState::Ordered`], packets arrive in order and pass.
//! When a later packet arrives first, the flow enters [`FlowState::ReTx`]: it holds later packets and
//! requests the missing ones. When all of them have arrived, it is `Ordered` again. If repair fails
//! (a notice arrives, the hold time ends, or the buffer is full), it forwards all held packets and
//! enters [`FlowState::Waiting`], until the sender's NIC repeats the expected packet.
//!
//! Algorithms 1 and 2 of the paper do not work as printed. The differences:
//!
//! - Algorithm 2 clears the bitmap with AND where it must set a bit, and in Algorithm 1 the bitmap
//!   is off by one after a second hole. Here, the bitmap is not stored: each request derives it
//!   from the reordering buffer.
//! - The paper does not say what happens to a packet beyond the bitmap. Here, it is held too, and
//!   reported when the bitmap reaches it. The bitmap may be longer than that of the paper
//!   ([`Config::bitmap_bits`]): a request then begins at a missing packet after the expected one.
//! - The paper does not say what happens to a packet before the expected one. Here, a repeat from
//!   the source box is a duplicate and is dropped. Other packets pass: they are late or repeated by
//!   the NIC, and the sender's NIC may wait for their acknowledgement.
//! - The paper drops the held packets with `buffer.clear()`. Here, they are forwarded: a Go-Back-N
//!   NIC needs one of them to notice the loss, and a NIC with selective repeat can use all.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::config::Config;
use super::counters::Counters;
use super::format::{MAX_SPAN, Request};
use crate::packets::{DataPacket, Sequence};
use crate::psn;
use crate::reorder::{BufferBudget, ReorderBuffer};
use crate::shares::Source;

/// A packet this far ahead of the expected PSN does not continue the sequence, so it is not held.
const MAX_AHEAD: i32 = 1 << 20;
/// Least interval between two requests for the same packets. Otherwise, a `request_ns` of 0 would
/// send requests in an endless loop.
const MIN_REQUEST_NS: u64 = 1_000;
/// Number of requests whose times a flow remembers.
const MAX_FIRST_REQUESTS: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FlowState {
    /// No packet is missing.
    Ordered,
    /// The expected packet is missing. Later packets are held, and the source box gets requests.
    ReTx,
    /// The expected packet is missing and the boxes cannot repair it. All packets pass until the
    /// sender repeats it.
    Waiting,
}

#[derive(Debug)]
pub(crate) struct DestinationFlow {
    state: FlowState,
    sequence: Sequence,
    buffer: ReorderBuffer,
    /// The last PSN that was sent, according to a mark.
    marked_psn: Option<u32>,
    /// When the expected packet became the expected one, if it is missing.
    since_ns: u64,
    /// All missing packets before this PSN have been requested.
    requested_end: u32,
    /// When to request them again.
    next_repeat_ns: u64,
    /// The next request for packets that were not requested before: its time, and the PSN before
    /// which it covers all missing packets.
    planned: Option<(u64, u32)>,
    /// The first request for each packet: the PSN before which the request covers all missing
    /// packets, and its time.
    first_requests: VecDeque<(u32, u64)>,
}

#[derive(Debug)]
pub(crate) struct FlowShared {
    pub(crate) room: BufferBudget,
    /// Recent maximum of the time from a request to the repeated packet. It grows when many packets
    /// are repeated, and so does the interval between requests.
    pub(crate) repair_ns: u64,
    pub(crate) counters: Counters,
}

impl DestinationFlow {
    /// A flow whose next packet has this PSN.
    pub(crate) fn new(source: Source, psn: u32) -> Self {
        let mut sequence = Sequence::new();
        sequence.set(psn);
        Self {
            state: FlowState::Ordered,
            sequence,
            buffer: ReorderBuffer::new(source),
            marked_psn: None,
            since_ns: 0,
            requested_end: psn,
            next_repeat_ns: 0,
            planned: None,
            first_requests: VecDeque::new(),
        }
    }

    /// The expected PSN, or the lowest that can come next.
    pub(crate) fn expected(&self) -> u32 {
        self.sequence.least().unwrap_or(0)
    }

    /// Whether a packet with the code point of repeats is none: it was not requested, and it is no copy of
    /// a packet that has come. A host must not use this code point, so such a packet belongs to no flow:
    /// otherwise, it would not be known to the source box, and packets behind it would wait for repeats
    /// that nobody can send.
    pub(crate) fn is_foreign(&self, psn: u32) -> bool {
        let gap = self.sequence.gap(psn).unwrap_or(0);
        let copy = gap < 0 || self.state == FlowState::Waiting || self.holds(psn);
        let requested = self.state == FlowState::ReTx && psn::distance(psn, self.requested_end) > 0;
        !copy && !requested
    }

    /// When to call [`due`](Self::due).
    pub(crate) fn next_ns(&self, config: &Config) -> Option<u64> {
        if self.state != FlowState::ReTx {
            return None;
        }
        let hold_ns = self.since_ns.saturating_add(config.hold_ns);
        let next_ns = self.planned.map_or(u64::MAX, |(at_ns, _)| at_ns);
        Some(hold_ns.min(self.next_repeat_ns).min(next_ns))
    }

    /// `repeated`: whether the source box sent the packet as a repeat.
    pub(crate) fn packet(
        &mut self,
        now_ns: u64,
        data: DataPacket,
        frame: Vec<u8>,
        repeated: bool,
        shared: &mut FlowShared,
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
            if self.state == FlowState::ReTx {
                self.give_up(now_ns, shared, out);
            }
            return out.push(frame);
        }
        let copy = gap < 0 || self.state == FlowState::Waiting || self.holds(data.psn);
        if repeated && copy {
            shared.counters.copies_dropped += 1;
        } else if gap < 0 || self.state == FlowState::Waiting {
            out.push(frame);
        } else if copy {
            shared.counters.copies_dropped += 1;
        } else {
            if repeated {
                self.recover(now_ns, data.psn, shared);
            }
            self.note_missing(now_ns);
            if let Err(frame) = self.buffer.push(data, frame, &mut shared.room) {
                self.give_up(now_ns, shared, out);
                out.push(frame);
            }
        }
    }

    /// Holds an acknowledgement behind READ responses that wait.
    pub(crate) fn ack(
        &mut self,
        now_ns: u64,
        frame: Vec<u8>,
        shared: &mut FlowShared,
        out: &mut Vec<Vec<u8>>,
    ) {
        if self.buffer.is_empty() {
            out.push(frame);
        } else if let Err(frame) = self.buffer.push_behind(frame, &mut shared.room) {
            self.give_up(now_ns, shared, out);
            out.push(frame);
        }
    }

    /// The source box says that the next packet has this PSN, independent of earlier packets.
    pub(crate) fn start(&mut self, psn: u32, shared: &mut FlowShared, out: &mut Vec<Vec<u8>>) {
        let goes_back = psn::distance(self.expected(), psn) <= 0;
        if self.state == FlowState::ReTx && goes_back {
            // The sender is about to repeat the missing packets.
            return;
        }
        self.flush(shared, out);
        self.restart(psn);
    }

    /// The source box says that the last packet had PSN `last` and the next will have `next`.
    pub(crate) fn mark(&mut self, now_ns: u64, next: u32, last: u32, config: &Config) {
        let sent = self.sequence.gap(last).is_some_and(|gap| gap >= 0);
        match self.state {
            FlowState::Waiting => {
                // The sender has not gone back: it does not use Go-Back-N, or no packet was lost.
                if now_ns.saturating_sub(self.since_ns) >= config.hold_ns {
                    self.restart(next);
                }
            }
            FlowState::Ordered | FlowState::ReTx if sent => {
                self.note_missing(now_ns);
                let later = |psn| psn::distance(psn, last) > 0;
                if self.marked_psn.is_none_or(later) {
                    self.marked_psn = Some(last);
                }
            }
            FlowState::Ordered | FlowState::ReTx => {}
        }
    }

    /// The source box says that it has no copy of this packet.
    pub(crate) fn notice(
        &mut self,
        now_ns: u64,
        psn: u32,
        shared: &mut FlowShared,
        out: &mut Vec<Vec<u8>>,
    ) {
        if self.state == FlowState::ReTx && psn == self.expected() {
            shared.counters.notices_received += 1;
            self.give_up(now_ns, shared, out);
        }
    }

    /// Ends the hold time if it is over. Otherwise, returns a request that is due, with the PSN from
    /// which it covers packets. Call it until it returns `None`.
    pub(crate) fn due(
        &mut self,
        now_ns: u64,
        config: &Config,
        shared: &mut FlowShared,
        out: &mut Vec<Vec<u8>>,
    ) -> Option<(u32, Request)> {
        if self.state != FlowState::ReTx {
            return None;
        }
        if now_ns.saturating_sub(self.since_ns) >= config.hold_ns {
            shared.counters.hold_ended += 1;
            self.give_up(now_ns, shared, out);
            return None;
        }
        self.plan_request(now_ns, config);
        let expected = self.expected();
        let mut from = expected;
        if let Some((_, end)) = self.planned.take_if(|(at_ns, _)| *at_ns <= now_ns) {
            if psn::distance(expected, end).unsigned_abs() > MAX_SPAN {
                // One request does not reach from the expected packet to the end.
                from = self.requested_end;
            }
            let reach = psn::distance(from, end).unsigned_abs().min(MAX_SPAN);
            self.requested_end = psn::add(from, reach);
            if self.first_requests.len() < MAX_FIRST_REQUESTS {
                self.first_requests.push_back((self.requested_end, now_ns));
            }
            self.plan_request(now_ns, config);
        } else if self.next_repeat_ns > now_ns {
            return None;
        }
        if from == expected {
            let next_repeat_ns = config.request_ns.max(shared.repair_ns.saturating_mul(2));
            self.next_repeat_ns = now_ns.saturating_add(next_repeat_ns.max(MIN_REQUEST_NS));
        }
        Some((from, self.request(from)))
    }

    /// Forwards all held packets.
    pub(crate) fn flush(&mut self, shared: &mut FlowShared, out: &mut Vec<Vec<u8>>) {
        while let Some(waiting) = self.buffer.pop(&mut shared.room) {
            out.push(waiting.frame);
        }
    }

    /// Records that a missing packet arrived as a repeat.
    fn recover(&mut self, now_ns: u64, psn: u32, shared: &mut FlowShared) {
        shared.counters.recovered += 1;
        let mut first_requests = self.first_requests.iter();
        if let Some((_, at_ns)) = first_requests.find(|(end, _)| psn::distance(psn, *end) > 0) {
            let took_ns = now_ns.saturating_sub(*at_ns);
            let faded_ns = shared.repair_ns - shared.repair_ns / 8;
            shared.repair_ns = faded_ns.max(took_ns);
        }
    }

    /// Forwards the held packets that are next, after the expected packet has arrived.
    fn advance(&mut self, now_ns: u64, shared: &mut FlowShared, out: &mut Vec<Vec<u8>>) {
        match self.state {
            FlowState::Ordered => return,
            FlowState::Waiting => return self.state = FlowState::Ordered,
            FlowState::ReTx => self.since_ns = now_ns,
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
            self.become_ordered();
        }
    }

    fn note_missing(&mut self, now_ns: u64) {
        if self.state == FlowState::Ordered {
            self.state = FlowState::ReTx;
            self.since_ns = now_ns;
            self.requested_end = self.expected();
            // A request is repeated only after a first one.
            self.next_repeat_ns = u64::MAX;
        }
    }

    /// Forwards all held packets, and waits for the sender to go back.
    fn give_up(&mut self, now_ns: u64, shared: &mut FlowShared, out: &mut Vec<Vec<u8>>) {
        shared.counters.given_up += 1;
        self.flush(shared, out);
        self.become_ordered();
        self.state = FlowState::Waiting;
        self.since_ns = now_ns;
    }

    fn restart(&mut self, psn: u32) {
        self.sequence.set(psn);
        self.become_ordered();
    }

    fn become_ordered(&mut self) {
        self.state = FlowState::Ordered;
        self.marked_psn = None;
        self.planned = None;
        self.first_requests.clear();
    }

    /// Plans a request if packets are missing that were not requested before.
    fn plan_request(&mut self, now_ns: u64, config: &Config) {
        let expected = self.expected();
        // The missing packets of the planned request may have arrived since.
        let open = |(_, end): &(u64, u32)| psn::distance(expected, *end) > 0;
        self.planned = self.planned.filter(open);
        if self.planned.is_some() {
            return;
        }
        if psn::distance(self.requested_end, expected) > 0 {
            self.requested_end = expected;
        }
        while let Some((end, _)) = self.first_requests.front()
            && psn::distance(*end, expected) >= 0
        {
            self.first_requests.pop_front();
        }
        let end = psn::add(expected, self.span(config));
        let mut from = self.requested_end;
        while psn::distance(from, end) > 0 && self.holds(from) {
            from = psn::add(from, 1);
        }
        self.requested_end = from;
        if psn::distance(from, end) > 0 {
            let at_ns = now_ns.saturating_add(config.request_delay_ns);
            self.planned = Some((at_ns, end));
        }
    }

    /// Number of packets from the expected one to the last one that is known to have been sent, as
    /// far as the bitmap reaches.
    fn span(&self, config: &Config) -> u32 {
        let expected = self.expected();
        let lasts = [self.buffer.psns().next_back(), self.marked_psn];
        let after = |last| psn::distance(expected, last).max(0).unsigned_abs() + 1;
        let spans = lasts.into_iter().flatten().map(after);
        let bits = config.bitmap_bits.min(MAX_AHEAD.unsigned_abs());
        spans.max().unwrap_or(1).min(bits + 1)
    }

    /// The request for the missing packets from `from` on before `requested_end`, as far as one
    /// request reaches.
    fn request(&self, from: u32) -> Request {
        let asked = psn::distance(from, self.requested_end).max(1);
        let span = asked.unsigned_abs().min(MAX_SPAN);
        let mut bitmap = 0;
        for psn in self.buffer.psns_after(from) {
            let bit = psn::distance(from, psn).unsigned_abs() - 1;
            if bit + 1 >= span {
                break;
            }
            bitmap |= 1 << bit;
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
