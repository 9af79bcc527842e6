//! Data packets on their way into the long path: they pass, and repair packets follow them.
//!
//! Algorithm 1 of the paper sends all units when `i mod c = 0 or i = n`. Taken literally, a block
//! would have c packets, and each unit would be a copy of one. The text and figure 6 say that
//! blocks have r packets, so the condition here is `i mod r = 0 or i = n`.

use alloc::vec::Vec;

use super::coding::{Pool, Shape, Unit};
use super::config::{Coding, Config};
use super::controller::Controller;
use super::counters::Counters;
use super::format::{Body, Message, REPAIR_EXTRA_BYTES, Repair, Report};
use super::negotiation::{Liaison, Waits};
use crate::frame::{Envelope, View};
use crate::message::{Seal, Stamp};
use crate::packets::{Data, Sequence, Space};
use crate::psn;
use crate::streams::{Key, Table};
use crate::timers::Timers;

/// The sending half of the box.
#[derive(Debug)]
pub(crate) struct Encoder {
    streams: Table<Stream>,
    shared: Shared,
}

/// What all streams share.
#[derive(Debug)]
struct Shared {
    pool: Pool,
    /// When blocks of one-packet messages close.
    deadlines: Timers,
    /// The latest message.
    stamp: Stamp,
    waits: Waits,
    coding: Coding,
    path_mtu_bytes: usize,
    close_ns: u64,
    hold_ns: u64,
    seal: Seal,
    counters: Counters,
}

#[derive(Debug)]
struct Stream {
    liaison: Liaison,
    controller: Controller,
    /// The shape that was announced last.
    shape: Shape,
    sequence: Sequence,
    /// Whether the packet before was coded, so that the other box knows where it is.
    aligned: bool,
    block: Option<Block>,
}

/// A block under way.
#[derive(Debug)]
struct Block {
    shape: Shape,
    base: u32,
    packets: u16,
    units: Vec<Unit>,
    has_first: bool,
    /// UDP payload bytes of the last packet, if it ends a message.
    last_bytes: Option<u16>,
    envelope: Envelope,
    src_port: u16,
    opened_ns: u64,
    deadline_ns: Option<u64>,
}

/// Frames that go around a data packet.
#[derive(Debug, Default)]
pub(crate) struct Around {
    pub(crate) before: Vec<Vec<u8>>,
    pub(crate) after: Vec<Vec<u8>>,
}

impl Encoder {
    pub(crate) fn new(config: &Config, boot: u64) -> Self {
        Self {
            streams: Table::new(config.max_streams, config.idle_ns),
            shared: Shared {
                pool: Pool::new(config.max_units),
                deadlines: Timers::default(),
                stamp: Stamp { boot, serial: 0 },
                waits: Waits {
                    probe_ns: config.probe_ns,
                    silence_ns: config.silence_ns,
                },
                coding: config.coding,
                path_mtu_bytes: config.path_mtu_bytes,
                close_ns: config.close_ns,
                hold_ns: config.hold_ns,
                seal: config.seal(),
                counters: Counters::default(),
            },
        }
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Units that no block uses.
    pub(crate) fn free_units(&self) -> usize {
        self.shared.pool.free()
    }

    /// When [`close_due`](Self::close_due) has something to do.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.shared.deadlines.next_ns()
    }

    /// Takes in a data packet.
    pub(crate) fn handle(&mut self, now_ns: u64, view: &View<'_>, data: &Data) -> Around {
        let key = Key::new(view, data.qpn, data.space);
        let shared = &mut self.shared;
        if self.streams.get(now_ns, &key).is_none() {
            let stream = Stream::new(shared.coding, shared.hold_ns);
            for (key, stream) in self.streams.insert(now_ns, key, stream) {
                shared.release(key, stream.block);
            }
        }
        let Some(stream) = self.streams.get(now_ns, &key) else {
            shared.counters.streams_full += 1;
            return Around::default();
        };
        let mut around = Around::default();
        if view.icrc_holds() {
            stream.pass(now_ns, key, view, data, shared, &mut around);
        } else {
            shared.counters.damaged += 1;
            stream.aligned = false;
        }
        around
    }

    /// Takes in a report about a stream.
    pub(crate) fn hear(&mut self, now_ns: u64, key: &Key, boot: u64, report: &Report) {
        let own = self.shared.stamp.boot;
        if let Some(stream) = self.streams.get(now_ns, key) {
            self.shared.counters.reports_received += 1;
            let Stream {
                liaison,
                controller,
                ..
            } = stream;
            liaison.hear(own, boot, report, controller);
        }
    }

    /// Closes the blocks of one-packet messages that have waited long enough.
    pub(crate) fn close_due(&mut self, now_ns: u64) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        while let Some(key) = self.shared.deadlines.pop_due(now_ns) {
            if let Some(stream) = self.streams.get(now_ns, &key) {
                let block = stream.block.take();
                self.shared.finish(key, block, &mut out);
            }
        }
        out
    }
}

impl Stream {
    fn new(coding: Coding, hold_ns: u64) -> Self {
        let shape = match coding {
            Coding::Fixed(shape) => shape,
            Coding::Adaptive => Shape::DEFAULT,
        };
        Self {
            liaison: Liaison::default(),
            controller: Controller::new(shape, hold_ns),
            shape,
            sequence: Sequence::new(),
            aligned: false,
            block: None,
        }
    }

    fn pass(
        &mut self,
        now_ns: u64,
        key: Key,
        view: &View<'_>,
        data: &Data,
        shared: &mut Shared,
        around: &mut Around,
    ) {
        self.liaison.sent();
        // Messages of one packet do not end blocks.
        let ends_block = data.ends_message() && data.space != Space::Singles;
        self.controller.sent(ends_block);
        let gap = self.sequence.gap(data.psn);
        let protects = self.liaison.answers(now_ns, shared.waits);
        if let Some(block) = self.block.take() {
            if protects && block.continues(data, view.src.port()) {
                self.block = Some(block);
            } else if gap.is_some_and(|gap| gap < 0) {
                // The sender has gone back: the packets of this block are sent again.
                shared.release(key, Some(block));
            } else {
                shared.finish(key, Some(block), &mut around.before);
            }
        }
        let mut coded = self.block.is_some();
        if !coded && protects {
            coded = self.open(now_ns, key, view, data, shared, around);
        }
        if self.liaison.should_ask(now_ns, shared.waits) {
            let stamp = shared.ask();
            self.liaison.asked(now_ns, stamp);
            let body = Body::Probe(stamp);
            shared.send(key, self.shape, body, &view.envelope(), &mut around.before);
        }
        self.sequence.follow(data);
        self.aligned = coded;
        if let Some(mut block) = self.block.take() {
            block.add(view, data);
            shared.counters.coded += 1;
            let full = block.packets == block.shape.packets();
            if full || ends_block {
                let took_ns = now_ns.saturating_sub(block.opened_ns);
                self.controller.measured_block(block.packets, took_ns);
                shared.finish(key, Some(block), &mut around.after);
            } else {
                self.block = Some(block);
            }
        }
    }

    /// Opens a block with this packet. Announces it unless the other box knows of it.
    fn open(
        &mut self,
        now_ns: u64,
        key: Key,
        view: &View<'_>,
        data: &Data,
        shared: &mut Shared,
        around: &mut Around,
    ) -> bool {
        let shape = match shared.coding {
            Coding::Fixed(shape) => shape,
            Coding::Adaptive => self.controller.shape(),
        };
        let Some(units) = shared.pool.allocate(usize::from(shape.units())) else {
            shared.counters.units_full += 1;
            return false;
        };
        let envelope = view.envelope();
        let known = self.aligned && self.sequence.gap(data.psn) == Some(0);
        if !known || shape != self.shape {
            self.shape = shape;
            let stamp = shared.ask();
            self.liaison.asked(now_ns, stamp);
            let body = Body::Announce(stamp, data.psn);
            shared.send(key, shape, body, &envelope, &mut around.before);
        }
        let close_ns = (data.space == Space::Singles).then(|| now_ns + shared.close_ns);
        let mut deadline_ns = None;
        shared.deadlines.set(key, &mut deadline_ns, close_ns);
        self.block = Some(Block {
            shape,
            base: data.psn,
            packets: 0,
            units,
            has_first: data.starts_message(),
            last_bytes: None,
            envelope,
            src_port: view.src.port(),
            opened_ns: now_ns,
            deadline_ns,
        });
        true
    }
}

impl Block {
    /// Whether a packet belongs to the block.
    fn continues(&self, data: &Data, src_port: u16) -> bool {
        let next = data.psn == psn::add(self.base, u32::from(self.packets));
        let same_message = data.space == Space::Singles || !data.starts_message();
        next && same_message && src_port == self.src_port
    }

    fn add(&mut self, view: &View<'_>, data: &Data) {
        let payload = view.payload();
        let class = self.shape.class_of(self.packets);
        self.units[class].add(view.ipv4_id, payload);
        self.packets += 1;
        let bytes = u16::try_from(payload.len()).unwrap_or(u16::MAX);
        self.last_bytes = data.ends_message().then_some(bytes);
    }
}

impl Shared {
    /// A stamp for the next question.
    fn ask(&mut self) -> Stamp {
        self.stamp.serial += 1;
        self.counters.questions_sent += 1;
        self.stamp
    }

    fn send(
        &self,
        key: Key,
        shape: Shape,
        body: Body<'_>,
        envelope: &Envelope,
        out: &mut Vec<Vec<u8>>,
    ) {
        let message = Message::about(&key, shape, body);
        out.extend(self.seal.wrap(envelope, message.emit()));
    }

    /// Sends the repair packets of a block, and releases it.
    fn finish(&mut self, key: Key, block: Option<Block>, out: &mut Vec<Vec<u8>>) {
        let Some(block) = block else { return };
        let units = block.shape.units_of(block.packets);
        for (number, unit) in (0..).zip(&block.units[..units]) {
            let bytes = REPAIR_EXTRA_BYTES + unit.bytes().len();
            if block.envelope.ip_bytes(bytes) > self.path_mtu_bytes {
                self.counters.repairs_too_long += 1;
                continue;
            }
            self.counters.repairs_sent += 1;
            let repair = Repair {
                base: block.base,
                unit: number,
                packets: block.packets,
                has_first: block.has_first,
                last_bytes: block.last_bytes,
            };
            let body = Body::Repair(repair, unit.bytes());
            self.send(key, block.shape, body, &block.envelope, out);
        }
        self.release(key, Some(block));
    }

    fn release(&mut self, key: Key, block: Option<Block>) {
        let Some(mut block) = block else { return };
        self.deadlines.set(key, &mut block.deadline_ns, None);
        self.pool.release(block.units);
    }
}
