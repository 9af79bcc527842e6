//! The decoder: receives data and repair packets from the path, and recovers lost packets.
//!
//! Each stream has at most one open block (see [`block`]). Data packets of the block are forwarded
//! in order. When one is missing, the packets after it wait in the reordering buffer until a repair
//! packet of the block recovers it. If that is not possible, the waiting packets are forwarded with
//! a gap, and the sender's NIC repeats what is missing. Streams of one-packet messages never wait
//! (see [`singles`]).

mod block;
mod shared;
mod singles;
mod stream;

use alloc::vec;
use alloc::vec::Vec;

use self::shared::DecoderShared;
use self::singles::SinglesStream;
use self::stream::OrderedStream;
use super::coding::{BlockShape, UnitPool};
use super::config::Config;
use super::counters::Counters;
use super::format::{LossReport, LowarBody, LowarMessage};
use crate::Side;
use crate::frame::View;
use crate::message::{LatestStamp, Seal, Stamp};
use crate::packets::{DataPacket, Space};
use crate::reorder::BufferBudget;
use crate::shares::Source;
use crate::streams::{StreamKey, StreamTable};
use crate::timers::Timers;

/// The receiving half of the box. It tracks a stream only after a message of the other box about
/// it.
#[derive(Debug)]
pub(crate) struct Decoder {
    streams: StreamTable<StreamEntry>,
    shared: DecoderShared,
    idle_ns: u64,
    /// Stamp of the latest report sent.
    stamp: Stamp,
}

#[derive(Debug)]
struct StreamEntry {
    /// Stamp of the latest question from the other box.
    latest: LatestStamp,
    kind: StreamKind,
}

#[derive(Debug)]
enum StreamKind {
    Ordered(OrderedStream),
    Singles(SinglesStream),
}

impl Decoder {
    pub(crate) fn new(config: &Config, boot: u64) -> Self {
        Self {
            streams: StreamTable::new(config.max_connections, config.idle_ns, Side::Far),
            shared: DecoderShared {
                pool: UnitPool::new(config.max_units, Side::Far),
                deadlines: Timers::default(),
                hold_ns: config.hold_ns,
                counters: Counters::default(),
                room: BufferBudget::new(config.max_held),
            },
            idle_ns: config.idle_ns,
            stamp: Stamp { boot, serial: 0 },
        }
    }

    pub(crate) fn counters(&self) -> Counters {
        let room = &self.shared.room;
        Counters {
            held: room.kept,
            peak_held: room.peak,
            held_full: room.refused,
            xored_bytes: self.shared.pool.xored_bytes(),
            peak_units: self.shared.pool.peak(),
            ..self.shared.counters
        }
    }

    pub(crate) fn free_units(&self) -> usize {
        self.shared.pool.free()
    }

    pub(crate) fn held(&self) -> usize {
        self.shared.room.frames()
    }

    /// When to call [`hold_ended`](Self::hold_ended).
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.shared.deadlines.next_ns()
    }

    /// Returns the frames for the NIC.
    pub(crate) fn handle(&mut self, now_ns: u64, frame: Vec<u8>, data: DataPacket) -> Vec<Vec<u8>> {
        let Some(view) = View::parse(&frame) else {
            return vec![frame];
        };
        let key = StreamKey::new(&view, data.qpn, data.space);
        if self.streams.peek(&key).is_none() {
            return vec![frame];
        }
        if !view.icrc_holds() {
            self.shared.counters.damaged += 1;
            return vec![frame];
        }
        let Some(entry) = self.streams.get(now_ns, &key) else {
            return vec![frame];
        };
        let mut out = Vec::new();
        match &mut entry.kind {
            StreamKind::Ordered(stream) => {
                stream.handle(now_ns, data, frame, &mut self.shared, &mut out);
            }
            StreamKind::Singles(singles) => {
                singles.note(&data, &view, &mut self.shared);
                out.push(frame);
            }
        }
        out
    }

    /// Returns the frames for the NIC.
    pub(crate) fn handle_ack(
        &mut self,
        now_ns: u64,
        frame: Vec<u8>,
        key: StreamKey,
    ) -> Vec<Vec<u8>> {
        if self.streams.peek(&key).is_none() {
            return vec![frame];
        }
        if !View::parse(&frame).is_some_and(|view| view.icrc_holds()) {
            self.shared.counters.damaged += 1;
            return vec![frame];
        }
        let mut out = Vec::new();
        match self.streams.get(now_ns, &key).map(|entry| &mut entry.kind) {
            Some(StreamKind::Ordered(stream)) => {
                stream.handle_ack(now_ns, frame, &mut self.shared, &mut out);
            }
            _ => out.push(frame),
        }
        out
    }

    /// Processes a message of the other box. Returns the frames for the NIC, and the answer to the
    /// other box.
    pub(crate) fn handle_message(
        &mut self,
        now_ns: u64,
        view: &View<'_>,
        message: &LowarMessage<'_>,
        seal: &Seal,
    ) -> (Vec<Vec<u8>>, Option<Vec<u8>>) {
        let key = StreamKey::new(view, message.qpn, message.space);
        let mut out = Vec::new();
        if self.streams.get(now_ns, &key).is_none() {
            self.add(now_ns, key, Source::of(view), message.shape, &mut out);
        }
        let Some(entry) = self.streams.get(now_ns, &key) else {
            self.shared.counters.connections_full += 1;
            return (out, None);
        };
        let (shape, shared) = (message.shape, &mut self.shared);
        match message.body {
            LowarBody::Repair(repair, unit) => {
                shared.counters.repairs_received += 1;
                let repair = (&repair, unit);
                match &mut entry.kind {
                    StreamKind::Ordered(stream) => {
                        stream.repair(now_ns, shape, repair, view, shared, &mut out);
                    }
                    StreamKind::Singles(singles) => {
                        out.extend(singles.repair(shape, repair, view, shared));
                    }
                }
                return (out, None);
            }
            LowarBody::Report(..) => return (out, None),
            LowarBody::Probe(stamp, _) | LowarBody::Announce(stamp, _)
                if !entry.latest.take(now_ns, stamp, self.idle_ns) =>
            {
                return (out, None);
            }
            LowarBody::Probe(_, coded) => match &mut entry.kind {
                _ if coded => {}
                StreamKind::Ordered(stream) => stream.pause(shared, &mut out),
                StreamKind::Singles(singles) => singles.pause(shared),
            },
            LowarBody::Announce(_, base) => match &mut entry.kind {
                StreamKind::Ordered(stream) => stream.announce(base, shape, shared, &mut out),
                StreamKind::Singles(singles) => singles.announce(base, shape, shared),
            },
        }
        self.stamp.serial += 1;
        shared.counters.reports_sent += 1;
        let report = LossReport {
            answers: entry.latest.get(),
            ..entry.report()
        };
        let report = LowarMessage::about(&key, shape, LowarBody::Report(self.stamp, report));
        let answer = seal.wrap(&view.envelope().reversed(), report.emit());
        (out, answer)
    }

    /// Releases frames whose hold time is over. Returns the frames for the NIC.
    pub(crate) fn hold_ended(&mut self, now_ns: u64) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        while let Some(key) = self.shared.deadlines.pop_due(now_ns) {
            let entry = self.streams.peek(&key);
            if let Some(StreamKind::Ordered(stream)) = entry.map(|entry| &mut entry.kind) {
                stream.hold_ended(now_ns, &mut self.shared, &mut out);
            }
        }
        out
    }

    fn add(
        &mut self,
        now_ns: u64,
        key: StreamKey,
        source: Source,
        shape: BlockShape,
        out: &mut Vec<Vec<u8>>,
    ) {
        let kind = match key.space {
            Space::Request | Space::Response => {
                StreamKind::Ordered(OrderedStream::new(key, source, shape))
            }
            Space::Singles => StreamKind::Singles(SinglesStream::new(key, source, shape)),
        };
        let latest = LatestStamp::new(now_ns, Stamp::default());
        let entry = StreamEntry { latest, kind };
        let removed = self.streams.insert(now_ns, key, source, entry);
        for (_, entry) in removed {
            match entry.kind {
                StreamKind::Ordered(stream) => out.extend(stream.release(&mut self.shared)),
                StreamKind::Singles(mut singles) => singles.close(&mut self.shared),
            }
        }
    }
}

impl StreamEntry {
    fn report(&self) -> LossReport {
        match &self.kind {
            StreamKind::Ordered(stream) => stream.report,
            StreamKind::Singles(singles) => singles.report,
        }
    }
}
