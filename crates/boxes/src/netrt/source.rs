//! The source half (`SrcToR`): packets on their way into the network pass, and copies of them stay.

use alloc::vec::Vec;

use super::config::Config;
use super::counters::Counters;
use super::format::{Body, Message, Request};
use super::pool::Pool;
use super::repeats::{Repeat, Repeats};
use crate::frame::{Envelope, View};
use crate::message::{Seal, Stamp};
use crate::packets::{Data, Sequence};
use crate::psn;
use crate::streams::{Key, Table};
use crate::timers::Timers;

/// Marks after the last packet before a pause. Each comes twice as late as the one before, since a
/// queue that is full drops marks too.
const TAIL_MARKS: u32 = 10;
/// In the middle of a message, the wait before a mark is this many times as long as after a message,
/// because the packets of a message follow each other.
const MIDDLE: u64 = 8;

#[derive(Debug)]
pub(crate) struct Source {
    config: Config,
    flows: Table<Flow>,
    pool: Pool,
    repeats: Repeats,
    /// When flows that pause are marked.
    tails: Timers,
    /// The latest message.
    stamp: Stamp,
    seal: Seal,
    counters: Counters,
}

/// What the source half knows of a flow.
#[derive(Debug)]
struct Flow {
    sequence: Sequence,
    /// The headers of the packet that was sent last, its PSN, and the wait for the one after it.
    envelope: Envelope,
    dscp: u8,
    last_psn: u32,
    wait_ns: u64,
    /// When the flow was marked or started last.
    marked_ns: u64,
    tail_ns: Option<u64>,
    tail_marks: u32,
}

impl Source {
    pub(crate) fn new(config: &Config, boot: u64) -> Self {
        Self {
            config: config.clone(),
            flows: Table::new(config.max_flows, config.idle_ns),
            pool: Pool::new(config.pool_bytes, config.copy_ns),
            repeats: Repeats::new(config.rate, config.pool_bytes as u64),
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

    /// Bytes in the duplicate pool.
    pub(crate) fn pool_bytes(&self) -> usize {
        self.pool.bytes()
    }

    /// Traffic classes that the sender must not send now.
    pub(crate) fn stops(&self) -> u8 {
        self.repeats.stops()
    }

    /// When [`due`](Self::due) has something to do.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        let times = [self.tails.next_ns(), self.repeats.next_ns()];
        times.into_iter().flatten().min()
    }

    /// Takes in a data packet, which passes. Returns messages that go before and after it.
    pub(crate) fn handle(
        &mut self,
        now_ns: u64,
        view: &View<'_>,
        frame: &[u8],
        data: &Data,
    ) -> [Option<Vec<u8>>; 2] {
        if view.dscp() == self.config.repeat_dscp {
            return [None, None];
        }
        if !view.icrc_holds() {
            self.counters.damaged += 1;
            return [None, None];
        }
        let key = Key::new(view, data.qpn, data.space);
        if self.flows.get(now_ns, &key).is_none() {
            let removed = self.flows.insert(now_ns, key, Flow::new(view));
            for (key, mut flow) in removed {
                self.tails.set(key, &mut flow.tail_ns, None);
                self.pool.forget(key);
                self.repeats.forget(key);
            }
        }
        let Some(flow) = self.flows.get(now_ns, &key) else {
            self.counters.flows_full += 1;
            return [None, None];
        };
        let gap = flow.sequence.gap(data.psn);
        let starts = gap != Some(0);
        if gap.is_some_and(|gap| gap < 0) {
            // The sender has gone back: it repeats what was requested.
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

    /// Takes in a request. Returns a notice if it cannot be fulfilled; packets that are repeated
    /// come out of [`due`](Self::due).
    pub(crate) fn request(
        &mut self,
        now_ns: u64,
        key: Key,
        expected: u32,
        request: &Request,
        view: &View<'_>,
    ) -> Option<Vec<u8>> {
        self.counters.requests_received += 1;
        if let Some(flow) = self.flows.get(now_ns, &key) {
            if flow.is_to_come(expected) {
                return None;
            }
            let class = flow.dscp >> 3;
            self.pool.count_request(key);
            let guard_ns = self.config.guard_ns;
            let wanted = self.pool.wanted(now_ns, &key, expected, request, guard_ns);
            if let Some(wanted) = wanted {
                for (psn, bytes) in wanted {
                    self.repeats.push(Repeat {
                        key,
                        psn,
                        bytes,
                        class,
                    });
                }
                return None;
            }
        }
        self.counters.notices_sent += 1;
        let envelope = view.envelope().reversed();
        self.wrap(envelope, &Message::about(&key, expected, Body::Notice))
    }

    /// Packets to repeat now, and marks of flows that pause.
    pub(crate) fn due(&mut self, now_ns: u64) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        while let Some(repeat) = self.repeats.pop_due(now_ns) {
            let frame = self.pool.repeat(now_ns, &repeat.key, repeat.psn);
            // There is no frame if newer copies have replaced the copy.
            if let Some(view) = frame.and_then(View::parse) {
                self.counters.repeated += 1;
                out.push(view.with_dscp(self.config.repeat_dscp));
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
            out.extend(self.mark(key));
        }
        out
    }

    /// The start of a new flow goes before all others, so that no packet overtakes it. When a sender
    /// goes back or on, the start must not overtake packets from before.
    fn start(&mut self, key: Key, psn: u32, is_new: bool) -> Option<Vec<u8>> {
        self.counters.starts_sent += 1;
        let stamp = self.next_stamp();
        let flow = self.flows.peek(&key)?;
        let envelope = flow.envelope.clone();
        let message = Message::about(&key, psn, Body::Start(stamp, flow.dscp));
        if is_new {
            return self.wrap(envelope, &message);
        }
        self.seal.wrap(&envelope, message.emit())
    }

    /// A mark has the class of the flow, so that it does not overtake the packets that it is about.
    fn mark(&mut self, key: Key) -> Option<Vec<u8>> {
        self.counters.marks_sent += 1;
        let stamp = self.next_stamp();
        let flow = self.flows.peek(&key)?;
        let next = flow.sequence.least()?;
        let body = Body::Mark(stamp, flow.dscp, flow.last_psn);
        let message = Message::about(&key, next, body);
        self.seal.wrap(&flow.envelope, message.emit())
    }

    fn next_stamp(&mut self) -> Stamp {
        self.stamp.serial += 1;
        self.stamp
    }

    /// The frame of a message that goes before all others.
    fn wrap(&self, envelope: Envelope, message: &Message) -> Option<Vec<u8>> {
        let envelope = envelope.with_dscp(self.config.repeat_dscp);
        self.seal.wrap(&envelope, message.emit())
    }
}

impl Flow {
    fn new(view: &View<'_>) -> Self {
        Self {
            sequence: Sequence::new(),
            envelope: view.envelope(),
            dscp: view.dscp(),
            last_psn: 0,
            wait_ns: 0,
            marked_ns: 0,
            tail_ns: None,
            tail_marks: 0,
        }
    }

    fn follow(&mut self, view: &View<'_>, data: &Data, config: &Config) {
        self.sequence.follow(data);
        self.envelope = view.envelope();
        self.dscp = view.dscp();
        self.last_psn = data.psn;
        self.wait_ns = if data.ends_message() {
            config.tail_ns
        } else {
            config.tail_ns.saturating_mul(MIDDLE)
        };
    }

    /// Whether the sender has not sent this packet, or went back behind it and has not repeated it.
    fn is_to_come(&self, psn: u32) -> bool {
        let next = self.sequence.least();
        next.is_some_and(|next| psn::distance(next, psn) >= 0)
    }
}
