//! The encoder: forwards data packets to the path, and adds repair packets after each block.
//!
//! A block collects up to r consecutive packets of a message. Packet i is added to coding unit i
//! mod c by XOR. When the block is full or the message ends, each unit is sent as a repair packet.
//! An announcement before the first packet of a block names its PSN, whenever the other box cannot
//! derive it from the previous block. Packets are coded only while the other box answers, or while a known
//! one was not silent for long, and only if their repair packets fit the path. A probe says where packets
//! without coding begin, so that the other box waits for no repair of them.
//!
//! Algorithm 1 of the paper sends all units when `i mod c = 0 or i = n`. Taken literally, a block
//! has c packets, and each unit is a copy of one packet. The text and figure 6 describe blocks of r
//! packets, so the condition here is `i mod r = 0 or i = n`.

use alloc::vec::Vec;

use super::coding::{BlockShape, CodingUnit, UNIT_EXTRA_BYTES, UnitPool};
use super::config::{Coding, Config};
use super::controller::Controller;
use super::counters::Counters;
use super::format::{LossReport, LowarBody, LowarMessage, REPAIR_EXTRA_BYTES, RepairId};
use super::negotiation::{Negotiation, ProbeTiming};
use crate::frame::{Envelope, View};
use crate::message::{Seal, Stamp};
use crate::packets::{DataPacket, Sequence, Space};
use crate::psn;
use crate::shares::Source;
use crate::streams::{StreamKey, StreamTable};
use crate::timers::Timers;
use crate::{Class, Side};

/// The sending half of the box.
#[derive(Debug)]
pub(crate) struct Encoder {
    streams: StreamTable<OutgoingStream>,
    shared: EncoderShared,
}

#[derive(Debug)]
struct EncoderShared {
    pool: UnitPool,
    /// Timers that close blocks which are not full in time.
    deadlines: Timers,
    /// Stamp of the latest message sent.
    stamp: Stamp,
    timing: ProbeTiming,
    coding: Coding,
    path_mtu_bytes: usize,
    close_ns: u64,
    hold_ns: u64,
    peer_known: bool,
    seal: Seal,
    counters: Counters,
}

#[derive(Debug)]
struct OutgoingStream {
    source: Source,
    negotiation: Negotiation,
    controller: Controller,
    /// The shape that was announced last.
    shape: BlockShape,
    sequence: Sequence,
    /// Whether the previous packet was coded. Then the other box knows where the next block begins.
    aligned: bool,
    /// Whether the other box expects the next packet in a block.
    coding: bool,
    block: Option<OutgoingBlock>,
}

/// A block that collects packets.
#[derive(Debug)]
struct OutgoingBlock {
    source: Source,
    shape: BlockShape,
    base: u32,
    packets: u16,
    units: Vec<CodingUnit>,
    has_first: bool,
    /// UDP payload bytes of the last packet, if it ends a message.
    last_bytes: Option<u16>,
    envelope: Envelope,
    src_port: u16,
    opened_ns: u64,
    deadline_ns: Option<u64>,
}

/// Frames that the box sends directly before and after a data packet.
#[derive(Debug, Default)]
pub(crate) struct AddedFrames {
    pub(crate) before: Vec<(Class, Vec<u8>)>,
    pub(crate) after: Vec<(Class, Vec<u8>)>,
}

impl Encoder {
    pub(crate) fn new(config: &Config, boot: u64) -> Self {
        Self {
            streams: StreamTable::new(config.max_connections, config.idle_ns, Side::Near),
            shared: EncoderShared {
                pool: UnitPool::new(config.max_units, Side::Near),
                deadlines: Timers::default(),
                stamp: Stamp { boot, serial: 0 },
                timing: ProbeTiming {
                    probe_ns: config.probe_ns,
                    silence_ns: config.silence_ns,
                },
                coding: config.coding,
                path_mtu_bytes: config.path_mtu_bytes,
                close_ns: config.close_ns,
                hold_ns: config.hold_ns,
                peer_known: config.peer_known,
                seal: config.seal(),
                counters: Counters::default(),
            },
        }
    }

    pub(crate) fn counters(&self) -> Counters {
        Counters {
            xored_bytes: self.shared.pool.xored_bytes(),
            peak_units: self.shared.pool.peak(),
            ..self.shared.counters
        }
    }

    pub(crate) fn free_units(&self) -> usize {
        self.shared.pool.free()
    }

    /// When to call [`close_due`](Self::close_due).
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.shared.deadlines.next_ns()
    }

    /// The caller sends `data` between the frames returned.
    pub(crate) fn handle(
        &mut self,
        now_ns: u64,
        view: &View<'_>,
        data: &DataPacket,
    ) -> AddedFrames {
        let key = StreamKey::new(view, data.qpn, data.space);
        let shared = &mut self.shared;
        if !view.icrc_holds() {
            shared.counters.damaged += 1;
            return AddedFrames::default();
        }
        if self.streams.get(now_ns, &key).is_none() {
            let source = Source::of(view);
            let stream = OutgoingStream::new(source, shared);
            for (key, stream) in self.streams.insert(now_ns, key, source, stream) {
                shared.release(key, stream.block);
            }
        }
        let Some(stream) = self.streams.get(now_ns, &key) else {
            shared.counters.connections_full += 1;
            return AddedFrames::default();
        };
        let mut added = AddedFrames::default();
        stream.pass(now_ns, key, view, data, shared, &mut added);
        added
    }

    pub(crate) fn handle_report(
        &mut self,
        now_ns: u64,
        key: &StreamKey,
        boot: u64,
        report: &LossReport,
    ) {
        let own = self.shared.stamp.boot;
        if let Some(stream) = self.streams.get(now_ns, key) {
            self.shared.counters.reports_received += 1;
            let OutgoingStream {
                negotiation,
                controller,
                block,
                ..
            } = stream;
            let own_units = block.as_ref().map_or(0, |block| block.units.len());
            let free_units = self.shared.pool.free() + own_units;
            negotiation.handle_report(own, boot, report, free_units, controller);
        }
    }

    /// Closes the blocks that are not full in time.
    pub(crate) fn close_due(&mut self, now_ns: u64) -> Vec<(Class, Vec<u8>)> {
        let mut out = Vec::new();
        while let Some(key) = self.shared.deadlines.pop_due(now_ns) {
            if let Some(stream) = self.streams.get(now_ns, &key) {
                let block = stream.block.take();
                self.shared.finish(key, block, &mut out);
                // In case its repair packets are lost, the next block of an ordered stream is
                // announced.
                stream.aligned &= key.space == Space::Singles;
            }
        }
        out
    }
}

impl OutgoingStream {
    fn new(source: Source, shared: &EncoderShared) -> Self {
        let shape = match shared.coding {
            Coding::Fixed(shape) => shape,
            Coding::Adaptive => BlockShape::DEFAULT,
        };
        Self {
            source,
            negotiation: Negotiation::new(shared.peer_known),
            controller: Controller::new(shape, shared.hold_ns),
            shape,
            sequence: Sequence::new(),
            aligned: false,
            coding: false,
            block: None,
        }
    }

    fn pass(
        &mut self,
        now_ns: u64,
        key: StreamKey,
        view: &View<'_>,
        data: &DataPacket,
        shared: &mut EncoderShared,
        added: &mut AddedFrames,
    ) {
        self.negotiation.sent();
        // One-packet messages do not end blocks.
        let ends_block = data.ends_message() && data.space != Space::Singles;
        self.controller.sent(ends_block);
        let gap = self.sequence.gap(data.psn);
        let protects = self.negotiation.answers(now_ns, shared.timing) && shared.repair_fits(view);
        if let Some(block) = self.block.take() {
            if protects && block.continues(data, view.src.port()) {
                self.block = Some(block);
            } else if gap.is_some_and(|gap| gap < 0) {
                // The sender has gone back and sends the packets of this block again.
                shared.release(key, Some(block));
            } else {
                shared.finish(key, Some(block), &mut added.before);
            }
        }
        let mut coded = self.block.is_some();
        if !coded && protects {
            coded = self.open(now_ns, key, view, data, shared, added);
        }
        let ends_coding = self.coding && !coded;
        self.coding = coded;
        if ends_coding || self.negotiation.should_ask(now_ns, shared.timing) {
            let stamp = shared.ask();
            self.negotiation.asked(now_ns, stamp);
            let body = LowarBody::Probe(stamp, coded);
            shared.send(key, self.shape, body, &view.envelope(), &mut added.before);
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
                shared.finish(key, Some(block), &mut added.after);
            } else {
                self.block = Some(block);
            }
        }
    }

    /// Announces the block unless the other box can derive its start.
    fn open(
        &mut self,
        now_ns: u64,
        key: StreamKey,
        view: &View<'_>,
        data: &DataPacket,
        shared: &mut EncoderShared,
        added: &mut AddedFrames,
    ) -> bool {
        let shape = match shared.coding {
            Coding::Fixed(shape) => shape,
            Coding::Adaptive => self.controller.shape(),
        };
        let Some(units) = shared
            .pool
            .allocate(&self.source, usize::from(shape.units()))
        else {
            shared.counters.units_full += 1;
            return false;
        };
        let envelope = view.envelope();
        let known = self.aligned && self.sequence.gap(data.psn) == Some(0);
        if !known || shape != self.shape {
            self.shape = shape;
            let stamp = shared.ask();
            self.negotiation.asked(now_ns, stamp);
            let body = LowarBody::Announce(stamp, data.psn);
            shared.send(key, shape, body, &envelope, &mut added.before);
        }
        let lasts_ns = match data.space {
            Space::Singles => shared.close_ns,
            // A quarter of the hold time is left for the path.
            Space::Request | Space::Response => shared.hold_ns / 4 * 3,
        };
        let mut deadline_ns = None;
        let close_ns = now_ns.saturating_add(lasts_ns);
        shared.deadlines.set(key, &mut deadline_ns, Some(close_ns));
        self.block = Some(OutgoingBlock {
            source: self.source,
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

impl OutgoingBlock {
    /// Whether a packet is the next one of the block.
    fn continues(&self, data: &DataPacket, src_port: u16) -> bool {
        let next = data.psn == psn::add(self.base, u32::from(self.packets));
        let same_message = data.space == Space::Singles || !data.starts_message();
        next && same_message && src_port == self.src_port
    }

    fn add(&mut self, view: &View<'_>, data: &DataPacket) {
        let payload = view.payload();
        let class = self.shape.class_of(self.packets);
        self.units[class].add(view.ipv4_id, payload);
        self.packets += 1;
        let bytes = u16::try_from(payload.len()).unwrap_or(u16::MAX);
        self.last_bytes = data.ends_message().then_some(bytes);
    }
}

impl EncoderShared {
    /// Whether the path carries a repair packet for this packet. Counts the packet if not.
    fn repair_fits(&mut self, view: &View<'_>) -> bool {
        let bytes = REPAIR_EXTRA_BYTES + UNIT_EXTRA_BYTES + view.payload().len();
        let fits = view.ip_bytes(bytes) <= self.path_mtu_bytes;
        self.counters.repairs_too_long += u64::from(!fits);
        fits
    }

    /// A stamp for the next question.
    fn ask(&mut self) -> Stamp {
        self.stamp.serial += 1;
        self.counters.questions_sent += 1;
        self.stamp
    }

    fn send(
        &self,
        key: StreamKey,
        shape: BlockShape,
        body: LowarBody<'_>,
        envelope: &Envelope,
        out: &mut Vec<(Class, Vec<u8>)>,
    ) {
        let message = LowarMessage::about(&key, shape, body);
        let class = match message.body {
            LowarBody::Repair(..) => Class::Repair,
            _ => Class::Data,
        };
        let frame = self.seal.wrap(envelope, message.emit());
        out.extend(frame.map(|frame| (class, frame)));
    }

    /// Sends the repair packets of a block, and releases it.
    fn finish(
        &mut self,
        key: StreamKey,
        block: Option<OutgoingBlock>,
        out: &mut Vec<(Class, Vec<u8>)>,
    ) {
        let Some(block) = block else { return };
        let units = block.shape.units_of(block.packets);
        for (number, unit) in (0..).zip(&block.units[..units]) {
            self.counters.repairs_sent += 1;
            let repair = RepairId {
                base: block.base,
                unit: number,
                packets: block.packets,
                has_first: block.has_first,
                last_bytes: block.last_bytes,
            };
            let body = LowarBody::Repair(repair, unit.bytes());
            self.send(key, block.shape, body, &block.envelope, out);
        }
        self.release(key, Some(block));
    }

    fn release(&mut self, key: StreamKey, block: Option<OutgoingBlock>) {
        let Some(mut block) = block else { return };
        self.deadlines.set(key, &mut block.deadline_ns, None);
        self.pool.release(&block.source, block.units);
    }
}
