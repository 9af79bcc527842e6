//! The source half (`SrcToR`): forwards packets to the network, keeps copies, and repeats requested
//! packets.
//!
//! It also sends two messages about a flow. A start names the PSN of the next packet when the
//! destination cannot predict it. A mark names the last PSN sent, so that the destination notices
//! the loss of the last packets.

use alloc::vec::Vec;

use super::config::Config;
use super::counters::Counters;
use super::format::{NetRtBody, NetRtMessage, Request};
use super::pool::DuplicatePool;
use super::repeats::{QueuedRepeat, RepeatQueue};
use crate::frame::{Envelope, View};
use crate::message::{Seal, Stamp};
use crate::packets::{DataPacket, Sequence};
use crate::psn;
use crate::shares::Source as Origin;
use crate::streams::{StreamKey, StreamTable};
use crate::timers::Timers;
use crate::{Class, Side};

/// Number of marks after the last packet before a pause. The interval doubles with each mark,
/// because a full queue may drop several of them.
const TAIL_MARKS: u32 = 10;
/// Factor for the delay of a mark in the middle of a message. The next packet of the message
/// normally follows soon.
const MIDDLE: u64 = 8;

#[derive(Debug)]
pub(crate) struct Source {
    config: Config,
    flows: StreamTable<SourceFlow>,
    pool: DuplicatePool,
    repeats: RepeatQueue,
    /// Timers of the marks of flows that pause.
    tails: Timers,
    /// Stamp of the latest message sent.
    stamp: Stamp,
    seal: Seal,
    counters: Counters,
}

#[derive(Debug)]
struct SourceFlow {
    sequence: Sequence,
    /// Headers of the last packet sent.
    envelope: Envelope,
    dscp: u8,
    /// The priority that the NIC sends the flow with.
    priority: u8,
    last_psn: u32,
    /// Delay of a mark after the last packet.
    wait_ns: u64,
    /// When the last mark or start was sent.
    marked_ns: u64,
    tail_ns: Option<u64>,
    tail_marks: u32,
}

impl Source {
    pub(crate) fn new(config: &Config, boot: u64) -> Self {
        Self {
            config: config.clone(),
            flows: StreamTable::new(config.max_connections, config.idle_ns, Side::Near),
            pool: DuplicatePool::new(config.pool_bytes, config.copy_ns),
            repeats: RepeatQueue::new(config.rate, config.pool_bytes as u64),
            tails: Timers::default(),
            stamp: Stamp { boot, serial: 0 },
            seal: config.seal(),
            counters: Counters::default(),
        }
    }

    pub(crate) fn counters(&self) -> Counters {
        Counters {
            copied: self.pool.copied(),
            peak_pool_bytes: self.pool.peak_bytes(),
            pauses: self.repeats.pauses(),
            ..self.counters
        }
    }

    pub(crate) fn pool_bytes(&self) -> usize {
        self.pool.bytes()
    }

    /// Bitmap of the priorities that the sender must not send now.
    pub(crate) fn stops(&self) -> u8 {
        self.repeats.stops()
    }

    /// When to call [`due`](Self::due).
    pub(crate) fn next_ns(&self) -> Option<u64> {
        let times = [self.tails.next_ns(), self.repeats.next_ns()];
        times.into_iter().flatten().min()
    }

    /// Processes a data packet, which the caller forwards. Returns messages to send directly before
    /// and after it.
    pub(crate) fn handle(
        &mut self,
        now_ns: u64,
        view: &View<'_>,
        frame: &[u8],
        data: &DataPacket,
    ) -> [Option<Vec<u8>>; 2] {
        if view.dscp() == self.config.repeat_dscp {
            return [None, None];
        }
        if !view.icrc_holds() {
            self.counters.damaged += 1;
            return [None, None];
        }
        let key = StreamKey::new(view, data.qpn, data.space);
        if self.flows.get(now_ns, &key).is_none() {
            let flow = SourceFlow::new(view);
            let removed = self.flows.insert(now_ns, key, Origin::of(view), flow);
            for (key, mut flow) in removed {
                self.tails.set(key, &mut flow.tail_ns, None);
                self.pool.forget(key);
                self.repeats.forget(key);
            }
        }
        let Some(flow) = self.flows.get(now_ns, &key) else {
            self.counters.connections_full += 1;
            return [None, None];
        };
        let gap = flow.sequence.gap(data.psn);
        let starts = gap != Some(0);
        if gap.is_some_and(|gap| gap < 0) {
            // The sender has gone back, and repeats the requested packets itself.
            self.pool.rewind(key, data.psn);
            self.repeats.forget(key);
        } else if starts {
            self.pool.clear(key);
        }
        flow.follow(view, data, &self.config);
        let tail_ns = now_ns.saturating_add(flow.wait_ns);
        self.tails.set(key, &mut flow.tail_ns, Some(tail_ns));
        flow.tail_marks = 0;
        let marks = !starts && now_ns.saturating_sub(flow.marked_ns) >= self.config.mark_ns;
        if starts || marks {
            flow.marked_ns = now_ns;
        }
        self.pool.add(now_ns, key, data.psn, frame);
        let before = starts.then(|| self.start(key, data.psn, gap.is_none()));
        let after = marks.then(|| self.mark(key));
        [before.flatten(), after.flatten()]
    }

    /// Processes a request. Returns a notice if there is no copy of the expected packet.
    /// [`due`](Self::due) returns the repeated packets.
    pub(crate) fn request(
        &mut self,
        now_ns: u64,
        key: StreamKey,
        expected: u32,
        request: &Request,
        view: &View<'_>,
    ) -> Option<Vec<u8>> {
        self.counters.requests_received += 1;
        if let Some(flow) = self.flows.get(now_ns, &key) {
            if flow.is_to_come(expected) {
                return None;
            }
            let priority = flow.priority;
            self.pool.count_request(key);
            let guard_ns = self.config.guard_ns;
            let wanted = self.pool.wanted(now_ns, &key, expected, request, guard_ns);
            if let Some(wanted) = wanted {
                for (psn, bytes) in wanted {
                    self.repeats.push(QueuedRepeat {
                        key,
                        psn,
                        bytes,
                        priority,
                    });
                }
                return None;
            }
        }
        self.counters.notices_sent += 1;
        let envelope = view.envelope().reversed();
        self.wrap(
            envelope,
            &NetRtMessage::about(&key, expected, NetRtBody::Notice),
        )
    }

    pub(crate) fn due(&mut self, now_ns: u64) -> Vec<(Class, Vec<u8>)> {
        let mut out = Vec::new();
        while let Some(repeat) = self.repeats.pop_due(now_ns) {
            let frame = self.pool.repeat(now_ns, &repeat.key, repeat.psn);
            // The pool may have dropped the copy since the request.
            if let Some(view) = frame.and_then(View::parse) {
                self.counters.repeated += 1;
                out.push((Class::Repair, view.with_dscp(self.config.repeat_dscp)));
            }
        }
        while let Some(key) = self.tails.pop_due(now_ns) {
            let Some(flow) = self.flows.peek(&key) else {
                continue;
            };
            flow.tail_ns = None;
            flow.tail_marks += 1;
            if flow.tail_marks < TAIL_MARKS {
                let wait_ns = flow.wait_ns.saturating_mul(1 << flow.tail_marks);
                let at_ns = now_ns.saturating_add(wait_ns);
                self.tails.set(key, &mut flow.tail_ns, Some(at_ns));
            }
            flow.marked_ns = now_ns;
            out.extend(self.mark(key).map(|mark| (Class::Data, mark)));
        }
        out
    }

    /// Builds a start. The start of a new flow has the preferred code point, so that no packet of
    /// the flow overtakes it. When a known sender goes back or skips PSNs, the start must not
    /// overtake earlier packets, so it has the code point of the flow.
    fn start(&mut self, key: StreamKey, psn: u32, is_new: bool) -> Option<Vec<u8>> {
        self.counters.starts_sent += 1;
        let stamp = self.next_stamp();
        let flow = self.flows.peek(&key)?;
        let envelope = flow.envelope.clone();
        let message = NetRtMessage::about(&key, psn, NetRtBody::Start(stamp, flow.dscp));
        if is_new {
            return self.wrap(envelope, &message);
        }
        self.seal.wrap(&envelope, message.emit())
    }

    /// Builds a mark. It has the code point of the flow, so that it does not overtake the packets
    /// that it covers.
    fn mark(&mut self, key: StreamKey) -> Option<Vec<u8>> {
        self.counters.marks_sent += 1;
        let stamp = self.next_stamp();
        let flow = self.flows.peek(&key)?;
        let next = flow.sequence.least()?;
        let body = NetRtBody::Mark(stamp, flow.dscp, flow.last_psn);
        let message = NetRtMessage::about(&key, next, body);
        self.seal.wrap(&flow.envelope, message.emit())
    }

    fn next_stamp(&mut self) -> Stamp {
        self.stamp.serial += 1;
        self.stamp
    }

    /// Seals a message with the preferred code point.
    fn wrap(&self, envelope: Envelope, message: &NetRtMessage) -> Option<Vec<u8>> {
        let envelope = envelope.with_dscp(self.config.repeat_dscp);
        self.seal.wrap(&envelope, message.emit())
    }
}

impl SourceFlow {
    fn new(view: &View<'_>) -> Self {
        Self {
            sequence: Sequence::new(),
            envelope: view.envelope(),
            dscp: view.dscp(),
            priority: 0,
            last_psn: 0,
            wait_ns: 0,
            marked_ns: 0,
            tail_ns: None,
            tail_marks: 0,
        }
    }

    fn follow(&mut self, view: &View<'_>, data: &DataPacket, config: &Config) {
        self.sequence.follow(data);
        self.envelope = view.envelope();
        self.dscp = view.dscp();
        let untagged = config.pause_priority.unwrap_or(self.dscp >> 3);
        self.priority = view.tag_priority.unwrap_or(untagged);
        self.last_psn = data.psn;
        self.wait_ns = if data.ends_message() {
            config.tail_ns
        } else {
            config.tail_ns.saturating_mul(MIDDLE)
        };
    }

    /// Whether the sender will still send this packet, for the first time or after it went back.
    fn is_to_come(&self, psn: u32) -> bool {
        let next = self.sequence.least();
        next.is_some_and(|next| psn::distance(next, psn) >= 0)
    }
}

#[cfg(test)]
mod tests;
