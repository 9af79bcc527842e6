//! The destination half (`DstToR`): delivers packets from the network to the NIC in order.
//! [`DestinationFlow`] is the state machine of a flow; this module looks up flows and sends their
//! requests.

use alloc::vec;
use alloc::vec::Vec;

use super::config::Config;
use super::counters::Counters;
use super::flow::{DestinationFlow, FlowShared};
use super::format::{NetRtBody, NetRtMessage};
use crate::Side;
use crate::frame::{Envelope, View};
use crate::message::{LatestStamp, Seal};
use crate::packets::DataPacket;
use crate::reorder::BufferBudget;
use crate::shares::Source;
use crate::streams::{StreamKey, StreamTable};
use crate::timers::Timers;

#[derive(Debug)]
pub(crate) struct Destination {
    config: Config,
    flows: StreamTable<FlowEntry>,
    shared: FlowShared,
    timers: Timers,
    seal: Seal,
}

/// A flow, and the latest information from its source box.
#[derive(Debug)]
struct FlowEntry {
    flow: DestinationFlow,
    /// Stamp of the latest start or mark.
    latest: LatestStamp,
    dscp: u8,
    /// The headers of requests.
    envelope: Envelope,
    timer_ns: Option<u64>,
}

/// The frames to send after an event.
#[derive(Debug, Default)]
pub(crate) struct Emitted {
    /// Frames for the NIC.
    pub(crate) near: Vec<Vec<u8>>,
    /// Requests to the source box.
    pub(crate) far: Vec<Vec<u8>>,
}

impl Emitted {
    fn pass(frame: Vec<u8>) -> Self {
        Self::to_nic(vec![frame])
    }

    fn to_nic(near: Vec<Vec<u8>>) -> Self {
        let far = Vec::new();
        Self { near, far }
    }
}

impl Destination {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            config: config.clone(),
            flows: StreamTable::new(config.max_connections, config.idle_ns, Side::Far),
            shared: FlowShared {
                room: BufferBudget::new(config.max_held),
                repair_ns: 0,
                counters: Counters::default(),
            },
            timers: Timers::default(),
            seal: config.seal(),
        }
    }

    pub(crate) fn counters(&self) -> Counters {
        let room = &self.shared.room;
        Counters {
            held: room.kept,
            peak_held: room.peak,
            peak_held_bytes: room.peak_bytes,
            held_full: room.refused,
            ..self.shared.counters
        }
    }

    pub(crate) fn held(&self) -> usize {
        self.shared.room.frames()
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.shared.room.bytes()
    }

    /// When to call [`due`](Self::due).
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.timers.next_ns()
    }

    pub(crate) fn handle(&mut self, now_ns: u64, mut frame: Vec<u8>, data: DataPacket) -> Emitted {
        let Some(view) = View::parse(&frame) else {
            return Emitted::pass(frame);
        };
        let key = StreamKey::new(&view, data.qpn, data.space);
        if self.flows.peek(&key).is_none() {
            return Emitted::pass(frame);
        }
        if !view.icrc_holds() {
            self.shared.counters.damaged += 1;
            return Emitted::pass(frame);
        }
        let Some(entry) = self.flows.get(now_ns, &key) else {
            return Emitted::pass(frame);
        };
        let repeated = view.dscp() == self.config.repeat_dscp;
        if repeated && entry.flow.is_foreign(data.psn) {
            return Emitted::pass(frame);
        }
        if repeated {
            frame = view.with_dscp(entry.dscp);
        }
        let mut near = Vec::new();
        let shared = &mut self.shared;
        entry
            .flow
            .packet(now_ns, data, frame, repeated, shared, &mut near);
        self.request_and_set_timer(now_ns, key, near)
    }

    /// Processes an acknowledgement to the queue pair of a flow.
    pub(crate) fn handle_ack(&mut self, now_ns: u64, frame: Vec<u8>, key: StreamKey) -> Emitted {
        if self.flows.peek(&key).is_none() {
            return Emitted::pass(frame);
        }
        if !View::parse(&frame).is_some_and(|view| view.icrc_holds()) {
            self.shared.counters.damaged += 1;
            return Emitted::pass(frame);
        }
        let Some(entry) = self.flows.get(now_ns, &key) else {
            return Emitted::pass(frame);
        };
        let mut near = Vec::new();
        entry.flow.ack(now_ns, frame, &mut self.shared, &mut near);
        self.request_and_set_timer(now_ns, key, near)
    }

    /// Processes a message of the source box about a flow.
    pub(crate) fn message(
        &mut self,
        now_ns: u64,
        view: &View<'_>,
        message: &NetRtMessage,
    ) -> Emitted {
        let key = StreamKey::new(view, message.qpn, message.space);
        let mut near = Vec::new();
        let (stamp, dscp, last) = match message.body {
            NetRtBody::Start(stamp, dscp) => (stamp, dscp, None),
            NetRtBody::Mark(stamp, dscp, last) => (stamp, dscp, Some(last)),
            NetRtBody::Request(_) => return Emitted::default(),
            NetRtBody::Notice => {
                if let Some(entry) = self.flows.get(now_ns, &key) {
                    let shared = &mut self.shared;
                    entry.flow.notice(now_ns, message.psn, shared, &mut near);
                }
                return self.request_and_set_timer(now_ns, key, near);
            }
        };
        let Some(entry) = self.flows.get(now_ns, &key) else {
            let latest = LatestStamp::new(now_ns, stamp);
            let source = Source::of(view);
            let entry = FlowEntry::new(view, source, message.psn, latest, dscp);
            self.add(now_ns, key, source, entry, &mut near);
            return Emitted::to_nic(near);
        };
        if !entry.latest.take(now_ns, stamp, self.config.idle_ns) {
            return Emitted::default();
        }
        entry.dscp = dscp;
        entry.envelope = view.envelope().reversed();
        match last {
            Some(last) => entry.flow.mark(now_ns, message.psn, last, &self.config),
            None => entry.flow.start(message.psn, &mut self.shared, &mut near),
        }
        self.request_and_set_timer(now_ns, key, near)
    }

    /// Sends the requests that are due, and ends the hold times that are over.
    pub(crate) fn due(&mut self, now_ns: u64) -> Vec<Emitted> {
        let mut emitted = Vec::new();
        while let Some(key) = self.timers.pop_due(now_ns) {
            if let Some(entry) = self.flows.peek(&key) {
                entry.timer_ns = None;
                emitted.push(self.request_and_set_timer(now_ns, key, Vec::new()));
            }
        }
        emitted
    }

    fn request_and_set_timer(
        &mut self,
        now_ns: u64,
        key: StreamKey,
        mut near: Vec<Vec<u8>>,
    ) -> Emitted {
        let Some(entry) = self.flows.peek(&key) else {
            return Emitted::to_nic(near);
        };
        let (config, shared) = (&self.config, &mut self.shared);
        let mut far = Vec::new();
        while let Some((psn, request)) = entry.flow.due(now_ns, config, shared, &mut near) {
            shared.counters.requests_sent += 1;
            let envelope = entry.envelope.clone().with_dscp(config.repeat_dscp);
            let message = NetRtMessage::about(&key, psn, NetRtBody::Request(request));
            far.extend(self.seal.wrap(&envelope, message.emit()));
        }
        let next_ns = entry.flow.next_ns(config);
        self.timers.set(key, &mut entry.timer_ns, next_ns);
        Emitted { near, far }
    }

    fn add(
        &mut self,
        now_ns: u64,
        key: StreamKey,
        source: Source,
        entry: FlowEntry,
        near: &mut Vec<Vec<u8>>,
    ) {
        for (key, mut removed) in self.flows.insert(now_ns, key, source, entry) {
            self.timers.set(key, &mut removed.timer_ns, None);
            removed.flow.flush(&mut self.shared, near);
        }
        if self.flows.peek(&key).is_none() {
            self.shared.counters.connections_full += 1;
        }
    }
}

impl FlowEntry {
    /// A flow whose next packet has this PSN.
    fn new(view: &View<'_>, source: Source, psn: u32, latest: LatestStamp, dscp: u8) -> Self {
        Self {
            flow: DestinationFlow::new(source, psn),
            latest,
            dscp,
            envelope: view.envelope().reversed(),
            timer_ns: None,
        }
    }
}
